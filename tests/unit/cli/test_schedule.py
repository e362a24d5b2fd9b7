"""`thunder schedule`, over the API in memory."""

from __future__ import annotations

import json

import pytest

from tests.support.cli import Terminal


def test_put_list_run_delete(thunder: Terminal) -> None:
    put = thunder.ok(
        "schedule", "put", "nightly", "demo.echo", '{"a": 1.0}', "--cron", "0 3 * * *", "--timezone", "Europe/Berlin",
        "--catch-up", "none", "--queue", "reports", "--priority", "low", "--max-retry-number", "0",
        "--timeout-seconds", "2m", "--start-within-seconds", "1h", "--unique-window-seconds", "0", "--tag", "t=x",
        "--reason", "r", "--output", "json",
    )  # fmt: skip
    stored = thunder.api.call("GET", "/schedules/nightly").json
    assert json.loads(put.stdout) == stored
    assert (stored["cron"], stored["timezone"], stored["catchUp"]) == ("0 3 * * *", "Europe/Berlin", "none")
    assert stored["task"] == {
        "type": "demo.echo", "payload": {"a": 1.0}, "queue": "reports", "priority": "low", "maxRetryNumber": 0,
        "timeoutSeconds": 120, "startWithinSeconds": 3600, "unique": {"windowSeconds": 0}, "tags": {"t": "x"},
    }  # fmt: skip

    assert json.loads(thunder.ok("schedule", "list", "--output", "json").stdout) == {"schedules": [stored]}
    assert "0 3 * * *" in thunder.ok("schedule", "list").stdout
    task = json.loads(thunder.ok("schedule", "run", "nightly", "--output", "json").stdout)
    assert thunder.api.call("GET", f"/tasks/{task['taskId']}").json["payload"] == {"a": 1.0}

    assert thunder.ok("schedule", "delete", "nightly").stdout == ""
    assert thunder("schedule", "delete", "nightly").exit_code == 3
    assert thunder("schedule", "run", "nightly").exit_code == 3


def test_the_type_may_be_an_option_and_no_payload_is_none(thunder: Terminal) -> None:
    thunder.ok("schedule", "put", "hourly", "--cron", "0 * * * *", "--type", "demo.echo", "--payload", "null")
    assert thunder.api.call("GET", "/schedules/hourly").json["task"] == {"type": "demo.echo", "payload": None}
    thunder.ok("schedule", "put", "hourly", "--cron", "0 * * * *", "--type", "demo.echo")
    assert thunder.api.call("GET", "/schedules/hourly").json["task"] == {"type": "demo.echo"}


def test_what_was_listed_can_be_put_back(thunder: Terminal) -> None:
    thunder.ok("schedule", "put", "a", "demo.echo", "1", "--cron", "0 3 * * *")
    printed = json.loads(thunder.ok("schedule", "list", "--output", "json").stdout)["schedules"][0]
    thunder.ok("schedule", "put", "b", "--input", "-", typed=json.dumps(printed))

    assert thunder.api.call("GET", "/schedules/b").json["task"] == printed["task"]


@pytest.mark.parametrize(
    ("arguments", "says"),
    [
        (["x", "demo.echo"], "--cron"),
        (["x", "--cron", "0 3 * * *"], "TYPE"),
        (["x", "demo.echo", "--type", "demo.echo", "--cron", "0 3 * * *"], "twice"),
        (["x", "demo.echo", "--cron", "never"], "cron"),
        (["x", "demo.echo", "--cron", "0 3 * * *", "--timezone", "Mars"], "timezone"),
        (["x", "--input", "[]"], "object"),
        (["x", "--input", '{"cron": "0 3 * * *", "task": {"type": "demo.echo"}, "nope": 1}'], "nope"),
        (["x", "demo.echo", "--input", "{}"], "leave out"),
        (["x", "--input", "{}", "--tag", "a=b"], "leave out"),
    ],
)
def test_what_is_no_schedule_is_a_usage_error(thunder: Terminal, arguments: list[str], says: str) -> None:
    refused = thunder("schedule", "put", *arguments)

    assert (refused.exit_code, refused.stdout) == (2, "")
    assert says in refused.stderr
    assert thunder.api.call("GET", "/schedules/x").status == 404


def test_no_schedules(thunder: Terminal) -> None:
    assert "thunder schedule put" in thunder.ok("schedule", "list").stderr
    assert json.loads(thunder.ok("schedule", "list", "--output", "json").stdout) == {"schedules": []}
