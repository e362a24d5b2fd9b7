"""DynamoDB's capacity as it is documented: partitions, burst, splits, and an index that holds its table up.

Documented, and taken from there:

- A partition gives 1,000 write units and 3,000 read units a second.
  https://docs.aws.amazon.com/amazondynamodb/latest/developerguide/bp-partition-key-design.html
- Up to 300 s of capacity that was not used are kept for bursts, and a key that is busy comes to stand in a partition of
  its own, which gives that key no more than a partition has.
  https://docs.aws.amazon.com/amazondynamodb/latest/developerguide/burst-adaptive-capacity.html
- A new on-demand table takes 4,000 writes a second, and at once twice what it has taken before.
  https://docs.aws.amazon.com/amazondynamodb/latest/developerguide/on-demand-capacity-mode.html
- Of one table 40,000 write units a second are taken, until more are asked for.
  https://docs.aws.amazon.com/amazondynamodb/latest/developerguide/ServiceQuotas.html
- A write that an index has no capacity for is refused for the table too; an index by `status` is the page's example.
  https://docs.aws.amazon.com/amazondynamodb/latest/developerguide/gsi-throttling.html
- Partitions under sustained traffic near their limit are split, and never merged.
  https://aws.amazon.com/blogs/database/part-3-scaling-dynamodb-how-partitions-hot-keys-and-split-for-heat-impact-performance/

Whether a burst carries a partition past its 1,000 units is told in both ways. Here it does, and a load is judged by
what passes once the burst is spent; so the answer does not depend on it.

Not documented, and assumed (each against us where there is a choice): that traffic is sustained after 300 s above 80 %
of a partition's limit; that a split of many keys halves its load; that entries of one index key are never split, since
their order is time and all of them come in at one end.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from typing import Final

WRITE_UNITS: Final = 1_000.0
READ_UNITS: Final = 3_000.0
BURST_SECONDS: Final = 300.0
TABLE_UNITS: Final = 40_000.0  # the default quota
FIRST_PARTITIONS: Final = 4  # of a new on-demand table: 4,000 writes a second
HEAT: Final = 0.8
HEAT_SECONDS: Final = 300.0


@dataclass
class Bucket:
    """Units of one kind that one partition gives: a rate, and what was not used of the last 300 s."""

    rate: float
    saved: float = 0.0

    @property
    def at_hand(self) -> float:
        """Units that can be taken in the second that begins."""
        return self.rate + self.saved

    def pass_second(self, used: float) -> None:
        """A second is over, in which so much was taken."""
        if used > self.at_hand + 1e-6:
            raise ValueError(f"{used:g} units of {self.at_hand:g} were taken")
        self.saved = min(BURST_SECONDS * self.rate, max(0.0, self.at_hand - used))


@dataclass
class Keys:
    """Partitions that share one space of keys: a table's items by their ids (`splits`), or the entries under one index
    key, which stay together. Load is spread over them evenly, as hashes of ids are."""

    splits: bool
    partitions: int = 1
    writes: Bucket = field(default_factory=lambda: Bucket(WRITE_UNITS))
    reads: Bucket = field(default_factory=lambda: Bucket(READ_UNITS))
    _hot_for: float = 0.0

    @property
    def write_units(self) -> float:
        """What can be written in the second that begins, over all partitions."""
        return self.writes.at_hand * self.partitions

    @property
    def read_units(self) -> float:
        return self.reads.at_hand * self.partitions

    def pass_second(self, written: float, read: float = 0.0) -> None:
        """Units over all partitions in the second that ends; a split takes effect with the next one."""
        each = written / self.partitions
        self.writes.pass_second(each)
        self.reads.pass_second(read / self.partitions)
        hot = each >= HEAT * WRITE_UNITS or read / self.partitions >= HEAT * READ_UNITS
        self._hot_for = self._hot_for + 1 if hot else 0.0
        if self.splits and self._hot_for >= HEAT_SECONDS:
            self.partitions, self._hot_for = 2 * self.partitions, 0.0
            self.writes.saved = self.reads.saved = 0.0  # of the new halves: nothing was left, or they would not be hot


@dataclass(frozen=True)
class Kind:
    """Writes of one kind: how many are asked for in a second, and the units that one takes from each space of keys."""

    asked: float
    units: Sequence[tuple[Keys, float]]


def admitted(kinds: Sequence[Kind]) -> list[float]:
    """How many of each kind one second lets through: all, or of those that meet in a space of keys that has too little
    the same part of each. A write takes all it needs or nothing: what an index refuses, its table refuses."""
    shares = [1.0] * len(kinds)
    for _ in range(len(kinds) * 4):
        used = _used(kinds, shares)
        tight = [(keys.write_units / total, keys) for keys, total in used if total > keys.write_units * (1 + 1e-9)]
        if not tight:
            break
        share, worst = min(tight, key=lambda each: each[0])
        for place, kind in enumerate(kinds):
            if any(keys is worst for keys, _ in kind.units):
                shares[place] *= share
    return [kind.asked * share for kind, share in zip(kinds, shares, strict=True)]


def written(kinds: Iterable[Kind], passed: Iterable[float]) -> list[tuple[Keys, float]]:
    """Units taken from each space of keys by the writes that passed."""
    own = [Kind(count, kind.units) for kind, count in zip(kinds, passed, strict=True)]
    return _used(own, [1.0] * len(own))


def _used(kinds: Sequence[Kind], shares: Sequence[float]) -> list[tuple[Keys, float]]:
    totals: dict[int, tuple[Keys, float]] = {}
    for kind, share in zip(kinds, shares, strict=True):
        for keys, units in kind.units:
            before = totals.get(id(keys), (keys, 0.0))[1]
            totals[id(keys)] = (keys, before + kind.asked * share * units)
    return list(totals.values())
