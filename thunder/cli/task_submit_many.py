"""`thunder task submit-many`: a file of tasks, one line of JSON each."""

from __future__ import annotations

import hashlib
import sys
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from thunder.cli import target
from thunder.cli.bulk import bar
from thunder.cli.errors import Failed, Refused
from thunder.cli.inert import inert
from thunder.cli.options import Command, Options
from thunder.cli.output import Row, print_list

if TYPE_CHECKING:
    from thunderagent.client import BatchReport, NewTask

MENDED_IN_PLACE_BYTES = 1024 * 1024  # of a larger file, a line mended may fall into another batch, under another key
COLUMNS = ("line", "taskId", "status", "duplicate", "error")


@click.command("submit-many", cls=Command)
@click.argument("file", metavar="FILE")
@click.option(
    "--idempotency-key",
    help="Submitting again with the same key submits nothing twice (default: made from what the file holds).",
)
@click.pass_obj
def submit_many(options: Options, /, file: str, idempotency_key: str | None) -> None:
    """Submit the tasks of FILE (- for stdin), each line the JSON that POST /tasks takes.

    {"type": "report.generate", "payload": {"region": "eu"}, "tags": {"tenant": "a"}}

    Every line is read before anything is sent. A line may depend on an earlier one: "ref": "a" there, "dependsOn":
    ["@a"] here. Interrupted, it is submitted again in the same way, and no task is submitted twice.
    """
    data = _read(file)
    tasks = tasks_of(data)
    key = idempotency_key or hashlib.sha256(data).hexdigest()
    client = target.connect(options)
    with bar("sent", len(tasks)) as advance:
        report = client.submit_many(_told(tasks, advance), idempotency_key=key)
    rows = rows_of(report, [line for line, _ in tasks])
    print_list(rows, COLUMNS, options.output)
    if duplicates := sum(task.duplicate for task in report.accepted):
        click.echo(f"{duplicates} were there before: to submit them once more give an --idempotency-key", err=True)
    _fail_if_some_were_refused(rows, key if len(data) <= MENDED_IN_PLACE_BYTES else None)


def _read(file: str) -> bytes:
    if file == "-":
        return sys.stdin.buffer.read()
    try:
        return Path(file).expanduser().read_bytes()
    except OSError as error:
        raise Refused(f"{file} cannot be read: {error.strerror}") from error


def tasks_of(data: bytes) -> list[tuple[int, NewTask]]:
    """Each task with the number of its line; empty lines are passed over. All that is wrong is said at once."""
    from thunderagent import jsontext
    from thunderagent.client import NewTask
    from thunderagent.errors import InvalidInput

    tasks, problems = [], []
    for number, line in enumerate(data.split(b"\n"), start=1):
        if not line.strip():
            continue
        try:
            tasks.append((number, NewTask.of_body(jsontext.loads(line))))
        except InvalidInput as error:
            problems.append(f"line {number}: {inert(str(error))}")
    if problems:
        more = f"\nand {len(problems) - 10} more lines" if len(problems) > 10 else ""
        raise Refused("nothing was submitted:\n" + "\n".join(problems[:10]) + more)
    if not tasks:
        raise Refused("there is no task in it: each line is one, as JSON")
    return tasks


def _told(tasks: Sequence[tuple[int, NewTask]], advance: Callable[[int], None]) -> Iterator[NewTask]:
    """One by one, as the client takes them for its batches."""
    taken = 0
    for taken, (_, task) in enumerate(tasks, start=1):
        yield task
        if taken % 500 == 0:
            advance(500)
    if taken % 500:
        advance(taken % 500)


def rows_of(report: BatchReport, lines: Sequence[int]) -> list[Row]:
    """What became of each line."""
    rows: list[Row] = []
    refused = dict(report.rejected)
    accepted = iter(report.accepted)
    for index, line in enumerate(lines):
        if (error := refused.get(index)) is not None:
            rows.append({"line": line, "error": str(error)})
        else:
            task = next(accepted)
            row: dict[str, Any] = {"line": line, "taskId": task.task_id, "status": task.status}
            rows.append(row | ({"duplicate": True} if task.duplicate else {}))
    return rows


def _fail_if_some_were_refused(rows: Sequence[Row], key: str | None) -> None:
    """With a key, the whole file may be submitted again under it; without, only what was refused."""
    refused = [row for row in rows if "error" in row]
    if not refused:
        return
    if key is None:
        next_step = "the others are submitted: mend these and submit them alone, as a file of their own"
    else:
        next_step = (
            f"mend them where they stand and submit the file with --idempotency-key {key}: no other is submitted twice"
        )
    first = refused[0]
    raise Failed(
        f"{len(refused)} of {len(rows)} were refused, the first in line {first['line']}: {inert(first['error'])}\n"
        f"{next_step}"
    )
