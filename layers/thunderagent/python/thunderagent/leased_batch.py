"""A batch as its executor is given it, and what became of it."""

from __future__ import annotations

import threading
from collections import Counter
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any, TypeGuard

from thunderagent.errors import InvalidInput
from thunderagent.model import LeaseToken, TaskId
from thunderagent.running_task import RunningTask
from thunderagent.schema import FORMAT_VERSION


@dataclass(frozen=True)
class Batch:
    """The event an executor is given: a lease, and the tasks claimed under it."""

    token: LeaseToken
    task_ids: tuple[TaskId, ...]
    lock_time: float
    lease_seconds: float | None = None

    @staticmethod
    def from_event(event: Any) -> Batch:
        """Read an event. Raises InvalidInput for anything that is not one."""
        if not isinstance(event, Mapping) or event.get("formatVersion") != FORMAT_VERSION:
            raise InvalidInput(f"not a batch of format version {FORMAT_VERSION}")
        token, task_ids, lock_time = event.get("leaseToken"), event.get("taskIds"), event.get("lockTime")
        if not isinstance(token, str) or not token:
            raise InvalidInput("leaseToken is missing", path="leaseToken")
        if not isinstance(task_ids, list) or not all(isinstance(each, str) and each for each in task_ids):
            raise InvalidInput("taskIds is not a list of ids", path="taskIds")
        if not _is_time(lock_time):
            raise InvalidInput("lockTime is not a number", path="lockTime")
        asked = event.get("leaseSeconds")
        return Batch(
            LeaseToken(token),
            tuple(TaskId(each) for each in dict.fromkeys(task_ids)),
            float(lock_time),
            float(asked) if _is_time(asked) and asked > 0 else None,
        )


def _is_time(value: Any) -> TypeGuard[float]:
    return isinstance(value, int | float) and not isinstance(value, bool) and abs(value) < 1e12


@dataclass
class Summary:
    """What became of a batch. `ends` counts tasks by the word for their end; `stuck` threads outlived their time."""

    begun: bool = False
    settled: bool = False
    stuck: int = 0
    ends: Counter[str] = field(default_factory=Counter)

    def as_dict(self) -> dict[str, Any]:
        return {"begun": self.begun, "settled": self.settled, "stuck": self.stuck, "ends": dict(self.ends)}


class Tally:
    """Counts ends into a summary. Thread-safe. `answered` turns False for good when what a last write did is unknown:
    then the lease must be left to the reaper."""

    def __init__(self, summary: Summary) -> None:
        self.summary = summary
        self.answered = True
        self._lock = threading.Lock()

    def count(self, word: str, number: int = 1) -> None:
        with self._lock:
            self.summary.ends[word] += number

    def ended(self, running: RunningTask, word: str) -> None:
        self.count(word)
        if running.unanswered:
            self.answered = False
