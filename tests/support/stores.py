"""The stores the protocol is held against: the metering fake, moto, and the embedded AWS. One bare table each."""

from __future__ import annotations

import signal
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from tests.support.fakes import FakeClock, FakeRandomness
from tests.support.memory_dynamodb import MemoryDynamoDB
from thunder.local import aws
from thunder.local.aws import EmbeddedAws
from thunder.local.checkout import Checkout
from thunder.local.processes import end
from thunder.local.state import StateDir
from thunderagent.clock import SystemClock
from thunderagent.codec import Item, from_item, to_item
from thunderagent.direct import Endpoint, direct_send
from thunderagent.errors import OutcomeUnknown
from thunderagent.schema import INDEX_HASH, INDEX_NAME, INDEX_RANGE, TABLE_KEY, Layout
from thunderagent.sigv4 import Keys
from thunderagent.store import Send, Store
from thunderagent.transport import boto_client, boto_send

TABLE = "tasks"
REGION = "us-east-1"

Raw = Mapping[str, Any]


class Backend:
    """One table behind one `send`, and a way past the library to put and read its items."""

    def __init__(self, name: str, send: Send, *, table: str = TABLE, endpoint: str | None = None) -> None:
        self.name = name
        self.send = send
        self.table = table
        self.endpoint = endpoint

    def put(self, item: Item) -> None:
        self.send("PutItem", {"TableName": self.table, "Item": to_item(item)})

    def put_raw(self, item: Raw) -> None:
        self.send("PutItem", {"TableName": self.table, "Item": item})

    def remove(self, item_id: str) -> None:
        self.send("DeleteItem", {"TableName": self.table, "Key": {TABLE_KEY: {"S": item_id}}})

    def raw(self, item_id: str) -> Raw | None:
        """The stored item in DynamoDB's form, for byte-for-byte comparisons."""
        key = {TABLE_KEY: {"S": item_id}}
        found: Raw | None = self.send("GetItem", {"TableName": self.table, "Key": key, "ConsistentRead": True}).get(
            "Item"
        )
        return found

    def item(self, item_id: str) -> Item | None:
        raw = self.raw(item_id)
        return None if raw is None else from_item(raw)

    def store(self, send: Send | None = None, *, layout: Layout | None = None, clock: FakeClock | None = None) -> Store:
        """The library's store over this table; `send` stands between the two."""
        return Store(
            table=self.table,
            send=send or self.send,
            clock=clock or FakeClock(),
            randomness=FakeRandomness(),
            layout=layout or Layout(),
        )


def memory_backend() -> Backend:
    return Backend("memory", MemoryDynamoDB(TABLE))


@contextmanager
def moto_backend() -> Iterator[Backend]:
    """moto inside this process. Single-threaded use only: its conditional writes are not atomic across threads."""
    from moto import mock_aws

    with mock_aws():
        client = boto_client("dynamodb", region=REGION)
        create_table(client)
        yield Backend("moto", boto_send(client))
        client.close()


@contextmanager
def embedded_backend(directory: Path) -> Iterator[Backend]:
    """The embedded AWS, started in `directory` and ended afterwards."""
    state = StateDir(directory)
    state.create()
    started: list[EmbeddedAws] = []
    previous = signal.signal(signal.SIGTERM, _leave)
    try:
        running = aws.start(Checkout.of_this_installation(), state, started.append)
        client = embedded_client(running.endpoint)
        create_table(client)
        yield Backend("embedded", boto_send(client), endpoint=running.endpoint)
        client.close()
    finally:
        signal.signal(signal.SIGTERM, previous)
        for each in started:
            end(each.child)


def directly(backend: Backend) -> Backend:
    """The embedded AWS's table over the direct transport."""
    keys = FixedKeys(aws.ACCESS_KEY_ID, aws.SECRET_ACCESS_KEY)
    endpoint = Endpoint(str(backend.endpoint), service="dynamodb", region=REGION, keys=keys, clock=SystemClock())
    return Backend("embedded, directly", direct_send(endpoint), table=backend.table, endpoint=backend.endpoint)


