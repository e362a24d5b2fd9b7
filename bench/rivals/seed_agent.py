"""The agent with the obvious index: tasks by `status` and `createdAt`, all attributes copied into the index.

    python -m bench.rivals.seed_agent --endpoint URL --table NAME [--batch 10]

A process that asks the index for the oldest PENDING tasks, claims each with a conditional write, runs it, and writes
its end back: three requests for a task that succeeds, and a query for each batch. Where the description leaves room it
gets the faster reading: no pause at all after a full batch (with the pause of a second that it describes, ten tasks a
second would be the most a process can do), one second after any other batch, five after none.
"""

from __future__ import annotations

import argparse
import signal
import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any

from botocore.exceptions import ClientError

from thunder.local.aws import client

INDEX = "status-createdAt-index"
LOCK_SECONDS = 300
BUSY_SECONDS, IDLE_SECONDS = 1.0, 5.0
NO_LOCK = 0  # a comparison with an attribute that is not there is false: an unclaimed task has a lock in the past

Item = Mapping[str, Any]


def create_table(dynamodb: Any, table: str) -> None:
    dynamodb.create_table(
        TableName=table,
        BillingMode="PAY_PER_REQUEST",
        KeySchema=[{"AttributeName": "taskId", "KeyType": "HASH"}],
        AttributeDefinitions=[
            {"AttributeName": "taskId", "AttributeType": "S"},
            {"AttributeName": "status", "AttributeType": "S"},
            {"AttributeName": "createdAt", "AttributeType": "N"},
        ],
        GlobalSecondaryIndexes=[
            {
                "IndexName": INDEX,
                "KeySchema": [
                    {"AttributeName": "status", "KeyType": "HASH"},
                    {"AttributeName": "createdAt", "KeyType": "RANGE"},
                ],
                "Projection": {"ProjectionType": "ALL"},
            }
        ],
    )


def new_item(task_id: str, work: str, pad: str, *, max_retries: int, now: float) -> Item:
    return {
        "taskId": {"S": task_id},
        "status": {"S": "PENDING"},
        "payload": {"M": {"work": {"S": work}, "pad": {"S": pad}}},
        "retryCount": {"N": "0"},
        "maxRetryNumber": {"N": str(max_retries)},
        "lockTime": {"N": str(NO_LOCK)},
        "createdAt": {"N": f"{now:.3f}"},
        "updatedAt": {"N": f"{now:.3f}"},
    }


class Failed(Exception):
    """The work did not succeed this time."""


def run(item: Item) -> None:
    """Raises Failed."""
    work, retries = item["payload"]["M"]["work"]["S"], int(item["retryCount"]["N"])
    if work == "never" or (work == "once" and retries == 0):
        raise Failed(f"{work}: attempt {retries + 1}")


@dataclass(frozen=True)
class SeedAgent:
    """One process's loop over one table."""

    dynamodb: Any
    table: str
    batch: int = 10

    def work(self, stop: Callable[[], bool]) -> None:
        while not stop():
            items = self.oldest()
            for item in items:
                self.process(item)
            if len(items) < self.batch:
                time.sleep(BUSY_SECONDS if items else IDLE_SECONDS)

    def oldest(self) -> list[Item]:
        answer = self.dynamodb.query(
            TableName=self.table,
            IndexName=INDEX,
            KeyConditionExpression="#status = :pending",
            ExpressionAttributeNames={"#status": "status"},
            ExpressionAttributeValues={":pending": {"S": "PENDING"}},
            Limit=self.batch,
        )
        found: list[Item] = answer["Items"]
        return found

    def process(self, item: Item) -> None:
        if not self.claim(item):
            return
        try:
            run(item)
        except Failed as failure:
            self.end_failed(item, str(failure))
        else:
            self.end(item, "SUCCESS", result={"S": "null"})

    def claim(self, item: Item) -> bool:
        """False: another agent was faster."""
        now = time.time()
        try:
            self.dynamodb.update_item(
                TableName=self.table,
                Key={"taskId": item["taskId"]},
                UpdateExpression="SET #status = :running, lockTime = :lock, updatedAt = :now",
                ConditionExpression="#status = :pending AND lockTime < :now",
                ExpressionAttributeNames={"#status": "status"},
                ExpressionAttributeValues={
                    ":running": {"S": "RUNNING"},
                    ":pending": {"S": "PENDING"},
                    ":lock": {"N": f"{now + LOCK_SECONDS:.3f}"},
                    ":now": {"N": f"{now:.3f}"},
                },
            )
        except ClientError as error:
            if error.response["Error"]["Code"] == "ConditionalCheckFailedException":
                return False
            raise
        return True

    def end_failed(self, item: Item, message: str) -> None:
        retries = int(item["retryCount"]["N"])
        if retries < int(item["maxRetryNumber"]["N"]):
            self.end(item, "PENDING", retryCount={"N": str(retries + 1)}, lockTime={"N": str(NO_LOCK)})
        else:
            self.end(item, "FAILED", error={"S": message})

    def end(self, item: Item, status: str, **more: Any) -> None:
        """Without a condition, as described: whoever lost its lock overwrites who took it over."""
        values = {"status": {"S": status}, "updatedAt": {"N": f"{time.time():.3f}"}, **more}
        removal = "" if "lockTime" in more else " REMOVE lockTime"
        self.dynamodb.update_item(
            TableName=self.table,
            Key={"taskId": item["taskId"]},
            UpdateExpression="SET " + ", ".join(f"#{name} = :{name}" for name in values) + removal,
            ExpressionAttributeNames={f"#{name}": name for name in values},
            ExpressionAttributeValues={f":{name}": value for name, value in values.items()},
        )


def main() -> None:
    parser = argparse.ArgumentParser(prog="bench.rivals.seed_agent", description="The agent with the obvious index.")
    parser.add_argument("--endpoint", required=True)
    parser.add_argument("--table", required=True)
    parser.add_argument("--batch", type=int, default=10)
    given = parser.parse_args()
    told: list[int] = []
    signal.signal(signal.SIGTERM, lambda number, frame: told.append(number))
    agent = SeedAgent(client("dynamodb", given.endpoint), given.table, given.batch)
    print("ready", flush=True)
    agent.work(lambda: bool(told))


if __name__ == "__main__":
    main()
