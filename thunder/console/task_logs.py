"""The log lines of one task's attempts, from CloudWatch Logs."""

from __future__ import annotations

import json
import re
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Final

GROUPS_SECONDS: Final = 300.0  # log groups come with a deployment
PAGES_A_GROUP: Final = 8  # FilterLogEvents may answer with empty pages for as long as it looks
LINES_MOST: Final = 200
AROUND_SECONDS: Final = 120.0
SPAN_SECONDS: Final = 14 * 86_400.0
FUNCTIONS: Final = ("executor", "reaper", "poller", "doorbell", "api")
PREFIXES: Final = ("{}-", "/aws/lambda/{}-", "/aws/cloudformation/{}/")
"""What log groups of a stack are called: by CloudFormation, by Lambda, and by the embedded AWS."""
IDS: Final = frozenset({"time", "level", "event", "message", "taskId", "queue", "type", "traceparent", "where"})


@dataclass(frozen=True)
class LogLine:
    """One line: ours taken apart, any other as it is. `function` is the part that wrote it."""

    at: float
    function: str
    level: str
    event: str
    text: str
    fields: Mapping[str, str] = field(default_factory=dict)


@dataclass(frozen=True)
class Lines:
    """What was found, oldest first. `is_cut` when there is more than is shown."""

    lines: Sequence[LogLine]
    groups: Sequence[str]
    is_cut: bool = False


class TaskLogs:
    """Looks a task's id up in the log groups of the functions that write of tasks."""

    def __init__(self, logs: Any, service: str, *, monotonic: Callable[[], float] = time.monotonic) -> None:
        self._logs = logs
        self._service = service
        self._monotonic = monotonic
        self._groups: Sequence[str] = ()
        self._groups_at: float | None = None

    def of(self, task: Mapping[str, Any], *, now: float) -> Lines:
        """Lines that name the task between its submission and its end (or now). Raises botocore's errors."""
        start, end = _span(task, now)
        found: list[LogLine] = []
        is_cut = False
        for group in self.groups():
            lines, more = self._of_group(group, str(task["taskId"]), start, end)
            found += lines
            is_cut = is_cut or more
        found.sort(key=lambda line: line.at)
        return Lines(found[-LINES_MOST:], self.groups(), is_cut or len(found) > LINES_MOST)

    def groups(self) -> Sequence[str]:
        """The log groups of this stack's functions, by any of the ways they are named."""
        now = self._monotonic()
        if self._groups_at is None or now - self._groups_at > GROUPS_SECONDS:
            prefixes = _starts(self._service)
            self._groups = [
                name for prefix in prefixes for name in self._names(prefix) if _function(name, self._service)
            ]
            self._groups_at = now
        return self._groups

    def _names(self, prefix: str) -> Iterator[str]:
        pages = self._logs.get_paginator("describe_log_groups").paginate(logGroupNamePrefix=prefix)
        for page in pages:
            for group in page["logGroups"]:
                yield str(group["logGroupName"])

    def _of_group(self, group: str, task_id: str, start: float, end: float) -> tuple[list[LogLine], bool]:
        asked = {
            "logGroupName": group,
            "filterPattern": f'"{task_id}"',  # a task id has no quotes
            "startTime": int(start * 1000),
            "endTime": int(end * 1000),
        }
        function = _function(group, self._service) or group
        # A filter finds the id in longer ids too.
        whole = re.compile(rf"(?<![A-Za-z0-9._:-]){re.escape(task_id)}(?![A-Za-z0-9._:-])")
        found: list[LogLine] = []
        token: dict[str, str] = {}
        for _ in range(PAGES_A_GROUP):
            answer = self._logs.filter_log_events(**asked, **token)
            found += [_line(event, function) for event in answer["events"] if whole.search(event["message"])]
            if not answer.get("nextToken"):
                return found, False
            if len(found) >= LINES_MOST:
                break
            token = {"nextToken": answer["nextToken"]}
        return found, True


def _function(group: str, service: str) -> str | None:
    """Which of our functions a log group belongs to, by its name."""
    rest = next((group.removeprefix(each) for each in _starts(service) if group.startswith(each)), "").lower()
    return next((name for name in FUNCTIONS if rest.startswith(name) and "access" not in rest), None)


def _starts(service: str) -> tuple[str, ...]:
    return tuple(prefix.format(service) for prefix in PREFIXES)


def _span(task: Mapping[str, Any], now: float) -> tuple[float, float]:
    end = float(task.get("finishedAt") or now) + AROUND_SECONDS
    return max(float(task.get("createdAt") or end) - AROUND_SECONDS, end - SPAN_SECONDS), end


def _line(event: Mapping[str, Any], function: str) -> LogLine:
    at, message = event["timestamp"] / 1000, str(event["message"]).rstrip()
    try:
        said = json.loads(message)
    except ValueError:
        said = None
    if not isinstance(said, dict) or "event" not in said:
        return LogLine(at, function, "", "", message)
    fields = {str(name): _shown(value) for name, value in said.items() if name not in IDS}
    return LogLine(at, function, str(said.get("level", "")), str(said["event"]), str(said.get("message", "")), fields)


def _shown(value: Any) -> str:
    return value if isinstance(value, str) else json.dumps(value, ensure_ascii=False)
