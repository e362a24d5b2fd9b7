"""`thunder local`: the stack on this machine."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import TypeVar

import click

from thunder.cli.errors import Failed, NotFound
from thunder.cli.inert import inert
from thunder.cli.options import Noun, Options
from thunder.cli.output import print_object
from thunder.local.checkout import Checkout
from thunder.local.errors import LocalError
from thunder.local.stack import LocalStack
from thunder.local.state import StateDir

T = TypeVar("T")
NOT_UP = "nothing is up: start it with `thunder local up`"


@click.group(cls=Noun)
def local() -> None:
    """The whole stack on this machine: the embedded AWS, with the real stack deployed to it by the CDK."""


state_option = click.option(
    "--state-dir",
    envvar="THUNDER_STATE_DIR",
    type=click.Path(file_okay=False, path_type=Path),
    help="Where this stack keeps everything (default: .thunder in the checkout; or set THUNDER_STATE_DIR).",
)


@local.command()
@state_option
@click.pass_obj
def up(options: Options, state_dir: Path | None) -> None:
    """Start and deploy whatever is not up to date yet."""
    print_object(_guarded(_stack(state_dir).up), options.output)


@local.command()
@state_option
def down(state_dir: Path | None) -> None:
    """End every process of the stack. Its data stay for the next `up`."""
    ended = _guarded(_stack(state_dir).down)
    click.echo("down: nothing is left running" if ended else "nothing was up", err=True)


@local.command()
@state_option
@click.pass_obj
def status(options: Options, state_dir: Path | None) -> None:
    """What is up: endpoint, API, table, credentials. Exit code 3 when nothing is."""
    record = _guarded(_stack(state_dir).status)
    if record is None:
        raise NotFound(NOT_UP)
    print_object(record, options.output)


@local.command()
@state_option
@click.argument("function", required=False)
@click.option("--lines", "-n", default=50, show_default=True, help="How many of the newest lines to print first.")
@click.option("--follow", "-f", is_flag=True, help="Go on printing what comes, until interrupted.")
def logs(state_dir: Path | None, function: str | None, lines: int, follow: bool) -> None:
    """Print the functions' log lines; FUNCTION is a part of a function's name, like `poller`."""
    from thunder.local.logs import FunctionLogs

    record = _guarded(_stack(state_dir).status)
    if record is None:
        raise NotFound(NOT_UP)
    tail = FunctionLogs(record["endpoint"], named=function or "")
    for line in tail.follow(lines) if follow else tail.newest(lines):
        click.echo(_shown(str(line)))


def _shown(line: str) -> str:
    """What a function printed may hold what a task says: a line break in it begins no line that passes for another."""
    return "\n    ".join(inert(part) for part in line.split("\n"))


def _stack(state_dir: Path | None) -> LocalStack:
    checkout = _guarded(Checkout.of_this_installation)
    return LocalStack(checkout, StateDir((state_dir or checkout.root / ".thunder").absolute()))


def _guarded(action: Callable[[], T]) -> T:
    """Calls it; what cannot be done locally ends the command with its message and exit code 1."""
    try:
        return action()
    except LocalError as error:
        raise Failed(str(error)) from error
