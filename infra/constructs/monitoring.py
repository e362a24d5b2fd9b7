"""The first dashboard and the alarms. No metric math, no composite alarms: what is here also works on a laptop."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from aws_cdk import Duration
from aws_cdk import aws_cloudwatch as cloudwatch
from aws_cdk import aws_cloudwatch_actions as actions
from aws_cdk import aws_sns as sns
from constructs import Construct

from infra.config import SCHEDULE_SECONDS
from infra.constructs.metrics import FIVE_MINUTES, api_metric, function_metric, service_metric, table_metric
from thunderagent import schema

HEARTBEAT_PERIOD = Duration.seconds(2 * SCHEDULE_SECONDS)
HEARTBEAT_PERIODS = 2  # a stopped poller or reaper is an ALARM within five minutes

_AT_LEAST = cloudwatch.ComparisonOperator.GREATER_THAN_OR_EQUAL_TO_THRESHOLD
_LESS = cloudwatch.ComparisonOperator.LESS_THAN_THRESHOLD


@dataclass(frozen=True, kw_only=True)
class Watched:
    """What is measured: names as CloudWatch knows them."""

    service: str
    queues: Sequence[str]
    table: str
    api: str
    executors: Mapping[str, str]
    functions: Mapping[str, str]


class Monitoring(Construct):
    """Alarms, each with the topic as its action and a description that says what to do; and a dashboard."""

    def __init__(self, scope: Construct, id: str, *, watched: Watched, topic: sns.ITopic) -> None:
        super().__init__(scope, id)
        self._watched = watched
        self._action = actions.SnsAction(topic)
        self._heartbeat_alarms()
        for queue in watched.queues:
            self._queue_alarms(queue)
        self._function_alarms()
        self._table_alarms()
        self._api_alarms()
        self.dashboard = cloudwatch.Dashboard(
            self, "Dashboard", default_interval=Duration.hours(3), widgets=dashboard_rows(watched)
        )

    def _heartbeat_alarms(self) -> None:
        for part, metric, consequence in (
            ("Poller", "PollerHeartbeat", "no task is started"),
            ("Reaper", "ReaperHeartbeat", "expired leases and deadlines are not noticed"),
        ):
            self._alarm(
                f"{part}Stopped",
                service_metric(metric, service=self._watched.service, period=HEARTBEAT_PERIOD),
                threshold=1,
                comparison=_LESS,
                periods=HEARTBEAT_PERIODS,
                missing=cloudwatch.TreatMissingData.BREACHING,
                advice=f"The {part.lower()} has not reported for {2 * HEARTBEAT_PERIODS} minutes: {consequence}. Check that "
                f"its EventBridge rule is enabled, then its log group for errors. (Just after a first deployment this "
                f"clears by itself.)",
            )

    def _queue_alarms(self, queue: str) -> None:
        service = self._watched.service
        self._alarm(
            f"TasksFailed-{queue}",
            service_metric("Failed", service=service, queue=queue, period=FIVE_MINUTES),
            advice=f"Tasks of queue {queue} ended FAILED (the dead letter). `thunder dlq list --queue {queue}` shows their "
            "errors; after the cause is mended, `thunder dlq redrive` runs them again.",
        )
        self._alarm(
            f"DispatchFailures-{queue}",
            service_metric("DispatchFailures", service=service, queue=queue),
            periods=3,
            advice=f"For three minutes executors could not be invoked for queue {queue}; the tasks were handed back unharmed. "
            "Check the account's Lambda concurrency against maxInFlight, and the poller's permission to invoke.",
        )
        self._alarm(
            f"LeasesExpired-{queue}",
            service_metric("LeasesExpired", service=service, queue=queue, period=FIVE_MINUTES),
            advice=f"Executors died with tasks of queue {queue} (memory, timeout or a crash), or stopped their heartbeat. Look "
            "for REPORT lines with an error in the executor's log group; the tasks run again, or end as worker_lost.",
        )

    def _function_alarms(self) -> None:
        for profile, function in self._watched.executors.items():
            self._alarm(
                f"ExecutorErrors-{profile}",
                function_metric("Errors", function=function, period=FIVE_MINUTES),
                advice=f"Invocations of executor {profile} failed as a whole: a crash, a timeout, or an import error. A handler's "
                "exception does not count here. Read its log group; raise memory or timeout of the profile if they ran out.",
            )
        for name, function in self._watched.functions.items():
            self._alarm(
                f"FunctionErrors-{name}",
                function_metric("Errors", function=function, period=FIVE_MINUTES),
                advice=f"Invocations of the {name} failed: a defect, a timeout, or a missing permission. Read its log group.",
            )

    def _table_alarms(self) -> None:
        for place, index in (("Table", None), ("Index", schema.INDEX_NAME)):
            for kind in ("Read", "Write"):
                self._alarm(
                    f"{place}{kind}Throttled",
                    table_metric(f"{kind}ThrottleEvents", table=self._watched.table, index=index),
                    periods=3,
                    advice=f"DynamoDB throttled {kind.lower()}s of the {place.lower()} for three minutes. Submits answer 503, claims "
                    "wait. If one partition is hot, raise dispatchShards; else check the account's table quotas.",
                )

    def _api_alarms(self) -> None:
        self._alarm(
            "ApiServerErrors",
            api_metric("5xx", api=self._watched.api, period=FIVE_MINUTES),
            threshold=5,
            advice="The API answered 5xx at least five times in five minutes. Search the access log for the status, then the "
            "API function's log group for the requestId.",
        )

    def _alarm(
        self,
        id: str,
        metric: cloudwatch.Metric,
        *,
        advice: str,
        threshold: float = 1,
        comparison: cloudwatch.ComparisonOperator = _AT_LEAST,
        periods: int = 1,
        missing: cloudwatch.TreatMissingData = cloudwatch.TreatMissingData.NOT_BREACHING,
    ) -> None:
        """Idle means no data, and no data is good news, except for a heartbeat."""
        alarm = cloudwatch.Alarm(
            self,
            id,
            metric=metric,
            threshold=threshold,
            comparison_operator=comparison,
            evaluation_periods=periods,
            treat_missing_data=missing,
            alarm_description=advice,
        )
        alarm.add_alarm_action(self._action)


def dashboard_rows(watched: Watched) -> list[list[cloudwatch.IWidget]]:
    """Top to bottom: is it alive, is it keeping up, what fails, what does it use."""
    rows: list[list[cloudwatch.IWidget]] = [_alive(watched)]
    for queue in watched.queues:
        rows += [_keeping_up(watched.service, queue), _outcomes(watched.service, queue)]
    return [*rows, _functions(watched), _stores(watched)]


def _alive(watched: Watched) -> list[cloudwatch.IWidget]:
    beats = [service_metric(name, service=watched.service) for name in ("PollerHeartbeat", "ReaperHeartbeat")]
    requests = [api_metric(name, api=watched.api) for name in ("Count", "4xx", "5xx")]
    latency = [api_metric("Latency", api=watched.api, statistic=percentile) for percentile in ("p50", "p95", "p99")]
    return [_graph("Heartbeats", beats), _graph("API requests", requests), _graph("API latency (ms)", latency)]


def _keeping_up(service: str, queue: str) -> list[cloudwatch.IWidget]:
    levels = [
        service_metric(name, service=service, queue=queue, statistic="Maximum") for name in ("Backlog", "Running")
    ]
    age = [service_metric("OldestDueAge", service=service, queue=queue, statistic="Maximum")]
    latency = [
        service_metric("QueueLatency", service=service, queue=queue, statistic=percentile)
        for percentile in ("p50", "p95", "p99")
    ]
    return [
        _graph(f"{queue}: backlog and running", levels),
        _graph(f"{queue}: oldest due age", age),
        _graph(f"{queue}: submit to start", latency),
    ]


def _outcomes(service: str, queue: str) -> list[cloudwatch.IWidget]:
    def counts(*names: str) -> list[cloudwatch.Metric]:
        return [service_metric(name, service=service, queue=queue) for name in names]

    return [
        _graph(f"{queue}: flow", counts("Submitted", "Claimed", "Succeeded")),
        _graph(f"{queue}: retries and failures", counts("Retried", "Failed", "Cancelled")),
        _graph(f"{queue}: trouble", counts("LeasesExpired", "HeartbeatsLost", "DispatchFailures", "ClaimConflicts")),
    ]


def _functions(watched: Watched) -> list[cloudwatch.IWidget]:
    functions = [*watched.executors.values(), *watched.functions.values()]

    def each(name: str, statistic: str) -> list[cloudwatch.Metric]:
        return [function_metric(name, function=function, statistic=statistic) for function in functions]

    return [
        _graph("Function errors", each("Errors", "Sum")),
        _graph("Function duration (ms, p95)", each("Duration", "p95")),
        _graph("Functions at once", each("ConcurrentExecutions", "Maximum")),
    ]


def _stores(watched: Watched) -> list[cloudwatch.IWidget]:
    def both(name: str) -> list[cloudwatch.Metric]:
        return [table_metric(name, table=watched.table, index=index) for index in (None, schema.INDEX_NAME)]

    return [
        _graph("Write units: table, index", both("ConsumedWriteCapacityUnits")),
        _graph("Read units: table, index", both("ConsumedReadCapacityUnits")),
        _graph("Throttled: table, index", [*both("WriteThrottleEvents"), *both("ReadThrottleEvents")]),
    ]


def _graph(title: str, metrics: Sequence[cloudwatch.IMetric]) -> cloudwatch.GraphWidget:
    return cloudwatch.GraphWidget(title=title, left=metrics, width=8, height=6)
