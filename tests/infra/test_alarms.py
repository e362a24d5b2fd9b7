"""TA-38: alarms that cannot fire, or always fire."""

from __future__ import annotations

import ast
import json
from collections.abc import Sequence
from functools import cache
from typing import Any

import pytest

from infra.config import ROOT
from tests.infra.templates import Synthesise, Synthesised, of_type, properties, readable

SCHEDULE_SECONDS = 60
HEARTBEATS = {"PollerHeartbeat", "ReaperHeartbeat"}
# CONTRACT: the names of the service's metrics, and those without a queue.
SERVICE_METRICS = HEARTBEATS | {
    "Submitted", "Claimed", "ClaimConflicts", "DispatchFailures", "Succeeded", "Retried", "Failed", "Cancelled",
    "LeasesExpired", "HeartbeatsLost", "QueueLatency", "Duration", "Backlog", "OldestDueAge", "Running", "WriteUnits",
    "ReadUnits", "AuditViolations", "Blocked", "Undelivered", "EventsTooOld",
    "SweepsFailed",  # TA-08: an index that cannot be read is a metric of its own
}  # fmt: skip
EXPECTED = {
    "PollerStopped", "ReaperStopped", "TasksFaileddefault", "DispatchFailures", "LeasesExpired",
    "ExecutorErrorsdefault", "FunctionErrorsapi", "FunctionErrorspoller", "FunctionErrorsreaper",
    "FunctionErrorsrecorder", "EventsTooOld", "AuditViolations", "Undelivered", "RecorderFailures", "RecorderBehind",
    "TableReadThrottled", "FunctionErrorsdoorbell", "SweepsFailed", "TableWriteThrottled", "IndexReadThrottled",
    "IndexWriteThrottled", "ApiServerErrors",
}  # fmt: skip

OPERATORS = {
    "GreaterThanOrEqualToThreshold": lambda value, threshold: value >= threshold,
    "LessThanThreshold": lambda value, threshold: value < threshold,
}


def alarms(synthesised: Synthesised) -> dict[str, dict[str, Any]]:
    """Alarms by name: the logical id without the construct's prefix and CDK's hash."""
    found = of_type(synthesised.service, "AWS::CloudWatch::Alarm")
    return {id.removeprefix("Monitoring")[:-8]: alarm["Properties"] for id, alarm in found.items()}


def state(alarm: dict[str, Any], periods: Sequence[float | None]) -> str:
    """The state CloudWatch gives an alarm for its latest periods (None: no data), by its own missing-data rule."""
    needed = alarm.get("DatapointsToAlarm", alarm["EvaluationPeriods"])
    breaches = [
        alarm["TreatMissingData"] == "breaching"
        if value is None
        else OPERATORS[alarm["ComparisonOperator"]](value, alarm["Threshold"])
        for value in periods[-alarm["EvaluationPeriods"] :]
    ]
    return "ALARM" if sum(breaches) >= needed else "OK"


def is_heartbeat(alarm: dict[str, Any]) -> bool:
    return alarm["MetricName"] in HEARTBEATS


@cache
def emitted() -> dict[str, list[set[str]]]:
    """The service's metrics as the code measures them: by name, the sets of dimensions."""
    found: dict[str, list[set[str]]] = {}
    for path in [*(ROOT / "layers").rglob("*.py"), *(ROOT / "functions").rglob("*.py")]:
        for node in ast.walk(ast.parse(path.read_text())):
            match node:
                case ast.Call(func=ast.Attribute(attr="measure"), args=[ast.Constant(value=str(name)), *_]):
                    given = {keyword.arg for keyword in node.keywords} & {"queue", "type"}
                    found.setdefault(name, []).append({"Service", *(str(one).capitalize() for one in given)})
    return found


def test_what_is_measured_has_a_name_of_the_contract() -> None:
    assert set(emitted()) <= SERVICE_METRICS


def test_ta38_the_alarms_are_these(synthesised: Synthesised) -> None:
    assert set(alarms(synthesised)) == EXPECTED


def test_ta38_idle_is_ok(synthesised: Synthesised) -> None:
    """An empty queue for a day: no data anywhere but the heartbeats, which go on."""
    for name, alarm in alarms(synthesised).items():
        if is_heartbeat(alarm):
            assert state(alarm, [2.0] * 5) == "OK", name
        else:
            assert alarm["TreatMissingData"] == "notBreaching", name
            assert state(alarm, [None] * 5) == "OK", name
            assert state(alarm, [0.0] * 5) == "OK", name


