"""The figures of a report. The golden ones were computed from the CSV with awk, not with the code under test."""

import csv
import hashlib
import json
import re
from datetime import date, timedelta
from decimal import Decimal
from typing import Any

import pytest

from examples.reports.periods import Period, periods_within
from examples.reports.weather import DATASET, Station, dataset_digest, stations, summarise

GOLDEN: dict[tuple[str, str], dict[str, Any]] = {
    ("seattle", "2012-03"): {
        "station": "Seattle",
        "title": "Seattle, March 2012",
        "from": "2012-03-01",
        "to": "2012-03-31",
        "days": 31,
        "mean": 6.2,
        "highest": {"value": 15.6, "on": "2012-03-08"},
        "lowest": {"value": -1.7, "on": "2012-03-07"},
        "frostDays": 3,
        "total": 183.0,
        "wetDays": 22,
        "wettest": {"value": 27.4, "on": "2012-03-29"},
        "wind": 4.2,
        "strongest": {"value": 7.0, "on": "2012-03-03"},
        "skies": {"sun": 6, "fog": 0, "drizzle": 1, "rain": 19, "snow": 5},
    },
    ("new-york", "2014-02"): {
        "station": "New York",
        "title": "New York, February 2014",
        "from": "2014-02-01",
        "to": "2014-02-28",
        "days": 28,
        "mean": -0.4,
        "highest": {"value": 12.8, "on": "2014-02-23"},
        "lowest": {"value": -11.6, "on": "2014-02-28"},
        "frostDays": 23,
        "total": 116.7,
        "wetDays": 12,
        "wettest": {"value": 32.3, "on": "2014-02-13"},
        "wind": 5.1,
        "strongest": {"value": 9.4, "on": "2014-02-13"},
        "skies": {"sun": 15, "fog": 1, "drizzle": 0, "rain": 4, "snow": 8},
    },
    ("new-york", "2012"): {
        "station": "New York",
        "title": "New York, 2012",
        "from": "2012-01-01",
        "to": "2012-12-31",
        "days": 366,
        "mean": 13.9,
        "highest": {"value": 37.2, "on": "2012-07-07"},
        "lowest": {"value": -10.6, "on": "2012-01-04"},
        "frostDays": 41,
        "total": 1012.5,
        "wetDays": 124,
        "wettest": {"value": 54.4, "on": "2012-04-22"},
        "wind": 4.8,
        "strongest": {"value": 16.2, "on": "2012-10-29"},
        "skies": {"sun": 162, "fog": 2, "drizzle": 26, "rain": 156, "snow": 20},
    },
    ("seattle", "2015-Q3"): {
        "station": "Seattle",
        "title": "Seattle, July to September 2015",
        "from": "2015-07-01",
        "to": "2015-09-30",
        "days": 92,
        "mean": 19.4,
        "highest": {"value": 35.0, "on": "2015-07-19"},
        "lowest": {"value": 7.2, "on": "2015-09-27"},
        "frostDays": 0,
        "total": 106.7,
        "wetDays": 17,
        "wettest": {"value": 32.5, "on": "2015-08-29"},
        "wind": 3.1,
        "strongest": {"value": 6.8, "on": "2015-09-20"},
        "skies": {"sun": 62, "fog": 8, "drizzle": 5, "rain": 17, "snow": 0},
    },
    # The first ISO week of 2015 begins in 2014.
    ("seattle", "2015-W01"): {
        "station": "Seattle",
        "title": "Seattle, week 1 of 2015",
        "from": "2014-12-29",
        "to": "2015-01-04",
        "days": 7,
        "mean": 2.7,
        "highest": {"value": 10.6, "on": "2015-01-04"},
        "lowest": {"value": -3.2, "on": "2015-01-01"},
        "frostDays": 3,
        "total": 11.7,
        "wetDays": 2,
        "wettest": {"value": 10.2, "on": "2015-01-04"},
        "wind": 2.9,
        "strongest": {"value": 4.5, "on": "2015-01-04"},
        "skies": {"sun": 3, "fog": 2, "drizzle": 0, "rain": 2, "snow": 0},
    },
}


@pytest.mark.parametrize(("slug", "label"), GOLDEN)
def test_the_figures_are_those_of_the_dataset(slug: str, label: str) -> None:
    made = summarise(stations()[slug], Period.parse(label))
    flat = {name: made[name] for name in ("station", "title", "from", "to", "days", "skies")}
    flat |= {name: made["temperature"][name] for name in ("mean", "highest", "lowest", "frostDays")}
    flat |= {name: made["precipitation"][name] for name in ("total", "wetDays", "wettest")}
    flat |= {"wind": made["wind"]["mean"], "strongest": made["wind"]["strongest"]}
    assert made["period"] == label
    assert flat == GOLDEN[slug, label]


