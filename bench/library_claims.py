"""How many claims so many pollers win together, through the library alone: sweep, leases and claims, no executor.

Each poller is a process of its own over one bare table of the embedded AWS. What it claims is never run: its lease is
deleted where it would be dispatched, so that the cap is never reached. `lostRaces` are claims another was faster with.
"""

from __future__ import annotations

import json
import multiprocessing
import time
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any, cast

from bench.ours import SHARDS, stored_task
from tests.support.fakes import Recorder
from tests.support.stores import TABLE, Backend, embedded_backend, embedded_client
from thunderagent.clock import SystemClock, SystemRandomness
from thunderagent.registry import Registry
from thunderagent.schema import TABLE_KEY, lease_id
from thunderagent.settings import Executor, Settings
from thunderagent.threads import PoolThreads
from thunderagent.transport import boto_send
from thunderagent.wiring import Parts, Seams

THREADS = 10  # as the poller function has
PUT_ITEMS = 25
PATIENCE_SECONDS = 300


def measure_claims(tasks: int, pollers: int) -> dict[str, Any]:
    """Claims a second of all together, from when the first one begins to when the last one finds nothing more."""
    context = multiprocessing.get_context("spawn")
    barrier, reports = context.Barrier(pollers), context.Queue()
    with TemporaryDirectory(prefix="thunder-bench-") as directory, embedded_backend(Path(directory) / "aws") as backend:
        _put(backend, tasks)
        children = [
            context.Process(target=_poll, args=(backend.endpoint, barrier, reports), daemon=True)
            for _ in range(pollers)
        ]
        for child in children:
            child.start()
        try:
            found = [reports.get(timeout=PATIENCE_SECONDS) for _ in children]
        finally:
            for child in children:
                child.terminate()
                child.join()
    claimed, lost = sum(each["claimed"] for each in found), sum(each["lost"] for each in found)
    if claimed != tasks:
        raise SystemExit(f"{claimed} of {tasks} tasks were claimed")
    seconds = max(each["last"] for each in found) - min(each["first"] for each in found)
    return {
        "claimsPerSecond": round(claimed / seconds, 1),
        "lostRacesPerTask": round(lost / tasks, 4),
        "callsPerClaim": round(sum(each["calls"] for each in found) / tasks, 2),
    }


def _put(backend: Backend, tasks: int) -> None:
    def put(first: int) -> None:
        numbers = range(first, min(first + PUT_ITEMS, tasks))
        entries = [{"PutRequest": {"Item": stored_task(f"claim-{number:06d}")}} for number in numbers]
        assert not backend.send("BatchWriteItem", {"RequestItems": {TABLE: entries}}).get("UnprocessedItems")

    with ThreadPoolExecutor(2) as pool:
        list(pool.map(put, range(0, tasks, PUT_ITEMS)))


def _poll(endpoint: str, barrier: Any, reports: Any) -> None:
    """One poller: passes until one finds nothing."""
    send = boto_send(embedded_client(endpoint))
    calls = 0

    def counted(operation: str, arguments: Any) -> Any:
        nonlocal calls
        calls += 1
        return send(operation, arguments)

    def take(function: str, event: bytes) -> None:
        send("DeleteItem", {"TableName": TABLE, "Key": {TABLE_KEY: {"S": lease_id(json.loads(event)["leaseToken"])}}})

    parts = Parts(
        Settings(table_name=TABLE, dispatch_shards=SHARDS, executors={"default": Executor("default", "executor")}),
        Seams(
            send=counted,
            invoke=take,
            clock=SystemClock(),
            randomness=SystemRandomness(),
            threads=PoolThreads(THREADS),
        ),
        registry=_registry(),
        telemetry=cast(Any, Recorder()),
    )
    parts.queues.all()
    barrier.wait()
    report, first, last = {"claimed": 0, "lost": 0}, time.time(), 0.0
    while True:
        done = parts.sweeper.run_pass()
        report["claimed"] += done.claimed
        report["lost"] += done.conflicts
        if done.claimed:
            last = time.time()
        elif not done.conflicts and not done.executors_full and not done.failed:
            break
    reports.put({**report, "first": first, "last": last, "calls": calls})


def _registry() -> Registry:
    return Registry.from_dict(
        {
            "formatVersion": 1,
            "profiles": {"default": {"modules": ["m"], "timeoutSeconds": 900}},
            "queues": {"default": {}},
            "types": {"demo.return": {"profile": "default"}},
        }
    )
