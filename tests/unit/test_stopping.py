"""A batch whose process was told to end: what waits goes back at once, what runs has its grace and is then released."""

from __future__ import annotations

import threading
import time
from typing import Any

import pytest

from tests.support.batches import START, Bench
from tests.support.fakes import FakeClock, ScriptedThreads
from thunderagent.clock import SystemClock
from thunderagent.context import Context
from thunderagent.registry import task
from thunderagent.runner import LAST_SECONDS
from thunderagent.threads import PoolThreads


@task("demo")
def echo(payload: Any, ctx: Context) -> Any:
    return payload


class Stop:
    """Told after so many seconds, with so much grace."""

    def __init__(self, clock: FakeClock, *, at: float, grace: float) -> None:
        self._clock = clock
        self._at = START + at
        self._grace = grace

    def stopping(self) -> bool:
        return self._clock.now() >= self._at

    def remaining(self) -> float:
        return self._at + self._grace + LAST_SECONDS - self._clock.now() if self.stopping() else float("inf")


def run(bench: Bench, stop: Stop) -> Any:
    return bench.runner.run(bench.open_lease(), stop.remaining, stop.stopping)


def test_what_waits_goes_back_at_once_and_what_runs_may_end_within_its_grace() -> None:
    clock = FakeClock()
    bench = Bench(echo, clock=clock, threads=ScriptedThreads(clock, durations=[20]), concurrency=1)
    bench.claim("running", timeoutSeconds=300)
    bench.claim("waiting", timeoutSeconds=5)
    summary = run(bench, Stop(clock, at=0.001, grace=60))
    assert summary.ends == {"released": 1, "succeeded": 1}
    waiting = bench.item("waiting")
    assert (waiting["status"], waiting["retryCount"], waiting.get("lost", 0)) == ("PENDING", 0, 0)
    assert bench.item("running")["status"] == "SUCCESS"
    assert summary.settled
    assert bench.lease is None


def test_a_batch_that_begins_after_the_stop_starts_nothing() -> None:
    clock = FakeClock()
    bench = Bench(echo, clock=clock)
    bench.claim("t1", timeoutSeconds=5)
    summary = run(bench, Stop(clock, at=0, grace=60))
    assert summary.as_dict() == {"begun": True, "settled": True, "stuck": 0, "ends": {"released": 1}}
    assert "task.started" not in bench.seen.names()


def test_who_is_not_done_within_the_grace_is_released_and_charged_nothing() -> None:
    clock = FakeClock()
    bench = Bench(echo, clock=clock, threads=ScriptedThreads(clock, durations=[1000]))
    bench.claim(timeoutSeconds=300)
    summary = run(bench, Stop(clock, at=0.001, grace=10))
    item = bench.item()
    assert (item["status"], item["retryCount"], item.get("lost", 0)) == ("PENDING", 0, 0)
    assert "error" not in item
    assert "leaseToken" not in item
    assert START + 10 <= item["updatedAt"] <= START + 10 + LAST_SECONDS
    assert (summary.ends, summary.settled, summary.stuck) == ({"released": 1}, True, 1)


def test_a_timeout_that_falls_into_the_grace_is_a_timeout() -> None:
    clock = FakeClock()
    bench = Bench(echo, clock=clock, threads=ScriptedThreads(clock, durations=[1000]))
    bench.claim(timeoutSeconds=5)
    run(bench, Stop(clock, at=0.001, grace=60))
    assert (bench.item()["retryCount"], bench.item()["error"]["reason"]) == (1, "timeout")


def test_a_cancelled_task_ends_cancelled_although_its_process_stops() -> None:
    clock = FakeClock()
    bench = Bench(echo, clock=clock, threads=ScriptedThreads(clock, durations=[1000]))
    bench.claim(timeoutSeconds=300)
    batch = bench.open_lease()
    stop = Stop(clock, at=0.001, grace=1)
    bench.db.after(lambda call: "started" in call.sets, bench.cancel)
    bench.runner.run(batch, stop.remaining, stop.stopping)
    assert (bench.item()["status"], bench.item()["outcome"]) == ("DONE", "cancelled")


@pytest.mark.parametrize("swallows", [False, True])
def test_a_real_handler_is_woken_interrupted_and_released(swallows: bool) -> None:
    """With real threads: the wait for its end is cut short by `wake`, and its late result does not count."""
    began = threading.Event()

    @task("demo")
    def busy(payload: Any, ctx: Context) -> str:
        began.set()
        until = time.monotonic() + 20
        try:
            while time.monotonic() < until:
                time.sleep(0.001)
        except BaseException:
            if not swallows:
                raise
        return "late"

    stopped: list[float] = []
    threads = PoolThreads(1)
    bench = Bench(busy, threads=threads, clock=SystemClock())
    bench.claim(timeoutSeconds=300)
    batch = bench.open_lease()

    def stop() -> None:
        began.wait(10)
        stopped.append(time.monotonic())
        threads.wake()

    def remaining() -> float:
        return stopped[0] + 0.05 + LAST_SECONDS - time.monotonic() if stopped else float("inf")

    stopper = threading.Thread(target=stop)
    stopper.start()
    summary = bench.runner.run(batch, remaining, lambda: bool(stopped))
    stopper.join()
    assert time.monotonic() - stopped[0] < 10  # not the 30 s it may sleep, nor the handler's 20
    assert (summary.ends, summary.settled, summary.stuck) == ({"released": 1}, True, 0)
    assert (bench.item()["status"], bench.item()["retryCount"]) == ("PENDING", 0)
