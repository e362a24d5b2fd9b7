"""One poller in a process of its own, over the embedded AWS, with an executor beside it in a thread.

A script for `multiprocessing`: the child imports this module. Nothing here is shared but the table.
"""

from __future__ import annotations

import json
import threading
import time
from dataclasses import dataclass, field
from queue import Queue
from typing import Any, cast

from tests.support.batches import handlers_of
from tests.support.fakes import Recorder
from tests.support.stores import embedded_client
from thunderagent import task
from thunderagent.clock import SystemClock, SystemRandomness
from thunderagent.registry import Registry
from thunderagent.runner import Batch, Runner
from thunderagent.settings import Executor, Settings
from thunderagent.threads import PoolThreads
from thunderagent.transport import boto_send
from thunderagent.wiring import Parts, Seams

PASSES_WITHOUT_WORK = 3
THREADS = 4

_started: list[tuple[str, int]] = []


@task("race.note")
def note(payload: Any, ctx: Any) -> None:
    _started.append((ctx.task_id, ctx.fence))


@dataclass
class Report:
    """What one poller did. `starts` are the handler's own records: (task id, fence)."""

    claimed: int = 0
    conflicts: int = 0
    passes: int = 0
    seconds: float = 0
    starts: list[tuple[str, int]] = field(default_factory=list)


def registry() -> Registry:
    return Registry.from_dict(
        {
            "formatVersion": 1,
            "profiles": {"default": {"modules": ["m"], "timeoutSeconds": 900}},
            "queues": {"default": {}},
            "types": {"race.note": {"profile": "default"}},
        }
    )


def poll_until_empty(endpoint: str, table: str, barrier: Any, reports: Any, budget_seconds: float) -> None:
    """Sweep until some passes in a row found nothing, or the budget is spent; put a Report into `reports`."""
    settings = Settings(
        table_name=table,
        executors={"default": Executor("default", "executor", threads=10, max_in_flight=20)},
        poll_busy_seconds=0.5,
        poll_idle_seconds=0.2,
        list_completed=False,
    )
    notes, threads = Recorder(), PoolThreads(THREADS)
    events: Queue[bytes | None] = Queue()
    seams = Seams(
        send=boto_send(embedded_client(endpoint)),
        invoke=lambda function, event: events.put(event),
        clock=SystemClock(),
        randomness=SystemRandomness(),
        threads=threads,
    )
    parts = Parts(settings, seams, registry=registry(), telemetry=cast(Any, notes))
    runner = Runner(
        parts.store,
        parts.bodies,
        {handler.declaration.name: handler for handler in handlers_of(note)},
        threads=threads,
        concurrency=10,
        lease_seconds=settings.lease_seconds,
        observer=cast(Any, notes),
    )

    def execute() -> None:
        while (event := events.get()) is not None:
            runner.run(Batch.from_event(json.loads(event)))

    executor = threading.Thread(target=execute, daemon=True)
    executor.start()
    report, idle = Report(), 0
    parts.queues.all()
    barrier.wait()
    begun = time.monotonic()
    while idle < PASSES_WITHOUT_WORK and time.monotonic() - begun < budget_seconds:
        done = parts.sweeper.run_pass()
        report.passes += 1
        report.claimed += done.claimed
        report.conflicts += done.conflicts
        idle = 0 if done.claimed or done.executors_full or done.failed else idle + 1
        seams.clock.sleep(parts.sweeper.pause_after(done))
    events.put(None)
    executor.join()
    report.seconds = time.monotonic() - begun
    report.starts = _started
    reports.put(report)
