"""What the operator sees and does during a drill: `thunder` commands, run for real and shown with their answers."""

from __future__ import annotations

import os
import subprocess
import sys
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from bench.latency import summary
from drills.deployment import Deployment
from drills.work import LOOK_SECONDS, eventually
from thunderagent.client import NewTask

ROOT = Path(__file__).resolve().parent.parent
WIDTH = 118
ANOTHER_STACK = "(say --stack for another)"


class DoesNotHelp(Exception):
    """What the operator did has not had the effect it is said to have."""


@dataclass
class Session:
    """One drill on one stack. `write` takes whole lines; `figures` are what it has measured, in the order of that."""

    stack: Deployment
    quick: bool
    tasks: int | None = None
    write: Callable[[str], None] = print
    figures: dict[str, float] = field(default_factory=dict)

    # ---- telling -----------------------------------------------------------------------------------------------------

    def heading(self, text: str) -> None:
        self.write(f"\n## {text}\n")

    def say(self, text: str) -> None:
        self.write(f"# {text}")

    def figure(self, name: str, value: float) -> None:
        """Something measured."""
        self.figures[name] = round(value, 2)
        self.write(f"# {name}: {value:.2f}")

    def require(self, holds: bool, otherwise: str) -> None:
        """Raises DoesNotHelp unless it holds."""
        if not holds:
            raise DoesNotHelp(otherwise)

    # ---- the operator ------------------------------------------------------------------------------------------------

    def thunder(self, *arguments: str, may_fail: bool = False) -> str:
        """Runs the command as the operator would, shows it with its output, and returns what it wrote to stdout.
        Raises DoesNotHelp when it fails and must not."""
        self.write("$ thunder " + " ".join(_quoted(argument) for argument in arguments))
        env = {
            **os.environ,
            "THUNDER_STATE_DIR": str(self.stack.record["stateDir"]),
            "COLUMNS": str(WIDTH),
            "NO_COLOR": "1",
        }
        command = [sys.executable, "-m", "thunder.cli", *arguments]
        ended = subprocess.run(command, cwd=ROOT, env=env, capture_output=True, text=True, check=False)
        for line in (ended.stdout + ended.stderr).splitlines():
            if not line.endswith(ANOTHER_STACK):
                self.write(line.rstrip())
        self.require(may_fail or ended.returncode == 0, f"`thunder {arguments[0]}` ended with {ended.returncode}")
        return ended.stdout

    def alarms(self) -> list[str]:
        """The alarms that ring, by the names operations.md knows them by, shown."""
        pages = self.stack.aws("cloudwatch").get_paginator("describe_alarms").paginate(StateValue="ALARM")
        named = [alarm["AlarmDescription"].rpartition("#")[2] for page in pages for alarm in page["MetricAlarms"]]
        self.write(f"alarms: {', '.join(sorted(named)) or 'none'}")
        return named

    def wait_for_alarm(self, section: str, within: float) -> None:
        """Waits until the alarm with that section in operations.md rings. A quick drill does not wait."""
        if self.quick:
            self.alarms()
            return
        silent = Session(self.stack, quick=True, write=lambda line: None)
        took = eventually(lambda: section in silent.alarms(), f"the alarm {section}", within=within)
        self.figure(f"alarm {section} after, s", took)
        self.alarms()

    # ---- the load ----------------------------------------------------------------------------------------------------

    def submit(self, tasks: Sequence[NewTask]) -> list[str]:
        report = self.stack.api().submit_many(tasks)
        self.require(not report.rejected, f"{len(report.rejected)} submits were refused")
        return [task.task_id for task in report.accepted]

    def ended(self, ids: Sequence[str], *, within: float) -> dict[str, dict[str, Any]]:
        """The tasks, once they have all ended. Raises NotInTime."""
        terminal = {"SUCCESS", "FAILED", "DONE"}

        def all_ended() -> bool:
            return all(item["status"] in terminal for item in self.stack.items(ids).values())

        eventually(all_ended, f"the end of {len(ids)} tasks", within=within)
        return self.stack.items(ids)

    def waits(self, title: str, tasks: Sequence[NewTask], *, within: float) -> dict[str, float]:
        """Submits these one by one, twice a second, and measures how long each waits for its start. One that has not
        started within the time counts as that long. Milliseconds, as the benches give them."""
        api = self.stack.api()
        ids = []
        for task in tasks:
            ids.append(api.submit(task.type, task.payload, **task.options).task_id)
            time.sleep(0.5)
        deadline = time.monotonic() + within
        while any("startedAt" not in item for item in self.stack.items(ids).values()) and time.monotonic() < deadline:
            time.sleep(LOOK_SECONDS)
        now = time.time()
        items = self.stack.items(ids).values()
        measured = summary([item.get("startedAt", now) - item["createdAt"] for item in items])
        started = sum("startedAt" in item for item in items)
        self.figure(f"{title}: started of {len(ids)}", started)
        self.figure(f"{title}: median wait, s", measured["p50"] / 1000)
        self.figure(f"{title}: longest wait, s", measured["max"] / 1000)
        return measured


def _quoted(argument: str) -> str:
    return f"'{argument}'" if set(argument) & set(' {"}') else argument
