"""`thunder task wait`: until tasks have ended, with their progress on stderr."""

from __future__ import annotations

import time
from collections.abc import Sequence
from typing import TYPE_CHECKING

import click

from thunder.cli import target
from thunder.cli.errors import Failed
from thunder.cli.inert import inert
from thunder.cli.options import Command, Options
from thunder.cli.task_view import note, print_task, print_tasks
from thunder.cli.times import Span, span

if TYPE_CHECKING:
    from thunderagent.client import TaskView, ThunderClient


@click.command(cls=Command)
@click.argument("task_ids", metavar="ID...", nargs=-1, required=True)
@click.option("--timeout", type=Span(), metavar="DURATION", help="Give up after so long (the tasks go on).")
@click.pass_obj
def wait(options: Options, task_ids: tuple[str, ...], timeout: int | None) -> None:
    """Wait until tasks have ended. Exit code 0 when all succeeded; 1 when one did not, or did not end in time."""
    wait_for(target.connect(options), task_ids, timeout, options.output)


def wait_for(client: ThunderClient, task_ids: Sequence[str], timeout: float | None, output: str) -> None:
    """Prints the tasks as they ended. Raises Failed as the command's exit code says."""
    deadline = None if timeout is None else time.monotonic() + timeout
    ended = [_until_ended(client, task_id, deadline) for task_id in task_ids]
    if len(ended) == 1:
        print_task(ended[0].fields, output)
    else:
        answer = {"tasks": [task.fields for task in ended]}
        print_tasks(answer["tasks"], output, answer=answer)
    late = [task for task in ended if not task.is_terminal]
    if late:
        raise Failed(f"{_ids(late)} had not ended after {span(timeout or 0)}; it goes on")
    bad = [task for task in ended if not task.succeeded]
    if bad:
        raise Failed(f"{_ids(bad)} ended {bad[0].status}: {inert(note(bad[0].fields))}")


def _until_ended(client: ThunderClient, task_id: str, deadline: float | None) -> TaskView:
    """The task at its end, or as it is at the deadline."""
    from thunderagent.task_view import poll_pauses

    said = ""
    for pause in poll_pauses():
        task = client.get(task_id)
        words = inert(f"{task.task_id} {task.status} {note(task.fields)}".rstrip())
        if words != said:
            click.echo(words, err=True)
            said = words
        if task.is_terminal:
            return task
        left = None if deadline is None else deadline - time.monotonic()
        if left is not None and left <= 0:
            return task
        time.sleep(pause if left is None else min(pause, left))
    raise AssertionError("the pauses never end")


def _ids(tasks: Sequence[TaskView]) -> str:
    more = f" and {len(tasks) - 1} more" if len(tasks) > 1 else ""
    return f"task {tasks[0].task_id}{more}"
