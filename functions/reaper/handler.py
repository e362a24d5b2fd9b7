"""The reaper: every minute, take back what stopped workers left, and count what is waiting."""

from __future__ import annotations

from dataclasses import asdict
from functools import cache
from typing import Any

from thunderagent.wiring import Parts, parts_from_environment


@cache
def parts() -> Parts:
    return parts_from_environment(threads=4)


def handler(event: dict[str, Any], context: Any) -> dict[str, Any]:
    """One scheduled run. Returns what was taken back."""
    own = parts()
    own.telemetry.measure("ReaperHeartbeat")
    own.flush()
    try:
        taken = asdict(own.reaper.run())
        if any(taken.values()):
            own.telemetry.log("reaper.ran", **taken)
        return taken
    finally:
        own.flush()
