"""How many batches an executor profile may still be given: its cap less the leases it has, counted over all pollers."""

from __future__ import annotations

from itertools import product

from thunderagent.codec import Item
from thunderagent.errors import StoreError
from thunderagent.model import LeaseToken
from thunderagent.schema import LEASE_SHARDS, lease_id, lease_key
from thunderagent.settings import Executor, Settings
from thunderagent.store import Store
from thunderagent.telemetry import Observer
from thunderagent.threads import Threads

BACK_OFF_SECONDS = 5.0  # after an executor refused a batch, its profile rests this long


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
        """Batches by profile. `max_age` seconds a count may be old, own leases since then counted in."""
        now = self._store.clock.monotonic()
        awake = [each for name, each in self._settings.executors.items() if self._resting.get(name, 0) <= now]
        unknown = [each for each in awake if not self._is_fresh(each.name, max_age)]
        self._count(unknown)
        return {each.name: max(0, each.max_in_flight - self._counts[each.name][1]) for each in awake}

    def rest(self, profile: str) -> None:
        """Its executor refused: ask no more for some seconds."""
        self._resting[profile] = self._store.clock.monotonic() + BACK_OFF_SECONDS

    def may_stay(self, token: LeaseToken, executor: Executor) -> bool:
        """Whether the lease just opened is within the cap, now that it can be seen.

        Pollers that looked at the same time all saw the same free places. Each looks again after it opened; above the
        cap the latest leases yield, by the time they were opened. So the cap holds up to the lag of the index.
        """
        try:
            self._count([executor])
            if self._counts[executor.name][1] <= executor.max_in_flight:
                return True
            return self._rank(token, executor) < executor.max_in_flight
        except StoreError as error:
            self._observer.log("lease.count_failed", level="WARNING", profile=executor.name, code=error.code)
            return False

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

    def _rank(self, token: LeaseToken, executor: Executor) -> int:
        """How many of the profile's leases were opened before this one."""
        keys = [lease_key(executor.name, shard) for shard in range(LEASE_SHARDS)]
        ids = [key.task_id for partition in keys for key in self._store.walk(partition)]
        leases = self._store.get_items([*ids, lease_id(token)], consistent=True)
        mine = leases.get(lease_id(token))
        if mine is None:
            return executor.max_in_flight  # gone already: nothing to keep
        return sum(_opened(lease) < _opened(mine) for lease in leases.values())


def _opened(lease: Item) -> tuple[float, str]:
    return (lease.get("createdAt", 0), str(lease["taskId"]))
