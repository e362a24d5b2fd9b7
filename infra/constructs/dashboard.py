"""The widgets of the first dashboard."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from aws_cdk import aws_cloudwatch as cloudwatch

from infra.constructs.metrics import api_metric, function_metric, service_metric, table_metric
from thunderagent import schema


@dataclass(frozen=True, kw_only=True)
class Watched:
    """What is measured: names as CloudWatch knows them."""

    service: str
    queues: Sequence[str]
    table: str
    api: str
    executors: Mapping[str, str]
    failures: str
    functions: Mapping[str, str]


def dashboard_rows(watched: Watched) -> list[list[cloudwatch.IWidget]]:
    """Top to bottom: is it alive, is it keeping up, what fails, what does it use."""
    rows: list[list[cloudwatch.IWidget]] = [_alive(watched)]
    for queue in watched.queues:
        rows += [_keeping_up(watched.service, queue), _outcomes(watched.service, queue)]
    return [*rows, _functions(watched), _stores(watched)]


def _alive(watched: Watched) -> list[cloudwatch.IWidget]:
    def counts(*names: str) -> list[cloudwatch.Metric]:
        return [service_metric(name, service=watched.service) for name in names]

    requests = [api_metric(name, api=watched.api) for name in ("Count", "4xx", "5xx")]
    latency = [api_metric("Latency", api=watched.api, statistic=percentile) for percentile in ("p50", "p95", "p99")]
    return [
        _graph("Heartbeats", counts("PollerHeartbeat", "ReaperHeartbeat"), width=6),
        _graph("Leases in trouble", counts("LeasesExpired", "HeartbeatsLost", "DispatchFailures"), width=6),
        _graph("API requests", requests, width=6),
        _graph("API latency (ms)", latency, width=6),
    ]


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
        _graph(f"{queue}: flow", counts("Submitted", "Succeeded")),
        _graph(f"{queue}: retries and failures", counts("Retried", "Failed", "Cancelled")),
        _graph(f"{queue}: claims", counts("Claimed", "ClaimConflicts")),
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


def _graph(title: str, metrics: Sequence[cloudwatch.IMetric], *, width: int = 8) -> cloudwatch.GraphWidget:
    return cloudwatch.GraphWidget(title=title, left=metrics, width=width, height=6)
