"""`thunder queue`, over the API in memory."""

from __future__ import annotations

import json
from typing import Any

import pytest

from tests.support.cli import Terminal


def settings(thunder: Terminal, name: str) -> dict[str, Any]:
    queue: dict[str, Any] = thunder.api.call("GET", f"/queues/{name}").json
    return queue


def test_list_in_each_form(thunder: Terminal) -> None:
    thunder.api.submit(queue="reports")
    answer = thunder.api.call("GET", "/queues").json

    assert json.loads(thunder.ok("queue", "list", "--output", "json").stdout) == answer
    text = [line.split("\t") for line in thunder.ok("queue", "list", "--output", "text").stdout.splitlines()]
    assert [row[:3] for row in text] == [["default", "open", "0"], ["reports", "open", "1"]]
    assert "reports" in thunder.ok("queue", "list").stdout


def test_pause_and_resume(thunder: Terminal) -> None:
    paused = json.loads(thunder.ok("queue", "pause", "default", "reports", "--reason", "r", "--output", "json").stdout)
    assert [row["paused"] for row in paused["queues"]] == [True, True]
    assert settings(thunder, "reports")["paused"] is True
    assert "paused" in thunder.ok("queue", "list").stdout

    resumed = json.loads(thunder.ok("queue", "resume", "reports", "--output", "json").stdout)
    assert (resumed["queue"], resumed["paused"]) == ("reports", False)
    assert settings(thunder, "default")["paused"] is True


@pytest.mark.parametrize("verb", ["pause", "resume"])
def test_a_misspelt_queue_is_not_declared_by_pausing_it(thunder: Terminal, verb: str) -> None:
    missing = thunder("queue", verb, "default", "reprots")

    assert missing.exit_code == 3
    assert "default, reports" in missing.stderr
    assert thunder.api.call("GET", "/queues/reprots").status == 404
    assert settings(thunder, "default")["paused"] is False


def test_set_merges_and_none_resets(thunder: Terminal) -> None:
    thunder.ok("queue", "set", "default", "--max-concurrency", "0", "--rate-per-second", "0.5", "--burst", "2")
    thunder.ok("queue", "set", "default", "--burst", "none", "--max-backlog", "10", "--shards", "8")
    thunder.ok("queue", "set", "default", "--per-key", '{"tag": "tenant", "maxConcurrency": 2}')
    stored = settings(thunder, "default")
    assert (stored["maxConcurrency"], stored["ratePerSecond"], stored["burst"]) == (0, 0.5, None)
    assert (stored["maxBacklog"], stored["perKey"]) == (10, {"tag": "tenant", "maxConcurrency": 2})

    shown = thunder.ok("queue", "set", "default", "--per-key", "none").stdout
    assert settings(thunder, "default")["perKey"] is None
    assert "0 at once, 0.5/s, backlog ≤ 10" in shown


def test_set_declares_a_new_queue_and_says_so(thunder: Terminal) -> None:
    assert "declared" in thunder.ok("queue", "set", "mail").stderr
    assert settings(thunder, "mail")["declared"] == "api"
    thunder.api.submit(queue="mail")
    assert "declared" not in thunder.ok("queue", "set", "mail", "--burst", "1").stderr


@pytest.mark.parametrize(
    "arguments",
    [
        ["default"],
        ["default", "--burst", "many"],
        ["default", "--burst", "0"],
        ["default", "--rate-per-second", "-1"],
        ["default", "--per-key", "{"],
        ["default", "--per-key", "{}"],
        ["Not A Name"],
        [],
    ],
)
def test_what_cannot_be_set_is_a_usage_error(thunder: Terminal, arguments: list[str]) -> None:
    refused = thunder("queue", "set", *arguments)

    assert (refused.exit_code, refused.stdout) == (2, "")
    assert settings(thunder, "default")["maxConcurrency"] is None
