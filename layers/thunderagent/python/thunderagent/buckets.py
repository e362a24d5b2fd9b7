"""Token buckets: at most `burst` starts at once, and `rate` a second over time. One item, shared by all pollers."""

from __future__ import annotations

import math
from dataclasses import dataclass

from thunderagent import limit_writes
from thunderagent.codec import Item
from thunderagent.schema import bucket_id
from thunderagent.store import Store, Written

FAR_AHEAD_SECONDS = 10.0  # a stamp further ahead of me is some broken clock's: read as now, or the bucket would stand
TAKE_ROUNDS = 8


@dataclass(frozen=True)
class Level:
    """Tokens at an instant. `stamp` never goes back, so that a slow clock cannot fill the bucket twice."""

    tokens: float
    stamp: float

    @staticmethod
    def read(item: Item | None, *, rate: float, burst: int, now: float) -> Level:
        """What the stored level has grown to by now. An absent bucket is full."""
        if item is None:
            return Level(burst, now)
        stamp = float(item["stamp"])
        if stamp > now + FAR_AHEAD_SECONDS:
            stamp = now
        grown = float(item["tokens"]) + max(0.0, now - stamp) * rate
        return Level(min(float(burst), grown), max(stamp, now))

    @property
    def whole(self) -> int:
        return math.floor(self.tokens + 1e-6)

    def wait(self, rate: float, *, tokens: int = 1) -> float:
        """Seconds until there are that many."""
        return max(0.0, (tokens - self.tokens) / rate) if rate > 0 else math.inf


@dataclass(frozen=True)
class Bucket:
    queue: str
    key: str
    rate: float
    burst: int

    def look(self, store: Store) -> tuple[Level, Item | None]:
        item = store.get_item(bucket_id(self.queue, self.key), consistent=True)
        return Level.read(item, rate=self.rate, burst=self.burst, now=store.clock.now()), item

    def take(self, store: Store, wanted: int, *, first: tuple[Level, Item | None] | None = None) -> int:
        """Take up to `wanted` tokens in one write and say how many; under contention perhaps none."""
        for _ in range(TAKE_ROUNDS):
            level, seen = first or self.look(store)
            first = None
            taken = min(wanted, level.whole)
            if taken <= 0:
                return 0
            left = Level(round(level.tokens - taken, 6), level.stamp)
            write = limit_writes.fill_bucket(
                bucket_id(self.queue, self.key),
                seen=seen,
                tokens=left.tokens,
                stamp=left.stamp,
                taken_by=store.randomness.token(),
                full_in=(self.burst - left.tokens) / self.rate,
                now=store.clock.now(),
            )
            if isinstance(store.apply(write), Written):
                return taken
        return 0
