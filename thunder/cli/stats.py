"""`thunder stats`: figures over all queues."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

import click

from thunder.cli import target
from thunder.cli.errors import Refused
from thunder.cli.figures import QUEUE_COLUMNS, as_of_words
from thunder.cli.options import Command, Options
from thunder.cli.output import Column, print_json, print_list
from thunder.cli.watch import watch, watch_options

if TYPE_CHECKING:
    from thunderagent.store import Store

ALL = "(all)"
DAYS = 7


@click.command(cls=Command)
@click.option("--cost", is_flag=True, help="What tasks cost instead: dollars per million, by queue and type.")
@click.option("--days", type=click.IntRange(1, 90), help="Of so many days, today included (--cost; default: 7).")
@watch_options
@click.pass_obj
def stats(options: Options, cost: bool, days: int | None, watching: bool, interval: float) -> None:
    """Backlog, what runs, failures, rates: each queue, and all together."""
    if days is not None and not cost:
        raise Refused("--days goes with --cost")
    if cost:
        store = target.locate(options).store()
        watch(
            lambda: _cost(store, days or DAYS),
            lambda report: print_cost(report, options.output),
            watching=watching,
            interval=interval,
        )
        return
    client = target.connect(options)
    watch(client.stats, lambda answer: print_stats(answer, options.output), watching=watching, interval=interval)


def print_stats(answer: Mapping[str, Any], output: str) -> None:
    """The API's answer: a row for each queue, and one for the totals."""
    if output == "json":
        print_json(answer)
        return
    rows = [*answer["queues"], {"queue": ALL, **answer["totals"]}]
    columns = [column for column in QUEUE_COLUMNS if column.title != "limits"]
    print_list(rows, columns, output)
    if output == "table":
        click.echo(as_of_words(answer["queues"]), err=True)


# ---- cost -----------------------------------------------------------------------------------------------------------


def _cost(store: Store, days: int) -> Mapping[str, Any]:
    from thunderagent.cost import cost_report

    return cost_report(store, days=days).as_dict()


def print_cost(report: Mapping[str, Any], output: str) -> None:
    """A row for each queue and type; what belongs to no task, and whose prices these are, on stderr."""
    if output == "json":
        print_json(report)
        return
    if report["types"]:
        print_list(report["types"], COST_COLUMNS, output)
    prices, overhead = report["prices"], report["overhead"]["dollarsPerDay"]
    click.echo(
        f"{report['from']} to {report['to']}, list prices of {prices['region']} on {prices['date']}; "
        f"besides ${overhead:.4f} a day for sweeps, reaper and reading",
        err=True,
    )


def _per_task(title: str, name: str) -> Column:
    return Column(title, lambda row: "-" if row[name] is None else row[name], raw=lambda row: row[name], right=True)


def _spent(row: Mapping[str, Any]) -> str:
    parts = sorted(row["spentOn"].items(), key=lambda part: -part[1])
    return ", ".join(f"{name} {dollars:.2f}" for name, dollars in parts)


COST_COLUMNS = (
    Column("queue", lambda row: row["queue"]),
    Column("type", lambda row: row["type"]),
    Column("tasks", lambda row: row["tasks"], right=True),
    _per_task("writes/task", "writeUnitsPerTask"),
    _per_task("reads/task", "readUnitsPerTask"),
    _per_task("billed ms/task", "billedMillisecondsPerTask"),
    _per_task("$/million", "dollarsPerMillionTasks"),
    Column("spent on ($/million)", _spent, may_be_cut=True),
)
