"""The table of a running stack, past its API."""

from __future__ import annotations

from tests.support.local_stack import UpStack
from thunderagent.clock import SystemClock, SystemRandomness
from thunderagent.schema import Layout
from thunderagent.store import Store
from thunderagent.transport import boto_client, boto_send


def store_of(stack: UpStack) -> Store:
    """The library's store over the stack's table, with the rights of its root user."""
    record = stack.record
    client = boto_client(
        "dynamodb",
        region=record["region"],
        endpoint_url=record["endpoint"],
        aws_access_key_id=record["accessKeyId"],
        aws_secret_access_key=record["secretAccessKey"],
    )
    return Store(
        table=record["tableName"],
        send=boto_send(client),
        clock=SystemClock(),
        randomness=SystemRandomness(),
        layout=Layout(),
    )
