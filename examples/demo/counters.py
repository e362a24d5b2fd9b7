"""Counters in the task table: the judge of how often something really ran."""

import functools
import os
import threading
import time
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from mypy_boto3_dynamodb.client import DynamoDBClient

LIFE_SECONDS = 7 * 24 * 3600

_building = threading.Lock()


def add_one(key: str, *, part: str | None = None) -> int:
    """Add one to `count` of the item `counter#<key>`, and to its attribute `part` in the same write, if one is named.

    Returns the new count. Not idempotent, on purpose: every call counts. The item is removed a week after its first.
    """
    names = {"#count": "count", "#expires": "expiresAt"} | ({"#part": part} if part else {})
    answer = _dynamodb().update_item(
        TableName=os.environ["TABLE_NAME"],
        Key={"taskId": {"S": f"counter#{key}"}},
        UpdateExpression=f"ADD #count :one{', #part :one' if part else ''} "
        "SET #expires = if_not_exists(#expires, :expires)",
        ExpressionAttributeNames=names,
        ExpressionAttributeValues={":one": {"N": "1"}, ":expires": {"N": str(int(time.time()) + LIFE_SECONDS)}},
        ReturnValues="UPDATED_NEW",
    )
    return int(answer["Attributes"]["count"]["N"])


def counted(key: str) -> int:
    """What `count` of the item `counter#<key>` is; 0 where nobody has counted."""
    answer = _dynamodb().get_item(
        TableName=os.environ["TABLE_NAME"], Key={"taskId": {"S": f"counter#{key}"}}, ConsistentRead=True
    )
    return int(answer.get("Item", {}).get("count", {"N": "0"})["N"])


def one_more(key: str, *, part: str) -> dict[str, Any]:
    """The entry of a transaction that adds one to the attribute `part` of the item `counter#<key>`."""
    return {
        "Update": {
            "TableName": os.environ["TABLE_NAME"],
            "Key": {"taskId": {"S": f"counter#{key}"}},
            "UpdateExpression": "ADD #part :one",
            "ExpressionAttributeNames": {"#part": part},
            "ExpressionAttributeValues": {":one": {"N": "1"}},
        }
    }


def _dynamodb() -> "DynamoDBClient":
    """One client per process. Building one is not thread-safe in boto3, using one is."""
    with _building:
        return _client()


@functools.cache
def _client() -> "DynamoDBClient":
    """Sends each call once: a retry after a lost reply would count twice, and this counter has to be believed."""
    import boto3
    from botocore.config import Config

    return boto3.client("dynamodb", config=Config(retries={"total_max_attempts": 1}, max_pool_connections=32))
