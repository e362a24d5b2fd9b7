"""The metrics that dashboard and alarms read: what the library emits, and what AWS does."""

from __future__ import annotations

from collections.abc import Mapping

from aws_cdk import Duration
from aws_cdk import aws_cloudwatch as cloudwatch

NAMESPACE = "ThunderAgent"
MINUTE = Duration.minutes(1)
FIVE_MINUTES = Duration.minutes(5)


def service_metric(
    name: str, *, service: str, queue: str | None = None, statistic: str = "Sum", period: Duration = MINUTE
) -> cloudwatch.Metric:
    """One of the library's own, by the dimensions it is emitted with: Service, and Queue where tasks are counted.

    A lease may carry tasks of several queues, so what is counted by lease has no Queue.
    """
    dimensions = {"Service": service} if queue is None else {"Service": service, "Queue": queue}
    return _metric(NAMESPACE, name, dimensions, statistic, period)


def table_metric(
    name: str, *, table: str, index: str | None = None, statistic: str = "Sum", period: Duration = MINUTE
) -> cloudwatch.Metric:
    dimensions = {"TableName": table} if index is None else {"TableName": table, "GlobalSecondaryIndexName": index}
    return _metric("AWS/DynamoDB", name, dimensions, statistic, period)


def function_metric(
    name: str, *, function: str, statistic: str = "Sum", period: Duration = MINUTE
) -> cloudwatch.Metric:
    return _metric("AWS/Lambda", name, {"FunctionName": function}, statistic, period)


def queue_metric(name: str, *, queue: str, statistic: str = "Maximum", period: Duration = MINUTE) -> cloudwatch.Metric:
    return _metric("AWS/SQS", name, {"QueueName": queue}, statistic, period)


def api_metric(name: str, *, api: str, statistic: str = "Sum", period: Duration = MINUTE) -> cloudwatch.Metric:
    return _metric("AWS/ApiGateway", name, {"ApiId": api}, statistic, period)


def _metric(
    namespace: str, name: str, dimensions: Mapping[str, str], statistic: str, period: Duration
) -> cloudwatch.Metric:
    return cloudwatch.Metric(
        namespace=namespace, metric_name=name, dimensions_map=dimensions, statistic=statistic, period=period
    )
