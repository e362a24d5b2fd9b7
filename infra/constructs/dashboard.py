"""The dashboard, top to bottom: is it healthy, is it keeping up, what fails, what does it cost."""

from __future__ import annotations

from collections.abc import Sequence

from aws_cdk import aws_cloudwatch as cloudwatch

from infra.config import AlarmSettings
from infra.constructs.metrics import (
    FIVE_MINUTES,
    Watched,
    api_metric,
    function_metric,
    queue_metric,
    service_metric,
    table_metric,
)
from thunderagent import schema

WIDTH = 24
PERCENTILES = ("p50", "p95", "p99")

Rows = list[list[cloudwatch.IWidget]]


def dashboard_rows(watched: Watched, settings: AlarmSettings, alarms: Sequence[cloudwatch.IAlarm]) -> Rows:
    """Four questions, each with a line on where to read on."""
    view = _View(watched, settings)
    return view.healthy(alarms) + view.keeping_up() + view.failing() + view.costing()


class _View:
    """The rows over one stack's metrics."""

    def __init__(self, watched: Watched, settings: AlarmSettings) -> None:
        self._watched = watched
        self._settings = settings

    # ---- the four questions ------------------------------------------------------------------------------------------

    def healthy(self, alarms: Sequence[cloudwatch.IAlarm]) -> Rows:
        watched = self._watched
        requests = [api_metric(name, api=watched.api) for name in ("Count", "4xx", "5xx")]
        latency = [api_metric("Latency", api=watched.api, statistic=each) for each in PERCENTILES]
        return [
            [self._text("Is it healthy?", "Every alarm, and what to do about it", "alarms")],
            [cloudwatch.AlarmStatusWidget(alarms=list(alarms), title="Alarms", width=WIDTH, height=4)],
            [
                _graph("Heartbeats", self._totals("PollerHeartbeat", "ReaperHeartbeat"), width=6),
                _graph("All tasks", self._totals("Submitted", "Succeeded", "Failed"), width=6),
                _graph("API requests", requests, width=6),
                _graph("API latency (ms)", latency, width=6),
            ],
        ]

    def keeping_up(self) -> Rows:
        service = self._watched.service
        oldest = [service_metric("OldestDueAge", service=service, statistic="Maximum")]
        rows: Rows = [
            [self._text("Is it keeping up?", "What keeps tasks waiting", "is-it-keeping-up")],
            [
                _graph("All queues: submit to start (s)", self._percentiles("QueueLatency")),
                _graph("All queues: oldest due age (s)", oldest),
                _graph("In the way", self._totals("DispatchFailures", "EventsTooOld", "SweepsFailed")),
            ],
        ]
        return rows + [self._queue_flow(queue) for queue in self._watched.queues]

    def failing(self) -> Rows:
        watched = self._watched
        rate = service_metric("Failed", service=watched.service, statistic="Average", period=FIVE_MINUTES)
        recorder = [
            *self._totals("Undelivered", "AuditViolations"),
            queue_metric("ApproximateNumberOfMessagesVisible", queue=watched.failures),
        ]
        return [
            [self._text("What fails?", "Finding the cause of a failed task", "what-fails")],
            [
                _graph("Share of ended tasks that FAILED", [rate], width=6),
                _graph("FAILED by type", self._by_type("Failed"), width=6),
                _graph("Retried by type", self._by_type("Retried"), width=6),
                _graph("Leases in trouble", self._totals("LeasesExpired", "HeartbeatsLost"), width=6),
            ],
            *[self._queue_failures(queue) for queue in watched.queues],
            [
                _graph("Function errors", self._each_function("Errors", "Sum"), width=6),
                _graph("Functions throttled", self._each_function("Throttles", "Sum"), width=6),
                _graph("Table throttled", self._throttles(), width=6),
                _graph("Not recorded, not right", recorder, width=6),
            ],
        ]

    def costing(self) -> Rows:
        return [
            [self._text("What does it cost?", "Reading the cost of a task", "what-does-it-cost")],
            [
                _graph("Units by our own count", self._totals("WriteUnits", "ReadUnits"), width=6),
                _graph("Write units: table, index", self._table("ConsumedWriteCapacityUnits"), width=6),
                _graph("Read units: table, index", self._table("ConsumedReadCapacityUnits"), width=6),
                _graph("Invocations", self._each_function("Invocations", "Sum"), width=6),
            ],
            [
                _graph("Function time (ms, all invocations)", self._each_function("Duration", "Sum")),
                _graph("Functions at once", self._each_function("ConcurrentExecutions", "Maximum")),
                _graph("Duration by type (s, p95)", self._by_type("Duration", statistic="p95")),
            ],
        ]

    # ---- a queue -----------------------------------------------------------------------------------------------------

    def _queue_flow(self, queue: str) -> list[cloudwatch.IWidget]:
        levels = self._of_queue(queue, "Backlog", "Running", "Blocked", "OldestDueAge", statistic="Maximum")
        return [
            _graph(f"{queue}: flow", self._of_queue(queue, "Submitted", "Claimed", "Succeeded"), width=6),
            _graph(f"{queue}: backlog, running, blocked; oldest due (s)", levels, width=6),
            _graph(f"{queue}: submit to start (s)", self._percentiles("QueueLatency", queue), width=6),
            _graph(f"{queue}: duration (s)", self._percentiles("Duration", queue), width=6),
        ]

    def _queue_failures(self, queue: str) -> list[cloudwatch.IWidget]:
        return [
            _graph(f"{queue}: FAILED, retried", self._of_queue(queue, "Failed", "Retried"), width=12),
            _graph(f"{queue}: cancelled, claims lost", self._of_queue(queue, "Cancelled", "ClaimConflicts"), width=12),
        ]

    # ---- metrics -----------------------------------------------------------------------------------------------------

    def _totals(self, *names: str) -> list[cloudwatch.Metric]:
        return [service_metric(name, service=self._watched.service) for name in names]

    def _of_queue(self, queue: str, *names: str, statistic: str = "Sum") -> list[cloudwatch.Metric]:
        return [service_metric(name, service=self._watched.service, queue=queue, statistic=statistic) for name in names]

    def _percentiles(self, name: str, queue: str | None = None) -> list[cloudwatch.Metric]:
        return [
            service_metric(name, service=self._watched.service, queue=queue, statistic=each, label=each)
            for each in PERCENTILES
        ]

    def _by_type(self, name: str, statistic: str = "Sum") -> list[cloudwatch.Metric]:
        return [
            service_metric(name, service=self._watched.service, queue=queue, type=type, statistic=statistic, label=type)
            for queue, type in self._watched.named_types
        ]

    def _each_function(self, name: str, statistic: str) -> list[cloudwatch.Metric]:
        executors = {f"executor {profile}": function for profile, function in self._watched.executors.items()}
        functions = {**executors, **self._watched.functions}
        return [
            function_metric(name, function=function, statistic=statistic, label=label)
            for label, function in functions.items()
        ]

    def _table(self, *names: str) -> list[cloudwatch.Metric]:
        return [
            table_metric(name, table=self._watched.table, index=index)
            for name in names
            for index in (None, schema.INDEX_NAME)
        ]

    def _throttles(self) -> list[cloudwatch.Metric]:
        return self._table("WriteThrottleEvents", "ReadThrottleEvents")

    def _text(self, question: str, link: str, section: str) -> cloudwatch.TextWidget:
        markdown = f"## {question}\n[{link}]({self._settings.runbook_section(section)})"
        return cloudwatch.TextWidget(markdown=markdown, width=WIDTH, height=2)


def _graph(title: str, metrics: Sequence[cloudwatch.IMetric], *, width: int = 8) -> cloudwatch.GraphWidget:
    return cloudwatch.GraphWidget(title=title, left=metrics, width=width, height=6)
