"""No more tasks than a queue's `maxBacklog`. A guard against floods, not an exact bound.

The backlog is counted at most every few seconds per container, and only for queues that have the setting; what this
container accepted since is added. Containers do not see one another's last seconds.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Final

from thunderagent.clock import Clock
from thunderagent.errors import Backlogged
from thunderagent.queues import Queues

if TYPE_CHECKING:
    from thunderagent.census import Census

COUNT_SECONDS: Final = 3.0
RETRY_AFTER_SECONDS: Final = 5


@dataclass
class _Count:
    value: int
    at: float


class Backpressure:
    """Counts backlogs and refuses. Thread-safe enough for a guard: a lost increment admits one task more."""

    def __init__(self, queues: Queues, census: Census, clock: Clock) -> None:
        self._queues = queues
        self._census = census
        self._clock = clock
        self._counts: dict[str, _Count] = {}

    def check(self, queue: str) -> None:
        """Raise Backlogged when the queue is full. An undeclared queue is somebody else's refusal."""
        settings = self._queues.get(queue)
        if settings is None or settings.max_backlog is None:
            return
        count = self._counts.get(queue)
        if count is None or self._clock.monotonic() - count.at >= COUNT_SECONDS:
            count = _Count(self._census.backlog(settings, at_least=settings.max_backlog), self._clock.monotonic())
            self._counts[queue] = count
        if count.value >= settings.max_backlog:
            raise Backlogged(
                f"queue {queue} holds its maxBacklog of {settings.max_backlog} tasks",
                retry_after_seconds=RETRY_AFTER_SECONDS,
            )

    def accepted(self, queue: str) -> None:
        """A task was added to the queue."""
        if (count := self._counts.get(queue)) is not None:
            count.value += 1
