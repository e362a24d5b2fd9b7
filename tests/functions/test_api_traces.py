"""The trace a task belongs to comes by header and stays with it; nothing else of a request is ever logged."""

from __future__ import annotations

import json
from typing import Any

import pytest

from tests.support.api import Api

TRACEPARENT = "00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01"
SECRET = "correct-horse-battery-staple"


def lines(api: Api) -> list[dict[str, Any]]:
    return [json.loads(line) for line in api.log.getvalue().splitlines()]


def stored(api: Api, task_id: str) -> Any:
    return api.table.items()[task_id].get("traceparent")


@pytest.mark.parametrize("name", ["traceparent", "Traceparent", "TRACEPARENT"])
def test_a_task_keeps_the_trace_it_was_submitted_in_and_its_log_lines_tell(api: Api, name: str) -> None:
    response = api.call("POST", "/tasks", {"type": "demo.echo"}, headers={name: TRACEPARENT})
    assert stored(api, response.json["taskId"]) == TRACEPARENT
    (told,) = [line for line in lines(api) if line.get("event") == "task.submitted"]
    assert told["traceparent"] == TRACEPARENT
    api.call("POST", f"/tasks/{response.json['taskId']}/cancel")
    assert [line["traceparent"] for line in lines(api) if line.get("event") == "task.cancel_accepted"] == [TRACEPARENT]


def test_every_task_of_a_batch_is_of_its_trace(api: Api) -> None:
    batch = {"tasks": [{"type": "demo.echo"}, {"type": "demo.echo"}]}
    response = api.call("POST", "/tasks/batch", batch, headers={"traceparent": TRACEPARENT})
    assert [stored(api, result["taskId"]) for result in response.json["results"]] == [TRACEPARENT] * 2


@pytest.mark.parametrize("header", ["", "00-0-0-0", TRACEPARENT + ", " + TRACEPARENT, SECRET])
def test_a_malformed_one_costs_nothing_but_itself(api: Api, header: str) -> None:
    response = api.call("POST", "/tasks", {"type": "demo.echo"}, headers={"traceparent": header})
    assert response.status == 201
    assert stored(api, response.json["taskId"]) is None
    assert SECRET not in api.log.getvalue()


def test_the_same_request_in_another_trace_is_the_same_request(api: Api) -> None:
    headers = {"Idempotency-Key": "k", "traceparent": TRACEPARENT}
    first = api.call("POST", "/tasks", {"type": "demo.echo"}, headers=headers)
    again = api.call("POST", "/tasks", {"type": "demo.echo"}, headers={"Idempotency-Key": "k"})
    assert (again.status, again.json["taskId"]) == (200, first.json["taskId"])
    assert stored(api, first.json["taskId"]) == TRACEPARENT


def test_no_payload_header_query_or_key_is_logged_whatever_becomes_of_the_call(api: Api) -> None:
    headers = {"Authorization": SECRET, "Cookie": SECRET, "X-Api-Key": SECRET, "Idempotency-Key": SECRET}
    body = {"type": "demo.echo", "payload": {"password": SECRET}, "tags": {"tenant": SECRET}}
    task_id = api.call("POST", "/tasks", body, headers=headers).json["taskId"]
    for method, path, sent in [
        ("POST", "/tasks", {"type": "demo.echo", SECRET: SECRET}),
        ("POST", "/tasks", {"type": SECRET.upper(), "payload": SECRET}),
        ("POST", "/tasks", SECRET),
        ("POST", "/tasks/batch", {"tasks": [body, SECRET, {"type": "demo.echo", "payload": SECRET, "bad": SECRET}]}),
        ("GET", f"/tasks?status=PENDING&{SECRET}={SECRET}", None),
        ("GET", f"/tasks/{task_id}/payload", None),
        ("GET", f"/no/such/{SECRET}", None),
        ("POST", "/cancel", {"type": "demo.echo", "nextToken": SECRET}),
        ("POST", f"/tasks/{task_id}/redrive", {"secret": SECRET}),
    ]:
        api.call(method, path, sent, headers=headers)
    assert lines(api), "something was logged"
    assert SECRET.lower() not in api.log.getvalue().lower()
