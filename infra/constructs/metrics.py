"""The metrics that dashboard and alarms read: what the library emits, and what AWS does."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

from aws_cdk import Duration
from aws_cdk import aws_cloudwatch as cloudwatch

from thunderagent.metrics import METRICS, NAMESPACE, OTHER_TYPES, named_types

MINUTE = Duration.minutes(1)
FIVE_MINUTES = Duration.minutes(5)


@dataclass(frozen=True, kw_only=True)
class Watched:
    """What is measured: names as CloudWatch knows them. `types` are the declared task types and their queues."""

    service: str
    queues: Sequence[str]
    table: str
    api: str
    executors: Mapping[str, str]
    failures: str
    functions: Mapping[str, str]
    types: Mapping[str, str] = field(default_factory=dict)

    @property
    def named_types(self) -> list[tuple[str, str]]:
        """(queue, type) of those types that metrics know by name, then `other` where there are more."""
        names = named_types(self.types)
        others = {queue for name, queue in self.types.items() if name not in names}
        return [
            *sorted((queue, name) for name, queue in self.types.items() if name in names),
            *((queue, OTHER_TYPES) for queue in sorted(others)),
        ]


def service_metric(
    name: str,
    *,
    service: str,
    queue: str | None = None,
    type: str | None = None,
    statistic: str = "Sum",
    period: Duration = MINUTE,
    label: str | None = None,
) -> cloudwatch.Metric:
    """One of the library's own, of the whole service, of a queue, or of a type in a queue.

    Raises ValueError for what is not emitted by those dimensions: it would be an empty graph, an alarm that never is.
    """
    given = {"Service": service, "Queue": queue, "Type": type}
    dimensions = {dimension: value for dimension, value in given.items() if value is not None}
    if tuple(dimensions) not in METRICS[name].dimension_sets:
        raise ValueError(f"{name} is not emitted by {', '.join(dimensions)}")
    return _metric(NAMESPACE, name, dimensions, statistic, period, label)


def table_metric(
    name: str, *, table: str, index: str | None = None, statistic: str = "Sum", period: Duration = MINUTE
) -> cloudwatch.Metric:
    dimensions = {"TableName": table} if index is None else {"TableName": table, "GlobalSecondaryIndexName": index}
    return _metric("AWS/DynamoDB", name, dimensions, statistic, period)


def function_metric(
    name: str, *, function: str, statistic: str = "Sum", period: Duration = MINUTE, label: str | None = None
) -> cloudwatch.Metric:
    return _metric("AWS/Lambda", name, {"FunctionName": function}, statistic, period, label)


def queue_metric(name: str, *, queue: str, statistic: str = "Maximum", period: Duration = MINUTE) -> cloudwatch.Metric:
    return _metric("AWS/SQS", name, {"QueueName": queue}, statistic, period)


def api_metric(name: str, *, api: str, statistic: str = "Sum", period: Duration = MINUTE) -> cloudwatch.Metric:
    return _metric("AWS/ApiGateway", name, {"ApiId": api}, statistic, period)


def _metric(
    namespace: str,
    name: str,
    dimensions: Mapping[str, str],
    statistic: str,
    period: Duration,
    label: str | None = None,
) -> cloudwatch.Metric:
    return cloudwatch.Metric(
        namespace=namespace,
        metric_name=name,
        dimensions_map=dimensions,
        statistic=statistic,
        period=period,
        label=label,
    )
