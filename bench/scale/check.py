"""The model against the embedded AWS: the same pollers, the same small load, real requests in real time.

What can be compared: how many requests the pollers make for a task, and how many tasks a batch has. Not times, since
the embedded AWS is one process on a busy machine, and not throttles, since it has none.
"""

from __future__ import annotations

import heapq
import json
import threading
import time
from collections.abc import Mapping
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

from bench.scale.policy import Load, Measured, container, measure, task_of
from tests.support.stores import Backend, embedded_backend
from thunderagent.clock import SystemClock, SystemRandomness
from thunderagent.codec import from_item
from thunderagent.schema import Layout, lease_id
from thunderagent.states import Status
from thunderagent.store import Store
from thunderagent.threads import PoolThreads

RATES = (20.0, 50.0)
SECONDS = 10.0
TOLERANCE = 0.25  # of each figure: a pass begins when it begins, and takes what is due by then
TICK_SECONDS = 0.01


def compared(rates: tuple[float, ...] = RATES, *, seconds: float = SECONDS) -> dict[str, Any]:
    """Both, for each rate, and which figures are further apart than the tolerance. On a machine so busy that a pass
    takes seconds they are, as they should be: the model's requests take some milliseconds."""
    found: dict[str, Any] = {}
    with TemporaryDirectory(prefix="thunder-bench-") as directory, embedded_backend(Path(directory) / "aws") as backend:
        for rate in rates:
            load = Load(rate, seconds)
            model, real = measure(load), Embedded(backend, load).run()
            found[f"{rate:g} tasks/s"] = side_by_side(model, real)
    apart = [f"{load}: {figure}" for load, figures in found.items() for figure in beyond(figures)]
    return {"tolerance": TOLERANCE, "beyond it": apart or "none", **found}


def side_by_side(model: Measured, real: Measured) -> dict[str, list[float]]:
    """Model first."""
    return {
        "callsPerTask": [round(model.calls_per_task, 2), round(real.calls_per_task, 2)],
        "tasksPerBatch": [round(model.tasks_per_batch, 2), round(real.tasks_per_batch, 2)],
    }


def beyond(figures: Mapping[str, list[float]]) -> list[str]:
    return [name for name, (model, real) in figures.items() if abs(model - real) > TOLERANCE * real]


class Embedded:
    """One poller over the embedded AWS, fed by one thread; executors are another, which ends what it is sent."""

    def __init__(self, backend: Backend, load: Load) -> None:
        self._backend = backend
        self._load = load
        self._layout = Layout(shards=load.shards)
        self._measured = Measured(seconds=load.seconds)
        self._sent: list[tuple[float, str, list[str]]] = []
        self._lock = threading.Lock()
        self._over = threading.Event()

    def run(self) -> Measured:
        store = Store(
            table=self._backend.table,
            send=self._counting,
            clock=SystemClock(),
            randomness=SystemRandomness(),
            layout=self._layout,
        )
        own = container(self._load, store, PoolThreads(10), self._invoke, self._measured)
        until = time.monotonic() + self._load.seconds
        workers = [threading.Thread(target=work) for work in (self._submit, self._execute)]
        for worker in workers:
            worker.start()
        while time.monotonic() < until:
            own.sweep()
        self._over.set()
        for worker in workers:
            worker.join()
        return self._measured

    def _counting(self, operation: str, arguments: Mapping[str, Any]) -> Mapping[str, Any]:
        with self._lock:
            self._measured.calls[operation] += 1
        return self._backend.send(operation, arguments)

    def _submit(self) -> None:
        began, number = time.monotonic(), 0
        while not self._over.is_set():
            if time.monotonic() < began + number / self._load.rate:
                self._over.wait(TICK_SECONDS)
                continue
            item = {**task_of(number, self._load, round(time.time(), 3)), "taskId": f"{self._load.rate:g}-{number}"}
            self._backend.put(item)
            self._measured.submitted += 1
            number += 1

    def _invoke(self, function: str, event: bytes) -> None:
        batch = json.loads(event)
        self._measured.batches += 1
        self._measured.claimed += len(batch["taskIds"])
        with self._lock:
            heapq.heappush(
                self._sent, (time.monotonic() + self._load.task_seconds, batch["leaseToken"], batch["taskIds"])
            )

    def _execute(self) -> None:
        while not self._over.is_set() or self._sent:
            with self._lock:
                due = heapq.heappop(self._sent) if self._sent and self._sent[0][0] <= time.monotonic() else None
            if due is None:
                self._over.wait(TICK_SECONDS)
                if self._over.is_set():
                    time.sleep(TICK_SECONDS)
                continue
            self._end(due[1], due[2])

    def _end(self, token: str, task_ids: list[str]) -> None:
        for task_id in task_ids:
            item = from_item(self._backend.raw(task_id) or {})
            listed = self._layout.listed(Status.SUCCESS, item["queue"], task_id, item["dispatchKey"])
            ended = {"status": Status.SUCCESS.value, "dispatchKey": listed, "dueAt": round(time.time(), 3)}
            self._backend.put({**item, **ended})
        self._backend.remove(lease_id(token))
