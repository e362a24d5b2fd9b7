"""`thunder agent` beside the deployed stack: it finds table, bucket and settings, and does tasks of its own."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from tests.e2e.test_dispatch import ended, submit, switch_schedule
from tests.support.local_stack import UpStack

HANDLERS = """
import os
from thunderagent import task

@task("night.run")
def run(payload, ctx):
    ctx.submit("night.rest", {"of": ctx.task_id})
    return {"bytes": len(payload["text"]), "table": os.environ["TABLE_NAME"], "text": payload["text"]}

@task("night.rest")
def rest(payload, ctx):
    return payload
"""


@pytest.fixture
def handlers(tmp_path: Path) -> Path:
    directory = tmp_path / "night"
    directory.mkdir()
    (directory / "jobs.py").write_text(HANDLERS)
    return directory


@pytest.fixture(params=["the local stack", "a stack by its name, behind an endpoint"])
def way(request: pytest.FixtureRequest, own_stack: UpStack) -> tuple[list[str], dict[str, str]]:
    """Options and environment that lead to the stack."""
    if request.param == "the local stack":
        return ["--local"], {"THUNDER_STATE_DIR": own_stack.record["stateDir"]}
    keys = {
        "AWS_ACCESS_KEY_ID": own_stack.record["accessKeyId"],
        "AWS_SECRET_ACCESS_KEY": own_stack.record["secretAccessKey"],
        "NO_PROXY": "127.0.0.1",
    }
    options = ["--stack", "ThunderAgent-local", "--region", "us-east-1", "--endpoint-url", own_stack.record["endpoint"]]
    return options, keys


@pytest.fixture
def agent(way: tuple[list[str], dict[str, str]], handlers: Path) -> Iterator[subprocess.Popen[str]]:
    options, variables = way
    thunder = str(Path(sys.executable).with_name("thunder"))
    command = [thunder, "agent", *options, "--output", "json", "--handlers", str(handlers), "--name", "night-1"]
    environment = {"PATH": os.environ["PATH"], "HOME": str(handlers.parent), "POLL_START_JITTER_SECONDS": "0"}
    process = subprocess.Popen(
        command, env=environment | variables, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True
    )
    yield process
    process.kill()
    process.communicate()


def test_tasks_that_no_lambda_has_are_done_by_the_agent(own_stack: UpStack, agent: Any) -> None:
    """The body is too large for the table, so it travels through the bucket, both ways."""
    switch_schedule(own_stack, on=False)  # the poller would put types off that it does not know
    text = "x" * 400_000
    task_id = submit(own_stack, "night.run", {"text": text})
    wait_for(own_stack, agent, f"/tasks/{task_id}", lambda found: found["status"] != "PENDING")
    (task,) = ended(own_stack, task_id)
    assert task["status"] == "SUCCESS", task
    assert (task["payloadBytes"], task["resultBytes"]) > (400_000, 400_000)
    stored = own_stack.client("s3").get_object(Bucket=own_stack.record["bucketName"], Key=f"bodies/result/{task_id}/1")
    assert json.loads(stored["Body"].read()) == {
        "bytes": 400_000,
        "table": own_stack.record["tableName"],
        "text": text,
    }
    wait_for(own_stack, agent, "/tasks?status=SUCCESS&type=night.rest", lambda found: bool(found["tasks"]))
    agent.send_signal(signal.SIGTERM)
    output, log = agent.communicate(timeout=60)
    assert agent.returncode == 0, log
    assert json.loads(output)["ended"] == {"succeeded": 2}


def wait_for(stack: UpStack, agent: Any, path: str, holds: Callable[[Any], bool]) -> Any:
    until = time.monotonic() + 60
    while not holds(found := stack.call("GET", path).json):
        assert agent.poll() is None, agent.communicate()
        assert time.monotonic() < until, found
        time.sleep(0.5)
    return found
