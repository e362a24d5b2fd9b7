"""Charts as the browser draws them: one time axis, a line for each series; and in words for who does not see them."""

from __future__ import annotations

import json
from collections.abc import Sequence
from dataclasses import dataclass

from thunder.console import shown
from thunder.console.measures import Series

RANGES: Sequence[tuple[int, str]] = (
    (1, "1 hour"),
    (3, "3 hours"),
    (12, "12 hours"),
    (24, "1 day"),
    (168, "1 week"),
)


@dataclass(frozen=True)
class Chart:
    """`unit` is how values are shown: `s` for seconds, `ms`, or nothing for counts."""

    title: str
    series: Sequence[Series]
    unit: str = ""
    start: float = 0
    end: float = 0
    is_stacked: bool = False

    @property
    def is_empty(self) -> bool:
        return not any(each.points for each in self.series)

    @property
    def problems(self) -> list[str]:
        return sorted({each.problem for each in self.series if each.problem})

    @property
    def data(self) -> str:
        """For the attribute the drawing script reads."""
        times = sorted({at for each in self.series for at, _ in each.points})
        lines = []
        for each in self.series:
            values = dict(each.points)
            lines.append({"label": each.label, "right": each.is_right, "values": [values.get(at) for at in times]})
        return json.dumps(
            {
                "times": times,
                "series": lines,
                "unit": self.unit,
                "from": self.start,
                "to": self.end,
                "stacked": self.is_stacked,
            }
        )

    @property
    def words(self) -> str:
        """The chart for a screen reader: last and highest value of each line."""
        if self.is_empty:
            return f"{self.title}: no data"
        return f"{self.title}: " + "; ".join(
            f"{each.label} {self.shown(each.last)}, at most {self.shown(each.highest)}"
            for each in self.series
            if each.points
        )

    def shown(self, value: float | None) -> str:
        if value is None:
            return "no data"
        if self.unit in ("s", "ms"):
            return shown.duration(value / 1000 if self.unit == "ms" else value)
        return shown.number(value) + (f" {self.unit}" if self.unit else "")


def range_of(text: str, default: int = 3) -> int:
    """Hours, of those there are to choose from."""
    return next((hours for hours, _ in RANGES if text == str(hours)), default)
