"""Dispatch on the embedded AWS: two ways to a start, each of them enough, and limits that pollers keep together."""

from __future__ import annotations

import time
from collections.abc import Callable
from typing import Any

from tests.support.local_stack import UpStack

PATIENCE_SECONDS = 90
ENDED = {"SUCCESS", "FAILED", "DONE"}


def submit(stack: UpStack, type: str, payload: Any, **options: Any) -> str:
    answer = stack.call("POST", "/tasks", {"type": type, "payload": payload, **options})
    assert answer.status == 201, answer.body
    return str(answer.json["taskId"])


def ended(stack: UpStack, *ids: str) -> list[dict[str, Any]]:
    """The tasks, once all have ended."""
    until = time.monotonic() + PATIENCE_SECONDS
    while True:
        tasks = [stack.call("GET", f"/tasks/{task_id}").json for task_id in ids]
        if all(task["status"] in ENDED for task in tasks):
            return tasks
        assert time.monotonic() < until, [task["status"] for task in tasks]
        time.sleep(0.5)


def function_name(stack: UpStack, part: str) -> str:
    pages = stack.client("lambda").get_paginator("list_functions").paginate()
    names = [each["FunctionName"] for page in pages for each in page["Functions"]]
    (name,) = [each for each in names if each.startswith(f"ThunderAgent-local-{part}")]
    return str(name)


def start_pollers(stack: UpStack, count: int) -> None:
    functions, poller = stack.client("lambda"), function_name(stack, "Poller")
    for _ in range(count):
        functions.invoke(FunctionName=poller, InvocationType="Event", Payload=b"{}")


def switch_doorbell(stack: UpStack, *, on: bool) -> None:
    functions, name = stack.client("lambda"), function_name(stack, "Doorbell")
    (mapping,) = functions.list_event_source_mappings(FunctionName=name)["EventSourceMappings"]
    functions.update_event_source_mapping(UUID=mapping["UUID"], Enabled=on)


def switch_schedule(stack: UpStack, *, on: bool) -> None:
    events = stack.client("events")
    for rule in events.list_rules()["Rules"]:
        (events.enable_rule if on else events.disable_rule)(Name=rule["Name"])


def most_at_once(tasks: list[dict[str, Any]], key: Callable[[dict[str, Any]], bool] = lambda task: True) -> int:
    """How many of the tasks ran at the same time at most, by their own account."""
    chosen = [task for task in tasks if key(task)]
    return max(
        sum(other["startedAt"] <= task["startedAt"] < other["finishedAt"] for other in chosen) for task in chosen
    )


def test_the_doorbell_starts_tasks_without_any_sweep_and_whatever_record_comes_before(own_stack: UpStack) -> None:
    switch_schedule(own_stack, on=False)
    table = own_stack.client("dynamodb")
    poison = {"taskId": "poison", "status": "PENDING", "dispatchKey": "OPEN#default#normal#0", "type": "demo.echo"}
    item = {name: {"S": value} for name, value in poison.items()} | {"dueAt": {"N": "1"}, "retryCount": {"S": "many"}}
    table.put_item(TableName=own_stack.record["tableName"], Item=item)

    (task,) = ended(own_stack, submit(own_stack, "demo.echo", {"n": 1}))
    assert (task["status"], task["result"]) == ("SUCCESS", {"n": 1})
    # the stream brings a task that failed once back to the doorbell when it is redriven
    (failed,) = ended(own_stack, submit(own_stack, "demo.permanent", None))
    assert failed["status"] == "FAILED"
    assert own_stack.call("POST", f"/tasks/{failed['taskId']}/redrive", {}).status == 200
    (again,) = ended(own_stack, failed["taskId"])
    assert again["fence"] == failed["fence"] + 2, "redriven and claimed once more"


def test_the_sweep_alone_delivers_everything(own_stack: UpStack) -> None:
    switch_doorbell(own_stack, on=False)
    start_pollers(own_stack, 1)
    tasks = ended(own_stack, *[submit(own_stack, "demo.echo", n, priority="low") for n in range(12)])
    assert {task["status"] for task in tasks} == {"SUCCESS"}


def test_ta27_limits_hold_across_overlapping_pollers_and_the_doorbell(own_stack: UpStack) -> None:
    limits = {"maxConcurrency": 3, "perKey": {"tag": "tenant", "maxConcurrency": 2}}
    assert own_stack.call("PUT", "/queues/default", limits).status == 200
    start_pollers(own_stack, 3)
    ids = [submit(own_stack, "demo.sleep", {"seconds": 0.3}, tags={"tenant": "aab"[n % 3]}) for n in range(15)]
    tasks = ended(own_stack, *ids)

    assert {task["status"] for task in tasks} == {"SUCCESS"}
    assert {task["fence"] for task in tasks} == {1}, "each was started once"
    assert most_at_once(tasks) <= 3
    for tenant in "ab":
        assert most_at_once(tasks, lambda task, tenant=tenant: task["tags"]["tenant"] == tenant) <= 2  # type: ignore[misc]
