"""TA-38: alarms that cannot fire, or always fire."""

from __future__ import annotations

import ast
import json
import re
from collections.abc import Iterable, Sequence
from functools import cache
from typing import Any

import pytest

from infra.config import ROOT
from tests.infra.templates import Synthesise, Synthesised, of_type, properties, readable
from thunderagent.metrics import METRICS

SCHEDULE_SECONDS = 60
HEARTBEATS = {"PollerHeartbeat", "ReaperHeartbeat"}
# What users are promised: the metrics by name, and those four that also count by type. There are more: METRICS.
PROMISED = HEARTBEATS | {
    "Submitted", "Claimed", "ClaimConflicts", "DispatchFailures", "Succeeded", "Retried", "Failed", "Cancelled",
    "LeasesExpired", "HeartbeatsLost", "QueueLatency", "Duration", "Backlog", "OldestDueAge", "Running", "WriteUnits",
    "ReadUnits", "AuditViolations",
}  # fmt: skip
EXPECTED = {
    "PollerStopped", "ReaperStopped", "TasksFaileddefault", "DispatchFailures", "LeasesExpired",
    "ExecutorErrorsdefault", "FunctionErrorsapi", "FunctionErrorspoller", "FunctionErrorsreaper",
    "FunctionErrorsrecorder", "EventsTooOld", "AuditViolations", "Undelivered", "RecorderFailures", "RecorderBehind",
    "TableReadThrottled", "FunctionErrorsdoorbell", "SweepsFailed", "TableWriteThrottled", "IndexReadThrottled",
    "IndexWriteThrottled", "ApiServerErrors", "TasksWaiting", "FailureRate", "ExecutorThrottleddefault",
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
def sources() -> dict[str, ast.Module]:
    """What runs in the functions, by path, without the list of metrics itself."""
    paths = [*(ROOT / "layers").rglob("*.py"), *(ROOT / "functions").rglob("*.py")]
    return {str(path): ast.parse(path.read_text()) for path in paths if path.name != "metrics.py"}


def measured() -> list[tuple[str, set[str]]]:
    """(name, dimensions given) of every place that measures a metric it names."""
    found = []
    for tree in sources().values():
        for node in ast.walk(tree):
            match node:
                case ast.Call(func=ast.Attribute(attr="measure"), args=[ast.Constant(value=str(name)), *_]):
                    given = {str(keyword.arg).capitalize() for keyword in node.keywords if keyword.arg != "value"}
                    found.append((name, {"Service", *given}))
    return found


def test_the_metrics_that_users_are_promised_are_listed_and_whatever_is_listed_is_measured() -> None:
    assert set(METRICS) >= PROMISED
    texts = {
        node.value
        for tree in sources().values()
        for node in ast.walk(tree)
        if isinstance(node, ast.Constant) and isinstance(node.value, str)
    }
    assert set(METRICS) <= texts, "a metric that nobody measures"


def test_every_place_that_measures_gives_what_the_metric_is_listed_with() -> None:
    """That each listed set of dimensions is then emitted is tested with the observer."""
    for name, given in measured():
        assert name in METRICS, f"{name} is not listed"
        for names in METRICS[name].dimension_sets:
            missing = set(names) - given
            assert missing <= {"Queue"} if name in {"WriteUnits", "ReadUnits"} else not missing, (name, missing)


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
                assert dimensions["Service"] == synthesised.names[1]
                assert dimensions.get("Queue") == ("default" if name == "TasksFaileddefault" else None)
                assert is_emitted(alarm["MetricName"], dimensions), f"{name}: nobody emits that"
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
    assert "alarmEmails is not set" in said(prod)
    assert "alarmEmails is not set" not in said(local)
    heard = synthesise("prod", {"environments": {"prod": {"alarmEmail": "ops@example.com"}}})
    (subscription,) = properties(heard.service, "AWS::SNS::Subscription")
    assert (subscription["Protocol"], subscription["Endpoint"]) == ("email", "ops@example.com")
    assert "alarmEmails is not set" not in said(heard)


def said(synthesised: Synthesised) -> str:
    """What the CLI would print: the assembly's metadata."""
    return "".join(path.read_text() for path in synthesised.assembly.glob("*.json"))


def is_emitted(name: str, dimensions: Iterable[str]) -> bool:
    return sorted(dimensions) in [sorted(names) for names in METRICS[name].dimension_sets]


# ---- the dashboard ---------------------------------------------------------------------------------------------------


def widgets(synthesised: Synthesised, kind: str) -> list[dict[str, Any]]:
    (dashboard,) = properties(synthesised.service, "AWS::CloudWatch::Dashboard")
    body = json.loads(readable(dashboard["DashboardBody"]))
    return [widget["properties"] for widget in body["widgets"] if widget["type"] == kind]


def test_the_dashboard_shows_what_is_emitted_and_nothing_else(synthesised: Synthesised) -> None:
    shown = set()
    for widget in widgets(synthesised, "metric"):
        assert widget["metrics"], f"{widget['title']} is empty"
        for namespace, name, *dimensions in widget["metrics"]:
            assert isinstance(namespace, str), "no math, no search"
            if namespace == "ThunderAgent":
                given = [one for one in dimensions if one in ("Service", "Queue", "Type")]
                assert is_emitted(name, given), f"{name} is not emitted by {given}"
                shown.add(name)
    assert shown == set(METRICS), "every metric is worth a graph, or is not worth emitting"


@pytest.mark.parametrize("name", ["QueueLatency", "Duration"])
def test_the_dashboard_shows_percentiles_of_waiting_and_running(name: str, prod: Synthesised) -> None:
    statistics = {
        metric[-1].get("stat")
        for widget in widgets(prod, "metric")
        for metric in widget["metrics"]
        if metric[1] == name and metric[:2] == ["ThunderAgent", name]
    }
    assert statistics >= {"p50", "p95", "p99"}


def test_the_dashboard_answers_four_questions_from_top_to_bottom(prod: Synthesised) -> None:
    questions = [widget["markdown"].splitlines()[0] for widget in widgets(prod, "text")]
    assert questions == [
        "## Is it healthy?", "## Is it keeping up?", "## What fails?", "## What does it cost?",
    ]  # fmt: skip
    (status,) = widgets(prod, "alarm")
    assert len(status["alarms"]) == len(EXPECTED)


# ---- the runbook -----------------------------------------------------------------------------------------------------


@cache
def runbook() -> dict[str, str]:
    """Sections of docs/operations.md by the anchor their heading gets."""
    found: dict[str, str] = {}
    text = (ROOT / "docs" / "operations.md").read_text()
    for part in re.split(r"^#{2,3} ", text, flags=re.MULTILINE)[1:]:
        heading, _, body = part.partition("\n")
        found[re.sub(r"[^a-z0-9 -]", "", heading.lower()).replace(" ", "-")] = body
    return found


def test_every_alarm_has_a_section_in_the_runbook_and_every_section_an_alarm(prod: Synthesised) -> None:
    linked = {alarm["AlarmDescription"].rpartition("docs/operations.md#")[2] for alarm in alarms(prod).values()}
    with_steps = {anchor for anchor, body in runbook().items() if "**Do:**" in body}
    assert linked == with_steps
    for anchor in linked:
        assert all(part in runbook()[anchor] for part in ("**Means:**", "**Look at:**", "**Do:**")), anchor


def test_the_links_of_the_dashboard_lead_somewhere(prod: Synthesised, synthesise: Synthesise) -> None:
    links = [re.findall(r"\((.*?)\)", widget["markdown"])[-1] for widget in widgets(prod, "text")]
    assert all(link.partition("#")[0] == "docs/operations.md" for link in links)
    assert {link.partition("#")[2] for link in links} <= set(runbook())
    wiki = "https://wiki.example.com/thunder"
    elsewhere = synthesise("prod", {"environments": {"prod": {"alarms": {"runbook": wiki}}}})
    assert all(f"]({wiki}#" in widget["markdown"] for widget in widgets(elsewhere, "text"))
    assert all(f"Runbook: {wiki}#" in alarm["AlarmDescription"] for alarm in alarms(elsewhere).values())


def test_when_it_is_an_alarm_is_a_setting(synthesise: Synthesise) -> None:
    settings = {"oldestDueSeconds": 60, "failureRate": 0.5}
    found = alarms(synthesise("prod", {"environments": {"prod": {"alarms": settings}}}))
    assert (found["TasksWaiting"]["Threshold"], found["FailureRate"]["Threshold"]) == (60, 0.5)
    assert found["FailureRate"]["Statistic"] == "Average", "of 0 for a success and 1 for a failure"
