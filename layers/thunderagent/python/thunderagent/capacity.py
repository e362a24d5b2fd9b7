"""How many batches an executor profile may still be given: its cap less the leases it has, counted over all pollers."""

from __future__ import annotations

from itertools import product

from thunderagent.errors import StoreError
from thunderagent.schema import LEASE_SHARDS, lease_key
from thunderagent.settings import Executor, Settings
from thunderagent.store import Store
from thunderagent.telemetry import Observer
from thunderagent.threads import Threads

BACK_OFF_SECONDS = 5.0  # after an executor refused a batch, its profile rests this long
SECOND_LOOK_SECONDS = (0.02, 0.15)
COUNT_AGE_SECONDS = 1.0


class Capacity:
    """Counts leases. One per poller; the counts of the last look may be used again for as long as the caller says."""

    def __init__(self, store: Store, settings: Settings, *, threads: Threads, observer: Observer) -> None:
        self._store = store
        self._settings = settings
        self._threads = threads
        self._observer = observer
        self._counts: dict[str, tuple[float, int]] = {}
        self._resting: dict[str, float] = {}

    def free(self, *, max_age: float = 0) -> dict[str, int]:
        """Batches by profile. `max_age` seconds a count may be old; each lease opened renews it."""
        now = self._store.clock.monotonic()
        awake = [each for name, each in self._settings.served.items() if self._resting.get(name, 0) <= now]
        self._count([each for each in awake if not self._is_fresh(each.name, max_age)])
        return {each.name: max(0, each.max_in_flight - self._counts[each.name][1]) for each in awake}

    def rest(self, profile: str) -> None:
        """Its executor refused: ask no more for some seconds."""
        self._resting[profile] = self._store.clock.monotonic() + BACK_OFF_SECONDS

    def may_stay(self, executor: Executor) -> bool:
        """Whether the lease just opened is within the cap, now that others can see it.

        Pollers that looked at the same time all saw the same free places, so each counts again after it opened. Whoever
        sees too many looks once more after a random moment, so that not all of them yield. A lease stays only when a
        count that includes it was within the cap: the last one to open sees them all, and the cap holds up to the
        index's lag.
        """
        try:
            if self._is_within_cap(executor):
                return True
            self._store.clock.sleep(self._store.randomness.uniform(*SECOND_LOOK_SECONDS))
            return self._is_within_cap(executor)
        except StoreError as error:
            self._observer.log("lease.count_failed", level="WARNING", profile=executor.name, code=error.code)
            return False

    def _is_within_cap(self, executor: Executor) -> bool:
        self._count([executor])
        return self._counts[executor.name][1] <= executor.max_in_flight

    def _is_fresh(self, profile: str, max_age: float) -> bool:
        counted = self._counts.get(profile)
        return counted is not None and self._store.clock.monotonic() - counted[0] < max_age

    def _count(self, executors: list[Executor]) -> None:
        """One query for each shard of each profile, all at once; none reads more than the cap and one."""
        partitions = list(product(executors, range(LEASE_SHARDS)))
        counts = self._threads.map(
            lambda each: self._store.count(lease_key(each[0].name, each[1]), at_least=each[0].max_in_flight + 1),
            partitions,
        )
        now = self._store.clock.monotonic()
        for executor in executors:
            total = sum(count for (each, _), count in zip(partitions, counts, strict=True) if each is executor)
            self._counts[executor.name] = (now, total)