def test_ta38_a_stopped_poller_or_reaper_is_an_alarm_within_five_minutes(synthesised: Synthesised) -> None:
    watching = [alarm for alarm in alarms(synthesised).values() if is_heartbeat(alarm)]
    assert {alarm["MetricName"] for alarm in watching} == HEARTBEATS
    for alarm in watching:
        assert state(alarm, [2.0, None, None]) == "ALARM"
        assert state(alarm, [2.0, None]) == "OK", "one late beat is not an alarm"
        assert state(alarm, [None, None, 2.0]) == "OK", "it clears by itself"
        assert alarm["Period"] >= 2 * SCHEDULE_SECONDS
        assert alarm["Period"] * (alarm["EvaluationPeriods"] + 0.5) <= 300


def test_ta38_every_other_alarm_can_fire_and_clears(synthesised: Synthesised) -> None:
    for name, alarm in alarms(synthesised).items():
        if not is_heartbeat(alarm):
            breach = [float(alarm["Threshold"])] * alarm["EvaluationPeriods"]
            assert state(alarm, breach) == "ALARM", name
            assert state(alarm, [*breach, *[None] * alarm["EvaluationPeriods"]]) == "OK", name


def test_ta38_every_alarm_acts_and_says_what_to_do(synthesised: Synthesised) -> None:
    for name, alarm in alarms(synthesised).items():
        assert alarm["AlarmActions"] == [{"Ref": "AlarmTopic"}], name
        assert alarm.get("ActionsEnabled", True), name
        assert 80 <= len(alarm["AlarmDescription"]) <= 1024, name


def test_ta38_alarms_watch_one_metric_by_the_dimensions_it_is_emitted_with(synthesised: Synthesised) -> None:
    for name, alarm in alarms(synthesised).items():
        assert "Metrics" not in alarm, f"{name}: metric math"
        dimensions = {one["Name"]: readable(one["Value"]) for one in alarm["Dimensions"]}
        match alarm["Namespace"]:
            case "ThunderAgent":
                assert alarm["MetricName"] in SERVICE_METRICS
                assert dimensions.pop("Service") == synthesised.names[1]
                assert dimensions == ({"Queue": "default"} if alarm["MetricName"] == "Failed" else {})
                assert {"Service", *dimensions} in emitted()[alarm["MetricName"]], f"{name}: nobody emits that"
            case "AWS/Lambda":
                assert set(dimensions) == {"FunctionName"}
            case "AWS/DynamoDB":
                assert set(dimensions) - {"GlobalSecondaryIndexName"} == {"TableName"}
                assert "TaskTable" in dimensions["TableName"]
            case "AWS/SQS":
                assert set(dimensions) == {"QueueName"}
                assert "RecorderFailures" in dimensions["QueueName"]
            case "AWS/ApiGateway":
                assert dimensions == {"ApiId": "{HttpApi}"}
            case other:
                pytest.fail(f"{name}: unexpected namespace {other}")


@pytest.mark.parametrize("kind", ["Read", "Write"])
def test_throttling_is_watched_on_table_and_index(kind: str, prod: Synthesised) -> None:
    found = [alarm for alarm in alarms(prod).values() if alarm["MetricName"] == f"{kind}ThrottleEvents"]
    indexes = [
        [one["Value"] for one in alarm["Dimensions"] if one["Name"] == "GlobalSecondaryIndexName"] for alarm in found
    ]
    assert sorted(indexes) == [[], ["dispatch-index"]]


def test_someone_hears_the_alarms_or_synthesis_says_that_nobody_does(
    prod: Synthesised, local: Synthesised, synthesise: Synthesise
) -> None:
    assert "alarmEmail is not set" in said(prod)
    assert "alarmEmail is not set" not in said(local)
    heard = synthesise("prod", {"environments": {"prod": {"alarmEmail": "ops@example.com"}}})
    (subscription,) = properties(heard.service, "AWS::SNS::Subscription")
    assert (subscription["Protocol"], subscription["Endpoint"]) == ("email", "ops@example.com")
    assert "alarmEmail is not set" not in said(heard)


def said(synthesised: Synthesised) -> str:
    """What the CLI would print: the assembly's metadata."""
    return "".join(path.read_text() for path in synthesised.assembly.glob("*.json"))


def test_the_dashboard_shows_what_is_emitted(synthesised: Synthesised) -> None:
    (dashboard,) = properties(synthesised.service, "AWS::CloudWatch::Dashboard")
    body = json.loads(readable(dashboard["DashboardBody"]))
    shown = [metric for widget in body["widgets"] for metric in widget["properties"]["metrics"]]
    for namespace, name, *dimensions in shown:
        if namespace == "ThunderAgent":
            assert name in SERVICE_METRICS
            names = {one for one in dimensions if one in ("Service", "Queue", "Type")}
            assert names in emitted().get(name, [names]), f"{name} is not emitted by {names}"
    assert {metric[1] for metric in shown if metric[0] == "ThunderAgent"} >= {"Backlog", "QueueLatency", "Failed"}
    assert not [metric for metric in shown if isinstance(metric[0], dict)], "no math, no search"
