"""The recorder: the table's stream as events for EventBridge and as an archive in S3."""

from __future__ import annotations

from functools import cache
from typing import Any

from thunderagent.charges import EVENTS
from thunderagent.recording import Recording, recording_of
from thunderagent.wiring import parts_from_environment


@cache
def recording() -> Recording:
    return recording_of(parts_from_environment(threads=4))


def handler(event: dict[str, Any], context: Any) -> dict[str, int]:
    """One batch of the stream. Returns what was recorded; raises only when the whole batch is to be delivered again."""
    own = recording()
    own.parts.begin()
    try:
        recorded = own.recorder.record(event).as_dict()
        own.parts.charges.count(EVENTS, recorded.get("events", 0))
        if recorded:
            own.parts.telemetry.log("stream.recorded", level="DEBUG", **recorded)
        return recorded
    finally:
        own.parts.flush()
