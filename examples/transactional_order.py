"""An order row and its task, written together or not at all: `make up`, `python -m examples.transactional_order`."""

from typing import Any

from botocore.exceptions import ClientError

from examples.stack import RECORD, LocalStack
from thunder.local.aws import client
from thunderagent import transact_submit
from thunderagent.client import NewTask

ORDERS = "example-orders"


class OrderExists(Exception):
    """An order of this number was placed before; neither a row nor a task was added."""


def place_order(dynamodb: Any, *, orders: str, tasks: str, number: int) -> str:
    """Write an order and the task that confirms it, in one transaction. Returns the task's id. Raises OrderExists."""
    entries = transact_submit(tasks, NewTask("demo.echo", {"order": number}, {"task_id": f"order-{number}"}))
    order = {
        "TableName": orders,
        "Item": {"id": {"S": str(number)}, "status": {"S": "placed"}},
        "ConditionExpression": "attribute_not_exists(id)",
    }
    try:
        dynamodb.transact_write_items(TransactItems=[{"Put": order}, *entries])
    except ClientError as error:
        if error.response["Error"]["Code"] != "TransactionCanceledException":
            raise
        raise OrderExists(f"order {number}") from error
    return entries.task_ids[0]


def create_orders(dynamodb: Any, name: str) -> None:
    """The shop's own table, if it is not there yet."""
    try:
        dynamodb.create_table(
            TableName=name,
            KeySchema=[{"AttributeName": "id", "KeyType": "HASH"}],
            AttributeDefinitions=[{"AttributeName": "id", "AttributeType": "S"}],
            BillingMode="PAY_PER_REQUEST",
        )
    except dynamodb.exceptions.ResourceInUseException:
        return


def main() -> None:
    """Place an order, and once more in vain."""
    stack = LocalStack.of_record(RECORD)
    dynamodb = client("dynamodb", stack.endpoint)
    create_orders(dynamodb, ORDERS)
    for _ in range(2):
        try:
            print("placed, its task is", place_order(dynamodb, orders=ORDERS, tasks=stack.table_name, number=7))
        except OrderExists as error:
            print(f"{error} was placed before: no second row, no second task")


if __name__ == "__main__":
    main()
