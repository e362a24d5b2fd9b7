"""Processes are recognised, ended whole, and never mistaken for others."""

from __future__ import annotations

import os
import signal
import sys
import time
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

import pytest

from thunder.local import processes
from thunder.local.processes import Child, end, group_members, open_addresses, spawn

SLEEP = "import time; time.sleep(60)"
SLEEP_WITH_A_WORKER = f"import subprocess, sys; subprocess.Popen([sys.executable, '-c', '{SLEEP}']); {SLEEP}"
DEAF = f"import signal; signal.signal(signal.SIGTERM, signal.SIG_IGN); print('deaf', flush=True); {SLEEP}"
LEADS_A_DEAF_WORKER = f"import subprocess, sys; subprocess.Popen([sys.executable, '-c', {DEAF!r}]); {SLEEP}"
SAVES_SLOWLY = """
import signal, sys, time
def save(*_):
    time.sleep(1)
    print('saved', flush=True)
    sys.exit()
signal.signal(signal.SIGTERM, save)
print('ready', flush=True)
time.sleep(60)
"""
LISTEN = f"import socket; s = socket.create_server(('127.0.0.1', 0)); print(s.getsockname()[1], flush=True); {SLEEP}"


@pytest.fixture
def log(tmp_path: Path) -> Path:
    return tmp_path / "child.log"


@pytest.fixture
def run(log: Path) -> object:
    """Starts a Python child, and ends it with the test whatever happened."""
    children: list[Child] = []

    def start(code: str, env: dict[str, str] | None = None) -> Child:
        children.append(spawn("child", [sys.executable, "-c", code], env=env or {}, log=log))
        return children[-1]

    yield start
    for child in children:
        end(child)


def eventually(condition: Callable[[], object]) -> object:
    """Waits for a condition that must come, and fails the test when it does not within ten seconds."""
    deadline = time.monotonic() + 10
    while not (value := condition()):
        assert time.monotonic() < deadline, "it did not come to be"
        time.sleep(0.02)
    return value


def test_a_child_leads_a_session_of_its_own_and_gets_only_the_environment_given(run, log):
    child = run("import os; print(os.getsid(0), sorted(os.environ))", {"ONLY": "this"})

    words = eventually(lambda: log.read_text().strip())

    assert words.startswith(str(child.pid))
    assert "'ONLY'" in words
    assert "PATH" not in words


def test_ending_a_child_ends_what_it_started_too(run):
    child = run(SLEEP_WITH_A_WORKER)
    eventually(lambda: len(group_members(child.pid)) == 2)

    end(child)

    assert group_members(child.pid) == set()
    assert not child.alive


def test_workers_that_outlived_their_leader_are_ended(run):
    child = run(SLEEP_WITH_A_WORKER)
    eventually(lambda: len(group_members(child.pid)) == 2)
    os.kill(child.pid, signal.SIGKILL)
    eventually(lambda: len(group_members(child.pid)) == 1)

    end(child)

    assert group_members(child.pid) == set()


def test_a_child_deaf_to_sigterm_is_killed(run, log, monkeypatch):
    monkeypatch.setattr(processes, "SAVE_GRACE_SECONDS", 0.2)
    child = run(DEAF)
    eventually(lambda: "deaf" in log.read_text())

    end(child)

    assert not child.alive


def test_a_child_may_take_its_time_to_save_what_it_holds(run, log, monkeypatch):
    monkeypatch.setattr(processes, "TERM_GRACE_SECONDS", 0.1)
    child = run(SAVES_SLOWLY)
    eventually(lambda: "ready" in log.read_text())

    end(child)

    assert "saved" in log.read_text()


def test_a_deaf_worker_is_killed_soon_after_its_leader_has_ended(run, log, monkeypatch):
    monkeypatch.setattr(processes, "TERM_GRACE_SECONDS", 0.1)
    child = run(LEADS_A_DEAF_WORKER)
    eventually(lambda: "deaf" in log.read_text())

    end(child)

    assert group_members(child.pid) == set()


def test_a_process_that_merely_has_the_id_now_is_neither_alive_nor_touched(run):
    other = run(SLEEP)
    gone = replace(other, started="before")

    end(gone)

    assert not gone.alive
    assert other.alive


def test_ending_a_child_twice_is_harmless(run):
    child = run(SLEEP)
    end(child)

    end(child)

    assert not child.alive


def test_a_child_is_the_same_after_a_round_trip_through_its_record(run):
    child = run(SLEEP)

    assert Child.of_record(child.as_record()) == child
    assert Child.of_record(child.as_record()).alive


@pytest.mark.skipif(not Path("/proc/net/tcp").exists(), reason="only Linux tells")
def test_listening_sockets_are_found_with_their_address(run, log):
    child = run(LISTEN)
    port = int(eventually(lambda: log.read_text().strip()))

    assert open_addresses({child.pid}) == {("127.0.0.1", port)}


@pytest.mark.parametrize(
    ("raw", "read", "address"),
    [("0100007F", processes._ipv4, "127.0.0.1"), ("00000000000000000000000001000000", processes._ipv6, "::1")],
)
def test_addresses_are_read_as_the_kernel_writes_them(raw, read, address):
    assert read(bytes.fromhex(raw)) == address
