"""One tenant floods a queue that all tenants share."""

from __future__ import annotations

from drills.session import Session
from thunderagent.client import NewTask

AT_ONCE = 8
SHARE = '{"tag": "tenant", "maxConcurrency": 3}'


def of_tenant(tenant: str, *, seconds: float) -> NewTask:
    return NewTask("demo.sleep", {"seconds": seconds}, {"tags": {"tenant": tenant}})


def rehearse(session: Session) -> None:
    """The others' waiting time with the flood, and after the flood's share is limited."""
    flood, probes, within = (150, 6, 25.0) if session.quick else (600, 15, 60.0)
    session.heading("A queue that may run eight tasks at once, and one tenant who sends hundreds")
    session.thunder("queue", "set", "default", "--max-concurrency", str(AT_ONCE))
    flooding = session.submit([of_tenant("a", seconds=2) for _ in range(flood)])
    session.heading("What you see: the others wait")
    before = session.waits("before", [of_tenant("b", seconds=0.2)] * probes, within=within)
    session.thunder("stats")
    waiting = next(each for each, item in session.stack.items(flooding).items() if item["status"] == "PENDING")
    session.thunder("task", "why", waiting)
    session.alarms()
    session.heading("What you do: no tenant gets more than three of the eight")
    session.thunder("queue", "set", "default", "--per-key", SHARE, "--reason", "tenant a floods")
    after = session.waits("after", [of_tenant("b", seconds=0.2)] * probes, within=within)
    session.thunder("stats")
    session.require(after["p50"] < before["p50"] / 2, "the others wait as long as before")
