"""The reaper: every minute, take back what stopped workers left, count what is waiting, audit a little."""

from __future__ import annotations

from functools import cache
from typing import Any

from thunderagent.upkeep import Upkeep, upkeep_of
from thunderagent.wiring import parts_from_environment


@cache
def upkeep() -> Upkeep:
    return upkeep_of(parts_from_environment(threads=4))


def handler(event: dict[str, Any], context: Any) -> dict[str, Any]:
    """One scheduled run. Returns what was taken back. A run that did not go well gives no sign of life."""
    own = upkeep()
    own.parts.begin()
    try:
        done = own.run()
        if any(value for name, value in done.items() if name != "well"):
            own.parts.telemetry.log("reaper.ran", **done)
        return done
    finally:
        own.parts.flush()
