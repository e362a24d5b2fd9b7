"""`thunder local` without an embedded AWS: what it says when nothing is up, and how it prints what is."""

from __future__ import annotations

import json
import os

import pytest
from click.testing import CliRunner

from thunder.cli import local as command
from thunder.cli.main import main
from thunder.local.errors import LocalError
from thunder.local.processes import Child, _start_time
from thunder.local.stack import LocalStack
from thunder.local.state import StateDir, write_json

RECORD = {"endpoint": "http://127.0.0.1:1", "pid": os.getpid(), "tableName": "tasks"}


@pytest.fixture
def state(tmp_path):
    return StateDir(tmp_path / "state")


@pytest.fixture
def thunder(state):
    def run(verb, *arguments):
        return CliRunner().invoke(main, ["local", verb, "--state-dir", str(state.path), *arguments])

    return run


@pytest.fixture
def something_up(state):
    """A record as `up` leaves it, whose process is this very one."""
    this = Child(name="aws", pid=os.getpid(), started=_start_time(os.getpid()))
    state.create()
    write_json(state.processes_file, {"port": 1, "children": [this.as_record()]})
    write_json(state.record_file, RECORD)


@pytest.mark.parametrize("verb", ["status", "logs"])
def test_nothing_up_is_not_found(thunder, verb):
    answer = thunder(verb)

    assert (answer.exit_code, answer.stdout) == (3, "")
    assert "thunder local up" in answer.stderr


def test_down_with_nothing_up_is_no_failure(thunder):
    answer = thunder("down")

    assert (answer.exit_code, answer.stdout) == (0, "")
    assert "nothing was up" in answer.stderr


@pytest.mark.usefixtures("something_up")
def test_status_prints_the_record_as_json(thunder):
    answer = thunder("status", "--output", "json")

    assert answer.exit_code == 0
    assert json.loads(answer.stdout) == {**RECORD, "bridge": False}, "without its bridge it is still up"


@pytest.mark.usefixtures("something_up")
def test_a_record_whose_process_has_died_is_not_up(thunder, state):
    dead = Child(name="aws", pid=os.getpid(), started="another time")
    write_json(state.processes_file, {"port": 1, "children": [dead.as_record()]})

    assert thunder("status").exit_code == 3


@pytest.mark.usefixtures("something_up")
def test_only_the_owner_may_read_the_credentials(state):
    assert state.record_file.stat().st_mode & 0o077 == 0
    assert state.path.stat().st_mode & 0o077 == 0


def test_what_cannot_be_done_is_said_and_fails(thunder, monkeypatch):
    def refuse(stack):
        raise LocalError("node is missing: run `make setup` first")

    monkeypatch.setattr(LocalStack, "up", refuse)
    answer = thunder("up")

    assert (answer.exit_code, answer.stdout) == (1, "")
    assert "make setup" in answer.stderr


def test_up_prints_what_is_up(thunder, monkeypatch):
    monkeypatch.setattr(LocalStack, "up", lambda stack: RECORD)

    assert json.loads(thunder("up", "--output", "json").stdout) == RECORD


def test_the_state_lies_in_the_checkout_unless_said_otherwise():
    assert command._stack(None).state.path == command._stack(None).checkout.root / ".thunder"
