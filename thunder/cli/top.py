"""`thunder top`: queues, what runs and what failed last, live."""

from __future__ import annotations

import select
import sys
import termios
import time
import tty
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import click

from thunder.cli import target
from thunder.cli.errors import Refused
from thunder.cli.figures import QUEUE_COLUMNS, as_of_words
from thunder.cli.inert import inert
from thunder.cli.options import Command, Options
from thunder.cli.output import Column, styled, table_lines
from thunder.cli.stats import ALL
from thunder.cli.task_view import note, status_colour
from thunder.cli.times import how_long_ago

if TYPE_CHECKING:
    from thunderagent.client import ThunderClient

RUNNING_SHOWN, FAILED_SHOWN = 12, 5
SHORTEST_SECONDS = 0.5
QUIT_KEYS = ("q", "Q", "\x1b")


@click.command(cls=Command)
@click.option(
    "--interval",
    type=click.FloatRange(min=SHORTEST_SECONDS),
    default=2.0,
    show_default=True,
    metavar="SECONDS",
    help="How often it looks.",
)
@click.pass_obj
def top(options: Options, interval: float) -> None:
    """Queues, what runs and what failed last, live. q ends it."""
    if not (sys.stdout.isatty() and sys.stdin.isatty()):
        raise Refused("top needs a terminal: `thunder stats --watch` does without")
    found = target.locate(options)
    client = found.client()
    from rich.console import Console
    from rich.live import Live
    from rich.text import Text

    console = Console()
    with Live(console=console, screen=True, auto_refresh=False) as live, _single_keys():
        while True:
            lines = screen(found.label, _look(client), width=console.width, height=console.height, now=time.time())
            # Escapes in these lines are our own: what tasks say is inert.
            live.update(Text.from_ansi("\n".join(lines)), refresh=True)
            if _quit_within(interval):
                return


@dataclass(frozen=True)
class Look:
    """What one screen shows."""

    stats: Mapping[str, Any]
    running: Sequence[Mapping[str, Any]]
    failed: Sequence[Mapping[str, Any]]


def _look(client: ThunderClient) -> Look:
    running = client.list_page("RUNNING", limit=RUNNING_SHOWN)
    failed = client.list_page("FAILED", limit=FAILED_SHOWN)
    return Look(client.stats(), [task.fields for task in running.tasks], [task.fields for task in failed.tasks])


def screen(label: str, look: Look, *, width: int, height: int, now: float) -> list[str]:
    """The lines of one screen: what does not fit is left out from below, queues before tasks."""
    queues = list(look.stats["queues"])
    title = f"ThunderAgent  {inert(label)}"
    clock = time.strftime("%H:%M:%S", time.localtime(now))
    lines = [styled(title + clock.rjust(max(1, width - len(title))), bold=True)]
    lines.append(styled(as_of_words(queues, now), dim=True))
    rows = [*queues, {"queue": ALL, **look.stats["totals"]}]
    lines += ["", *table_lines(rows, QUEUE_COLUMNS, width=width)]
    lines += _section("Running now", look.running, _RUNNING, width)
    lines += _section("Failed last", look.failed, _FAILED, width)
    return lines[:height]


def _section(title: str, tasks: Sequence[Mapping[str, Any]], columns: Sequence[Column], width: int) -> list[str]:
    if not tasks:
        return ["", styled(f"{title}: nothing", dim=True)]
    return ["", styled(title, "blue", bold=True), *table_lines(tasks, columns, width=width)]


_ID = Column("task id", lambda row: row["taskId"], colour=status_colour)
_TYPE = Column("type", lambda row: row.get("type"))
_QUEUE = Column("queue", lambda row: row.get("queue"), spared=1)
_NOTE = Column("note", note, may_be_cut=True)
_RUNNING = (_ID, _TYPE, _QUEUE, Column("started", lambda row: how_long_ago(row.get("startedAt"))), _NOTE)
_FAILED = (_ID, _TYPE, _QUEUE, Column("failed", lambda row: how_long_ago(row.get("finishedAt"))), _NOTE)


@contextmanager
def _single_keys() -> Iterator[None]:
    """Keys arrive without Enter and are not echoed, until the end of the block."""
    before = termios.tcgetattr(sys.stdin)
    tty.setcbreak(sys.stdin)
    try:
        yield
    finally:
        termios.tcsetattr(sys.stdin, termios.TCSADRAIN, before)


def _quit_within(seconds: float) -> bool:
    """Waits so long, or until a key; True when it was one that ends the view."""
    ready, _, _ = select.select([sys.stdin], [], [], seconds)
    return bool(ready) and sys.stdin.read(1) in QUIT_KEYS
