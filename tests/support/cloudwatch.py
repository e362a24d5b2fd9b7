"""CloudWatch and its logs as the console reads them: dashboards, alarms, metrics and lines are what a test says."""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping
from datetime import UTC, datetime
from typing import Any


class _Pages:
    def __init__(self, page: Any) -> None:
        self._page = page

    def paginate(self, **asked: Any) -> Iterator[dict[str, Any]]:
        yield self._page(**asked)


class FakeCloudWatch:
    """`values` are by metric name and statistic; a metric with none has no data. `asked` keeps every GetMetricData."""

    def __init__(self) -> None:
        self.values: dict[tuple[str, str], list[tuple[float, float]]] = {}
        self.alarms: list[dict[str, Any]] = []
        self.dashboards: dict[str, Any] = {}
        self.asked: list[dict[str, Any]] = []
        self.error: Exception | None = None

    def get_metric_data(self, **asked: Any) -> dict[str, Any]:
        self._may_fail()
        self.asked.append(asked)
        return {"MetricDataResults": [self._result(query) for query in asked["MetricDataQueries"]]}

    def _result(self, query: Mapping[str, Any]) -> dict[str, Any]:
        stat = query.get("MetricStat")
        points = self.values.get((stat["Metric"]["MetricName"], stat["Stat"]), []) if stat else []
        return {
            "Id": query["Id"],
            "Timestamps": [datetime.fromtimestamp(at, UTC) for at, _ in points],
            "Values": [value for _, value in points],
            "StatusCode": "Complete",
        }

    def get_dashboard(self, *, DashboardName: str) -> dict[str, Any]:
        self._may_fail()
        return {"DashboardBody": json.dumps(self.dashboards[DashboardName])}

    def get_paginator(self, operation: str) -> _Pages:
        return _Pages({"describe_alarms": self._alarms, "list_dashboards": self._dashboards}[operation])

    def _alarms(self, **asked: Any) -> dict[str, Any]:
        self._may_fail()
        prefix = asked.get("AlarmNamePrefix", "")
        return {"MetricAlarms": [alarm for alarm in self.alarms if alarm["AlarmName"].startswith(prefix)]}

    def _dashboards(self) -> dict[str, Any]:
        self._may_fail()
        return {"DashboardEntries": [{"DashboardName": name} for name in self.dashboards]}

    def _may_fail(self) -> None:
        if self.error is not None:
            raise self.error


class FakeLogs:
    """Log groups and their lines; a line is found when it has the quoted text of the pattern in it."""

    def __init__(self) -> None:
        self.groups: dict[str, list[tuple[float, str]]] = {}
        self.error: Exception | None = None
        self.asked: list[dict[str, Any]] = []

    def get_paginator(self, operation: str) -> _Pages:
        assert operation == "describe_log_groups"
        return _Pages(self._names)

    def _names(self, *, logGroupNamePrefix: str) -> dict[str, Any]:
        if self.error is not None:
            raise self.error
        names = [name for name in self.groups if name.startswith(logGroupNamePrefix)]
        return {"logGroups": [{"logGroupName": name} for name in names]}

    def filter_log_events(self, **asked: Any) -> dict[str, Any]:
        self.asked.append(asked)
        text = asked["filterPattern"].strip('"')
        lines = self.groups[asked["logGroupName"]]
        found = [
            (at, line) for at, line in lines if text in line and asked["startTime"] <= at * 1000 <= asked["endTime"]
        ]
        return {"events": [{"timestamp": int(at * 1000), "message": line} for at, line in found]}


def alarm(name: str, state: str = "OK", **more: Any) -> dict[str, Any]:
    """As DescribeAlarms tells one."""
    return {
        "AlarmName": name,
        "StateValue": state,
        "StateReason": "said so",
        "StateUpdatedTimestamp": datetime.fromtimestamp(1_800_000_000, UTC),
        "AlarmDescription": "look at the log group",
        "MetricName": "Failed",
        "Statistic": "Sum",
        "Period": 300,
        "EvaluationPeriods": 1,
        "Threshold": 1.0,
        "ComparisonOperator": "GreaterThanOrEqualToThreshold",
        "ActionsEnabled": True,
        "AlarmActions": ["arn:topic"],
        **more,
    }
