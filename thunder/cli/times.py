"""Times as people read and write them: how long ago, and when exactly."""

from __future__ import annotations

import re
import time
from datetime import UTC, datetime
from typing import Any

import click

_UNITS = {"": 1, "s": 1, "m": 60, "h": 3600, "d": 86_400, "w": 604_800}
_SPAN = re.compile(r"(\d+(?:\.\d+)?)\s*([smhdw]?)")


def span(seconds: float) -> str:
    """A duration in its two largest units: `40ms`, `2.5s`, `12s`, `3m 20s`, `2h 5m`, `3d 4h`."""
    if seconds < 1:
        return f"{seconds * 1000:.0f}ms" if seconds else "0s"
    if seconds < 10:
        return f"{seconds:.1f}".removesuffix(".0") + "s"
    whole = round(seconds)
    for unit, size, below, smaller in (("d", 86_400, "h", 3600), ("h", 3600, "m", 60), ("m", 60, "s", 1)):
        if whole >= size:
            rest = whole % size // smaller
            return f"{whole // size}{unit}" + (f" {rest}{below}" if rest else "")
    return f"{whole}s"


def relative(at: float, now: float) -> str:
    """`3m ago`, `in 5s`."""
    if abs(now - at) < 0.05:
        return "now"
    return f"{span(now - at)} ago" if at < now else f"in {span(at - now)}"


def when(at: Any, now: float | None = None) -> str:
    """For a table: relative, and the time of day (with the date unless it is today's) where the operator is."""
    moment = _moment(at)
    if moment is None:
        return "" if at is None else str(at)
    present = time.time() if now is None else now
    today = datetime.fromtimestamp(present).astimezone().date() == moment.date()
    return (
        f"{relative(float(at), present)}, {moment:%H:%M:%S}"
        if today
        else (f"{relative(float(at), present)}, {moment:%Y-%m-%d %H:%M}")
    )


def how_long_ago(at: Any, now: float | None = None) -> str:
    """For a narrow table: relative alone."""
    if _moment(at) is None:
        return "" if at is None else str(at)
    return relative(float(at), time.time() if now is None else now)


def in_full(at: Any, now: float | None = None) -> str:
    """For one task: to the millisecond with the offset, and relative."""
    moment = _moment(at)
    if moment is None:
        return "" if at is None else str(at)
    present = time.time() if now is None else now
    return f"{moment.isoformat(sep=' ', timespec='milliseconds')} ({relative(float(at), present)})"


def iso(at: Any) -> str:
    """For programs: UTC, sortable."""
    moment = _moment(at)
    if moment is None:
        return "" if at is None else str(at)
    return moment.astimezone(UTC).isoformat(timespec="milliseconds").replace("+00:00", "Z")


def _moment(at: Any) -> datetime | None:
    """Epoch seconds where the operator is; None for what is no time (a row may hold anything)."""
    if isinstance(at, bool) or not isinstance(at, int | float):
        return None
    try:
        return datetime.fromtimestamp(at, UTC).astimezone()
    except (ValueError, OverflowError, OSError):
        return None


def parse_span(text: str) -> float | None:
    """Seconds of `90`, `90s`, `5m`, `2h`, `1d`, `1w`; None for anything else."""
    match = _SPAN.fullmatch(text.strip().lower())
    return float(match[1]) * _UNITS[match[2]] if match else None


class Span(click.ParamType):  # type: ignore[type-arg]  # generic since click 8.2 only
    """Whole seconds, also as `5m`, `2h`, `1d`."""

    name = "duration"

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> int:
        seconds = float(value) if isinstance(value, int | float) else parse_span(value)
        if seconds is None or seconds != int(seconds):
            self.fail(f"{value!r} is no duration: whole seconds, or like 90s, 5m, 2h, 1d", param, ctx)
        return int(seconds)


class Moment(click.ParamType):  # type: ignore[type-arg]  # generic since click 8.2 only
    """Epoch seconds, RFC 3339 with an offset, or a duration before now."""

    name = "time"

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> float:
        if isinstance(value, int | float):
            return float(value)
        if re.fullmatch(r"\d{9,}(\.\d+)?", value):
            return float(value)
        if (before := parse_span(value)) is not None:
            return time.time() - before
        try:
            moment = datetime.fromisoformat(value)
        except ValueError:
            self.fail(f"{value!r} is no time: like 2h (ago), 2026-12-01T09:00:00+02:00, or epoch seconds", param, ctx)
        if moment.tzinfo is None:
            self.fail(f"{value!r} has no offset: append Z for UTC, or like +02:00", param, ctx)
        return moment.timestamp()
