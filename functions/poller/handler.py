"""The poller: every minute, sweep the queues for most of that minute and send what is due to the executors.

`doorbell` is the entry of a second function with the same code: the table's stream wakes it for tasks just become due.
"""

from __future__ import annotations

from functools import cache
from typing import Any

from thunderagent.wiring import Parts, parts_from_environment

EVERY_SECONDS = 60.0  # the schedule: while there is a backlog, one run goes on until the next one begins
STOP_SECONDS = 8.0  # before the function's own time-out: the last pass must have ended


@cache
def parts() -> Parts:
    return parts_from_environment(threads=10)


def handler(event: dict[str, Any], context: Any) -> dict[str, Any]:
    """One scheduled run. Returns what was claimed; the log line of the run carries the same count."""
    own = parts()
    own.begin()
    settings, clock = own.settings, own.seams.clock
    began = clock.monotonic()
    own.telemetry.measure("PollerHeartbeat")
    own.flush()  # at once: the alarm on a stopped poller must not depend on how this run ends
    try:
        clock.sleep(own.seams.randomness.uniform(0, settings.poll_start_jitter_seconds))
        left = context.get_remaining_time_in_millis() / 1000 - STOP_SECONDS
        window = min(settings.poll_window_seconds, left)
        backlog = min(EVERY_SECONDS - (clock.monotonic() - began), left) if window > 0 else 0
        total = own.sweeper.run(window_seconds=window, backlog_seconds=backlog)
        own.telemetry.log("poller.swept", claimed=total.claimed, conflicts=total.conflicts)
        return {"claimed": total.claimed, "conflicts": total.conflicts}
    finally:
        own.flush()


def doorbell(event: dict[str, Any], context: Any) -> dict[str, Any]:
    """One batch of stream records. What it cannot send is left to the sweep: no record is worth a retry."""
    own = parts()
    own.begin()
    try:
        rung = own.doorbell.ring(event.get("Records", []))
        own.telemetry.log("doorbell.rung", level="DEBUG", **vars(rung))
        return vars(rung)
    finally:
        own.flush()
