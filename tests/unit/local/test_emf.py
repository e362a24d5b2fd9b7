"""EMF lines become what PutMetricData takes, and nothing else does."""

from __future__ import annotations

import io
import json
from typing import Any

import pytest

from thunder.local.emf import DATA_A_REQUEST, VALUES_A_DATUM, Gathered, Series, values_of
from thunderagent.telemetry import Telemetry

MS = 1_800_000_000_123


def line(**changes: Any) -> str:
    definition = {"Name": "Failed", "Unit": "Count"}
    directive = {"Namespace": "N", "Dimensions": [["Service"]], "Metrics": [definition]}
    return json.dumps(
        {"_aws": {"Timestamp": MS, "CloudWatchMetrics": [directive]}, "Service": "S", "Failed": 1, **changes}
    )


def series(*dimensions: tuple[str, str], name: str = "Failed", namespace: str = "N") -> Series:
    return Series(namespace, name, "Count", dimensions)


def test_each_dimension_set_is_a_series_of_its_own() -> None:
    stream = io.StringIO()
    telemetry = Telemetry(service="S", types=["t"], stream=stream, clock_ms=lambda: MS)
    telemetry.measure("Failed", 0, queue="q", type="t")
    telemetry.measure("Failed", 1, queue="q", type="t")
    telemetry.flush()
    service, queue, kind = ("Service", "S"), ("Queue", "q"), ("Type", "t")
    expected = [
        (series(*sorted(dimensions), namespace="ThunderAgent"), MS // 1000, value)
        for dimensions in ((service, queue, kind), (service, queue), (service,))
        for value in (0.0, 1.0)
    ]
    assert sorted(values_of(stream.getvalue()), key=repr) == sorted(expected, key=repr)


@pytest.mark.parametrize(
    "message",
    [
        "",
        "START RequestId: x",
        "{",
        "[]",
        "{}",
        "{" * 100_000,
        line(_aws=None),
        line(_aws={"Timestamp": "now", "CloudWatchMetrics": []}),
        line(_aws={"Timestamp": MS, "CloudWatchMetrics": [{"Metrics": [7], "Dimensions": [[]]}, 5]}),
        line(Service=5),
        line(Failed="1"),
        line(Failed=True),
        line(Failed=[None, "x", float("nan")]),
    ],
)
def test_what_is_no_metric_yields_nothing(message: str) -> None:
    assert list(values_of(message)) == []


def test_equal_values_of_one_second_are_counted_together() -> None:
    gathered = Gathered()
    for _ in range(3):
        gathered.add(line())
    gathered.add(line(Failed=[0, 1]))
    (request,) = gathered.requests()
    (datum,) = request["MetricData"]
    assert request["Namespace"] == "N"
    assert (datum["Values"], datum["Counts"]) == ([0, 1], [1, 4])
    assert (datum["MetricName"], datum["Timestamp"], datum["Unit"]) == ("Failed", MS // 1000, "Count")
    assert datum["Dimensions"] == [{"Name": "Service", "Value": "S"}]


def test_limits_of_put_metric_data_are_kept_and_nothing_is_lost() -> None:
    gathered = Gathered()
    for number in range(600):
        gathered.add(line(Failed=number))
        gathered.add(line(Service=f"S{number}"))
    data = [request["MetricData"] for request in gathered.requests()]
    assert all(len(part) <= DATA_A_REQUEST for part in data)
    assert all(len(datum["Values"]) <= VALUES_A_DATUM for part in data for datum in part)
    assert sum(sum(datum["Counts"]) for part in data for datum in part) == 1200
