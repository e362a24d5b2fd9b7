"""DynamoDB throttles the table."""

from __future__ import annotations

import time
from concurrent.futures import ThreadPoolExecutor

from drills import fault_proxy
from drills.session import Session
from tests.support.local_stack import UpStack
from thunderagent.client import NewTask

ALARM_WITHIN = 240.0


def rehearse(session: Session) -> None:
    """What callers are told, which alarm rings, and that everything goes on by itself."""
    seconds, tasks = (8.0, 20) if session.quick else (60.0, 100)
    session.heading("Tasks at work, and then every request to the table is throttled")
    session.waits("before", [NewTask("demo.echo", 1)] * 4, within=30)
    running = session.submit([NewTask("demo.sleep", {"seconds": 2})] * tasks)
    with session.stack.proxy.breaking(fault_proxy.throttled()):
        until = time.monotonic() + seconds
        session.heading("What you see")
        session.thunder("stats", may_fail=True)
        with ThreadPoolExecutor(1) as pool:
            answers = pool.submit(refusals, session, until)
            session.thunder("task", "submit", "demo.echo", "--payload", "1", may_fail=True)
            refused, patience = answers.result()
        session.figure("submits answered 503", refused)
        session.figure("Retry-After, s", patience)
    ended = time.time()
    session.require(refused > 0, "nobody was refused although the table was throttled")
    session.heading("What you do here: nothing. It goes on by itself")
    items = session.ended(running, within=180)
    session.figure("the last of them ended after the throttling, s", max(0, _last(items) - ended))
    session.waits("afterwards", [NewTask("demo.echo", 1)] * 4, within=60)
    session.wait_for_alarm("apiservererrors", ALARM_WITHIN)
    session.thunder("stats")
    session.require(all(item["status"] == "SUCCESS" for item in items.values()), "tasks failed of it")
    session.require(all(item["retryCount"] == 0 for item in items.values()), "it cost retries")


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


def _last(items: dict[str, dict[str, object]]) -> float:
    return max(float(str(item["finishedAt"])) for item in items.values())