class FixedKeys:
    """Keys that no environment says."""

    def __init__(self, access_key_id: str, secret_access_key: str) -> None:
        self._keys = Keys(access_key_id, secret_access_key)

    def keys(self) -> Keys:
        return self._keys

    def renewed(self, refused: Keys) -> bool:
        return False


def _leave(number: int, frame: object) -> None:
    """A test run that is told to end ends its embedded AWS too: that one has left its process group."""
    raise SystemExit(128 + number)


def embedded_client(endpoint: str) -> Any:
    """A client that sends once, as the functions have it, to the embedded AWS as its root user."""
    return boto_client(
        "dynamodb",
        region=REGION,
        endpoint_url=endpoint,
        aws_access_key_id=aws.ACCESS_KEY_ID,
        aws_secret_access_key=aws.SECRET_ACCESS_KEY,
    )


def create_table(client: Any, table: str = TABLE) -> None:
    """The table's real key schema, without what the protocol does not depend on."""
    client.create_table(
        TableName=table,
        BillingMode="PAY_PER_REQUEST",
        KeySchema=[{"AttributeName": TABLE_KEY, "KeyType": "HASH"}],
        AttributeDefinitions=[
            {"AttributeName": TABLE_KEY, "AttributeType": "S"},
            {"AttributeName": INDEX_HASH, "AttributeType": "S"},
            {"AttributeName": INDEX_RANGE, "AttributeType": "N"},
        ],
        GlobalSecondaryIndexes=[
            {
                "IndexName": INDEX_NAME,
                "KeySchema": [
                    {"AttributeName": INDEX_HASH, "KeyType": "HASH"},
                    {"AttributeName": INDEX_RANGE, "KeyType": "RANGE"},
                ],
                "Projection": {"ProjectionType": "KEYS_ONLY"},
            }
        ],
    )


# ---- between the library and the store ------------------------------------------------------------------------------

WRITES = frozenset({"PutItem", "UpdateItem", "DeleteItem", "TransactWriteItems"})
Where = Callable[[str, Mapping[str, Any]], bool]


def every_write(operation: str, arguments: Mapping[str, Any]) -> bool:
    return operation in WRITES


class LosesReplies:
    """Forwards every request, then loses the answer of the first `times` matching ones: applied, and not known."""

    def __init__(self, send: Send, *, times: int = 1, where: Where = every_write) -> None:
        self._send = send
        self._where = where
        self.times = times
        self.lost: list[str] = []

    def __call__(self, operation: str, arguments: Mapping[str, Any]) -> Mapping[str, Any]:
        answer = self._send(operation, arguments)
        if self.times > 0 and self._where(operation, arguments):
            self.times -= 1
            self.lost.append(operation)
            raise OutcomeUnknown(operation, "ReadTimeoutError", "the answer was lost")
        return answer


class Metered:
    """Adds up what the store says each write consumed."""

    def __init__(self, send: Send) -> None:
        self._send = send
        self._units = 0.0

    def __call__(self, operation: str, arguments: Mapping[str, Any]) -> Mapping[str, Any]:
        answer = self._send(operation, {**arguments, "ReturnConsumedCapacity": "TOTAL"})
        if operation in WRITES:
            consumed = answer["ConsumedCapacity"]
            self._units += sum(
                each["CapacityUnits"] for each in (consumed if isinstance(consumed, list) else [consumed])
            )
        return answer

    def take(self) -> float:
        """Write units since the last take."""
        taken, self._units = self._units, 0.0
        return taken


class SendsTwice:
    """An SDK that lost the first answer and repeated the request on its own: the library sees the second one only."""

    def __init__(self, send: Send, *, where: Where = every_write) -> None:
        self._send = send
        self._where = where

    def __call__(self, operation: str, arguments: Mapping[str, Any]) -> Mapping[str, Any]:
        if self._where(operation, arguments):
            self._send(operation, arguments)
        return self._send(operation, arguments)
