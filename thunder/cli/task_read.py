"""`thunder task get|list|why`."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import click

from thunder.cli import target
from thunder.cli.errors import Refused
from thunder.cli.names import queue_option, type_option
from thunder.cli.options import Command, Options
from thunder.cli.output import print_json, print_object
from thunder.cli.task_view import STATUSES, print_task, print_tasks
from thunder.cli.times import in_full
from thunder.cli.watch import watch, watch_options

if TYPE_CHECKING:
    from thunderagent.client import TaskView, ThunderClient

LISTED_UNASKED = ("RUNNING", "PENDING", "FAILED")
PAGE_LIMIT = 100  # the API's own


@click.command(cls=Command)
@click.argument("task_id", metavar="ID")
@click.option("--payload", "body", flag_value="payload", help="Print the payload alone and whole, as JSON.")
@click.option("--result", "body", flag_value="result", help="Print the result alone and whole, as JSON.")
@watch_options
@click.pass_obj
def get(options: Options, task_id: str, body: str | None, watching: bool, interval: float) -> None:
    """Read a task. With --watch: until it has ended."""
    client = target.connect(options)
    if body is not None:
        print_json(client.payload(task_id) if body == "payload" else client.result(task_id))
        return
    watch(
        lambda: client.get(task_id),
        lambda task: print_task(task.fields, options.output),
        watching=watching,
        interval=interval,
        ended=lambda task: task.is_terminal,
    )


@click.command("list", cls=Command)
@click.option(
    "--status",
    "statuses",
    multiple=True,
    type=click.Choice(STATUSES, case_sensitive=False),
    help="Of this status (repeatable; default: running, pending and failed).",
)
@queue_option()
@type_option()
@click.option("--limit", type=click.IntRange(min=1), default=25, show_default=True, help="At most so many of a status.")
@click.option("--all", "everything", is_flag=True, help="No limit.")
@click.option("--next-token", help="Go on where a list of one status stopped.")
@watch_options
@click.pass_obj
def list_(
    options: Options,
    statuses: tuple[str, ...],
    queue: str | None,
    task_type: str | None,
    limit: int,
    everything: bool,
    next_token: str | None,
    watching: bool,
    interval: float,
) -> None:
    """List tasks: ended ones newest first, open ones by when they are due."""
    chosen = tuple(dict.fromkeys(statuses)) or LISTED_UNASKED
    if next_token is not None and len(chosen) != 1:
        raise Refused("--next-token belongs to a list of one status: say which with --status")
    client = target.connect(options)
    most = None if everything else limit

    def fetch() -> dict[str, Any]:
        pages = [_tasks(client, status, queue, task_type, most, next_token) for status in chosen]
        tasks = [task.fields for found, _ in pages for task in found]
        token = pages[0][1] if len(pages) == 1 else None
        return {"tasks": tasks} | ({"nextToken": token} if token is not None else {})

    def show(answer: dict[str, Any]) -> None:
        print_tasks(answer["tasks"], options.output, answer=answer)
        if "nextToken" in answer and options.output != "json" and not watching:
            click.echo(f"there may be more: --all, or --next-token {answer['nextToken']}", err=True)

    watch(fetch, show, watching=watching, interval=interval)


def _tasks(
    client: ThunderClient, status: str, queue: str | None, task_type: str | None, most: int | None, token: str | None
) -> tuple[list[TaskView], str | None]:
    """At most `most` tasks, and where to go on. A page may be short, or empty, before the end."""
    found: list[TaskView] = []
    while most is None or len(found) < most:
        size = PAGE_LIMIT if most is None else min(PAGE_LIMIT, most - len(found))
        page = client.list_page(status, queue=queue, type=task_type, limit=size, next_token=token)
        found += page.tasks
        token = page.next_token
        if token is None:
            break
    return found, token


@click.command(cls=Command)
@click.argument("task_id", metavar="ID")
@click.pass_obj
def why(options: Options, task_id: str) -> None:
    """Why a task is not running, or what it is doing."""
    answer = target.connect(options).why(task_id)
    if options.output == "table" and "until" in answer:
        print_object({**answer, "until": in_full(answer["until"])}, "table")
    else:
        print_object(answer, options.output)
