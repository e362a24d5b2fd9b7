"""`thunder agent` as a process: the signals that stop it."""

from __future__ import annotations

import signal
import threading
import time
from typing import Any, cast

import pytest

from thunder.cli import agent as command
from thunderagent.agent import Report


class OneThatIsSignalled:
    """An agent whose own thread receives the signal, as the kernel may choose; it goes on until it is stopped."""

    def __init__(self) -> None:
        self.stopped = threading.Event()

    def run(self) -> None:
        time.sleep(0.2)  # until the main thread waits: while it runs, it notices by itself
        signal.pthread_kill(threading.get_ident(), signal.SIGTERM)
        self.stopped.wait(3)

    def stop(self) -> None:
        self.stopped.set()

    def report(self) -> Report:
        return Report("agent-1")


def test_a_signal_that_another_thread_receives_stops_it_too(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(command, "WAKE_SECONDS", 0.02)
    agent = OneThatIsSignalled()
    command.until_signalled(cast(Any, agent))
    assert agent.stopped.is_set()