def test_the_usual_temperature_is_the_mean_of_the_fifteen_days_around_in_every_year() -> None:
    usual = stations()["seattle"].typical(date(2013, 6, 15))
    assert usual.high == pytest.approx(21.755)
    assert usual.low == pytest.approx(11.6117, abs=1e-4)


def test_the_usual_temperature_of_a_leap_day_is_that_of_the_first_of_march_in_other_years() -> None:
    rows = [row for row in _rows() if row["location"] == "Seattle"]
    around = {date(2012, 2, 29)} | {date(year, 3, 1) for year in (2013, 2014, 2015)}
    near = {centre + timedelta(days=offset) for centre in around for offset in range(-7, 8)}
    highs = [Decimal(row["temp_max"]) for row in rows if date.fromisoformat(row["date"]) in near]
    assert len(highs) == 60
    assert stations()["seattle"].typical(date(2012, 2, 29)).high == pytest.approx(float(sum(highs) / 60))


def test_the_parts_of_a_year_add_up_to_it() -> None:
    station = stations()["new-york"]
    year = summarise(station, Period.year(2013))
    for kind in ("quarter", "month"):
        parts = [summarise(station, period) for period in _periods(station, kind) if period.first.year == 2013]
        assert sum(part["days"] for part in parts) == year["days"] == 365
        assert sum(Decimal(str(part["precipitation"]["total"])) for part in parts) == Decimal(
            str(year["precipitation"]["total"])
        )
        assert max(part["temperature"]["highest"]["value"] for part in parts) == year["temperature"]["highest"]["value"]


def test_a_station_covers_every_day_of_its_record_in_order() -> None:
    for station in stations().values():
        assert (station.first, station.last) == (date(2012, 1, 1), date(2015, 12, 31))
        assert [day.on for day in station.days] == [station.first + timedelta(days=index) for index in range(1461)]


def test_several_hundred_reports_can_be_asked_for() -> None:
    wanted = {(station.slug, period.label) for station in stations().values() for period in _all_periods(station)}
    assert len(wanted) == 2 * (4 + 16 + 48 + 208)


def test_every_listed_period_reads_back_from_its_label() -> None:
    listed = _all_periods(stations()["seattle"])
    assert [Period.parse(period.label) for period in listed] == listed


@pytest.mark.parametrize(
    ("label", "first", "last", "days"),
    [
        ("2012", date(2012, 1, 1), date(2012, 12, 31), 366),
        ("2013-Q4", date(2013, 10, 1), date(2013, 12, 31), 92),
        ("2012-02", date(2012, 2, 1), date(2012, 2, 29), 29),
        ("2015-W53", date(2015, 12, 28), date(2016, 1, 3), 7),
    ],
)
def test_a_label_names_a_run_of_days(label: str, first: date, last: date, days: int) -> None:
    period = Period.parse(label)
    assert (period.first, period.last, period.days) == (first, last, days)


@pytest.mark.parametrize(
    "label",
    ["", "12", "2012-1", "2012-13", "2012-00", "2012-Q0", "2012-Q5", "2012-W00", "2014-W53", "0000", "2012-03-01"],
)
def test_what_is_not_a_period_is_refused_by_name(label: str) -> None:
    with pytest.raises(ValueError, match=re.escape(repr(label))):
        Period.parse(label)


@pytest.mark.parametrize("label", ["２０１２", "2012\n", " 2012", "../2012", "2012-w05"])
def test_what_only_looks_like_a_period_would_make_a_second_key_and_is_refused(label: str) -> None:
    with pytest.raises(ValueError, match="is not a period"):
        Period.parse(label)


def test_no_figure_is_a_negative_zero() -> None:
    station = stations()["seattle"]
    texts = [json.dumps(summarise(station, period)) for period in _periods(station, "week")]
    assert [text for text in texts if "-0.0" in text] == []
    assert any('"departure": 0.0' in text for text in texts)


def test_a_period_the_record_does_not_cover_is_refused() -> None:
    with pytest.raises(LookupError, match="New York is known from 2012-01-01 to 2015-12-31, not for all of 2015-W53"):
        summarise(stations()["new-york"], Period.parse("2015-W53"))


def test_the_dataset_is_the_one_its_source_page_names() -> None:
    source = (DATASET.parent / "SOURCE.md").read_text(encoding="utf-8")
    digest = hashlib.sha256(DATASET.read_bytes()).hexdigest()
    assert dataset_digest() == digest
    assert digest in source
    assert DATASET.stat().st_size < 300_000


def _rows() -> list[dict[str, str]]:
    with DATASET.open(encoding="utf-8", newline="") as lines:
        return list(csv.DictReader(lines))


def _all_periods(station: Station) -> list[Period]:
    return list(periods_within(station.first, station.last))


def _periods(station: Station, kind: str) -> list[Period]:
    return [period for period in _all_periods(station) if period.kind == kind]
