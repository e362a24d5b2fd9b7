"""How times are read and written."""

from __future__ import annotations

import time
from typing import Any

import click
import pytest

from thunder.cli.times import Moment, Span, in_full, iso, relative, span, when

NOW = 1_800_000_000.0  # 2027-01-15T08:00:00Z


@pytest.fixture(autouse=True)
def berlin(monkeypatch: pytest.MonkeyPatch) -> Any:
    monkeypatch.setenv("TZ", "Europe/Berlin")
    time.tzset()
    yield
    monkeypatch.undo()
    time.tzset()


@pytest.mark.parametrize(
    ("seconds", "words"),
    [(0, "0s"), (0.44, "440ms"), (2.54, "2.5s"), (9.96, "10s"), (12.4, "12s"), (59.9, "1m"), (200, "3m 20s"),
     (7500, "2h 5m"),
     (3600, "1h"), (90_000, "1d 1h"), (10 * 86_400, "10d")],
)  # fmt: skip
def test_spans_have_two_units(seconds: float, words: str) -> None:
    assert span(seconds) == words


def test_relative_tells_before_from_after() -> None:
    assert relative(NOW - 180, NOW) == "3m ago"
    assert relative(NOW + 5, NOW) == "in 5s"
    assert relative(NOW, NOW) == "now"


def test_a_table_has_the_operators_time_of_day_and_the_date_unless_it_is_today() -> None:
    assert when(NOW - 180, NOW) == "3m ago, 08:57:00"
    assert when(NOW - 86_400, NOW) == "1d ago, 2027-01-14 09:00"
    assert when(None) == ""


def test_one_task_has_its_times_in_full() -> None:
    assert in_full(NOW + 0.25, NOW) == "2027-01-15 09:00:00.250+01:00 (in 250ms)"


def test_programs_get_utc() -> None:
    assert iso(NOW) == "2027-01-15T08:00:00.000Z"


@pytest.mark.parametrize("stored", [1e300, "soon", True, float("inf"), float("nan"), -1e18])
def test_what_is_no_time_is_shown_as_it_is(stored: Any) -> None:
    assert when(stored, NOW) == in_full(stored, NOW) == iso(stored) == str(stored)


@pytest.mark.parametrize(("text", "seconds"), [("90", 90), ("90s", 90), ("5m", 300), ("2h", 7200), ("1d", 86_400)])
def test_durations(text: str, seconds: int) -> None:
    assert Span().convert(text, None, None) == seconds


@pytest.mark.parametrize("text", ["", "x", "-5", "1.5s", "5 minutes", "1e3"])
def test_what_is_no_duration_is_refused(text: str) -> None:
    with pytest.raises(click.BadParameter):
        Span().convert(text, None, None)


def test_moments() -> None:
    assert Moment().convert("2027-01-15T09:00:00+01:00", None, None) == NOW
    assert Moment().convert("2027-01-15T08:00:00Z", None, None) == NOW
    assert Moment().convert("1800000000.5", None, None) == NOW + 0.5
    assert Moment().convert("2h", None, None) == pytest.approx(time.time() - 7200, abs=5)


@pytest.mark.parametrize("text", ["yesterday", "2027-01-15T08:00:00", "2027-13-01T00:00:00Z"])
def test_what_is_no_moment_is_refused(text: str) -> None:
    with pytest.raises(click.BadParameter):
        Moment().convert(text, None, None)
