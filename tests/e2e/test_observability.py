"""What operators see of the running stack: a metric travels from a handler to an alarm and to who hears of it."""

from __future__ import annotations

import json
import re
import signal
import subprocess
import time
import urllib.request
from collections.abc import Callable
from datetime import UTC, datetime, timedelta
from typing import Any, TypeVar

from tests.support.local_stack import UpStack
from thunder.local.bridge import Bridge
from thunder.local.processes import Child, end
from thunder.local.state import read_json
from thunderagent.metrics import METRICS, NAMESPACE

PATIENCE_SECONDS = 90
SECRET = "correct-horse-battery-staple"
PLATFORM = re.compile(r"(START|END|REPORT|INIT_START) ")

T = TypeVar("T")


def eventually(look: Callable[[], T]) -> T:
    """The first thing found, or a failed test."""
    until = time.monotonic() + PATIENCE_SECONDS
    while not (found := look()):
        assert time.monotonic() < until, "it did not come to be"
        time.sleep(0.5)
    return found


def submit(stack: UpStack, type: str, payload: Any = None, **options: Any) -> str:
    headers = options.pop("headers", None)
    answer = stack.call("POST", "tasks", {"type": type, "payload": payload, **options}, headers=headers)
    assert answer.status == 201, answer.body
    return str(answer.json["taskId"])


def ended(stack: UpStack, task_id: str) -> dict[str, Any]:
    def look() -> dict[str, Any] | None:
        task = stack.call("GET", f"tasks/{task_id}").json
        return task if task["status"] in {"SUCCESS", "FAILED", "DONE"} else None

    return eventually(look)


def alarm_states(stack: UpStack) -> dict[str, str]:
    """By the part of the name that says what it is about."""
    pages = stack.client("cloudwatch").get_paginator("describe_alarms").paginate()
    found = {alarm["AlarmName"]: alarm["StateValue"] for page in pages for alarm in page["MetricAlarms"]}
    return {name.partition("Monitoring")[2].partition("-")[0][:-8]: state for name, state in found.items()}


def listen(stack: UpStack) -> Callable[[], list[dict[str, Any]]]:
    """What the alarm topic says from now on, each message once."""
    sqs = stack.client("sqs")
    queue = sqs.create_queue(QueueName="listener")["QueueUrl"]
    arn = sqs.get_queue_attributes(QueueUrl=queue, AttributeNames=["QueueArn"])["Attributes"]["QueueArn"]
    admitted = {"Effect": "Allow", "Principal": {"Service": "sns.amazonaws.com"}, "Action": "sqs:SendMessage"}
    policy = {"Version": "2012-10-17", "Statement": [{**admitted, "Resource": arn}]}
    sqs.set_queue_attributes(QueueUrl=queue, Attributes={"Policy": json.dumps(policy)})
    stack.client("sns").subscribe(TopicArn=stack.record["alarmTopicArn"], Protocol="sqs", Endpoint=arn)

    def heard() -> list[dict[str, Any]]:
        messages = sqs.receive_message(QueueUrl=queue, MaxNumberOfMessages=10).get("Messages", [])
        for message in messages:
            sqs.delete_message(QueueUrl=queue, ReceiptHandle=message["ReceiptHandle"])
        return [json.loads(json.loads(message["Body"])["Message"]) for message in messages]

    return heard


def lines(stack: UpStack) -> list[str]:
    """Every line that any log group has."""
    logs = stack.client("logs")
    groups = [each["logGroupName"] for each in logs.describe_log_groups()["logGroups"]]
    pages = [logs.get_paginator("filter_log_events").paginate(logGroupName=group) for group in groups]
    return [event["message"] for each in pages for page in each for event in page["events"]]


def end_bridge(stack: UpStack) -> None:
    children = [Child.of_record(each) for each in (read_json(stack.local.state.processes_file) or {})["children"]]
    (bridge,) = (child for child in children if child.name == "bridge")
    end(bridge)


def test_after_up_every_alarm_of_an_idle_stack_is_ok(own_stack: UpStack) -> None:
    states = alarm_states(own_stack)
    assert len(states) >= 16
    assert set(states.values()) == {"OK"}
    assert own_stack.record["bridge"] is True


def test_a_task_that_fails_in_its_handler_is_an_alarm_that_the_topic_tells_of(own_stack: UpStack) -> None:
    heard = listen(own_stack)
    assert ended(own_stack, submit(own_stack, "demo.permanent"))["status"] == "FAILED"

    def told() -> list[dict[str, Any]]:
        return [each for each in heard() if "TasksFailed" in each["AlarmName"]]

    (message,) = eventually(told)
    assert message["NewStateValue"] == "ALARM"
    assert len(message["AlarmDescription"]) > 80, "it says what to do"
    assert [name for name, state in alarm_states(own_stack).items() if state != "OK"] == ["TasksFaileddefault"]


