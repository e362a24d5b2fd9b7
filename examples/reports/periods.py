"""Periods a report can cover: the year `2012`, the quarter `2012-Q1`, the month `2012-03`, the ISO week `2012-W05`."""

import calendar
import re
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from datetime import date, timedelta
from typing import Literal

Kind = Literal["year", "quarter", "month", "week"]

_FORMS: dict[Kind, re.Pattern[str]] = {
    "year": re.compile(r"(\d{4})", re.ASCII),
    "quarter": re.compile(r"(\d{4})-Q(\d)", re.ASCII),
    "month": re.compile(r"(\d{4})-(\d{2})", re.ASCII),
    "week": re.compile(r"(\d{4})-W(\d{2})", re.ASCII),
}


@dataclass(frozen=True)
class Period:
    """A run of whole days, both ends included, with the label it is asked for by."""

    kind: Kind
    label: str
    title: str
    first: date
    last: date

    @classmethod
    def parse(cls, label: str) -> "Period":
        """Read a label. Raises ValueError, naming it, if it has none of the four forms or no such period exists."""
        for kind, form in _FORMS.items():
            if found := form.fullmatch(label):
                return _existing(label, kind, [int(number) for number in found.groups()])
        raise ValueError(f"{label!r} is not a period: write 2012, 2012-Q1, 2012-03 or 2012-W05")

    @classmethod
    def year(cls, year: int) -> "Period":
        return cls("year", f"{year:04}", f"{year}", date(year, 1, 1), date(year, 12, 31))

    @classmethod
    def quarter(cls, year: int, quarter: int) -> "Period":
        start, end = 3 * quarter - 2, 3 * quarter
        title = f"{calendar.month_name[start]} to {calendar.month_name[end]} {year}"
        return cls("quarter", f"{year:04}-Q{quarter}", title, date(year, start, 1), _month_end(year, end))

    @classmethod
    def month(cls, year: int, month: int) -> "Period":
        title = f"{calendar.month_name[month]} {year}"
        return cls("month", f"{year:04}-{month:02}", title, date(year, month, 1), _month_end(year, month))

    @classmethod
    def week(cls, year: int, week: int) -> "Period":
        monday = date.fromisocalendar(year, week, 1)
        return cls("week", f"{year:04}-W{week:02}", f"week {week} of {year}", monday, monday + timedelta(days=6))

    @property
    def days(self) -> int:
        return (self.last - self.first).days + 1

    def within(self, first: date, last: date) -> bool:
        return first <= self.first and self.last <= last


_BUILDERS: dict[Kind, Callable[..., Period]] = {
    "year": Period.year,
    "quarter": Period.quarter,
    "month": Period.month,
    "week": Period.week,
}


def periods_within(first: date, last: date) -> Iterator[Period]:
    """Every period that lies whole between two days: years, then quarters, months and weeks, each in order of time."""
    years = range(first.year, last.year + 1)
    candidates: list[Period] = []
    candidates += (Period.year(year) for year in years)
    candidates += (Period.quarter(year, quarter) for year in years for quarter in range(1, 5))
    candidates += (Period.month(year, month) for year in years for month in range(1, 13))
    candidates += (Period.week(year, week) for year in years for week in range(1, _weeks_of(year) + 1))
    return (period for period in candidates if period.within(first, last))


def _existing(label: str, kind: Kind, numbers: list[int]) -> Period:
    try:
        return _BUILDERS[kind](*numbers)
    except (ValueError, IndexError):
        raise ValueError(f"{label!r} is not a period: there is no such {kind}") from None


def _month_end(year: int, month: int) -> date:
    return date(year, month, calendar.monthrange(year, month)[1])


def _weeks_of(year: int) -> int:
    return date(year, 12, 28).isocalendar().week
