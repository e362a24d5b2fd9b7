"""Puts the parts together for one container: seams, store, bodies, registry, queues, observer. No policy."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable
from dataclasses import dataclass
from functools import cached_property
from typing import Generic, TypeVar

from thunderagent.bodies import Bodies, Objects
from thunderagent.charges import OVERHEAD, Charges
from thunderagent.claims import Claims
from thunderagent.clock import Clock, Randomness, SystemClock, SystemRandomness
from thunderagent.dependencies import Dependencies
from thunderagent.dispatch import Sweeper
from thunderagent.doorbell import Doorbell
from thunderagent.queues import Queues
from thunderagent.reaper import Reaper
from thunderagent.registry import Registry, load_registry
from thunderagent.schedules import Schedules
from thunderagent.schema import Layout
from thunderagent.settings import Settings, load_settings
from thunderagent.store import Send, Store
from thunderagent.submit import Submitter
from thunderagent.telemetry import Telemetry
from thunderagent.threads import PoolThreads, Threads
from thunderagent.transport import BotoObjects, Invoke, boto_client, boto_invoke, boto_send, metered

Value = TypeVar("Value")


@dataclass(frozen=True)
class Seams:
    """What reaches outside the library. Tests, the simulator and the benchmark give their own."""

    send: Send
    invoke: Invoke
    clock: Clock
    randomness: Randomness
    threads: Threads
    objects: Objects | None = None


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
        return Bodies(self.store, self.seams.objects)

    @cached_property
    def queues(self) -> Queues:
        return Queues(self.store, self.registry.queues, deployed=self.registry.queue_limits, clock=self.seams.clock)

    @cached_property
    def submitter(self) -> Submitter:
        return Submitter(self.store, self.bodies, self.queues, self.registry, self.dependencies)

    @cached_property
    def schedules(self) -> Schedules:
        return Schedules(self.store, self.submitter, observer=self.telemetry)

    @cached_property
    def dependencies(self) -> Dependencies:
        return Dependencies(self.store, self.bodies, observer=self.telemetry)

    @cached_property
    def reaper(self) -> Reaper:
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
        return Claims(
            self.store,
            self.seams.invoke,
            threads=self.seams.threads,
            owner=self.seams.randomness.token()[:8],
            on_end=self.dependencies.on_end,
            observer=self.telemetry,
        )

    @cached_property
    def sweeper(self) -> Sweeper:
        return Sweeper(
            self.store,
            self.claims,
            self.registry,
            self.queues,
            self.settings,
            reap_stray=self.reaper.look_at,
            on_end=self.dependencies.on_end,
            each_pass=self.schedules.fire_due,
            threads=self.seams.threads,
            observer=self.telemetry,
        )

    @cached_property
    def doorbell(self) -> Doorbell:
        return Doorbell(
            self.store,
            self.claims,
            self.registry,
            self.queues,
            self.settings,
            threads=self.seams.threads,
            observer=self.telemetry,
        )

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


def parts_from_environment(*, threads: int = 10) -> Parts:
    """The parts of a deployed function, over botocore. Raises ConfigurationError."""
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
    seams = boto_seams(settings, randomness=randomness, threads=PoolThreads(threads))
    return Parts(settings, seams, registry=registry, telemetry=telemetry)


def boto_seams(settings: Settings, *, randomness: Randomness, threads: Threads) -> Seams:
    """The seams over botocore, as the process's environment configures it."""
    return Seams(
        send=boto_send(boto_client("dynamodb", region=settings.region)),
        invoke=_LazyInvoke(settings.region),
        clock=SystemClock(),
        randomness=randomness,
        threads=threads,
        objects=_LazyObjects(settings.region, settings.bucket_name) if settings.bucket_name else None,
    )


def _epoch_ms() -> int:
    return int(time.time() * 1000)


class _LazyInvoke:
    """Most functions never invoke: the Lambda client (some 0.2 s of cold start) is built at the first call."""

    def __init__(self, region: str) -> None:
        self._invoke = Once(lambda: boto_invoke(boto_client("lambda", region=region)))

    def __call__(self, function: str, event: bytes) -> None:
        self._invoke()(function, event)


class _LazyObjects:
    """Most tasks need no S3: the client is built at the first body that does."""

    def __init__(self, region: str, bucket: str) -> None:
        self._objects = Once(lambda: BotoObjects(boto_client("s3", region=region), bucket))

    def put(self, key: str, data: bytes) -> None:
        self._objects().put(key, data)

    def get(self, key: str) -> bytes | None:
        return self._objects().get(key)

    def delete(self, key: str) -> None:
        self._objects().delete(key)

    def url(self, key: str, *, seconds: int) -> str:
        return self._objects().url(key, seconds=seconds)


class Once(Generic[Value]):
    """Builds a value at the first call and keeps it. Threads that call at the same time wait for the one that builds;
    after a failure the next call builds again."""

    def __init__(self, build: Callable[[], Value]) -> None:
        self._build = build
        self._built: list[Value] = []
        self._lock = threading.Lock()

    def __call__(self) -> Value:
        if not self._built:
            with self._lock:
                if not self._built:
                    self._built.append(self._build())
        return self._built[0]
