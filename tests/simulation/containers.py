"""The processes of the deployment: each has the real library put together in it, over simulated seams."""

from __future__ import annotations

import random
from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

from tests.simulation.kernel import Process
from tests.simulation.seams import SimClock, SimRandomness, SimThreads
from tests.simulation.side_rules import LIMITED_QUEUE, PACED_QUEUE
from tests.simulation.weather import GRACE_SECONDS, LEASE_SECONDS
from thunderagent.recording import Recording
from thunderagent.registry import Registry
from thunderagent.runner import Runner
from thunderagent.schema import EXECUTOR_MARGIN_SECONDS
from thunderagent.service import Service
from thunderagent.settings import Executor, Settings
from thunderagent.upkeep import Upkeep
from thunderagent.wiring import Parts, Seams

if TYPE_CHECKING:
    from tests.simulation.cloud import Cloud

EXECUTOR_SECONDS = 150.0
TASK_SECONDS = 33.0  # a task's timeout
LONG_SECONDS = 110.0  # what a long task may take: longer than a lease
QUEUE_OF = {"limited": LIMITED_QUEUE, "paced": PACED_QUEUE}  # by type
UNTOLD = frozenset({"where"})  # a file and a line


class Notes:
    """The observer of every container: log lines of consequence go into the history, which does not depend on the place
    the code is at."""

    def __init__(self, process: Process) -> None:
        self._process = process

    def log(self, event: str, *, level: str = "INFO", **fields: Any) -> None:
        if level != "DEBUG" and not self._process.is_dead:
            told = " ".join(
                f"{name}={value}" for name, value in fields.items() if value is not None and name not in UNTOLD
            )
            self._process.kernel.note(f"{self._process.name}: log {event} {told}")

    def measure(self, metric: str, value: float = 1, *, queue: str | None = None, type: str | None = None) -> None:
        return None

    def flush_old(self) -> None:
        return None

    def flush(self) -> None:
        return None


class Bucket:
    """S3: as reliable as the weather."""

    def __init__(self, cloud: Cloud) -> None:
        self._cloud = cloud
        self.stored: dict[str, bytes] = {}

    def put(self, key: str, data: bytes) -> None:
        self._cloud.wire.travel("PutObject")
        self.stored[key] = data

    def get(self, key: str) -> bytes | None:
        self._cloud.wire.travel("GetObject")
        return self.stored.get(key)

    def delete(self, key: str) -> None:
        self._cloud.wire.travel("DeleteObject")
        self.stored.pop(key, None)

    def url(self, key: str, *, seconds: int) -> str:
        return f"https://bucket/{key}"


class Container:
    """One process of one function, with the library put together in it once."""

    def __init__(self, cloud: Cloud, function: str) -> None:
        kernel = cloud.kernel
        skew = cloud.weather.skew_seconds
        cloud.containers += 1
        self.function = function
        self.version = cloud.version
        self.process = Process(
            kernel, f"{function}{cloud.containers}", offset=(2 * kernel.random.random() - 1) * skew if skew else 0
        )
        cloud.processes.append(self.process)
        self.notes = Notes(self.process)
        seams = Seams(
            send=cloud.wire.transport(self.process),
            invoke=cloud.invocations.invoke,
            clock=SimClock(self.process),
            randomness=SimRandomness(self.process),
            threads=SimThreads(self.process),
            objects=cloud.bucket,
        )
        self.parts = Parts(cloud.settings, seams, registry=cloud.registry, telemetry=self.notes)  # type: ignore[arg-type]
        self.service = Service(self.parts)
        self.upkeep = Upkeep(self.parts, undelivered=None)
        self.recording = Recording(self.parts, put_events=cloud.put_events, send_failure=cloud.failures.append)
        self._runners: dict[str, Runner] = {}
        self._cloud = cloud

    def runner(self, profile: str) -> Runner:
        """As functions/executor builds it."""
        if profile not in self._runners:
            own, executor = self.parts, self._cloud.settings.executors[profile]
            types = self.parts.registry.types
            known = {name: each for name, each in self._cloud.handlers.items() if name in types}
            self._runners[profile] = Runner(
                own.store,
                own.bodies,
                known,
                threads=own.seams.threads,
                concurrency=executor.threads,
                lease_seconds=own.settings.lease_seconds,
                observer=self.notes,
                submitter=own.submitter,
                relatives=own.dependencies,
                task_seconds=executor.timeout_seconds - EXECUTOR_MARGIN_SECONDS,
                end_process=lambda: self._cloud.kernel.kill(self.process, "it ends itself"),
            )
        return self._runners[profile]


def drawn_settings(chance: random.Random) -> Settings:
    batch = chance.choice([1, 3, 10])
    executors = {
        name: Executor(
            name,
            f"executor-{name}",
            timeout_seconds=EXECUTOR_SECONDS,
            threads=threads,
            max_in_flight=most,
            lease_seconds=LEASE_SECONDS,
        )
        for name, threads, most in (
            ("default", chance.choice([1, 2, 10]), chance.choice([3, 20])),
            ("side", chance.choice([1, 4]), chance.choice([2, 10])),
        )
    }
    return Settings(
        table_name="tasks",
        executors=executors,
        lease_seconds=LEASE_SECONDS,
        lease_grace_seconds=GRACE_SECONDS,
        poll_batch_size=batch,
        dispatch_shards=chance.choice([1, 2]),
        event_bus="bus",
    )


def registry_of(types: Sequence[str]) -> Registry:
    backoff = {"base": 1, "factor": 2, "cap": 20}
    entries = {
        name: {
            "profile": "side" if name == "second" else "default",
            "queue": QUEUE_OF.get(name, "default"),
            "timeoutSeconds": LONG_SECONDS if name == "second" else TASK_SECONDS,
            "backoff": backoff,
        }
        for name in types
    }
    return Registry.from_dict(
        {
            "formatVersion": 1,
            "profiles": {name: {"modules": ["m"], "timeoutSeconds": EXECUTOR_SECONDS} for name in ("default", "side")},
            "queues": {"default": {}, **{queue: {} for queue in QUEUE_OF.values()}},
            "types": entries,
        }
    )
