"""How a queue stands: what waits, runs, is blocked, has failed, and how fast it moves.

The reaper counts on the index each minute and stores the figures in one item, which everybody else reads. Its cost
does not grow with the backlog: short partitions are counted whole, of long ones a bounded piece a minute
(`deep_counts`). The index lags the table by moments, and a stored figure is a minute old: each says when it was taken.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Final

from thunderagent.conditions import put_body
from thunderagent.deep_counts import DeepCounts
from thunderagent.listing import Listing
from thunderagent.model import Task
from thunderagent.queues import QueueSettings
from thunderagent.schema import PRIORITIES, blocked_key, listed_key, open_key
from thunderagent.states import TERMINAL, Status
from thunderagent.store import Store
from thunderagent.telemetry import Observer
from thunderagent.threads import Threads

CENSUS_ID: Final = "control#census"
COUNT_LIMIT: Final = 1_000  # of one partition: whatever is longer is counted piece by piece
FRESH_SECONDS: Final = 180  # an older item says that nobody counts: the reader does it then
HEAD_KEYS: Final = 50
HEAD_PAGES: Final = 10
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
        return {
            name: {"value": value, "asOf": self.as_of, **({"atLeast": True} if name in self.at_least else {})}
            for name, value in self._values().items()
        }

    def as_stored(self) -> dict[str, Any]:
        return {**self._values(), "asOf": self.as_of, "atLeast": sorted(self.at_least)}

    @staticmethod
    def from_stored(entry: Mapping[str, Any]) -> Figures:
        return Figures(
            backlog=int(entry["backlog"]),
            running=int(entry["running"]),
            blocked=int(entry["blocked"]),
            failed=int(entry["failed"]),
            oldest_due_age_seconds=float(entry["oldestDueAgeSeconds"]),
            finished_per_second=entry.get("finishedPerSecond"),
            at_least=frozenset(entry.get("atLeast", ())),
            as_of=float(entry["asOf"]),
        )

    def _values(self) -> dict[str, Any]:
        return {
            "backlog": self.backlog,
            "running": self.running,
            "blocked": self.blocked,
            "failed": self.failed,
            "oldestDueAgeSeconds": self.oldest_due_age_seconds,
            "finishedPerSecond": self.finished_per_second,
        }


class Census:
    """Counts queues, and reads what was counted. Reads only the index, the leases and the tasks in flight."""

    def __init__(self, store: Store, listing: Listing, *, threads: Threads) -> None:
        self._store = store
        self._listing = listing
        self._threads = threads

    # ---- for everybody -----------------------------------------------------------------------------------------------

    def take(self, queues: Sequence[QueueSettings]) -> dict[str, Figures]:
        """The figures of each queue as the reaper stored them: one read. A queue it has not met yet is counted now, and
        so are all when it has not counted for minutes."""
        stored = self.stored()
        missing = [queue for queue in queues if queue.name not in stored]
        counted = self.count(missing) if missing else {}
        return {queue.name: stored.get(queue.name) or counted[queue.name] for queue in queues}

    def stored(self) -> dict[str, Figures]:
        """Whatever the last census holds, by queue; nothing when it is old. One read."""
        item = self._store.get_item(CENSUS_ID) or {}
        if float(item.get("asOf", 0)) < self._store.clock.now() - FRESH_SECONDS:
            return {}
        return {name: Figures.from_stored(entry) for name, entry in item["queues"].items()}

    def backlog(self, queue: QueueSettings, *, at_least: int) -> int:
        """What waits to start or is in its first minute. Small bounds are counted on the index, no further than
        `at_least`; large ones are compared with the last census, so that the answer is cheap whatever the backlog."""
        if at_least > COUNT_LIMIT and (figures := self.stored().get(queue.name)) is not None:
            return figures.backlog
        total = 0
        for key in _open_keys(queue):
            total += self._store.count(key, at_least=max(1, min(at_least, COUNT_LIMIT) - total))
            if total >= at_least:
                break
        return total

    # ---- for the reaper ----------------------------------------------------------------------------------------------

    def publish(self, queues: Sequence[QueueSettings], *, observer: Observer) -> dict[str, Figures]:
        """Count, store and measure, the empty queues too. Raises a StoreError."""
        deep = DeepCounts((self._store.get_item(CENSUS_ID) or {}).get("deep"))
        figures = self.count(queues, deep)
        self._store.apply(
            put_body(
                {
                    "taskId": CENSUS_ID,
                    "asOf": self._store.clock.now(),
                    "queues": {name: found.as_stored() for name, found in figures.items()},
                    "deep": deep.as_stored(),
                }
            )
        )
        for name, found in figures.items():
            observer.measure("Backlog", found.backlog, queue=name)
            observer.measure("Running", found.running, queue=name)
            observer.measure("Blocked", found.blocked, queue=name)
            observer.measure("OldestDueAge", found.oldest_due_age_seconds, queue=name)
        return figures

    def count(self, queues: Sequence[QueueSettings], deep: DeepCounts | None = None) -> dict[str, Figures]:
        """Figures of now. `deep` is what is known of long partitions: it counts on, and mends the figures by it."""
        running = self._listing.running_tasks()
        counts = self._short_counts([key for queue in queues for key in _counted_keys(queue)])
        known = deep or DeepCounts()
        if deep is not None:
            deep.advance(self._store, [key for key, count in counts.items() if count >= COUNT_LIMIT])
        figures = self._threads.map(lambda queue: self._figures(queue, running, counts, known), queues)
        return {queue.name: found for queue, found in zip(queues, figures, strict=True)}

    def _short_counts(self, keys: Sequence[str]) -> dict[str, int]:
        counts = self._threads.map(lambda key: self._store.count(key, at_least=COUNT_LIMIT), keys)
        return dict(zip(keys, counts, strict=True))

    def _figures(
        self, queue: QueueSettings, running: Iterable[Task], counts: Mapping[str, int], deep: DeepCounts
    ) -> Figures:
        now = self._store.clock.now()
        own = {str(task.task_id): task for task in running if task.queue == queue.name}
        in_open = sum(str(task.dispatch_key).startswith("OPEN#") for task in own.values())
        capped: set[str] = set()

        def total(name: str, keys: Sequence[str]) -> int:
            if any(counts[key] >= COUNT_LIMIT and not deep.is_complete(key) for key in keys):
                capped.add(name)
            return sum(max(counts[key], deep.of(key)) if counts[key] >= COUNT_LIMIT else counts[key] for key in keys)

        return Figures(
            backlog=max(0, total("backlog", _open_keys(queue)) - in_open),
            running=len(own),
            blocked=total("blocked", _blocked_keys(queue)),
            failed=total("failed", _failed_keys(queue)),
            oldest_due_age_seconds=self._oldest_due_age(queue, own, now),
            finished_per_second=self._rate(queue, now),
            at_least=frozenset(capped),
            as_of=now,
        )

    def _oldest_due_age(self, queue: QueueSettings, running: Mapping[str, Task], now: float) -> float:
        """How long the task that waits longest has been due; 0 when none is due."""
        oldest = now
        for dispatch_key in _open_keys(queue):
            oldest = min(oldest, self._oldest_due(dispatch_key, running, now))
        return round(now - oldest, 3)

    def _oldest_due(self, dispatch_key: str, running: Mapping[str, Task], now: float) -> float:
        """When the first that waits in a partition became due. Tasks in flight may stand before it."""
        start: Mapping[str, Any] | None = None
        for _ in range(HEAD_PAGES):
            page = self._store.query(dispatch_key, limit=HEAD_KEYS, until=now, start=start)
            waiting = [key.due_at for key in page.keys if key.task_id not in running]
            if waiting:
                return waiting[0]
            start = page.next_key
            if start is None:
                break
        return now

    def _rate(self, queue: QueueSettings, now: float) -> float | None:
        """Ends per second over the last minute; None where successes are not listed."""
        if not self._store.layout.list_completed:
            return None
        keys = [listed_key(each, queue.name, shard) for each in sorted(TERMINAL) for shard in _shards(queue)]
        return round(sum(self._rate_of(key, now - RATE_SECONDS) for key in keys), 3)

    def _rate_of(self, dispatch_key: str, since: float) -> float:
        """Ends of one partition per second: of the whole minute, or of as much of it as was read."""
        page = self._store.query(dispatch_key, limit=RATE_KEYS, bound=(">=", since))
        if len(page.keys) < RATE_KEYS:
            return len(page.keys) / RATE_SECONDS
        return len(page.keys) / max(0.001, page.keys[-1].due_at - since)


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


def _shards(queue: QueueSettings) -> range:
    return range(queue.shards.read)


def _open_keys(queue: QueueSettings) -> list[str]:
    return [open_key(queue.name, priority, shard) for priority in PRIORITIES for shard in _shards(queue)]


def _blocked_keys(queue: QueueSettings) -> list[str]:
    return [blocked_key(queue.name, shard) for shard in _shards(queue)]


def _failed_keys(queue: QueueSettings) -> list[str]:
    return [listed_key(Status.FAILED, queue.name, shard) for shard in _shards(queue)]


def _counted_keys(queue: QueueSettings) -> list[str]:
    return [*_open_keys(queue), *_blocked_keys(queue), *_failed_keys(queue)]
