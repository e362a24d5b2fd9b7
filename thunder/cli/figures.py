"""How queues and their figures are shown. Every figure has a time; a count that stopped at its bound says so."""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping, Sequence
from typing import Any

from thunder.cli.output import Column, Row
from thunder.cli.times import relative, span

OLD_SECONDS = 150  # the reaper counts each minute
LATE_SECONDS = 60  # a task due for so long is worth a colour


def value_of(row: Row, name: str) -> Any:
    figure = row.get(name)
    return figure.get("value") if isinstance(figure, Mapping) else None


def count(row: Row, name: str) -> str:
    """`12`, `1000+`, or nothing where it is not counted."""
    value = value_of(row, name)
    if value is None:
        return "-"
    more = "+" if row[name].get("atLeast") else ""
    return f"{value:g}{more}" if isinstance(value, float) else f"{value}{more}"


def age(row: Row) -> str:
    """How long the oldest due task has waited."""
    seconds = value_of(row, "oldestDueAgeSeconds")
    return span(seconds) if seconds else "-"


def as_of(rows: Sequence[Row]) -> float | None:
    """When the oldest of these figures was counted."""
    times = [row["backlog"]["asOf"] for row in rows if isinstance(row.get("backlog"), Mapping)]
    return min(times, default=None)


def as_of_words(rows: Sequence[Row], now: float | None = None) -> str:
    counted = as_of(rows)
    present = time.time() if now is None else now
    if counted is None:
        return "not counted yet"
    old = " (the reaper has not counted since: `thunder doctor`)" if present - counted > OLD_SECONDS else ""
    return f"counted {relative(counted, present)}{old}"


def state(row: Row) -> str:
    """Nothing for totals, which are of no queue."""
    return "paused" if row.get("paused") else "open" if "paused" in row else ""


def limits(row: Row) -> str:
    """The limits that are set, in words."""
    words = {
        "maxConcurrency": "{:g} at once",
        "ratePerSecond": "{:g}/s",
        "burst": "burst {:g}",
        "maxBacklog": "backlog ≤ {:g}",
    }
    said = [text.format(row[name]) for name, text in words.items() if isinstance(row.get(name), int | float)]
    per_key = row.get("perKey")
    if isinstance(per_key, Mapping):
        said.append(f"by {per_key.get('tag')}: " + ", ".join(f"{k} {v}" for k, v in per_key.items() if k != "tag"))
    return ", ".join(said)


def _figure(title: str, name: str, colour: Callable[[Row], str | None] | None = None, spared: int = 0) -> Column:
    return Column(
        title,
        lambda row: count(row, name),
        raw=lambda row: value_of(row, name),
        colour=colour,
        spared=spared,
        right=True,
    )


def _age_colour(row: Row) -> str | None:
    seconds = value_of(row, "oldestDueAgeSeconds")
    return "yellow" if seconds and seconds > LATE_SECONDS and not row.get("paused") else None


_NAME = Column("queue", lambda row: row["queue"])
_STATE = Column("state", state, colour=lambda row: "yellow" if row.get("paused") else None)
_LIMITS = Column("limits", limits, may_be_cut=True, spared=1)

QUEUE_COLUMNS: Sequence[Column] = (
    _NAME,
    _STATE,
    _figure("backlog", "backlog"),
    _figure("running", "running"),
    _figure("blocked", "blocked", spared=2),
    _figure("failed", "failed", lambda row: "red" if value_of(row, "failed") else None),
    Column("oldest due", age, raw=lambda row: value_of(row, "oldestDueAgeSeconds"), colour=_age_colour, right=True),
    _figure("ended/s", "finishedPerSecond", spared=3),
    _LIMITS,
)
SETTING_COLUMNS: Sequence[Column] = (_NAME, _STATE, _LIMITS)
"""Of a change's answer: it has no figures, so that to pause a queue is quick however long it is."""
