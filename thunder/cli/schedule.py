"""`thunder schedule`: list, put, delete, run."""

from __future__ import annotations

import json
from collections.abc import Sequence
from typing import Any

import click

from thunder.cli import target
from thunder.cli.bulk import reason_option
from thunder.cli.errors import Refused
from thunder.cli.inert import inert
from thunder.cli.names import complete_type, queue_option
from thunder.cli.options import Noun, Options
from thunder.cli.output import Column, print_list
from thunder.cli.task_submit import PAYLOAD_HELP, payload_of
from thunder.cli.task_view import print_tasks
from thunder.cli.times import Span, how_long_ago, iso, when
from thunder.cli.values import parse_tags, read_json


@click.group(cls=Noun)
def schedule() -> None:
    """Tasks by the calendar: cron with time zones."""


def _time(name: str, *, spared: int) -> Column:
    return Column(
        name,
        lambda row: when(row.get(name)),
        raw=lambda row: iso(row.get(name)),
        brief=lambda row: how_long_ago(row.get(name)),
        spared=spared,
    )


SCHEDULE_COLUMNS: Sequence[Column] = (
    Column("name", lambda row: row["name"]),
    Column("cron", lambda row: row["cron"]),
    Column("timezone", lambda row: row["timezone"]),
    Column("type", lambda row: row["task"].get("type")),
    _time("next", spared=0),
    _time("last", spared=2),
    Column("last task", lambda row: row.get("lastTaskId"), spared=3),
    Column("problem", lambda row: row.get("problem"), colour=lambda row: "red", may_be_cut=True),
)


@schedule.command("list")
@click.pass_obj
def list_(options: Options) -> None:
    """All schedules, with their next firing."""
    rows = target.connect(options).schedules()
    if not rows and options.output != "json":
        click.echo("no schedules: `thunder schedule put` makes one", err=True)
        return
    print_list(rows, SCHEDULE_COLUMNS, options.output, answer={"schedules": rows})


@schedule.command()
@click.argument("name", metavar="NAME")
@click.argument("task_type", metavar="[TYPE]", required=False, shell_complete=complete_type)
@click.argument("payload", required=False)
@click.option("--type", "type_option", shell_complete=complete_type, help="The type of its tasks, as an option.")
@click.option("--payload", "payload_option", metavar="JSON", help=PAYLOAD_HELP)
@click.option("--cron", help="Five fields: minute, hour, day of month, month, day of week.")
@click.option("--timezone", help="An IANA name, like Europe/Berlin (default: UTC).")
@click.option("--catch-up", type=click.Choice(["one", "none", "all"]), help="Missed firings (default: one).")
@queue_option("The queue of its tasks (default: the handler's).")
@click.option("--priority", type=click.Choice(["high", "normal", "low"]), help="The priority of its tasks.")
@click.option("--max-retry-number", type=click.IntRange(0, 100), help="Retries after the first attempt.")
@click.option("--timeout-seconds", type=Span(), help="How long one attempt may take.")
@click.option("--start-within-seconds", type=Span(), help="Let a task expire unless it starts this soon.")
@click.option("--unique-window-seconds", type=Span(), help="Not while an equal task is open, nor so long after it.")
@click.option("--tag", "tags", multiple=True, metavar="NAME=VALUE", help="A tag of its tasks (repeatable).")
@click.option("--input", "document", metavar="JSON", help="The whole schedule instead: JSON, @file, or - for stdin.")
@reason_option
@click.pass_obj
def put(
    options: Options,
    /,
    name: str,
    task_type: str | None,
    type_option: str | None,
    document: str | None,
    reason: str | None,
    **given: Any,
) -> None:
    """Create or replace a schedule. What is not given gets its default: nothing is kept of an earlier one.

    thunder schedule put nightly report.generate '{"region": "eu"}' --cron '0 3 * * *' --timezone Europe/Berlin
    """
    if task_type is not None and type_option is not None:
        raise Refused("the type is given twice: as an argument and with --type")
    kind = task_type if task_type is not None else type_option
    body = _written(given, kind) if document is None else _read(document, given, kind)
    answer = target.connect(options).put_schedule(name, body | ({} if reason is None else {"reason": reason}))
    print_list([answer], SCHEDULE_COLUMNS, options.output, answer=answer)


def _written(given: dict[str, Any], kind: str | None) -> dict[str, Any]:
    """The schedule of the options."""
    if kind is None or given["cron"] is None:
        raise Refused("a schedule needs a TYPE and --cron, or --input")
    task: dict[str, Any] = {"type": kind}
    if given["payload"] is not None or given["payload_option"] is not None:
        task["payload"] = payload_of(given["payload"], given["payload_option"])
    task |= {field: given[option] for option, field in _TASK_FIELDS.items() if given[option] is not None}
    if given["unique_window_seconds"] is not None:
        task["unique"] = {"windowSeconds": given["unique_window_seconds"]}
    if given["tags"]:
        task["tags"] = parse_tags(given["tags"])
    body = {"cron": given["cron"], "timezone": given["timezone"], "catchUp": given["catch_up"], "task": task}
    return {field: value for field, value in body.items() if value is not None}


_TASK_FIELDS = {
    "queue": "queue",
    "priority": "priority",
    "max_retry_number": "maxRetryNumber",
    "timeout_seconds": "timeoutSeconds",
    "start_within_seconds": "startWithinSeconds",
}


def _read(document: str, given: dict[str, Any], kind: str | None) -> dict[str, Any]:
    """The schedule of a document, perhaps one that `list --output json` printed."""
    if kind is not None or any(value not in (None, ()) for value in given.values()):
        raise Refused("--input is the whole schedule: leave out what describes it otherwise")
    value = read_json(document, "input")
    if not isinstance(value, dict):
        raise Refused(f"input: a schedule is a JSON object, not {json.dumps(value)[:40]}")
    shown_only = ("name", "next", "last", "lastTaskId", "problem", "createdAt", "updatedAt")
    return {field: each for field, each in value.items() if field not in shown_only}


@schedule.command()
@click.argument("names", metavar="NAME...", nargs=-1, required=True)
@click.pass_obj
def delete(options: Options, names: tuple[str, ...]) -> None:
    """Remove schedules. The tasks they made stay."""
    client = target.connect(options)
    for name in names:
        client.delete_schedule(name)
        click.echo(f"schedule {inert(name)} is removed; its tasks stay", err=True)


@schedule.command()
@click.argument("name", metavar="NAME")
@click.pass_obj
def run(options: Options, name: str) -> None:
    """Submit a schedule's task now, whatever the calendar says."""
    task = target.connect(options).run_schedule(name)
    print_tasks([task.fields], options.output, answer=task.fields)
