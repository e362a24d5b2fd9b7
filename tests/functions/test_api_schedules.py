"""Schedules over HTTP: created, replaced, read, run now, removed; what no calendar or handler can take is refused."""

from __future__ import annotations

from typing import Any

import pytest

from tests.support.api import Api

DAILY = {"cron": "30 2 * * *", "timezone": "Europe/Berlin", "task": {"type": "report.generate", "payload": {"n": 1.0}}}


def test_created_replaced_read_and_removed(api: Api) -> None:
    first = api.call("PUT", "/schedules/daily", DAILY)
    assert (first.status, first.headers["location"]) == (201, "/schedules/daily")
    assert first.json["task"] == DAILY["task"]
    assert first.json["next"] > api.clock.now()
    assert api.call("GET", "/schedules/daily").json == first.json
    again = api.call("PUT", "/schedules/daily", {**DAILY, "cron": "0 3 * * *"})
    assert (again.status, again.json["cron"]) == (200, "0 3 * * *")
    assert [schedule["name"] for schedule in api.call("GET", "/schedules").json["schedules"]] == ["daily"]
    assert api.call("DELETE", "/schedules/daily").status == 204
    assert api.call("DELETE", "/schedules/daily").status == 404
    assert api.call("GET", "/schedules/daily").status == 404
    assert api.call("GET", "/schedules").json == {"schedules": []}


def test_run_now(api: Api) -> None:
    api.call("PUT", "/schedules/daily", DAILY)
    headers = {"Idempotency-Key": "k"}
    task = api.call("POST", "/schedules/daily/run", headers=headers)
    assert (task.status, task.json["type"], task.json["payload"]) == (201, "report.generate", {"n": 1.0})
    assert task.headers["location"] == f"/tasks/{task.json['taskId']}"
    again = api.call("POST", "/schedules/daily/run", headers=headers)
    assert (again.status, again.json["taskId"]) == (200, task.json["taskId"])
    assert api.call("POST", "/schedules/daily/run").json["taskId"] != task.json["taskId"]
    assert api.call("POST", "/schedules/none/run").status == 404


def test_run_now_takes_no_body(api: Api) -> None:
    """A payload for this one run would not be heard."""
    api.call("PUT", "/schedules/daily", DAILY)
    for body in ({"payload": 1}, {"reason": "x"}, [], "x", 0, False):
        answer = api.call("POST", "/schedules/daily/run", body)
        assert (answer.status, answer.json["error"]["message"]) == (400, "this call takes no body")
    assert api.events().count("task.submitted") == 0
    assert api.call("POST", "/schedules/daily/run", {}).status == 201


@pytest.mark.parametrize(
    ("changes", "status", "path"),
    [
        ({"cron": "61 * * * *"}, 400, "cron"),
        ({"cron": "tomorrow"}, 400, "cron"),
        ({"cron": ""}, 400, "cron"),
        ({"timezone": "Mars/Olympus"}, 400, "timezone"),
        ({"task": {}}, 400, "task.type"),
        ({"task": {"type": "report.generate", "taskId": "x"}}, 400, "task.taskId"),
        ({"task": {"type": "report.generate", "delaySeconds": 1}}, 400, "task.delaySeconds"),
        ({"task": {"type": "report.generate", "queue": "nowhere"}}, 422, "queue"),
        ({"paused": True}, 400, "paused"),
    ],
)
def test_what_is_refused_leaves_no_row(api: Api, changes: dict[str, Any], status: int, path: str) -> None:
    response = api.call("PUT", "/schedules/daily", {**DAILY, **changes})
    assert (response.status, response.error["path"]) == (status, path), response.text
    assert api.rows() == []


@pytest.mark.parametrize("name", ["Bad", "a%23b", "a" * 65])
def test_names(api: Api, name: str) -> None:
    assert api.call("PUT", f"/schedules/{name}", DAILY).status == 400
    assert api.call("GET", f"/schedules/{name}").status == 404
