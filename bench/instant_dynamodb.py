"""A DynamoDB that answers at once whatever it is asked, in a process of its own: what is left to measure is the client.

    python -m bench.instant_dynamodb

Prints its port and serves until its input ends. A write that asks for the new item gets a lease or a RUNNING task; a
read of many gets the tasks it asks for, PENDING to those who look and RUNNING to those who read consistently; a query
of open tasks gets a hundred keys; all else is empty. Lambda's asynchronous invoke and EventBridge's events are taken.
"""

from __future__ import annotations

import json
import re
import socket
import sys
import threading
import zlib
from collections.abc import Sequence
from functools import lru_cache
from typing import Any

from bench.small_task import small_task
from thunderagent.codec import to_item
from thunderagent.schema import Layout

TASK = {
    **small_task(
        "t0",
        type="report.generate",
        payload=json.dumps({"region": "eu", "year": 2012, "note": "x" * 100}),
        now=1_700_000_000.123,
        layout=Layout(shards=1),
    ),
    "traceparent": "00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01",
}
CLAIMED = {"status": "RUNNING", "leaseToken": "a" * 32, "lockTime": 4_000_000_300.123, "owner": "b" * 8, "fence": 1}
LEASE = {"profile": "default", "lockTime": 4_000_000_300.123, "dueAt": 4_000_000_300.123, "taskIds": ["t0", "t1"]}
TABLE = "tasks"
CONSISTENT = re.compile(rb'"ConsistentRead": ?true')
IDS = re.compile(rb'"taskId": ?\{"S": ?"([^"]+)"')
OPEN = re.compile(rb'"OPEN#default#normal#0"')


def main() -> None:
    listening = socket.create_server(("127.0.0.1", 0))
    print(listening.getsockname()[1], flush=True)
    threading.Thread(target=_accept, args=(listening,), daemon=True).start()
    sys.stdin.read()


def _accept(listening: socket.socket) -> None:
    while True:
        connection, _ = listening.accept()
        connection.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        threading.Thread(target=_serve, args=(connection,), daemon=True).start()


def _serve(connection: socket.socket) -> None:
    read = b""
    while True:
        while (end := read.find(b"\r\n\r\n")) < 0:
            if not (part := connection.recv(65_536)):
                return
            read += part
        head = read[:end].lower()
        length = int(head.partition(b"content-length:")[2].partition(b"\r\n")[0] or 0)
        while len(read) < end + 4 + length:
            read += connection.recv(65_536)
        body, read = read[end + 4 : end + 4 + length], read[end + 4 + length :]
        connection.sendall(_answer_to(head, body))


def _answer_to(head: bytes, body: bytes) -> bytes:
    if b"/invocations" in head:
        return ACCEPTED
    if b".updateitem" in head and b"ALL_NEW" in body:
        return _updated(IDS.findall(body)[0])
    if b".batchgetitem" in head:
        return _read(tuple(IDS.findall(body)), held=CONSISTENT.search(body) is not None)
    if b".query" in head and OPEN.search(body):
        return PAGE
    return PUT_EVENTS if b".putevents" in head else PLAIN


def _http(answer: Any, status: str = "200 OK") -> bytes:
    """As DynamoDB sends it."""
    body = b"" if answer is None else json.dumps(answer, separators=(",", ":")).encode()
    head = (
        f"HTTP/1.1 {status}\r\nServer: Server\r\nDate: Mon, 30 Nov 2026 04:00:00 GMT\r\n"
        f"Content-Type: application/x-amz-json-1.0\r\nContent-Length: {len(body)}\r\nConnection: keep-alive\r\n"
        f"x-amzn-RequestId: 5BCHTKRJ9VLMGPOGU0MFCD81IVVV4KQNSO5AEMVJF66Q9ASUAAJG\r\n"
        f"x-amz-crc32: {zlib.crc32(body)}\r\n\r\n"
    )
    return head.encode() + body


@lru_cache(maxsize=1000)
def _updated(item_id: bytes) -> bytes:
    item = LEASE if item_id.startswith(b"lease#") else {**TASK, **CLAIMED}
    return _http({"Attributes": to_item({**item, "taskId": item_id.decode()}), "ConsumedCapacity": _UNITS})


@lru_cache(maxsize=1000)
def _read(ids: Sequence[bytes], *, held: bool) -> bytes:
    fields = {**TASK, **(CLAIMED if held else {})}
    tasks = [to_item({**fields, "taskId": each.decode()}) for each in ids if each.startswith(b"t")]
    return _http({"Responses": {TABLE: tasks}, "UnprocessedKeys": {}, "ConsumedCapacity": [_UNITS]})


_UNITS = {"TableName": TABLE, "CapacityUnits": 1.0}
KEYS = [
    {"taskId": {"S": f"t{n}"}, **to_item({"dispatchKey": TASK["dispatchKey"], "dueAt": TASK["dueAt"]})}
    for n in range(100)
]
PLAIN = _http({"ConsumedCapacity": _UNITS})
PAGE = _http({"Items": KEYS, "Count": 100, "ScannedCount": 100, "ConsumedCapacity": _UNITS})
PUT_EVENTS = _http({"FailedEntryCount": 0, "Entries": [{"EventId": "e"}]})
ACCEPTED = _http(None, "202 Accepted")


if __name__ == "__main__":
    main()
