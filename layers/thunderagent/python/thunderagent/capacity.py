"""How many batches an executor profile may still be given: its cap less the leases it has, counted over all pollers.

The cap is divided among the index partitions its leases stand in, and each of those is kept by itself. So a lease is
opened where there is room, and one query tells whether it may stay.
"""

from __future__ import annotations

from itertools import product

from thunderagent.errors import StoreError
from thunderagent.model import LeaseToken
from thunderagent.schema import LEASE_SHARDS, lease_key, shard_of
from thunderagent.settings import Executor, Settings
from thunderagent.store import Store
from thunderagent.telemetry import Observer
from thunderagent.threads import Threads

BACK_OFF_SECONDS = 5.0  # after an executor refused a batch, its profile rests this long
SECOND_LOOK_SECONDS = (0.02, 0.15)
COUNT_AGE_SECONDS = 1.0


def share_of_cap(most: int, shard: int) -> int:
    """How many of `most` leases one shard may hold; all shards together hold exactly that many."""
    return most // LEASE_SHARDS + (1 if shard < most % LEASE_SHARDS else 0)


class Capacity:
    """Counts leases. One per poller; the counts of the last look may be used again for as long as the caller says."""

    def __init__(self, store: Store, settings: Settings, *, threads: Threads, observer: Observer) -> None:
        self._store = store
        self._settings = settings
        self._threads = threads
        self._observer = observer
        self._counts: dict[str, list[int]] = {}
        self._counted_at: dict[str, float] = {}
        self._resting: dict[str, float] = {}

    def free(self, *, max_age: float = 0) -> dict[str, int]:
        """Batches by profile. `max_age` seconds a count may be old; what was opened since is in it."""
        awake = [each for name, each in self._settings.served.items() if not self.is_resting(name)]
        self._count([each for each in awake if not self._is_fresh(each.name, max_age)])
        return {each.name: sum(self._room(each)) for each in awake}

    def rest(self, profile: str) -> None:
        """Its executor refused: ask no more for some seconds."""
        self._resting[profile] = self._store.clock.monotonic() + BACK_OFF_SECONDS

    def is_resting(self, profile: str) -> bool:
        return self._resting.get(profile, 0) > self._store.clock.monotonic()

    def shard(self, executor: Executor) -> int:
        """Where to open the next lease: one of the free places known, each as likely as any other, which counts as
        taken from here on. If none is known, one of all places."""
        room = self._room(executor)
        if not any(room):
            room = [share_of_cap(executor.max_in_flight, shard) for shard in range(LEASE_SHARDS)]
        place = self._store.randomness.below(sum(room))
        shard = next(shard for shard in range(LEASE_SHARDS) if place < sum(room[: shard + 1]))
        self._counts.setdefault(executor.name, [0] * LEASE_SHARDS)[shard] += 1
        return shard

    def may_stay(self, executor: Executor, token: LeaseToken) -> bool:
        """Whether the lease just opened is within its shard's part of the cap, now that others can see it.

        Pollers that looked at the same time all saw the same free places, so each counts again after it opened. Whoever
        sees too many looks once more after a random moment, so that not all of them yield. A lease stays only when a
        count that includes it was within the cap: the last one to open sees them all, and the cap holds up to the
        index's lag.
        """
        shard = shard_of(token, LEASE_SHARDS)
        try:
            if self._is_within_share(executor, shard):
                return True
            self._store.clock.sleep(self._store.randomness.uniform(*SECOND_LOOK_SECONDS))
            return self._is_within_share(executor, shard)
        except StoreError as error:
            self._observer.log("lease.count_failed", level="WARNING", profile=executor.name, code=error.code)
            return False

    def _is_within_share(self, executor: Executor, shard: int) -> bool:
        number = self._count_shard(executor, shard)
        self._counts.setdefault(executor.name, [0] * LEASE_SHARDS)[shard] = number
        return number <= share_of_cap(executor.max_in_flight, shard)

    def _room(self, executor: Executor) -> list[int]:
        counts = self._counts.get(executor.name, [0] * LEASE_SHARDS)
        return [max(0, share_of_cap(executor.max_in_flight, shard) - count) for shard, count in enumerate(counts)]

    def _is_fresh(self, profile: str, max_age: float) -> bool:
        counted_at = self._counted_at.get(profile)
        return counted_at is not None and self._store.clock.monotonic() - counted_at < max_age

    def _count(self, executors: list[Executor]) -> None:
        """One query for each shard of each profile, all at once."""
        partitions = list(product(executors, range(LEASE_SHARDS)))
        counts = self._threads.map(lambda each: self._count_shard(*each), partitions)
        now = self._store.clock.monotonic()
        for executor in executors:
            own = [count for (each, _), count in zip(partitions, counts, strict=True) if each is executor]
            self._counts[executor.name], self._counted_at[executor.name] = own, now

    def _count_shard(self, executor: Executor, shard: int) -> int:
        """Reads no more than the shard's part of the cap and one."""
        most = share_of_cap(executor.max_in_flight, shard)
        return self._store.count(lease_key(executor.name, shard), at_least=most + 1)
