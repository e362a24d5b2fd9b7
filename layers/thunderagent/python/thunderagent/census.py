"""How a queue stands: what waits, runs, is blocked, has failed, and how fast it moves. Counted on the index when asked.

Counts are bounded (`COUNT_LIMIT` per partition), so that a look costs the same under any backlog; a figure that met the
bound says "at least". The index lags the table by moments.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Final

from thunderagent.listing import Listing
from thunderagent.model import Task
from thunderagent.queues import QueueSettings
from thunderagent.schema import PRIORITIES, blocked_key, listed_key, open_key
from thunderagent.states import TERMINAL, Status
from thunderagent.store import Store
from thunderagent.threads import Threads

COUNT_LIMIT: Final = 10_000
HEAD_KEYS: Final = 50
RATE_SECONDS: Final = 60
RATE_KEYS: Final = 1_000


@dataclass(frozen=True)
class Figures:
    """One queue at one instant. `backlog` is what waits to start, delayed tasks and retries included, blocked not."""

    backlog: int
    running: int
    blocked: int
    failed: int
    oldest_due_age_seconds: float
    finished_per_second: float | None
    at_least: frozenset[str]
    as_of: float

    def as_answer(self) -> dict[str, Any]:
        """Each figure with the time it was taken at."""
        values = {
            "backlog": self.backlog,
            "running": self.running,
            "blocked": self.blocked,
            "failed": self.failed,
            "oldestDueAgeSeconds": self.oldest_due_age_seconds,
            "finishedPerSecond": self.finished_per_second,
        }
        return {
            name: {"value": value, "asOf": self.as_of, **({"atLeast": True} if name in self.at_least else {})}
            for name, value in values.items()
        }


class Census:
    """Counts queues. Reads only the index, the leases and the tasks in flight."""

    def __init__(self, store: Store, listing: Listing, *, threads: Threads) -> None:
        self._store = store
        self._listing = listing
        self._threads = threads

    def take(self, queues: Sequence[QueueSettings]) -> dict[str, Figures]:
        """The figures of each queue, all of one instant as far as the index allows."""
        running = self._listing.running_tasks()
        figures = self._threads.map(lambda queue: self._figures(queue, running), queues)
        return {queue.name: found for queue, found in zip(queues, figures, strict=True)}

    def backlog(self, queue: QueueSettings, *, at_least: int) -> int:
        """What waits to start or is in its first minute, counted no further than `at_least`."""
        total = 0
        for key in _open_keys(queue):
            total += self._store.count(key, at_least=max(1, at_least - total))
            if total >= at_least:
                break
        return total

    def _figures(self, queue: QueueSettings, running: Iterable[Task]) -> Figures:
        now = self._store.clock.now()
        own = {str(task.task_id): task for task in running if task.queue == queue.name}
        in_open = sum(str(task.dispatch_key).startswith("OPEN#") for task in own.values())
        shards = range(queue.shards.read)
        waiting, most_waiting = self._count(_open_keys(queue))
        blocked, most_blocked = self._count([blocked_key(queue.name, shard) for shard in shards])
        failed, most_failed = self._count([listed_key(Status.FAILED, queue.name, shard) for shard in shards])
        capped = {"backlog": most_waiting, "blocked": most_blocked, "failed": most_failed}
        return Figures(
            backlog=max(0, waiting - in_open),
            running=len(own),
            blocked=blocked,
            failed=failed,
            oldest_due_age_seconds=self._oldest_due_age(queue, own, now),
            finished_per_second=self._rate(queue, now),
            at_least=frozenset(name for name, is_capped in capped.items() if is_capped),
            as_of=now,
        )

    def _count(self, keys: Sequence[str]) -> tuple[int, bool]:
        counts = [self._store.count(key, at_least=COUNT_LIMIT) for key in keys]
        return sum(counts), any(count >= COUNT_LIMIT for count in counts)

    def _oldest_due_age(self, queue: QueueSettings, running: Mapping[str, Task], now: float) -> float:
        """How long the task that waits longest has been due; 0 when none is due."""
        oldest = now
        for dispatch_key in _open_keys(queue):
            page = self._store.query(dispatch_key, limit=HEAD_KEYS, until=now)
            waiting = [key.due_at for key in page.keys if key.task_id not in running]
            oldest = min([oldest, *waiting[:1]])
        return round(now - oldest, 3)

    def _rate(self, queue: QueueSettings, now: float) -> float | None:
        """Ends per second over the last minute; None where successes are not listed."""
        if not self._store.layout.list_completed:
            return None
        ended = 0
        for status in sorted(TERMINAL):
            for shard in range(queue.shards.read):
                key = listed_key(status, queue.name, shard)
                page = self._store.query(key, limit=RATE_KEYS, bound=(">=", now - RATE_SECONDS))
                ended += len(page.keys)
        return round(ended / RATE_SECONDS, 3)


def totals(figures: Iterable[Figures]) -> dict[str, Any]:
    """Sums over queues; of the ages, the greatest."""
    each = list(figures)
    if not each:
        return {}
    rates = [one.finished_per_second for one in each if one.finished_per_second is not None]
    return Figures(
        backlog=sum(one.backlog for one in each),
        running=sum(one.running for one in each),
        blocked=sum(one.blocked for one in each),
        failed=sum(one.failed for one in each),
        oldest_due_age_seconds=max(one.oldest_due_age_seconds for one in each),
        finished_per_second=round(sum(rates), 3) if rates else None,
        at_least=frozenset().union(*(one.at_least for one in each)),
        as_of=min(one.as_of for one in each),
    ).as_answer()


def _open_keys(queue: QueueSettings) -> list[str]:
    shards = range(queue.shards.read)
    return [open_key(queue.name, priority, shard) for priority in PRIORITIES for shard in shards]
