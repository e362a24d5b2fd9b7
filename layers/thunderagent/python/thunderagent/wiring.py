"""Puts the parts together for one container: seams, store, bodies, registry, queues, observer. No policy.

A part's module is imported when the part is first used: no function needs all of them, and on Lambda, which finds no
bytecode, each module is compiled at every cold start.
"""

from __future__ import annotations

import time
from functools import cached_property
from typing import TYPE_CHECKING, Any

from thunderagent.charges import OVERHEAD, Charges
from thunderagent.clock import SystemRandomness
from thunderagent.codec import Item
from thunderagent.registry import Registry, load_registry
from thunderagent.schema import Layout
from thunderagent.seams import Seams, aws_seams, deferred
from thunderagent.settings import Settings, load_settings
from thunderagent.store import Store
from thunderagent.telemetry import Telemetry
from thunderagent.threads import PoolThreads
from thunderagent.transport import metered

if TYPE_CHECKING:
    from thunderagent.bodies import Bodies
    from thunderagent.claims import Claims
    from thunderagent.dependencies import Dependencies
    from thunderagent.dispatch import Sweeper
    from thunderagent.doorbell import Doorbell
    from thunderagent.endings import Relatives
    from thunderagent.model import Task
    from thunderagent.queues import Queues
    from thunderagent.reaper import Reaper
    from thunderagent.schedules import Schedules
    from thunderagent.settling import Settling
    from thunderagent.submit import Submitter


class Parts:
    """Everything a function may need, built when first used and kept for the life of the container."""

    def __init__(self, settings: Settings, seams: Seams, *, registry: Registry, telemetry: Telemetry) -> None:
        self.settings = settings
        self.seams = seams
        self.registry = registry
        self.telemetry = telemetry
        self.charges = Charges(seams.clock, mib=settings.memory_mib or 0)
        telemetry.listener = self.charges.hear

    @cached_property
    def store(self) -> Store:
        settings, seams = self.settings, self.seams
        layout = Layout(shards=settings.dispatch_shards, list_completed=settings.list_completed, region=settings.region)
        return Store(
            table=settings.table_name,
            send=metered(seams.send, self.charges),
            clock=seams.clock,
            randomness=seams.randomness,
            layout=layout,
        )

    @cached_property
    def bodies(self) -> Bodies:
        from thunderagent.bodies import Bodies

        return Bodies(self.store, self.seams.objects)

    @cached_property
    def queues(self) -> Queues:
        from thunderagent.queues import Queues

        return Queues(self.store, self.registry.queues, deployed=self.registry.queue_limits, clock=self.seams.clock)

    @cached_property
    def submitter(self) -> Submitter:
        from thunderagent.submit import Submitter

        return Submitter(self.store, self.bodies, self.queues, self.registry, self.dependencies)

    @cached_property
    def schedules(self) -> Schedules:
        from thunderagent.schedules import Schedules

        return Schedules(self.store, deferred(lambda: self.submitter), observer=self.telemetry)

    @cached_property
    def dependencies(self) -> Dependencies:
        from thunderagent.dependencies import Dependencies

        return Dependencies(self.store, self.bodies, observer=self.telemetry)

    @cached_property
    def settling(self) -> Settling:
        from thunderagent.settling import Settling

        return Settling(self.store, observer=self.telemetry)

    @cached_property
    def reaper(self) -> Reaper:
        from thunderagent.reaper import Reaper

        return Reaper(
            self.store,
            self.registry,
            self.queues,
            self.settings,
            dependencies=self.dependencies,
            observer=self.telemetry,
        )

    @cached_property
    def claims(self) -> Claims:
        from thunderagent.claims import Claims

        return Claims(
            self.store,
            self.seams.invoke,
            threads=self.seams.threads,
            owner=self.seams.randomness.token()[:8],
            on_end=self._on_end,
            observer=self.telemetry,
        )

    @cached_property
    def sweeper(self) -> Sweeper:
        from thunderagent.dispatch import Sweeper

        return Sweeper(
            self.store,
            self.claims,
            self.registry,
            self.queues,
            self.settings,
            reap_stray=lambda item: self.reaper.look_at(item),
            on_end=self._on_end,
            each_pass=self.schedules.fire_due,
            threads=self.seams.threads,
            observer=self.telemetry,
        )

    @cached_property
    def doorbell(self) -> Doorbell:
        from thunderagent.doorbell import Doorbell

        return Doorbell(
            self.store,
            self.claims,
            self.registry,
            self.queues,
            self.settings,
            threads=self.seams.threads,
            observer=self.telemetry,
        )

    @cached_property
    def relatives(self) -> Relatives:
        return _RelativesOf(self)

    def _on_end(self, item: Item | None) -> None:
        self.settling.on_end(item)

    def begin(self) -> None:
        """An invocation begins: its time is charged to the tasks it is for."""
        self.charges.begin()

    def flush(self) -> None:
        """Report what DynamoDB charged since the last flush, and write all metrics out."""
        for queue, (writes, reads) in self.charges.settle().items():
            of = None if queue == OVERHEAD.queue else queue
            if writes:
                self.telemetry.measure("WriteUnits", writes, queue=of)
            if reads:
                self.telemetry.measure("ReadUnits", reads, queue=of)
        if self.settings.memory_mib is not None:  # a function; other processes are not billed by the millisecond
            self.charges.store(self.store)
        self.telemetry.flush()


class _RelativesOf:
    """What an executor needs to know of other tasks. Most tasks have no parents: what reads their results is imported
    for one that has."""

    def __init__(self, parts: Parts) -> None:
        self._parts = parts

    def on_end(self, ended: Item | None) -> None:
        self._parts.settling.on_end(ended)

    def on_end_of(self, task_id: str) -> None:
        self._parts.settling.on_end_of(task_id)

    def results_of_parents(self, task: Task) -> dict[str, Any]:
        return self._parts.dependencies.results_of_parents(task)


def parts_from_environment(*, threads: int = 10) -> Parts:
    """The parts of a deployed function. Raises ConfigurationError."""
    settings = load_settings()
    registry, randomness = load_registry(), SystemRandomness()
    telemetry = Telemetry(
        service=settings.service_name,
        level=settings.log_level,
        types=registry.types,
        debug_share=settings.log_debug_share,
        draw=lambda: randomness.uniform(0, 1),
        clock_ms=_epoch_ms,
    )
    seams = aws_seams(settings, randomness=randomness, threads=PoolThreads(threads))
    return Parts(settings, seams, registry=registry, telemetry=telemetry)


def _epoch_ms() -> int:
    return int(time.time() * 1000)
