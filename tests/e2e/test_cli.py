"""The command line on the real stack: what an operator does on a bad day, as typed, in processes of its own."""

from __future__ import annotations

import json
import os
import subprocess
import time
import uuid
from typing import Any

import pytest

from tests.support.local_stack import UpStack
from thunder.local.checkout import Checkout
from thunderagent.queues import CACHE_SECONDS

THUNDER = str(Checkout.of_this_installation().venv / "bin" / "thunder")
NASTY = {"a": [1, 2.0, 10**30, None, {}], "text": "[bold]x[/bold]\x1b[2J\u009b2J\nnext \u202e"}
ENDS_SECONDS = "90"


class Operator:
    """Types commands at one stack."""

    def __init__(self, stack: UpStack) -> None:
        self.stack = stack

    def __call__(self, *arguments: str, typed: str = "", code: int = 0, **environment: str) -> str:
        """What the command printed; it must end with this code. `environment` is set for it alone."""
        done = self.run(*arguments, typed=typed, **environment)
        assert done.returncode == code, done.stderr
        return done.stdout

    def run(self, *arguments: str, typed: str = "", **environment: str) -> subprocess.CompletedProcess[str]:
        env = {**os.environ, "THUNDER_STATE_DIR": self.stack.record["stateDir"], **environment}
        return subprocess.run(
            [THUNDER, *arguments], input=typed, env=env, capture_output=True, text=True, check=False, timeout=120
        )

    def json(self, *arguments: str, code: int = 0) -> Any:
        return json.loads(self("--local", *arguments, "--output", "json", code=code))


@pytest.fixture
def thunder(stack: UpStack) -> Operator:
    return Operator(stack)


@pytest.fixture
def tag() -> str:
    """A name of this test's own: others share the stack."""
    return f"cli-{uuid.uuid4().hex[:8]}"


def test_a_task_from_its_submit_to_its_erasure(thunder: Operator) -> None:
    submitted = thunder.run(
        "task", "submit", "demo.echo", "-", "--wait", "--wait-timeout", ENDS_SECONDS, "--output", "json",
        typed=json.dumps(NASTY),
    )  # fmt: skip
    assert submitted.returncode == 0, submitted.stderr
    assert "using ThunderAgent-local on this machine" in submitted.stderr
    task = json.loads(submitted.stdout)
    assert (task["status"], task["payload"], task["result"]) == ("SUCCESS", NASTY, NASTY)
    assert json.dumps(thunder.json("task", "get", task["taskId"], "--result")) == json.dumps(NASTY)

    shown = thunder("--local", "task", "get", task["taskId"])
    assert "[bold]x[/bold]" in shown
    assert not {character for character in shown if not character.isprintable()} - {"\n"}

    assert thunder.json("task", "ack", task["taskId"])["outcome"] == "acknowledged"
    thunder("--local", "task", "delete", task["taskId"])
    thunder("--local", "task", "get", task["taskId"], code=3)


def test_dead_letters_are_found_by_their_error_and_redriven(thunder: Operator, tag: str) -> None:
    thunder("--local", "queue", "set", tag)
    for _ in range(2):
        thunder("--local", "task", "submit", "demo.permanent", "--queue", tag)
    failing = thunder("--local", "task", "submit", "demo.fail", "--queue", tag, "--max-retry-number", "0",
                      "--wait-timeout", ENDS_SECONDS, "--output", "text", code=1)  # fmt: skip
    assert "FAILED" in failing
    thunder("--local", "task", "wait", *_ids(thunder, tag, "FAILED"), code=1)

    groups = thunder.json("dlq", "list", "--queue", tag)["groups"]
    assert {(group["errorType"], group["count"]) for group in groups} == {("Fail", 2), ("RuntimeError", 1)}

    thunder("--local", "queue", "pause", tag, "--reason", "looking")
    time.sleep(CACHE_SECONDS + 1)  # as long as pollers may go by what they read before
    redrive = ["dlq", "redrive", "--queue", tag, "--error-type", "Fail"]
    assert thunder.json(*redrive, "--dry-run")["matched"] == 2
    assert "2 tasks of queue" in thunder.run("--local", *redrive).stderr  # no terminal: it refuses
    assert len(_ids(thunder, tag, "FAILED")) == 3
    assert thunder.json(*redrive, "--yes", "--reason", "fixed")["done"] == 2

    waiting = _ids(thunder, tag, "PENDING")
    assert len(waiting) == 2
    assert thunder.json("task", "why", waiting[0])["reason"] == "queue_paused"
    assert thunder.json("task", "cancel", "--queue", tag, "--yes")["done"] == 2
    assert thunder.json("queue", "resume", tag)["paused"] is False


def _ids(thunder: Operator, queue: str, status: str) -> list[str]:
    listed = thunder.json("task", "list", "--queue", queue, "--status", status)["tasks"]
    return [task["taskId"] for task in listed]


def test_a_schedule(thunder: Operator, tag: str) -> None:
    thunder("--local", "schedule", "put", tag, "demo.echo", "5", "--cron", "0 3 1 1 *", "--timezone", "Europe/Berlin")
    assert tag in [row["name"] for row in thunder.json("schedule", "list")["schedules"]]
    task = thunder.json("schedule", "run", tag)
    assert thunder.json("task", "wait", task["taskId"], "--timeout", ENDS_SECONDS)["result"] == 5
    thunder("--local", "schedule", "delete", tag)
    thunder("--local", "schedule", "run", tag, code=3)


def test_the_doctor_finds_nothing_wrong_and_the_audit_neither(thunder: Operator) -> None:
    verdicts = {check["check"]: check["verdict"] for check in thunder.json("doctor", "--audit")["checks"]}

    assert "fail" not in verdicts.values()
    certain = ("credentials", "stack", "table", "index", "stream", "retention", "api", "clock", "audit")
    assert {verdicts[name] for name in certain} == {"ok"}


def test_the_same_stack_by_its_name_and_by_its_url(thunder: Operator) -> None:
    """As on AWS: CloudFormation's outputs, the SDK's credentials, a signed call."""
    record = thunder.stack.record
    keys = {"AWS_ACCESS_KEY_ID": record["accessKeyId"], "AWS_SECRET_ACCESS_KEY": record["secretAccessKey"]}
    place = ("--endpoint-url", record["endpoint"], "--region", record["region"])
    by_name = thunder("--stack", "ThunderAgent-local", *place, "stats", "--output", "json", **keys)
    by_url = thunder("--api-url", record["apiUrl"], "--region", record["region"], "stats", "--output", "json", **keys)

    assert json.loads(by_name).keys() == json.loads(by_url).keys() == {"queues", "totals"}
    missing = thunder.run("--stack", "Nope", *place, "stats", **keys)
    assert (missing.returncode, missing.stdout) == (3, "")
    assert "no stack Nope" in missing.stderr


def test_credentials_that_are_not_known_are_refused_with_advice(thunder: Operator) -> None:
    record = thunder.stack.record
    keys = {"AWS_ACCESS_KEY_ID": "AKIAIOSFODNN7EXAMPLE", "AWS_SECRET_ACCESS_KEY": "nope"}
    refused = thunder.run("--api-url", record["apiUrl"], "--region", record["region"], "stats", **keys)

    assert (refused.returncode, refused.stdout) == (1, "")
    assert "the API refused" in refused.stderr
    assert "Traceback" not in refused.stderr
