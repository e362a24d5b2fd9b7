"""`thunder task submit`."""

from __future__ import annotations

from typing import Any

import click

from thunder.cli import target
from thunder.cli.errors import Refused
from thunder.cli.names import complete_type, queue_option
from thunder.cli.options import Command, Options
from thunder.cli.task_view import print_tasks
from thunder.cli.times import Span
from thunder.cli.values import parse_tags, read_json

PAYLOAD_HELP = "The payload as an option: JSON, @file, or - for stdin."


@click.command(cls=Command)
@click.argument("task_type", metavar="TYPE", shell_complete=complete_type)
@click.argument("payload", required=False)
@click.option("--payload", "payload_option", metavar="JSON", help=PAYLOAD_HELP)
@queue_option("Its queue (default: the handler's).")
@click.option("--priority", type=click.Choice(["high", "normal", "low"]), help="Its priority (default: the handler's).")
@click.option("--delay-seconds", type=Span(), help="Start it this much later (also 5m, 2h).")
@click.option("--run-at", metavar="TIME", help="Start it then: RFC 3339 with an offset.")
@click.option("--max-retry-number", type=click.IntRange(0, 100), help="Retries after the first attempt.")
@click.option("--timeout-seconds", type=Span(), help="How long one attempt may take.")
@click.option("--start-within-seconds", type=Span(), help="Let it expire unless it starts this soon after it is due.")
@click.option("--depends-on", multiple=True, metavar="ID", help="A task that must succeed first (repeatable).")
@click.option("--unique", is_flag=True, help="Not while an equal task (queue, type, payload) is open.")
@click.option("--unique-window-seconds", type=Span(), help="The same, and for so long after its success.")
@click.option("--tag", "tags", multiple=True, metavar="NAME=VALUE", help="A tag (repeatable, at most 10).")
@click.option("--task-id", help="An id of your own.")
@click.option("--idempotency-key", help="Submitting again with the same key and body is the same task.")
@click.option("--wait", "waits", is_flag=True, help="Wait for its end; exit code 1 unless it succeeds.")
@click.option("--wait-timeout", "limit", type=Span(), metavar="DURATION", help="Wait no longer than this.")
@click.pass_obj
def submit(
    options: Options,
    /,
    task_type: str,
    payload: str | None,
    payload_option: str | None,
    idempotency_key: str | None,
    waits: bool,
    limit: int | None,
    **given: Any,
) -> None:
    """Submit a task. PAYLOAD is JSON, @file, or - for stdin; without one it is null.

    thunder task submit report.generate '{"region": "eu"}' --tag tenant=a --wait
    """
    value = payload_of(payload, payload_option)
    client = target.connect(options)
    task = client.submit(task_type, value, idempotency_key=idempotency_key, **_task_options(given))
    if task.duplicate:
        click.echo("an equal task was there before: nothing was submitted", err=True)
    if waits or limit is not None:
        from thunder.cli.task_wait import wait_for

        wait_for(client, [task.task_id], limit, options.output)
    else:
        print_tasks([task.fields], options.output, answer=task.fields)


def payload_of(argument: str | None, option: str | None) -> Any:
    """The payload, given either way; absent means null."""
    if argument is not None and option is not None:
        raise Refused("the payload is given twice: as an argument and with --payload")
    text = argument if argument is not None else option
    return None if text is None else read_json(text)


def _task_options(given: dict[str, Any]) -> Any:
    """The client's TaskOptions: what was given, and no more. 0 and "" are values."""
    unique, window = given.pop("unique"), given.pop("unique_window_seconds")
    tags, depends_on = parse_tags(given.pop("tags")), given.pop("depends_on")
    chosen = {name: value for name, value in given.items() if value is not None}
    if unique or window is not None:
        chosen["unique_window_seconds"] = window or 0
    if tags:
        chosen["tags"] = tags
    if depends_on:
        chosen["depends_on"] = list(depends_on)
    return chosen
