"""Completion events: what EventBridge is told of a task that ended. Ids, times and kinds of errors, never a payload, a
result, a message or a tag.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime
from typing import Any

from thunderagent.clock import Clock, Randomness
from thunderagent.errors import StoreError
from thunderagent.stream import Change

SOURCE = "thunderagent"
DETAIL_TYPE = "Task Completed"
DETAIL_VERSION = 1
ENTRIES = 10  # EventBridge's limit for one PutEvents
ATTEMPTS = 4
BACKOFF_BASE_SECONDS, BACKOFF_CAP_SECONDS = 0.1, 2.0
PASSING = frozenset({"ThrottlingException", "InternalFailure", "InternalException", "ServiceUnavailable"})
TOLD = (
    "taskId",
    "type",
    "queue",
    "priority",
    "status",
    "outcome",
    "fence",
    "retryCount",
    "createdAt",
    "startedAt",
    "finishedAt",
)

Entry = dict[str, Any]
PutEvents = Callable[[Sequence[Entry]], Sequence[str | None]]
"""Sends entries; answers an error code for each, None where it was accepted. Raises a StoreError for the whole call."""


@dataclass(frozen=True)
class Unsent:
    """An event that was not accepted. A `passing` reason may be gone when it is tried again."""

    change: Change
    code: str
    passing: bool


class Completions:
    """Publishes the ends of tasks in the statuses asked for, at least once each."""

    def __init__(
        self,
        put_events: PutEvents,
        *,
        bus: str,
        statuses: frozenset[str],
        service: str,
        environment: str,
        clock: Clock,
        randomness: Randomness,
    ) -> None:
        self._put_events = put_events
        self._bus = bus
        self._statuses = statuses
        self._identity = {"service": service, "environment": environment}
        self._clock = clock
        self._randomness = randomness

    def wants(self, change: Change) -> bool:
        return change.is_end and change.new is not None and change.new["status"] in self._statuses

    def publish(self, changes: Sequence[Change]) -> list[Unsent]:
        """Tell of these ends; what was refused for a passing reason is tried a few times. Returns what is left.

        The order among events is not kept, and one may arrive twice (`detail.id` is then the same).
        """
        unsent: list[Unsent] = []
        for start in range(0, len(changes), ENTRIES):
            unsent += self._publish_few(changes[start : start + ENTRIES])
        return unsent

    def _publish_few(self, changes: Sequence[Change]) -> list[Unsent]:
        final: list[Unsent] = []
        waiting = [Unsent(change, "", passing=True) for change in changes]
        for attempt in range(ATTEMPTS):
            if attempt:
                longest = min(BACKOFF_CAP_SECONDS, BACKOFF_BASE_SECONDS * 2**attempt)
                self._clock.sleep(self._randomness.uniform(0, longest))
            tried = self._try([each.change for each in waiting])
            final += [each for each in tried if not each.passing]
            waiting = [each for each in tried if each.passing]
            if not waiting:
                break
        return final + waiting

    def _try(self, changes: Sequence[Change]) -> list[Unsent]:
        try:
            codes = self._put_events([self._entry(change) for change in changes])
        except StoreError as error:
            return [Unsent(change, error.code, passing=True) for change in changes]
        pairs = zip(changes, codes, strict=True)
        return [Unsent(change, code, passing=code in PASSING) for change, code in pairs if code is not None]

    def _entry(self, change: Change) -> Entry:
        finished = change.new.get("finishedAt") if change.new is not None else None
        return {
            "EventBusName": self._bus,
            "Source": SOURCE,
            "DetailType": DETAIL_TYPE,
            "Time": _time(finished) or datetime.fromtimestamp(change.at, UTC),
            "Detail": json.dumps(self._detail(change), separators=(",", ":")),
        }

    def _detail(self, change: Change) -> dict[str, Any]:
        """A row may be malformed: what is no plain value is left out, so that one row cannot keep back the others."""
        item: Mapping[str, Any] = change.new or {}
        detail = {"version": DETAIL_VERSION, "id": change.event_id, **self._identity}
        detail |= _plain(item, TOLD)
        error = item.get("error")
        if item.get("status") == "FAILED" and isinstance(error, Mapping):
            detail["error"] = _plain(error, ("type", "reason", "parent"))
        return detail


def _plain(item: Mapping[str, Any], names: Sequence[str]) -> dict[str, Any]:
    return {name: item[name] for name in names if isinstance(item.get(name), str | int | float)}


def _time(seconds: Any) -> datetime | None:
    try:
        return datetime.fromtimestamp(seconds, UTC)
    except (TypeError, ValueError, OverflowError, OSError):
        return None
