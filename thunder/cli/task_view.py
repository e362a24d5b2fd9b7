"""How tasks are shown: as rows of a list, and one whole."""

from __future__ import annotations

import json
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any

import click

from thunder.cli.inert import inert, inert_json, inert_lines
from thunder.cli.output import Column, Row, print_json, print_list, print_object, styled, table_lines, terminal_width
from thunder.cli.times import how_long_ago, in_full, iso, span, when

STATUSES = ("PENDING", "RUNNING", "SUCCESS", "FAILED", "DONE")
TERMINAL = ("SUCCESS", "FAILED", "DONE")
COLOURS = {"PENDING": "yellow", "RUNNING": "blue", "SUCCESS": "green", "FAILED": "red", "DONE": "cyan"}
BODY_CHARACTERS = 4_000  # of a payload or result in the view of one task; the rest with --payload, --result
BODIES = ("payload", "result")
BAR_CELLS = 20


def status_colour(row: Row) -> str | None:
    return COLOURS.get(str(row.get("status")))


def _retries(row: Row) -> str:
    return f"{row.get('retryCount', 0)}/{row.get('maxRetryNumber', '?')}"


def _when(row: Row, in_words: Callable[[Any], str] = when) -> str:
    """The time that matters in its state: when it is due, when it started, when it ended."""
    status = row.get("status")
    if status in TERMINAL:
        return f"ended {in_words(row.get('finishedAt'))}"
    if status == "RUNNING":
        return f"started {in_words(row['startedAt'])}" if "startedAt" in row else "claimed"
    return f"due {in_words(row.get('dueAt'))}"


def _how_long_ago(row: Row) -> str:
    return _when(row, how_long_ago)


def note(row: Row) -> str:
    """What there is to say in a few words: its error, its progress, its outcome."""
    error = row.get("error") or {}
    if row.get("status") == "FAILED":
        return f"{error.get('type', '?')}: {error.get('message', '')}"
    if row.get("outcome"):
        reason = row.get("outcomeReason")
        return f"{row['outcome']}: {reason}" if reason else str(row["outcome"])
    if row.get("cancelRequested"):
        return "cancel requested"
    if row.get("status") == "RUNNING" and "progress" in row:
        return _progress_words(row["progress"])
    return f"last error {error.get('type')}: {error.get('message', '')}" if error else ""


def _progress_words(progress: Mapping[str, Any]) -> str:
    fraction = progress.get("fraction")
    percent = f"{fraction:.0%}" if isinstance(fraction, int | float) else ""
    return f"{percent} {progress.get('message') or ''}".strip()


TASK_COLUMNS: Sequence[Column] = (
    Column("task id", lambda row: row["taskId"]),
    Column("status", lambda row: row["status"], colour=status_colour),
    Column("type", lambda row: row.get("type")),
    Column("queue", lambda row: row.get("queue"), spared=2),
    Column("retries", _retries, raw=lambda row: row.get("retryCount", 0), right=True, spared=3),
    Column("when", _when, raw=lambda row: iso(row.get("finishedAt", row.get("dueAt"))), brief=_how_long_ago, spared=1),
    Column("note", note, may_be_cut=True),
)


def print_tasks(tasks: Sequence[Row], output: str, *, answer: Any = None) -> None:
    """Rows of a list; JSON is the API's answer."""
    if not tasks and output != "json":
        click.echo("no tasks", err=True)
        return
    print_list(tasks, TASK_COLUMNS, output, answer=answer)


def print_task(task: Row, output: str) -> None:
    """One task whole."""
    if output == "json":
        print_json(task)
    elif output == "text":
        print_object(task, "text")
    else:
        for line in task_lines(task, now=time.time(), width=terminal_width()):
            click.echo(line)


def task_lines(task: Row, *, now: float, width: int | None) -> Iterator[str]:
    """The view of one task, for a terminal."""
    facts = dict(_facts(task, now))
    label = max(len(name) for name in facts)
    for name, value in facts.items():
        colour = status_colour(task) if name == "Status" else "red" if name == "Error" else None
        yield f"{styled(f'{name:<{label}}', bold=True)}  {styled(value, colour) if colour else value}"
    attempts = task.get("attempts")
    if attempts:
        yield from ("", styled("Attempts", bold=True))
        yield from (f"  {line}" for line in table_lines(attempts, _ATTEMPT_COLUMNS, width=width and width - 2))
    for name in BODIES:
        if name in task or f"{name}Bytes" in task:
            yield from ("", styled(name.capitalize(), bold=True))
            yield from (f"  {line}" for line in _body_lines(task, name))


