"""A handler that always fails: what it needs is down."""

from __future__ import annotations

from drills.session import Session
from thunderagent.client import NewTask

ALARM_WITHIN = 240.0


def rehearse(session: Session) -> None:
    """Dead letters by error, a pause, the cause mended, and a redrive of exactly those."""
    tasks = 12 if session.quick else 60
    key = "provider"
    session.heading("A provider is down: every task of one type fails")
    failing = session.submit([NewTask("demo.needs", {"key": key}, {"max_retry_number": 1})] * tasks)
    others = session.submit([NewTask("demo.permanent", None)] * 2)
    session.ended([*failing, *others], within=120)
    session.heading("What you see")
    session.wait_for_alarm("tasksfailed", ALARM_WITHIN)
    session.thunder("stats")
    session.thunder("dlq", "list")
    session.thunder("task", "get", failing[0])
    session.heading("What you do: stop the damage")
    session.thunder("queue", "pause", "default", "--reason", "the provider is down")
    kept = session.submit([NewTask("demo.needs", {"key": key}, {"max_retry_number": 1})] * 3)
    session.thunder("task", "why", kept[0])
    session.heading("Mend the cause, then redrive what failed of it, and nothing else")
    session.thunder("dlq", "redrive", "--error-type", "ConnectionError", "--dry-run")
    session.thunder("queue", "resume", "default", "--reason", "the provider is back")
    session.ended(session.submit([NewTask("demo.count", {"key": key})]), within=60)
    session.thunder("dlq", "redrive", "--error-type", "ConnectionError", "--yes", "--reason", "the provider is back")
    items = session.ended([*failing, *kept], within=120)
    succeeded = sum(item["status"] == "SUCCESS" for item in items.values())
    session.figure("failed tasks", tasks)
    session.figure("succeeded after the redrive", succeeded)
    session.thunder("dlq", "list")
    session.require(succeeded == len(items), "redriven tasks failed again")
    left = session.stack.items(others).values()
    session.require(all(item["status"] == "FAILED" for item in left), "others were redriven too")
