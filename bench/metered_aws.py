"""The embedded AWS with a meter on what is billed. A script, run in the place of `thunder/local/emulator.py`.

It counts what every request consumed by AWS's published rules, whoever sent it and whether or not it asked: write units
by table and kind of item, read units by table, requests by table and operation, requests to SQS, and by function
invocations, milliseconds and log bytes. The embedded AWS itself tells read units of one item only, and none of refused
writes.

The figures are read like an item: GetItem on the table `bench-meter`. Nothing of ours is imported: it runs under the
interpreter of `.venv/embedded`, whose environment the Lambda functions inherit.
"""

from __future__ import annotations

import json
import runpy
import threading
import time
from collections import Counter
from importlib import import_module
from pathlib import Path
from types import ModuleType
from typing import Any

EMULATOR = Path(__file__).resolve().parent.parent / "thunder" / "local" / "emulator.py"
METER_TABLE = "bench-meter"
READ_UNIT_BYTES = 4096
WRITE_UNIT_BYTES = 1024
QUEUE_REQUEST_BYTES = 65_536  # SQS bills a request for every 64 KiB of payload
QUEUE_BATCH = 10
KEY_BYTES = 100  # of an index entry that a count passes over: it is not in the answer
PLATFORM_LOG_BYTES = 350  # START, END and REPORT of one invocation, with CloudWatch's 26 bytes for each line
ITEM_OPERATIONS = ("PutItem", "UpdateItem", "DeleteItem", "GetItem", "Query", "Scan")


def main() -> None:
    app = import_module("ministack.app")
    dynamodb = import_module("ministack.services.dynamodb")
    reckon, serve = dynamodb._add_consumed_capacity, app.main

    def serve_metered() -> None:
        """Only now are the emulator's own changes in place: the meter goes around them."""
        meter = Meter()
        DynamoDBMeter(dynamodb, reckon, meter).install()
        measure_queues(import_module("ministack.services.sqs"), meter)
        measure_functions(import_module("ministack.services.lambda_svc"), meter)
        serve()

    app.main = serve_metered
    runpy.run_path(str(EMULATOR), run_name="__main__")


class Meter:
    """Sums by name; thread-safe."""

    def __init__(self) -> None:
        self._sums: Counter[str] = Counter()
        self._lock = threading.Lock()

    def add_all(self, sums: dict[str, float]) -> None:
        with self._lock:
            for name, number in sums.items():
                self._sums[name] += number

    def set(self, name: str, value: float) -> None:
        with self._lock:
            self._sums[name] = value

    def as_json(self) -> str:
        with self._lock:
            return json.dumps(self._sums)


