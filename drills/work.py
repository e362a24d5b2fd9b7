"""Tasks of a scenario: submitted through the API, followed in the table, judged when they have ended."""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Any

from drills.deployment import Deployment
from drills.verdict import TERMINAL, Verdict, unfinished
from thunderagent.client import NewTask

LOOK_SECONDS = 0.25


class NotInTime(Exception):
    """What had to come did not come."""


def eventually(condition: Callable[[], bool], what: str, *, within: float) -> float:
    """Waits for it and returns the seconds that took. Raises NotInTime."""
    began = time.monotonic()
    while not condition():
        if time.monotonic() - began > within:
            raise NotInTime(f"{what} did not come within {within:.0f} s")
        time.sleep(LOOK_SECONDS)
    return time.monotonic() - began


@dataclass
class Work:
    """The tasks of one scenario: id → the counter it adds to, if it does."""

    stack: Deployment
    name: str
    submitted: dict[str, str] = field(default_factory=dict)
    to_fail: list[str] = field(default_factory=list)

    def count(self, tasks: int, *, seconds: float = 0) -> None:
        """Submits, in one batch, tasks that count their runs and commits and take so long."""
        first = len(self.submitted)
        keys = [f"{self.name}-{number}" for number in range(first, first + tasks)]
        payloads = [{"key": key, "seconds": seconds, "commits": True} for key in keys]
        report = self.stack.api().submit_many(NewTask("demo.count", payload) for payload in payloads)
        if report.rejected:
            raise NotInTime(f"{len(report.rejected)} submits were refused")
        self.submitted |= {task.task_id: key for task, key in zip(report.accepted, keys, strict=True)}

    def count_one(self, api: Any) -> None:
        """Submits one more by itself."""
        key = f"{self.name}-{len(self.submitted)}"
        task = api.submit("demo.count", {"key": key, "commits": True}, idempotency_key=key)
        self.submitted[task.task_id] = key

    def crash(self, *, retries: int) -> None:
        """Submits a task that kills its worker each time."""
        task = self.stack.api().submit("demo.crash", max_retry_number=retries)
        self.submitted[task.task_id] = ""
        self.to_fail.append(task.task_id)

    # ---- following ---------------------------------------------------------------------------------------------------

    def items(self) -> dict[str, dict[str, Any]]:
        return self.stack.items(list(self.submitted))

    def counters(self) -> dict[str, dict[str, Any]]:
        keys = [key for key in self.submitted.values() if key]
        found = self.stack.items([f"counter#{key}" for key in keys])
        return {item_id.removeprefix("counter#"): item for item_id, item in found.items()}

    def running(self) -> list[str]:
        return [task_id for task_id, item in self.items().items() if item["status"] == "RUNNING"]

    def at_work(self) -> bool:
        """Whether handlers run: tasks are RUNNING that have counted."""
        counted = self.counters()
        return any(self.submitted[task_id] in counted for task_id in self.running())

    def wait_until_at_work(self, within: float = 60) -> None:
        eventually(self.at_work, "the start of a handler", within=within)

    def wait_until_ended(self, within: float) -> None:
        """Waits until every task is terminal, or the time is over: what is missing then is the verdict's to say."""
        deadline = time.monotonic() + within
        while unfinished(self.submitted, self.items()) and time.monotonic() < deadline:
            time.sleep(LOOK_SECONDS)

    def last_end(self) -> float:
        """When the last of them ended, in epoch seconds."""
        ended = [item for item in self.items().values() if item["status"] in TERMINAL]
        return max((float(item["finishedAt"]) for item in ended), default=0.0)

    def verdict(self) -> Verdict:
        return Verdict.of(self.submitted, self.items(), self.counters(), to_fail=self.to_fail)


def leases(stack: Deployment) -> list[Mapping[str, Any]]:
    """The lease items there are, in no order."""
    pages = (
        stack.aws("dynamodb")
        .get_paginator("scan")
        .paginate(
            TableName=stack.record["tableName"],
            FilterExpression="begins_with(#id, :lease)",
            ExpressionAttributeNames={"#id": "taskId"},
            ExpressionAttributeValues={":lease": {"S": "lease#"}},
        )
    )
    return [item for page in pages for item in page["Items"]]
