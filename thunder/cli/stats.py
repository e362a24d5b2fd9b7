"""`thunder stats`: figures over all queues."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import click

from thunder.cli import target
from thunder.cli.figures import QUEUE_COLUMNS, as_of_words
from thunder.cli.options import Command, Options
from thunder.cli.output import print_json, print_list
from thunder.cli.watch import watch, watch_options

ALL = "(all)"


@click.command(cls=Command)
@watch_options
@click.pass_obj
def stats(options: Options, watching: bool, interval: float) -> None:
    """Backlog, what runs, failures, rates: each queue, and all together."""
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