def _facts(task: Row, now: float) -> Iterator[tuple[str, str]]:
    yield "Task", inert(str(task["taskId"]))
    outcome = f" ({task['outcome']})" if task.get("outcome") else ""
    yield "Status", inert(f"{task['status']}{outcome}{', cancel requested' if task.get('cancelRequested') else ''}")
    yield "Type", inert(f"{task.get('type')}, queue {task.get('queue')}, priority {task.get('priority', 'normal')}")
    yield "Retries", f"{_retries(task)} spent, fence {task.get('fence', 0)}"
    if "outcomeReason" in task:
        yield "Reason", inert(str(task["outcomeReason"]))
    if task.get("status") == "RUNNING" and "progress" in task:
        yield "Progress", inert(_bar(task["progress"]))
    for title, name in _TIMES:
        if name in task and not (name == "dueAt" and task["status"] in TERMINAL):
            yield title, inert(in_full(task[name], now)) + _took(title, task)
    if task.get("error"):
        error = task["error"]
        yield "Error", inert(f"{error.get('type', '?')}: {error.get('message', '')}")
        yield "Failed by", inert(str(error.get("reason", "error")))
    for title, name in _LISTS:
        if task.get(name):
            yield title, inert(_words(task[name]))


_TIMES = (
    ("Created", "createdAt"),
    ("Due", "dueAt"),
    ("Deadline", "deadline"),
    ("Started", "startedAt"),
    ("Lease ends", "lockTime"),
    ("Ended", "finishedAt"),
    ("Kept until", "expiresAt"),
)
_LISTS = (
    ("Depends on", "dependsOn"),
    ("Blocked by", "blockedBy"),
    ("Tags", "tags"),
    ("Operator", "operator"),
)


def _took(title: str, task: Row) -> str:
    if title == "Ended" and "startedAt" in task and task["finishedAt"] >= task["startedAt"]:
        return f", took {span(task['finishedAt'] - task['startedAt'])}"
    return ""


def _words(value: Any) -> str:
    if isinstance(value, dict):
        return ", ".join(f"{name}={iso(each) if name == 'at' else each}" for name, each in value.items())
    return ", ".join(map(str, value)) if isinstance(value, list) else str(value)


def _bar(progress: Mapping[str, Any]) -> str:
    fraction = progress.get("fraction")
    if not isinstance(fraction, int | float):
        return _progress_words(progress)
    filled = round(BAR_CELLS * min(1.0, max(0.0, fraction)))
    return f"{'█' * filled}{'░' * (BAR_CELLS - filled)} {_progress_words(progress)}"


def _body_lines(task: Row, name: str) -> list[str]:
    if name not in task:
        return [f"{task[f'{name}Bytes']:,} bytes: `thunder task get {task['taskId']} --{name}` prints them"]
    text = inert_lines(inert_json(json.dumps(task[name], indent=2, ensure_ascii=False)))
    if len(text) <= BODY_CHARACTERS:
        return text.split("\n")
    hint = f"… {len(text) - BODY_CHARACTERS:,} more characters: `thunder task get {task['taskId']} --{name}`"
    return [*text[:BODY_CHARACTERS].split("\n"), hint]


def _attempt_took(row: Row) -> str:
    return span(row["endedAt"] - row["startedAt"]) if "endedAt" in row and "startedAt" in row else ""


def _attempt_error(row: Row) -> str:
    return f"{row['errorType']}: {row.get('message', '')}" if "errorType" in row else str(row.get("message", ""))


_ATTEMPT_COLUMNS: Sequence[Column] = (
    Column("#", lambda row: row.get("attempt"), right=True),
    Column("outcome", lambda row: row.get("outcome")),
    Column(
        "started",
        lambda row: when(row.get("startedAt")),
        brief=lambda row: how_long_ago(row.get("startedAt")),
        spared=1,
    ),
    Column("took", _attempt_took, right=True),
    Column("error", _attempt_error, may_be_cut=True),
)
