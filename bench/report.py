"""What a bench measured, with what it was measured on: as a table to read."""

from __future__ import annotations

import os
import platform
from collections.abc import Iterator, Mapping
from typing import Any


def conditions() -> dict[str, Any]:
    """The machine now: figures taken beside other work say so by its load."""
    one_minute, five_minutes, _ = os.getloadavg()
    return {
        "cores": len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count(),
        "loadOneMinute": round(one_minute, 1),
        "loadFiveMinutes": round(five_minutes, 1),
        "python": platform.python_version(),
        "machine": f"{platform.system()} {platform.machine()}",
    }


def table(result: Mapping[str, Any]) -> str:
    """A Markdown table of two columns; figures inside others by their path."""
    rows = list(_rows(result))
    width = max(len(name) for name, _ in rows)
    lines = [f"| {name:<{width}} | {value:>10} |" for name, value in rows]
    return "\n".join([f"| {'figure':<{width}} | {'value':>10} |", f"|{'-' * (width + 2)}|{'-' * 11}:|", *lines])


def _rows(result: Mapping[str, Any], prefix: str = "") -> Iterator[tuple[str, str]]:
    for name, value in result.items():
        if isinstance(value, Mapping):
            yield from _rows(value, f"{prefix}{name}.")
        else:
            yield prefix + name, _text(value)


def _text(value: Any) -> str:
    if isinstance(value, list):
        return ", ".join(map(_text, value))
    if isinstance(value, bool) or not isinstance(value, int | float):
        return str(value)
    return f"{value:,}"
