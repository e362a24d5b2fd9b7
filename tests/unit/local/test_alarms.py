"""Alarms are judged as CloudWatch judges them."""

from __future__ import annotations

from dataclasses import replace
from datetime import UTC, datetime
from typing import Any

import pytest

from thunder.local.alarms import Alarm

NOW = 1_800_000_030.0  # half a minute into a period
MINUTE = 60
CURRENT = 1_800_000_000

COUNTING = Alarm(
    name="A",
    state="OK",
    namespace="N",
    metric="Failed",
    dimensions=[],
    statistic="Sum",
    period=MINUTE,
    periods=3,
    needed=2,
    comparison="GreaterThanOrEqualToThreshold",
    threshold=1,
    missing="notBreaching",
    configured_at=0,
)
BEATING = replace(COUNTING, comparison="LessThanThreshold", missing="breaching", periods=2, needed=2)


def judged(alarm: Alarm, *values: float | None, current: float | None = None, since: float = 0) -> str:
    """The state by the complete periods, the latest first, and by the one under way."""
    points = {CURRENT - (number + 1) * MINUTE: value for number, value in enumerate(values) if value is not None}
    if current is not None:
        points[CURRENT] = current
    return alarm.judge(points, now=NOW, since=since).state


@pytest.mark.parametrize(
    ("values", "state"),
    [
        ((None, None, None), "OK"),
        ((0, 0, 0), "OK"),
        ((1, 0, 0), "OK"),
        ((1, None, 1), "ALARM"),
        ((0, 1, 1), "ALARM"),
        ((0, 0, 1, 1), "OK"),
    ],
)
def test_so_many_of_the_latest_periods_must_breach(values: tuple[float | None, ...], state: str) -> None:
    assert judged(COUNTING, *values) == state


def test_the_period_under_way_counts_as_soon_as_it_has_data() -> None:
    assert judged(replace(COUNTING, needed=1), 0, 0, 0, current=1) == "ALARM"
    assert judged(replace(COUNTING, periods=1, needed=1), 1) == "ALARM", "kept until there is something newer"
    assert judged(replace(COUNTING, periods=1, needed=1), 1, current=0) == "OK"


def test_the_period_under_way_is_not_blamed_for_being_young() -> None:
    assert judged(replace(BEATING, threshold=2), 2, 2, current=1) == "OK"


def test_a_heartbeat_that_stops_is_an_alarm_and_clears_with_the_next() -> None:
    assert judged(BEATING, 1, 1) == "OK"
    assert judged(BEATING, None, 1) == "OK"
    assert judged(BEATING, None, None) == "ALARM"
    assert judged(BEATING, 1, None, None) == "OK"


def test_what_is_missing_from_before_anybody_watched_is_no_breach() -> None:
    watched_for_one_period = CURRENT - MINUTE
    assert judged(BEATING, None, None, since=watched_for_one_period) == "OK"
    assert judged(BEATING, None, None, since=watched_for_one_period - MINUTE) == "ALARM"
    assert judged(replace(BEATING, configured_at=watched_for_one_period), None, None) == "OK"
    assert judged(BEATING, 0, 0, since=NOW) == "ALARM", "what was measured counts whoever watched"


@pytest.mark.parametrize(("rule", "state"), [("missing", "INSUFFICIENT_DATA"), ("ignore", "ALARM")])
def test_without_any_data_the_rule_for_missing_data_decides(rule: str, state: str) -> None:
    assert judged(replace(COUNTING, missing=rule, state="ALARM"), None, None, None) == state
    assert judged(replace(COUNTING, missing=rule, state="ALARM"), 0) == "OK"


@pytest.mark.parametrize(
    ("comparison", "breaching"),
    [
        ("GreaterThanOrEqualToThreshold", {5, 6}),
        ("GreaterThanThreshold", {6}),
        ("LessThanThreshold", {4}),
        ("LessThanOrEqualToThreshold", {4, 5}),
    ],
)
def test_comparisons(comparison: str, breaching: set[int]) -> None:
    alarm = replace(COUNTING, comparison=comparison, threshold=5, periods=1, needed=1)
    assert {value for value in (4, 5, 6) if judged(alarm, value) == "ALARM"} == breaching


def test_an_alarm_is_read_from_its_description_and_asks_for_its_own_metric() -> None:
    description: dict[str, Any] = {
        "AlarmName": "A",
        "StateValue": "OK",
        "Namespace": "N",
        "MetricName": "QueueLatency",
        "Dimensions": [{"Name": "Queue", "Value": "q"}],
        "ExtendedStatistic": "p95",
        "Statistic": "Average",
        "Period": 300,
        "EvaluationPeriods": 3,
        "Threshold": 60.0,
        "ComparisonOperator": "GreaterThanThreshold",
        "AlarmConfigurationUpdatedTimestamp": datetime.fromtimestamp(CURRENT, UTC),
    }
    alarm = Alarm.of(description)
    assert alarm is not None
    assert (alarm.needed, alarm.missing, alarm.configured_at) == (3, "missing", CURRENT)
    metric = {"Namespace": "N", "MetricName": "QueueLatency", "Dimensions": [{"Name": "Queue", "Value": "q"}]}
    assert alarm.query == {"MetricStat": {"Metric": metric, "Period": 300, "Stat": "p95"}}
    assert alarm.first_second(CURRENT + 1) <= CURRENT - 3 * 300


def test_math_and_anomaly_alarms_are_left_alone() -> None:
    assert Alarm.of({"AlarmName": "A", "StateValue": "OK", "ComparisonOperator": "GreaterThanThreshold"}) is None
    assert Alarm.of({"AlarmName": "A", "MetricName": "M", "ComparisonOperator": "LessThanLowerThreshold"}) is None
