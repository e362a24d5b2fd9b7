"""The faults, one after another: what is broken, and what has to hold all the same."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable
from dataclasses import dataclass

from drills import fault_proxy
from drills.deployment import SHORT, Deployment
from drills.work import Work, eventually
from thunderagent.client import ApiError
from thunderagent.persist import CAP_SECONDS

TASKS = 20
WORK_SECONDS = 3.0
POLLERS = ("Poller", "Doorbell")
FIRES_WITHIN = 60.0
RECOVERS_WITHIN = 120.0
"""Four leases, reaps and re-runs in the short rhythm: who has not recovered by then never will."""
THROTTLED_SECONDS = 5.0
SPIKING_SECONDS = 15.0
DROPPING_SECONDS = 10.0


@dataclass(frozen=True)
class Fault:
    """One scenario. `bound` says how long recovery may take, and why. `run` breaks things while the work is done and
    returns since when (epoch seconds) recovery counts, with a remark."""

    name: str
    broken: str
    bound: str
    run: Callable[[Deployment, Work], tuple[float, str]]


def handler_ends_its_process(stack: Deployment, work: Work) -> tuple[float, str]:
    began = time.time()
    work.count(TASKS // 2, seconds=1)
    work.crash(retries=1)
    return began, "a task that ends its worker, with one retry, among ten others; counted from the submit"


def executor_is_killed(stack: Deployment, work: Work) -> tuple[float, str]:
    work.count(TASKS, seconds=WORK_SECONDS)
    work.wait_until_at_work()
    killed = stack.kill("Executor")
    return time.time(), f"SIGKILL of {killed} executor processes while handlers ran"


def poller_is_killed(stack: Deployment, work: Work) -> tuple[float, str]:
    with stack.proxy.breaking(fault_proxy.next_invoke_held()):
        work.count(TASKS)
        eventually(lambda: bool(stack.proxy.fired()), "an invocation", within=FIRES_WITHIN)
        held = work.running()
        killed = stack.kill(*POLLERS)
        now = time.time()
    return now, f"SIGKILL of {killed} poller processes after {len(held)} tasks were claimed, before any was sent"


def reaper_is_killed(stack: Deployment, work: Work) -> tuple[float, str]:
    work.count(TASKS, seconds=WORK_SECONDS)
    work.wait_until_at_work()
    victim = work.running()[0]
    stack.kill("Executor")
    broken = time.time()
    with stack.proxy.breaking(fault_proxy.next_update_held(victim)):
        fired = eventually(lambda: bool(stack.proxy.fired()), "the reaper's write", within=FIRES_WITHIN)
        killed = stack.kill("Reaper")
    return broken, f"executors killed; {fired:.0f} s later {killed} reaper processes, between closing and taking back"


def table_is_throttled(stack: Deployment, work: Work) -> tuple[float, str]:
    """First what executors tell their leases, so that the batches have been sent and cannot begin; then all of it."""
    api = stack.api(attempts=12)
    with stack.proxy.breaking(fault_proxy.updates_throttled("lease#")):
        work.count(TASKS // 2)
        eventually(lambda: len(work.running()) >= TASKS // 4, "a batch that is sent", within=FIRES_WITHIN)
        held = len(work.running())
        refused = _submit_while(stack, work, THROTTLED_SECONDS, fault_proxy.throttled())
    ended = time.time()
    for _ in range(TASKS // 4):
        work.count_one(api)
    return ended, (
        f"every request refused for {THROTTLED_SECONDS:.0f} s, once {held} tasks had been sent and before they began; "
        f"{refused} submits were answered 503"
    )


def replies_are_dropped(stack: Deployment, work: Work) -> tuple[float, str]:
    rules = [
        fault_proxy.replies_dropped("UpdateItem", share=0.25, spare="counter#"),
        fault_proxy.replies_dropped("PutItem", share=0.25),
        fault_proxy.replies_dropped("TransactWriteItems", share=0.25),
    ]
    with stack.proxy.breaking(*rules):
        _submit_for(stack, work, DROPPING_SECONDS)
    return time.time(), f"a quarter of the writes lost their reply, for {DROPPING_SECONDS:.0f} s of submits"


def latency_spikes(stack: Deployment, work: Work) -> tuple[float, str]:
    with stack.proxy.breaking(fault_proxy.latency_spikes(usual_ms=20, spike_ms=2500, share=0.05)):
        _submit_for(stack, work, SPIKING_SECONDS)
    return time.time(), f"one request in twenty took 2.5 s, for {SPIKING_SECONDS:.0f} s of submits"


def aws_is_restarted(stack: Deployment, work: Work) -> tuple[float, str]:
    work.count(TASKS, seconds=WORK_SECONDS)
    work.wait_until_at_work()
    broken = time.time()
    stack.restart()
    return broken, f"away for {time.time() - broken:.0f} s in the middle of the run, and all processes with it"


def _submit_for(stack: Deployment, work: Work, seconds: float) -> None:
    """Submits one task after another by a client that does not give up soon."""
    api = stack.api(attempts=12)
    until = time.time() + seconds
    while time.time() < until:
        work.count_one(api)
        time.sleep(0.25)


def _submit_while(stack: Deployment, work: Work, seconds: float, rule: fault_proxy.Rule) -> int:
    """Submits one by one while the rule holds, by a client that does not try again. Returns how many were refused."""
    refused = 0
    done = threading.Event()
    api = stack.api(attempts=1)

    def submit() -> None:
        nonlocal refused
        while not done.is_set():
            try:
                work.count_one(api)
            except ApiError as error:
                if error.status != 503:
                    raise
                refused += 1

    with stack.proxy.breaking(rule):
        thread = threading.Thread(target=submit)
        thread.start()
        time.sleep(seconds)
        done.set()
        thread.join()
    return refused


def _lease(reaps: int, runs: str) -> str:
    bound = reaps * (SHORT.lease_seconds + SHORT.grace_seconds + SHORT.reaper_every)
    times = "" if reaps == 1 else f"{reaps} × "
    return f"{times}(lease + grace + reaper's period) = {bound:.0f} s, then {runs}"


ONE_LEASE = _lease(1, "each by itself")
FAULTS = (
    Fault(
        "crash",
        "A handler ends its process each time it runs",
        _lease(2, "it is given up; its neighbours run after the first"),
        handler_ends_its_process,
    ),
    Fault("executor", "The executor is killed in the middle of its tasks", ONE_LEASE, executor_is_killed),
    Fault("poller", "The poller is killed between claim and invoke", ONE_LEASE, poller_is_killed),
    Fault(
        "reaper",
        "The reaper is killed while it takes tasks back",
        _lease(1, "one more period, each by itself"),
        reaper_is_killed,
    ),
    Fault(
        "throttled",
        "The table is throttled",
        f"a retry's pause, up to {CAP_SECONDS:.0f} s, or a look of the poller",
        table_is_throttled,
    ),
    Fault("replies", "Replies are lost after the write", ONE_LEASE, replies_are_dropped),
    Fault("latency", "Latency spikes", "a request's timeout, or as a killed executor", latency_spikes),
    Fault("restart", "The embedded AWS is restarted in the middle of a run", ONE_LEASE, aws_is_restarted),
)
