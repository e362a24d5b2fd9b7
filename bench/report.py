"""What a bench measured, with what it was measured on: as tables to read."""

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


def body(result: Mapping[str, Any]) -> list[str]:
    """What a bench printed, as paragraphs. `text` is what it says in words, `images` are curves it drew (caption → path
    below docs/), `tables` are grids of its own making (`title`, `columns`, `rows`); all other figures stand in one
    table."""
    own = ("conditions", "text", "images", "tables")
    figures = {name: value for name, value in result.items() if name not in own}
    curves = [f"![{caption}]({path})" for caption, path in result.get("images", {}).items()]
    grids = [grid(each) for each in result.get("tables", [])]
    return [*result.get("text", []), *curves, *grids, *([table(figures)] if figures else [])]


def grid(given: Mapping[str, Any]) -> str:
    """A Markdown table with named columns; the first holds names, the others figures."""
    first, *others = given["columns"]
    head = [f"| {' | '.join([first, *others])} |", f"|---|{'---:|' * len(others)}"]
    rows = [f"| {' | '.join(map(_text, row))} |" for row in given["rows"]]
    return "\n".join([f"**{given['title']}**", "", *head, *rows])


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
