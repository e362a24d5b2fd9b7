"""W3C Trace Context (https://www.w3.org/TR/trace-context/): which trace a task belongs to. No tracing SDK is needed."""

from __future__ import annotations

import re
from typing import Final

_TRACEPARENT: Final = re.compile(
    r"(?P<version>[0-9a-f]{2})-(?P<trace>[0-9a-f]{32})-(?P<parent>[0-9a-f]{16})-(?P<flags>[0-9a-f]{2})(?P<more>-.*)?"
)


def traceparent_of(header: str | None) -> str | None:
    """The header in the form of version 00; None when there is none, or when it is to be ignored as malformed."""
    match = _TRACEPARENT.fullmatch(header.strip(" \t")) if header is not None else None
    if match is None or match["version"] == "ff" or not (match["trace"].strip("0") and match["parent"].strip("0")):
        return None
    if match["version"] == "00" and match["more"] is not None:
        return None
    return f"00-{match['trace']}-{match['parent']}-{match['flags']}"