def test_what_arrives_in_cloudwatch_has_the_dimensions_it_is_listed_with(own_stack: UpStack) -> None:
    ended(own_stack, submit(own_stack, "demo.echo", 1))
    cloudwatch = own_stack.client("cloudwatch")

    def arrived() -> dict[str, set[tuple[str, ...]]]:
        found: dict[str, set[tuple[str, ...]]] = {}
        for page in cloudwatch.get_paginator("list_metrics").paginate(Namespace=NAMESPACE):
            for metric in page["Metrics"]:
                names = tuple(sorted(each["Name"] for each in metric["Dimensions"]))
                found.setdefault(metric["MetricName"], set()).add(names)
        return found if {"Succeeded", "Duration", "QueueLatency"} <= found.keys() else {}

    for name, sets in eventually(arrived).items():
        assert sets <= {tuple(sorted(each)) for each in METRICS[name].dimension_sets}, name
    percentiles = cloudwatch.get_metric_statistics(
        Namespace=NAMESPACE,
        MetricName="Duration",
        Dimensions=[{"Name": "Service", "Value": "ThunderAgent-local"}, {"Name": "Queue", "Value": "default"}],
        StartTime=datetime.now(UTC) - timedelta(minutes=5),
        EndTime=datetime.now(UTC) + timedelta(minutes=1),
        Period=600,
        ExtendedStatistics=["p50", "p95", "p99"],
    )["Datapoints"]
    assert set(percentiles[0]["ExtendedStatistics"]) == {"p50", "p95", "p99"}


def test_prometheus_is_served_true_counters_until_interrupted(own_stack: UpStack) -> None:
    thunder = own_stack.local.checkout.venv / "bin" / "thunder"
    environment = {"PATH": "/usr/bin:/bin", "THUNDER_STATE_DIR": own_stack.record["stateDir"], "LANG": "C.UTF-8"}
    command = [str(thunder), "--local", "metrics", "serve", "--port", "0", "--interval", "1"]
    serving = subprocess.Popen(command, env=environment, stderr=subprocess.PIPE, text=True)
    try:
        assert serving.stderr is not None
        found = re.search(r"http://127\.0\.0\.1:\d+/metrics", serving.stderr.readline())
        assert found is not None
        for type in ("demo.echo", "demo.permanent"):
            ended(own_stack, submit(own_stack, type))

        def counted() -> bool:
            with urllib.request.urlopen(found[0], timeout=10) as answer:
                text = answer.read().decode()
            labels = '{queue="default",service="ThunderAgent-local"}'
            return f"tasks_processed_total{labels} 2.0" in text and f"tasks_failed_total{labels} 1.0" in text

        eventually(counted)
    finally:
        serving.send_signal(signal.SIGINT)
        assert serving.wait(timeout=10) == 130
        serving.stderr.close()


def test_a_stopped_poller_is_an_alarm_within_stated_time(own_stack: UpStack) -> None:
    """Under a clock that runs faster: the bridge is told of seven minutes in a moment. No poller runs meanwhile."""
    end_bridge(own_stack)
    events = own_stack.client("events")
    for rule in events.list_rules()["Rules"]:
        events.disable_rule(Name=rule["Name"])
    heard = listen(own_stack)
    fast = [time.time()]
    bridge = Bridge.to(own_stack.record["endpoint"], now=lambda: fast[0], say=lambda line: None)

    for _ in range(15):
        bridge.round()
        fast[0] += 30

    assert {name for name, state in alarm_states(own_stack).items() if state == "ALARM"} == {
        "PollerStopped", "ReaperStopped",
    }  # fmt: skip
    told = eventually(heard)
    assert {each["NewStateValue"] for each in told} == {"ALARM"}


def test_a_trace_goes_from_the_submit_to_the_tasks_children_and_into_every_line(own_stack: UpStack) -> None:
    traceparent = "00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01"
    parent = submit(own_stack, "demo.children", {"n": 2}, headers={"traceparent": traceparent})
    ended(own_stack, parent)

    def told() -> list[dict[str, Any]]:
        found = [json.loads(line) for line in lines(own_stack) if line.startswith("{")]
        of_trace = [each for each in found if each.get("traceparent") == traceparent]
        return of_trace if sum(each["event"] == "task.succeeded" for each in of_trace) == 3 else []

    told_of = eventually(told)
    children = {each["taskId"] for each in told_of if each.get("parentId") == parent}
    assert len(children) == 2
    assert {each["taskId"] for each in told_of} == {parent, *children}


def test_logs_are_json_and_hold_no_payload_header_or_token(own_stack: UpStack) -> None:
    secret = {"password": SECRET, "note": f'x\n{{"event":"task.forged","taskId":"{SECRET}"}}'}
    headers = {"x-api-token": SECRET, "cookie": SECRET}
    ids = [
        submit(own_stack, "demo.echo", secret, headers=headers, tags={"tenant": SECRET}),
        submit(own_stack, "demo.permanent", secret),
        submit(own_stack, "demo.flaky", {"failures": 1, "x": SECRET}, maxRetryNumber=0),
    ]
    refused = own_stack.call("POST", f"tasks?x={SECRET}", {"type": "demo.echo", SECRET: 1}, headers=headers)
    assert refused.status == 400
    for task_id in ids:
        ended(own_stack, task_id)
    pages = own_stack.client("dynamodb").get_paginator("scan").paginate(TableName=own_stack.record["tableName"])
    items = [item for page in pages for item in page["Items"]]
    tokens = {item["leaseToken"]["S"] for item in items if "leaseToken" in item}
    assert tokens

    def complete() -> list[str]:
        found = lines(own_stack)
        return found if all(any(task_id in line for line in found) for task_id in ids) else []

    found = eventually(complete)
    for line in found:
        assert SECRET not in line
        assert not any(token in line for token in tokens)
    told = [json.loads(line) for line in found if not PLATFORM.match(line)]
    assert all(isinstance(each, dict) for each in told)
    assert {each["taskId"] for each in told if each.get("event") == "task.submitted"} >= set(ids)
