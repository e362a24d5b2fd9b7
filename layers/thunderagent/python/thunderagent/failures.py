"""The failure destination: what could not be recorded goes there with its key, and operators hear of it."""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping
from typing import Any

from thunderagent.errors import StoreError
from thunderagent.stream import key_of
from thunderagent.telemetry import Observer

MESSAGE_BYTES = 250_000  # SQS took 256 KiB for years, and some queues still do

SendMessage = Callable[[str], None]
"""Puts one message into the queue of failures. Raises a StoreError."""


class Failures:
    """Where records end that are given up. The message holds the whole record where it fits: a removed task is nowhere
    else any more."""

    def __init__(self, send: SendMessage | None, *, observer: Observer) -> None:
        self._send = send
        self._observer = observer

    def keep(self, record: Any, *, stage: str, error: str) -> bool:
        """Give one record up. False when even this destination could not be reached; the log then has its key."""
        item_id = key_of(record)
        kept = self._sent(message_of(record, stage=stage, error=error))
        self._observer.measure("Undelivered")
        self._observer.log(
            "record.given_up" if kept else "record.lost", level="ERROR", taskId=item_id, stage=stage, error=error
        )
        return kept

    def _sent(self, message: str) -> bool:
        if self._send is None:
            return False
        try:
            self._send(message)
        except StoreError as error:
            self._observer.log("failures.unreachable", level="ERROR", operation=error.operation, code=error.code)
            return False
        return True


def message_of(record: Any, *, stage: str, error: str) -> str:
    """One record given up, as a message: invoke the recorder with `{"Records": [<record>]}` to try it again."""
    body = record.get("dynamodb") if isinstance(record, Mapping) else None
    about: dict[str, Any] = {
        "version": 1,
        "stage": stage,
        "error": error,
        "taskId": key_of(record),
        "eventName": record.get("eventName") if isinstance(record, Mapping) else None,
        "sequenceNumber": body.get("SequenceNumber") if isinstance(body, Mapping) else None,
    }
    whole = json.dumps({**about, "record": record}, default=str, ensure_ascii=False, separators=(",", ":"))
    if len(whole.encode()) <= MESSAGE_BYTES:
        return whole
    return json.dumps({**about, "recordBytes": len(whole.encode())}, separators=(",", ":"))