class DynamoDBMeter:
    """Stands around ministack's handlers, one for each operation, and around its reckoning of single items."""

    def __init__(self, dynamodb: ModuleType, reckon: Any, meter: Meter) -> None:
        self._dynamodb = dynamodb
        self._reckon = reckon
        self._meter = meter

    def install(self) -> None:
        dynamodb = self._dynamodb
        dynamodb._add_consumed_capacity = self._around_reckoning(dynamodb._add_consumed_capacity)  # type: ignore[attr-defined]
        for operation in ITEM_OPERATIONS:
            name = _handler_name(operation)
            setattr(dynamodb, name, self._counted(operation, getattr(dynamodb, name)))
        for operation in ("BatchWriteItem", "TransactWriteItems"):
            name = _handler_name(operation)
            setattr(dynamodb, name, self._asked(operation, getattr(dynamodb, name)))
        dynamodb._batch_get_item = self._batch_get(dynamodb._batch_get_item)  # type: ignore[attr-defined]

    def _counted(self, operation: str, handler: Any) -> Any:
        def handle(data: dict[str, Any]) -> Any:
            table = str(data.get("TableName"))
            if table == METER_TABLE:
                return self._dynamodb.json_response({"Item": {"figures": {"S": self._meter.as_json()}}})
            answer = handler(data)
            self._meter.add_all({f"calls/{table}/{operation}": 1})
            if answer[0] != 200 and ("Key" in data or "Item" in data):
                self._refused(table, data)
            return answer

        return handle

    def _refused(self, table_name: str, data: dict[str, Any]) -> None:
        """A write refused by its condition consumes the units of the item that stands there, at least one."""
        table = self._dynamodb._tables.get(table_name)
        if table is None or "ConditionExpression" not in data:
            return
        item = self._dynamodb._get_item_by_key(table, data.get("Key") or data["Item"])
        size = self._dynamodb._item_size_bytes(item) if item else 1
        units = -(-size // WRITE_UNIT_BYTES)
        self._meter.add_all({f"refused/{table_name}": 1, f"writes/{table_name}/refused": units})

    def _around_reckoning(self, inner: Any) -> Any:
        def reckon(
            result: dict[str, Any], data: dict[str, Any], table_name: str, write: bool = False, **more: Any
        ) -> None:
            inner(result, data, table_name, write=write, **more)
            if not write:
                self._read(result, data, table_name)
                return
            asked: dict[str, Any] = {}
            self._reckon(asked, {"ReturnConsumedCapacity": "TOTAL"}, table_name, write=True, **more)
            old, new = more.get("old_item"), more.get("new_item")
            name = f"writes/{table_name}/{_kind_of(new or old or {})}"
            self._meter.add_all({name: asked["ConsumedCapacity"]["CapacityUnits"]})
            self._status(table_name, old, new)

        return reckon

    def _status(self, table_name: str, old: dict[str, Any] | None, new: dict[str, Any] | None) -> None:
        """Counts changes of status, so that nobody has to read the table to know how far a queue is."""
        before, after = (((item or {}).get("status") or {}).get("S") for item in (old, new))
        if after is not None and before != after:
            self._meter.add_all({f"became/{table_name}/{after}": 1})
            self._meter.set(f"last/{table_name}/{after}", time.time())

    def _read(self, result: dict[str, Any], data: dict[str, Any], table_name: str) -> None:
        items = result.get("Items", [result["Item"]] if "Item" in result else [])
        size = sum(map(self._dynamodb._item_size_bytes, items)) or KEY_BYTES * result.get("ScannedCount", 0)
        self._meter.add_all({f"reads/{table_name}": _read_units(size, data.get("ConsistentRead"))})

    def _batch_get(self, handler: Any) -> Any:
        """Each item is rounded up by itself, whole, whatever the projection."""

        def handle(data: dict[str, Any]) -> Any:
            for table_name, wanted in data.get("RequestItems", {}).items():
                table = self._dynamodb._tables.get(table_name)
                found = [self._dynamodb._get_item_by_key(table, key) for key in wanted.get("Keys", [])] if table else []
                sizes = [self._dynamodb._item_size_bytes(item) if item else 0 for item in found]
                units = sum(_read_units(size, wanted.get("ConsistentRead")) for size in sizes)
                self._meter.add_all({f"calls/{table_name}/BatchGetItem": 1, f"reads/{table_name}": units})
            return handler(data)

        return handle

    def _asked(self, operation: str, handler: Any) -> Any:
        def handle(data: dict[str, Any]) -> Any:
            answer = handler({**data, "ReturnConsumedCapacity": "TOTAL"})
            consumed = json.loads(answer[2]).get("ConsumedCapacity", []) if answer[0] == 200 else []
            for each in consumed:
                table = each["TableName"]
                self._meter.add_all(
                    {f"calls/{table}/{operation}": 1, f"writes/{table}/{operation}": each["CapacityUnits"]}
                )
            return answer

        return handle


def measure_queues(sqs: ModuleType, meter: Meter) -> None:
    """Requests of clients, and those that Lambda's own pollers would send: one receive and one deletion a batch.

    Receives that find nothing are not counted: how many there are depends on the idle time, not on the messages.
    """
    handle, receive, delete = sqs._handle_json, sqs._receive_messages_for_esm, sqs._delete_messages_for_esm

    async def handle_measured(action: str, data: dict[str, Any], path: str) -> Any:
        bodies = [data.get("MessageBody", "")] + [entry.get("MessageBody", "") for entry in data.get("Entries", [])]
        meter.add_all({f"sqs/{action}": _queue_requests(bodies) if action.startswith("Send") else 1})
        return await handle(action, data, path)

    def receive_measured(queue_url: str, max_number: int) -> Any:
        batch = receive(queue_url, max_number)
        for first in range(0, len(batch), QUEUE_BATCH):
            bodies = [message["body"] for message in batch[first : first + QUEUE_BATCH]]
            meter.add_all({"sqs/ReceiveMessage": _queue_requests(bodies)})
        return batch

    def delete_measured(queue_url: str, receipt_handles: set[str]) -> None:
        meter.add_all({"sqs/DeleteMessageBatch": -(-len(receipt_handles) // QUEUE_BATCH)})
        delete(queue_url, receipt_handles)

    sqs._handle_json = handle_measured  # type: ignore[attr-defined]
    sqs._receive_messages_for_esm = receive_measured  # type: ignore[attr-defined]
    sqs._delete_messages_for_esm = delete_measured  # type: ignore[attr-defined]


def measure_functions(functions: ModuleType, meter: Meter) -> None:
    """An invocation is counted where its log is written: whoever invoked, it ends there."""
    write_log = functions._emit_lambda_logs

    def write_measured(
        function: dict[str, Any], request_id: str, text: str, error: bool, duration_ms: int, **more: Any
    ) -> None:
        write_log(function, request_id, text, error, duration_ms, **more)
        name = (function.get("config") or function).get("FunctionName", "unknown")
        size = len((text or "").encode()) + PLATFORM_LOG_BYTES
        meter.add_all({f"invocations/{name}": 1, f"ms/{name}": duration_ms, f"logBytes/{name}": size})

    functions._emit_lambda_logs = write_measured  # type: ignore[attr-defined]


def _kind_of(item: dict[str, Any]) -> str:
    """`task`, or what the id of another item begins with: `lease#…`, `payload#…`."""
    kind, divided, _ = str((item.get("taskId") or {}).get("S", "")).partition("#")
    return kind if divided else "task"


def _handler_name(operation: str) -> str:
    return "_" + "".join(f"_{c.lower()}" if c.isupper() else c for c in operation).lstrip("_")


def _read_units(size: int, consistent: bool | None) -> float:
    return max(1, -(-size // READ_UNIT_BYTES)) * (1.0 if consistent else 0.5)


def _queue_requests(bodies: list[str]) -> int:
    return max(1, -(-sum(len(body.encode()) for body in bodies) // QUEUE_REQUEST_BYTES))


if __name__ == "__main__":
    main()
