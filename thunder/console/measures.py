"""Series from CloudWatch: GetMetricData for what is asked, in as few calls as its limits allow."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Final

DRAWABLE_MOST: Final = 1e300  # beyond lies what JSON cannot say and no axis can show
QUERIES_A_CALL: Final = 500  # CloudWatch's limit
PAGES_MOST: Final = 20
PERIODS: Final = ((3 * 3600, 60), (24 * 3600, 300), (7 * 86_400, 3600))


def is_drawable(value: Any) -> bool:
    """Whether it is a number that a chart can show: neither a boolean, nor infinite, nor no number at all."""
    return isinstance(value, int | float) and not isinstance(value, bool) and abs(value) <= DRAWABLE_MOST


@dataclass(frozen=True)
class Metric:
    """One series by its metric and statistic, or by `expression`, which is metric math over the ids of others.

    `is_shown` is false for a series that only others are computed from.
    """

    label: str
    namespace: str = ""
    name: str = ""
    dimensions: tuple[tuple[str, str], ...] = ()
    statistic: str = "Sum"
    period: int = 60
    expression: str | None = None
    id: str | None = None
    is_shown: bool = True
    is_right: bool = False

    def query(self, id: str) -> dict[str, Any]:
        """As GetMetricData asks."""
        if self.expression is not None:
            query: dict[str, Any] = {"Id": id, "Expression": self.expression, "Label": self.label}
            return {**query, "Period": self.period, "ReturnData": self.is_shown}
        metric = {
            "Namespace": self.namespace,
            "MetricName": self.name,
            "Dimensions": [{"Name": name, "Value": value} for name, value in self.dimensions],
        }
        stat = {"Metric": metric, "Period": self.period, "Stat": self.statistic}
        return {"Id": id, "MetricStat": stat, "Label": self.label, "ReturnData": self.is_shown}


@dataclass(frozen=True)
class Series:
    """Points of one metric, oldest first. `problem` says why there are none, when that is not simply no data."""

    label: str
    points: tuple[tuple[int, float], ...] = ()
    is_right: bool = False
    problem: str | None = None

    @property
    def last(self) -> float | None:
        return self.points[-1][1] if self.points else None

    @property
    def total(self) -> float:
        return sum(value for _, value in self.points)

    @property
    def highest(self) -> float | None:
        return max((value for _, value in self.points), default=None)


def period_for(seconds: float) -> int:
    """A period that gives a chart some hundreds of points at most."""
    return next((period for longest, period in PERIODS if seconds <= longest), 6 * 3600)


class Measures:
    """Reads series. With `math` false, as in the embedded AWS, expressions are answered with why there is nothing."""

    def __init__(self, cloudwatch: Any, *, math: bool = True) -> None:
        self._cloudwatch = cloudwatch
        self._math = math

    def read(self, metrics: Sequence[Metric], *, start: float, end: float) -> list[Series]:
        """The shown ones, in order. Raises botocore's errors."""
        computable = [metric for metric in metrics if self._math or metric.expression is None]
        ids = {id(metric): metric.id or f"series{number}" for number, metric in enumerate(computable)}
        found: dict[str, Series] = {}
        for first in range(0, len(computable), QUERIES_A_CALL):
            part = computable[first : first + QUERIES_A_CALL]
            found |= self._ask({ids[id(metric)]: metric for metric in part}, start=start, end=end)
        return [
            found.get(ids.get(id(metric), ""), _without_data(metric, self._math))
            for metric in metrics
            if metric.is_shown
        ]

    def _ask(self, by_id: Mapping[str, Metric], *, start: float, end: float) -> dict[str, Series]:
        points: dict[str, list[tuple[int, float]]] = {}
        problems: dict[str, str] = {}
        # Whole periods, or the first one would be counted in part.
        asked = {"StartTime": int(start // 60 * 60), "EndTime": int(end), "ScanBy": "TimestampAscending"}
        token: dict[str, str] = {}
        for _ in range(PAGES_MOST):
            queries = [metric.query(name) for name, metric in by_id.items()]
            answer = self._cloudwatch.get_metric_data(MetricDataQueries=queries, **asked, **token)
            for result in answer["MetricDataResults"]:
                times = [int(at.timestamp()) for at in result["Timestamps"]]
                pairs = zip(times, result["Values"], strict=True)
                points.setdefault(result["Id"], []).extend((at, float(each)) for at, each in pairs if is_drawable(each))
                if result.get("StatusCode") in ("InternalError", "Forbidden"):
                    problems[result["Id"]] = "; ".join(each["Value"] for each in result.get("Messages", ()))
            if not answer.get("NextToken"):
                break
            token = {"NextToken": answer["NextToken"]}
        return {
            name: Series(by_id[name].label, tuple(sorted(found)), by_id[name].is_right, problems.get(name))
            for name, found in points.items()
            if name in by_id
        }


def _without_data(metric: Metric, math: bool) -> Series:
    missing = metric.expression is not None and not math
    problem = "the embedded AWS has no metric math" if missing else None
    return Series(metric.label, (), metric.is_right, problem)
