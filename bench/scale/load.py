"""A load, second by second, through what the services allow: where it breaks, how long a burst carries it, its price.

Everything is counted in tasks and units of a second. Not modelled: the API in front (it is Lambda and HTTP alone), long
tasks' heartbeats, retries, other queues of the same table.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final

from bench.scale.capacity import (
    BURST_SECONDS,
    FIRST_PARTITIONS,
    HEAT,
    TABLE_UNITS,
    WRITE_UNITS,
    Keys,
    Kind,
    admitted,
    written,
)
from bench.scale.functions import INVOKE_SECONDS, Concurrency
from thunderagent.schema import LEASE_SHARDS

STREAM_AT_ONCE: Final = 4  # batches of one shard of the stream in work at a time, as the doorbell's mapping has it
START_SECONDS: Final = sum(INVOKE_SECONDS) / 2 + 0.03  # of a batch: the invoke, and what begin and start take


@dataclass(frozen=True)
class Design:
    """What a task writes: units of its table, and of the keys of its index. `open_shards` are the keys under which
    waiting tasks stand."""

    name: str
    open_shards: int
    create: tuple[float, float] = (1, 1)  # table, key of waiting tasks
    claim: tuple[float, float, float] = (1, 0, 0)  # table, key of waiting tasks, key of running ones
    commit: tuple[float, float, float, float] = (1, 1, 0, 1)  # the same, and key of the ended ones
    lease: tuple[float, float] = (4, 2)  # of a batch: table, keys of leases
    profiles: int = 1  # executor profiles that share the load: each has its own keys of leases

    def units(self, batch: float) -> float:
        """Write units of a task, the index's included."""
        return sum(self.create) + sum(self.claim) + sum(self.commit) + sum(self.lease) / batch


def ours(shards: int, *, profiles: int = 1) -> Design:
    """The sparse, sharded, keys-only index; ended tasks listed; a lease for each batch."""
    return Design(f"ours, {shards} shard{'s' if shards > 1 else ''}", shards, profiles=profiles)


def plain(kib: int) -> Design:
    """One index by status and creation time with everything projected: each change of state moves the whole item."""
    return Design(
        f"status index, {kib} KiB items",
        1,
        create=(kib, kib),
        claim=(kib, kib, kib),
        commit=(kib, 0, kib, kib),
        lease=(0, 0),
    )


@dataclass(frozen=True)
class Policy:
    """What the dispatch was measured to do: tasks a second of one sweep and of one doorbell, tasks of a batch."""

    sweep_rate: float
    doorbell_rate: float
    batch: float = 10
    sweeps: int = 1


@dataclass(frozen=True)
class Second:
    """What happened in one second, in tasks; and what waits at its end."""

    accepted: float
    claimed: float
    ended: float
    refused: float  # writes, of submits and others
    waiting: float
    executing: float  # batches
    partitions: int


class World:
    """One design under one load. `warm` starts with a table that has been split for it, and without saved capacity."""

    def __init__(
        self,
        design: Design,
        rate: float,
        policy: Policy,
        *,
        warm: bool,
        task_seconds: float = 0.05,
        account: float = 1_000,
        max_in_flight: float = float("inf"),
    ) -> None:
        self.design, self.rate, self.policy = design, rate, policy
        self._occupied = START_SECONDS + task_seconds
        self._most_batches = max_in_flight
        self.lambdas = Concurrency(account=account, warm=account if warm else 0.0)
        needed = rate * (design.create[0] + design.claim[0] + design.commit[0] + design.lease[0] / policy.batch)
        first = max(FIRST_PARTITIONS, int(needed / (HEAT * WRITE_UNITS)) + 1) if warm else FIRST_PARTITIONS
        self.table = Keys(splits=True, partitions=first)
        self.open = Keys(splits=False, partitions=design.open_shards)
        self.running = Keys(splits=False, partitions=design.open_shards)
        self.ended = Keys(splits=False, partitions=design.open_shards)
        self.leases = Keys(splits=False, partitions=LEASE_SHARDS * design.profiles)
        self._all = (self.table, self.open, self.running, self.ended, self.leases)
        if not warm:
            for keys in self._all:
                keys.writes.saved = BURST_SECONDS * WRITE_UNITS
        self._waiting = self._to_end = 0.0

    def pass_second(self) -> Second:
        """The next second. A submit that is refused is answered 503 and gone; other writes come again."""
        design, batch = self.design, self.policy.batch
        places = min(self.lambdas.available(), self._most_batches) * batch / self._occupied
        pollers = self.policy.sweeps * self.policy.sweep_rate
        pollers += self.table.partitions * STREAM_AT_ONCE * self.policy.doorbell_rate
        claims = min(self._waiting, places, pollers)
        kinds = [
            Kind(self.rate, [(self.table, design.create[0]), (self.open, design.create[1])]),
            Kind(
                claims,
                [
                    (self.table, design.claim[0] + design.lease[0] / batch),
                    (self.open, design.claim[1]),
                    (self.running, design.claim[2]),
                    (self.leases, design.lease[1] / batch),
                ],
            ),
            Kind(
                self._to_end,
                [
                    (self.table, design.commit[0]),
                    (self.open, design.commit[1]),
                    (self.running, design.commit[2]),
                    (self.ended, design.commit[3]),
                ],
            ),
        ]
        passed = admitted(kinds)
        taken = {id(keys): units for keys, units in written(kinds, passed)}
        for keys in self._all:
            keys.pass_second(taken.get(id(keys), 0.0))
        accepted, claimed, ended = passed
        executing = min(self.lambdas.available(), claimed / batch * self._occupied)
        self.lambdas.pass_second(executing)
        self._waiting += accepted - claimed
        self._to_end += claimed - ended
        refused = sum(kind.asked for kind in kinds) - sum(passed)
        return Second(accepted, claimed, ended, refused, self._waiting, executing, self.table.partitions)


@dataclass(frozen=True)
class Verdict:
    """What a load comes to once every burst is spent. `per_second` ends; it `holds` when that is what is offered."""

    offered: float
    per_second: float
    refused_a_task: float

    @property
    def holds(self) -> bool:
        return self.per_second >= 0.99 * self.offered


def judge(design: Design, rate: float, policy: Policy, *, account: float = 100_000, seconds: int = 180) -> Verdict:
    """The last minute of some: a warm table, no capacity saved, concurrency enough unless `account` says otherwise."""
    world = World(design, rate, policy, warm=True, account=account)
    last = [world.pass_second() for _ in range(seconds)][-60:]
    ended = sum(second.ended for second in last) / len(last)
    refused = sum(second.refused for second in last) / len(last)
    return Verdict(rate, round(ended, 1), round(refused / max(1.0, ended), 2))


def quota_rate(design: Design, batch: float) -> float:
    """Tasks a second at which the default quota of a table, or of its index, is used up."""
    table = design.create[0] + design.claim[0] + design.commit[0] + design.lease[0] / batch
    index = design.create[1] + sum(design.claim[1:]) + sum(design.commit[1:]) + design.lease[1] / batch
    return TABLE_UNITS / max(table, index)
