"""`thunder agent` as a process over the embedded AWS: its signals, its exit codes, its last word."""

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

from tests.support.stores import TABLE, Backend, embedded_backend
from thunderagent.schema import FORMAT_VERSION, Layout

HANDLERS = """
import time
from thunderagent import task

@task("quick")
def quick(payload, ctx):
    return payload

@task("endless")
def endless(payload, ctx):
    while True:
        time.sleep(0.01)
"""
LAYOUT = Layout(shards=1)


@pytest.fixture(scope="module")
def backend(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Backend]:
    with embedded_backend(tmp_path_factory.mktemp("embedded") / "state") as found:
        yield found


@pytest.fixture
def start(backend: Backend, tmp_path: Path) -> Iterator[Callable[..., subprocess.Popen[str]]]:
    directory = tmp_path / "jobs"
    directory.mkdir()
    (directory / "jobs.py").write_text(HANDLERS)
    environment = {
        "PATH": os.environ["PATH"],
        "TABLE_NAME": TABLE,
        "AWS_ENDPOINT_URL": str(backend.endpoint),
        "AWS_REGION": "us-east-1",
        "AWS_ACCESS_KEY_ID": "test",
        "AWS_SECRET_ACCESS_KEY": "test",
        "NO_PROXY": "127.0.0.1",
        "DISPATCH_SHARDS": "1",
        "POLL_START_JITTER_SECONDS": "0",
        "POLL_IDLE_SECONDS": "0.1",
    }
    started: list[subprocess.Popen[str]] = []

    def start(*options: str) -> subprocess.Popen[str]:
        thunder = str(Path(sys.executable).with_name("thunder"))
        command = [thunder, "agent", "--output", "json", "--handlers", str(directory), *options]
        started.append(
            subprocess.Popen(command, env=environment, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)
        )
        return started[-1]

    yield start
    for process in started:
        process.kill()
        process.communicate()


def put(backend: Backend, task_id: str, type_name: str) -> None:
    now = round(time.time(), 3)
    item = {"queue": "default", "priority": "normal", "status": "PENDING", "payload": "7", "retryCount": 0}
    item |= {"maxRetryNumber": 3, "timeoutSeconds": 300, "fence": 0, "createdAt": now, "updatedAt": now, "dueAt": now}
    key = LAYOUT.open("default", "normal", task_id)
    backend.put({**item, "taskId": task_id, "type": type_name, "dispatchKey": key, "formatVersion": FORMAT_VERSION})


def wait_for(backend: Backend, task_id: str, holds: Callable[[dict[str, Any]], bool]) -> dict[str, Any]:
    until = time.monotonic() + 40
    while True:
        item = backend.item(task_id) or {}
        if holds(item):
            return item
        assert time.monotonic() < until, item
        time.sleep(0.05)


def test_sigterm_ends_it_in_order_and_its_last_word_is_what_it_did(backend: Backend, start: Any) -> None:
    put(backend, "quick-1", "quick")
    put(backend, "endless-1", "endless")
    agent = start("--grace", "0.2", "--name", "agent-1")
    wait_for(backend, "quick-1", lambda item: item["status"] == "SUCCESS")
    running = wait_for(backend, "endless-1", lambda item: item["status"] == "RUNNING")
    assert running["owner"] == "agent-1"
    time.sleep(0.3)  # its handler is entered: the lease knows of its start before
    agent.send_signal(signal.SIGTERM)
    output, log = agent.communicate(timeout=40)
    assert agent.returncode == 0, log
    assert json.loads(output)["ended"] == {"succeeded": 1, "released": 1}
    released = backend.item("endless-1") or {}
    assert (released["status"], released["retryCount"]) == ("PENDING", 0)
    assert "a second signal ends at once" in log
    assert [json.loads(line)["event"] for line in log.splitlines() if '"agent.' in line] == [
        "agent.started",
        "agent.stopped",
    ]
    assert "_aws" not in log
    backend.remove("endless-1")


def test_a_second_signal_ends_it_at_once(backend: Backend, start: Any) -> None:
    put(backend, "endless-2", "endless")
    agent = start("--grace", "600")
    wait_for(backend, "endless-2", lambda item: item["status"] == "RUNNING")
    agent.send_signal(signal.SIGINT)
    assert "a second signal ends at once" in first_complaint(agent)
    agent.send_signal(signal.SIGINT)
    assert agent.wait(timeout=20) == 128 + signal.SIGINT
    assert (backend.item("endless-2") or {})["status"] == "RUNNING"  # the reaper's business now
    backend.remove("endless-2")


def first_complaint(agent: subprocess.Popen[str]) -> str:
    """The next line for people, past those for log stores."""
    assert agent.stderr is not None
    return next(line for line in agent.stderr if not line.startswith("{"))


@pytest.mark.parametrize(
    ("options", "code", "complaint"),
    [
        (("--profile-name", "big", "--env", "local"), 2, "no executor profile 'big'"),
        (("--batches", "0"), 2, "--batches"),
    ],
)
def test_what_cannot_work_is_told_at_once(start: Any, options: tuple[str, ...], code: int, complaint: str) -> None:
    agent = start(*options)
    _, log = agent.communicate(timeout=40)
    assert (agent.returncode, complaint in log) == (code, True), log
