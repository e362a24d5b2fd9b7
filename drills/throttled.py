"""DynamoDB throttles the table."""

from __future__ import annotations

import time
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor

from drills import fault_proxy
from drills.session import Session
from drills.work import eventually
from tests.support.local_stack import UpStack
from thunderagent.client import NewTask

LEASE_AND_REAP = 420.0
"""What an executor could neither run nor hand back is taken back when its lease ends: here that must be nothing."""
GOES_ON_WITHIN = 60.0  # of the end: what executors hold. They ask again every ten seconds at least


def rehearse(session: Session) -> None:
    """What callers are told, which alarm rings, and that everything goes on by itself."""
    seconds, tasks = (8.0, 20) if session.quick else (30.0, 100)
    session.heading("Tasks at work, and then every request to the table is throttled")
    session.waits("before", [NewTask("demo.echo", 1)] * 4, within=30)
    proxy = session.stack.proxy
    with proxy.breaking(fault_proxy.updates_throttled("lease#")):  # what is sent meets it before it begins
        running = session.submit([NewTask("demo.sleep", {"seconds": 2})] * tasks)
        eventually(lambda: len(_held(session, running)) >= tasks // 2, "batches that are sent", within=60)
        with proxy.breaking(fault_proxy.throttled()):
            session.heading("What you see")
            with ThreadPoolExecutor(1) as pool:
                answers = pool.submit(refusals, session, time.monotonic() + seconds)
                session.thunder("stats", may_fail=True)
                session.thunder("task", "submit", "demo.echo", "--payload", "1", may_fail=True)
                refused, patience = answers.result()
            session.figure("submits answered 503", refused)
            held = _held(session, running)
            session.figure("Retry-After, s", patience)
    ended = time.time()
    session.figure("held by executors when it ended", len(held))
    session.require(refused > 0, "nobody was refused although the table was throttled")
    session.require(bool(held), "nothing had been sent when the table was throttled")
    session.heading("What you do here: nothing. It goes on by itself")
    items = session.ended(running, within=LEASE_AND_REAP)
    goes_on = max(0, _last({task_id: items[task_id] for task_id in held}) - ended)
    session.figure("the last that was held ended after the throttling, s", goes_on)
    session.figure("the last of all ended after the throttling, s", max(0, _last(items) - ended))
    session.waits("afterwards", [NewTask("demo.echo", 1)] * 4, within=60)
    session.alarms()  # those of the gateway and the table have no metrics here
    session.thunder("stats")
    session.require(goes_on < GOES_ON_WITHIN, "what executors held waited for the end of its lease")
    session.require(all(item["status"] == "SUCCESS" for item in items.values()), "tasks failed of it")
    session.figure("tasks", len(items))
    session.figure("charged a retry", sum(bool(item["retryCount"]) for item in items.values()))


def refusals(session: Session, until: float) -> tuple[int, float]:
    """Submits one after another; how many were answered 503, and how long they were told to wait."""
    stack = UpStack(session.stack.local, dict(session.stack.record))
    refused, patience = 0, 0.0
    while time.monotonic() < until:
        answer = stack.call("POST", "tasks", {"type": "demo.echo"})
        session.require(answer.status in (201, 503), f"a submit was answered {answer.status}")
        if answer.status == 503:
            refused += 1
            patience = max(patience, float({k.lower(): v for k, v in answer.headers.items()}["retry-after"]))
    return refused, patience


def _held(session: Session, ids: Sequence[str]) -> list[str]:
    return [task_id for task_id, item in session.stack.items(ids).items() if item["status"] == "RUNNING"]


def _last(items: dict[str, dict[str, object]]) -> float:
    return max((float(str(item["finishedAt"])) for item in items.values()), default=0)
