"""Operator actions on many tasks: by filter, after a look at how many there are, page by page with a bar on stderr."""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import Any

import click

from thunder.cli.errors import Failed, Refused
from thunder.cli.inert import inert
from thunder.cli.names import queue_option, type_option
from thunder.cli.output import print_json, print_object
from thunder.cli.times import Moment, when
from thunder.cli.values import confirm

COUNT_PAGE, WORK_PAGE = 1_000, 100
FAILURES_SHOWN = 10

Call = Callable[..., Mapping[str, Any]]
"""The client's `redrive_many` or `cancel_many`."""


@dataclass(frozen=True)
class Filter:
    """Which tasks. An empty one means all, which has to be said."""

    queue: str | None = None
    type: str | None = None
    error_type: str | None = None
    since: float | None = None
    everything: bool = False

    def fields(self) -> dict[str, Any]:
        """As the API spells them."""
        named = {"queue": self.queue, "type": self.type, "errorType": self.error_type, "since": self.since}
        return {name: value for name, value in named.items() if value is not None}

    def require_some(self) -> None:
        if not self.fields() and not self.everything:
            raise Refused("which tasks? Give ids or a filter (--queue, --type, --error-type, --since), or --all")


def filter_options(command: Callable[..., Any]) -> Callable[..., Any]:
    """Adds the filter's options, gathered into the parameters that Filter takes."""
    for option in (
        click.option("--all", "everything", is_flag=True, help="All of them, whatever the queue and type."),
        click.option("--since", type=Moment(), help="Since then: 2h (ago), RFC 3339, or epoch seconds."),
        click.option("--error-type", help="Only tasks with this type of error."),
        type_option(),
        queue_option(),
    ):
        command = option(command)
    return command


def bulk_options(command: Callable[..., Any]) -> Callable[..., Any]:
    """Adds what every bulk action understands."""
    for option in (
        click.option("--limit", type=click.IntRange(min=1), help="At most so many."),
        click.option("--yes", "-y", is_flag=True, help="Do not ask."),
        click.option("--dry-run", is_flag=True, help="Count only; nothing is changed."),
    ):
        command = option(command)
    return command


reason_option: Callable[[Any], Any] = click.option("--reason", help="Why; kept with the task, beside your identity.")


@dataclass
class Total:
    """What came of all pages."""

    matched: int = 0
    done: int = 0
    failed: list[Mapping[str, Any]] = field(default_factory=list)

    def add(self, page: Mapping[str, Any]) -> None:
        self.matched += page["matched"]
        self.done += page["done"]
        self.failed += page["failed"]

    def as_answer(self) -> dict[str, Any]:
        return {"matched": self.matched, "done": self.done, "failed": self.failed}


@dataclass(frozen=True)
class Bulk:
    """One action over a filter. `verb` and `past` are its words: redrive, redriven."""

    call: Call
    verb: str
    past: str
    chosen: Filter
    reason: str | None = None

    def run(self, *, limit: int | None, dry_run: bool, yes: bool, output: str) -> None:
        """Count, ask, act, print what came of it. Raises Failed when tasks refused."""
        self.chosen.require_some()
        if yes and not dry_run:
            count = None
        else:
            counted = self._pages(limit, COUNT_PAGE, dry_run=True)
            if dry_run:
                click.echo(f"would {self.verb} {counted.matched} tasks; nothing was changed", err=True)
                _print(counted, output)
                return
            if counted.matched == 0:
                click.echo("no task matches", err=True)
                _print(counted, output)
                return
            count = counted.matched
            confirm(f"{self.verb.capitalize()} {count} tasks{self._words()}?", yes=yes)
        with bar(self.past, count) as advance:
            total = self._pages(limit, WORK_PAGE, dry_run=False, advance=advance)
        _print(total, output)
        if total.failed:
            _tell_failures(total.failed)
            raise Failed(f"{total.done} tasks {self.past}, {len(total.failed)} refused")
        click.echo(f"{total.done} tasks {self.past}", err=True)

    def _pages(
        self, limit: int | None, size: int, *, dry_run: bool, advance: Callable[[int], None] = lambda done: None
    ) -> Total:
        total, token = Total(), None
        while limit is None or total.matched < limit:
            most = size if limit is None else min(size, limit - total.matched)
            body = {**self.chosen.fields(), "limit": most}
            body |= {"dryRun": True} if dry_run else {"reason": self.reason} if self.reason is not None else {}
            page = self.call(**body, **({"nextToken": token} if token is not None else {}))
            total.add(page)
            advance(page["matched"])
            token = page.get("nextToken")
            if token is None:
                break
        return total

    def _words(self) -> str:
        fields = self.chosen.fields()
        words = {"queue": "of queue", "type": "of type", "errorType": "with error"}
        named = "".join(f" {words[name]} {inert(fields[name])}" for name in words if name in fields)
        return named + (f" since {when(fields['since'])}" if "since" in fields else "")


def _print(total: Total, output: str) -> None:
    if output == "json":
        print_json(total.as_answer())
    else:
        print_object({"matched": total.matched, "done": total.done, "failed": len(total.failed)}, output)


def _tell_failures(failed: list[Mapping[str, Any]]) -> None:
    for entry in failed[:FAILURES_SHOWN]:
        click.echo(inert(f"{entry['taskId']}: {entry['error']['message']}"), err=True)
    if len(failed) > FAILURES_SHOWN:
        click.echo(f"… and {len(failed) - FAILURES_SHOWN} more", err=True)


@contextmanager
def bar(title: str, total: int | None) -> Iterator[Callable[[int], None]]:
    """A progress bar on stderr; a line for each advance where stderr is no terminal."""
    if not sys.stderr.isatty():
        done = 0

        def say(more: int) -> None:
            nonlocal done
            done += more
            click.echo(f"{done}{f' of {total}' if total is not None else ''} {title}", err=True)

        yield say
        return
    from rich.console import Console
    from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeRemainingColumn

    columns = (TextColumn("{task.description}"), BarColumn(), MofNCompleteColumn(), TimeRemainingColumn())
    with Progress(*columns, console=Console(stderr=True), transient=True) as progress:
        shown = progress.add_task(title, total=total)
        yield lambda more: progress.advance(shown, more)
