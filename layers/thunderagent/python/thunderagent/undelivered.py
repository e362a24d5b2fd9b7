"""Executor events that came to nothing: Lambda leaves them in a queue, and only those that grew too old are news.

A crash ends there too, but it is counted when its lease is reaped. An event that waited longer than its lease says that
executors cannot keep up: Lambda was throttled, or concurrency is used up.
"""

from __future__ import annotations

import json
from dataclasses import dataclass
from typing import Any, Protocol

from thunderagent.telemetry import Observer
from thunderagent.transport import Message

TOO_OLD = "EventAgeExceeded"
MESSAGES_A_RUN = 200


class Queue(Protocol):
    def receive(self) -> list[Message]: ...
    def delete(self, message: Message) -> None: ...


@dataclass
class Read:
    """What one run found."""

    too_old: int = 0
    crashed: int = 0
    unknown: int = 0


class Undelivered:
    """Reads the queue of undelivered executor events, a bounded number a run. Raises a StoreError."""

    def __init__(self, queue: Queue, *, observer: Observer) -> None:
        self._queue = queue
        self._observer = observer

    def read(self) -> Read:
        """Tell of what is news, and take all that is understood out of the queue. The rest stays, for its retention."""
        found = Read()
        seen = 0
        while seen < MESSAGES_A_RUN and (messages := self._queue.receive()):
            seen += len(messages)
            for message in messages:
                if self._tell(message.body, found):
                    self._queue.delete(message)
        self._observer.measure("EventsTooOld", found.too_old)
        return found

    def _tell(self, body: str, found: Read) -> bool:
        envelope = _object(body)
        context = envelope.get("requestContext")
        condition = context.get("condition") if isinstance(context, dict) else None
        if not isinstance(condition, str):
            found.unknown += 1
            self._observer.log("undelivered.unknown", level="WARNING", bytes=len(body))
            return False
        if condition != TOO_OLD:
            found.crashed += 1
            return True
        found.too_old += 1
        event = envelope.get("requestPayload")
        about = event if isinstance(event, dict) else {}
        self._observer.log(
            "batch.too_old",
            level="ERROR",
            function=str(context.get("functionArn")) if isinstance(context, dict) else None,
            profile=about.get("profile"),
            tasks=len(about.get("taskIds") or ()),
        )
        return True


def _object(text: str) -> dict[str, Any]:
    try:
        value = json.loads(text)
    except ValueError:
        return {}
    return value if isinstance(value, dict) else {}
