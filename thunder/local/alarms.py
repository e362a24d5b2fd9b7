"""How CloudWatch judges a metric alarm: by its own dimensions, statistic, period and rule for missing data. Pure.

Not done: metric math, anomaly detection, composite alarms.
"""

from __future__ import annotations

import operator
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

OK, ALARM, INSUFFICIENT_DATA = "OK", "ALARM", "INSUFFICIENT_DATA"

_COMPARISONS: Mapping[str, Callable[[float, float], bool]] = {
    "GreaterThanOrEqualToThreshold": operator.ge,
    "GreaterThanThreshold": operator.gt,
    "LessThanThreshold": operator.lt,
    "LessThanOrEqualToThreshold": operator.le,
}


@dataclass(frozen=True)
class Alarm:
    """A metric alarm as DescribeAlarms tells of it."""

    name: str
    state: str
    namespace: str
    metric: str
    dimensions: Sequence[Mapping[str, str]]
    statistic: str
    period: int
    periods: int
    needed: int
    comparison: str
    threshold: float
    missing: str
    configured_at: float

    @staticmethod
    def of(description: Mapping[str, Any]) -> Alarm | None:
        """None for an alarm of a kind that is not judged here."""
        if not description.get("MetricName") or description.get("ComparisonOperator") not in _COMPARISONS:
            return None
        configured = description.get("AlarmConfigurationUpdatedTimestamp")
        return Alarm(
            name=description["AlarmName"],
            state=description["StateValue"],
            namespace=description["Namespace"],
            metric=description["MetricName"],
            dimensions=description.get("Dimensions", []),
            statistic=description.get("ExtendedStatistic") or description.get("Statistic") or "Average",
            period=int(description["Period"]),
            periods=int(description["EvaluationPeriods"]),
            needed=int(description.get("DatapointsToAlarm") or description["EvaluationPeriods"]),
            comparison=description["ComparisonOperator"],
            threshold=float(description["Threshold"]),
            missing=description.get("TreatMissingData") or "missing",
            configured_at=configured.timestamp() if configured is not None else 0.0,
        )

    @property
    def query(self) -> dict[str, Any]:
        """What GetMetricData is asked for, but for the id."""
        metric = {"Namespace": self.namespace, "MetricName": self.metric, "Dimensions": list(self.dimensions)}
        return {"MetricStat": {"Metric": metric, "Period": self.period, "Stat": self.statistic}}

    def first_second(self, now: float) -> int:
        """Where the oldest period begins that matters now."""
        return (int(now) // self.period - self.periods) * self.period

    def judge(self, datapoints: Mapping[int, float], *, now: float, since: float) -> Verdict:
        """The state by the datapoints (period's first second: value). Nobody was watching before `since`, nor before
        the alarm was configured: data missing then are no breach."""
        watched_from = max(since, self.configured_at)
        values = [(start, datapoints.get(start)) for start in self._periods(datapoints, now)]
        breaches = sum(self._is_breach(start, value, watched_from) for start, value in values)
        return Verdict(self._state(breaches, [value for _, value in values]), [value for _, value in values])

    def _periods(self, datapoints: Mapping[int, float], now: float) -> list[int]:
        """The latest first. The period under way counts once it has data, but not where it must fall short of too
        little: it may yet grow."""
        current = int(now) // self.period * self.period
        grows = self.comparison.startswith("Greater")
        latest = current if grows and current in datapoints else current - self.period
        return [latest - number * self.period for number in range(self.periods)]

    def _is_breach(self, start: int, value: float | None, watched_from: float) -> bool:
        if value is None:
            return self.missing == "breaching" and start >= watched_from
        return _COMPARISONS[self.comparison](value, self.threshold)

    def _state(self, breaches: int, values: Sequence[float | None]) -> str:
        if breaches >= self.needed:
            return ALARM
        if any(value is not None for value in values) or self.missing in {"breaching", "notBreaching"}:
            return OK
        return self.state if self.missing == "ignore" else INSUFFICIENT_DATA


@dataclass(frozen=True)
class Verdict:
    """The state an alarm should have, and the values that say so, the latest first."""

    state: str
    values: Sequence[float | None]

    @property
    def reason(self) -> str:
        shown = ", ".join("missing" if value is None else f"{value:g}" for value in self.values)
        return f"The latest periods, newest first: {shown}"
