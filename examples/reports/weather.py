"""The dataset (`data/SOURCE.md`) and the figures of one report."""

import csv
import functools
import hashlib
from collections import Counter
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from datetime import date, timedelta
from decimal import ROUND_HALF_UP, Decimal
from pathlib import Path
from statistics import fmean
from typing import Any

from .periods import Period

DATASET = Path(__file__).parent / "data" / "weather.csv"
SKIES = ("sun", "fog", "drizzle", "rain", "snow")
TYPICAL_HALF_WINDOW_DAYS = 7


@dataclass(frozen=True)
class Day:
    """One station's day: millimetres, degrees Celsius, metres per second."""

    on: date
    rain: float
    high: float
    low: float
    wind: float
    sky: str


@dataclass(frozen=True)
class Typical:
    """What the whole dataset has around one day of the year: mean high and mean low of the days within a week of it."""

    high: float
    low: float

    @property
    def mean(self) -> float:
        return (self.high + self.low) / 2


@dataclass(frozen=True)
class Station:
    """One place's record, days in order and none missing."""

    slug: str
    name: str
    days: tuple[Day, ...]

    @property
    def first(self) -> date:
        return self.days[0].on

    @property
    def last(self) -> date:
        return self.days[-1].on

    def during(self, period: Period) -> tuple[Day, ...]:
        """The period's days. Raises LookupError if the record does not cover all of it."""
        if not period.within(self.first, self.last):
            raise LookupError(f"{self.name} is known from {self.first} to {self.last}, not for all of {period.label}")
        start = (period.first - self.first).days
        return self.days[start : start + period.days]

    def typical(self, on: date) -> Typical:
        """The mean over every year of the record, `TYPICAL_HALF_WINDOW_DAYS` to each side of the same day."""
        near = [day for year in range(self.first.year, self.last.year + 1) for day in self._around(_same_day(on, year))]
        return Typical(high=fmean(day.high for day in near), low=fmean(day.low for day in near))

    def _around(self, centre: date) -> tuple[Day, ...]:
        offset = (centre - self.first).days
        return self.days[max(0, offset - TYPICAL_HALF_WINDOW_DAYS) : offset + TYPICAL_HALF_WINDOW_DAYS + 1]


@functools.cache
def stations() -> Mapping[str, Station]:
    """Every station by slug, read once per process."""
    with DATASET.open(encoding="utf-8", newline="") as lines:
        rows = list(csv.DictReader(lines))
    names = sorted({row["location"] for row in rows})
    found = [Station(_slug(name), name, tuple(_day(row) for row in rows if row["location"] == name)) for name in names]
    return {station.slug: station for station in found}


@functools.cache
def dataset_digest() -> str:
    return hashlib.sha256(DATASET.read_bytes()).hexdigest()


def summarise(station: Station, period: Period) -> dict[str, Any]:
    """The report's figures, a JSON object; of equal extremes the first day counts.

    Raises LookupError if the record does not cover the period.
    """
    days = station.during(period)
    return {
        "station": station.name,
        "period": period.label,
        "title": f"{station.name}, {period.title}",
        "from": period.first.isoformat(),
        "to": period.last.isoformat(),
        "days": len(days),
        "temperature": _temperature(station, days),
        "precipitation": {
            "unit": "mm",
            "total": _tenths(_total(day.rain for day in days)),
            "wetDays": sum(day.rain > 0 for day in days),
            "wettest": _extreme(days, lambda day: day.rain, max),
        },
        "wind": {
            "unit": "m/s",
            "mean": _tenths(_total(day.wind for day in days) / len(days)),
            "strongest": _extreme(days, lambda day: day.wind, max),
        },
        "skies": _skies(days),
    }


def _temperature(station: Station, days: Sequence[Day]) -> dict[str, Any]:
    mean = _total(value for day in days for value in (day.high, day.low)) / (2 * len(days))
    usual = fmean(station.typical(day.on).mean for day in days)
    return {
        "unit": "°C",
        "mean": _tenths(mean),
        "departure": _tenths(mean - Decimal(usual)),
        "highest": _extreme(days, lambda day: day.high, max),
        "lowest": _extreme(days, lambda day: day.low, min),
        "frostDays": sum(day.low < 0 for day in days),
    }


def _extreme(days: Sequence[Day], figure: Callable[[Day], float], pick: Callable[..., Day]) -> dict[str, Any]:
    day = pick(days, key=figure)
    return {"value": figure(day), "on": day.on.isoformat()}


def _total(figures: Iterable[float]) -> Decimal:
    """The exact sum of figures as the dataset writes them: in binary, a mean of 2.65 may come out just below it."""
    return sum((Decimal(str(figure)) for figure in figures), Decimal())


def _tenths(value: Decimal) -> float:
    """To one decimal as people round, half away from zero, and never a negative zero."""
    return float(value.quantize(Decimal("0.1"), ROUND_HALF_UP)) + 0.0


def _skies(days: Sequence[Day]) -> dict[str, int]:
    counts = Counter(day.sky for day in days)
    return {sky: counts[sky] for sky in SKIES}


def _day(row: Mapping[str, str]) -> Day:
    return Day(
        on=date.fromisoformat(row["date"]),
        rain=float(row["precipitation"]),
        high=float(row["temp_max"]),
        low=float(row["temp_min"]),
        wind=float(row["wind"]),
        sky=row["weather"],
    )


def _slug(name: str) -> str:
    return name.lower().replace(" ", "-")


def _same_day(on: date, year: int) -> date:
    """The same day of another year; 29 February falls on the day after the 28th."""
    return date(year, on.month, 1) + timedelta(days=on.day - 1)
