"""`thunder dlq`: dead letters, grouped by error, and their redrive."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

import click

from thunder.cli import target
from thunder.cli.bulk import Bulk, Filter, bar, bulk_options, filter_options, reason_option
from thunder.cli.names import queue_option, type_option
from thunder.cli.options import Noun, Options
from thunder.cli.output import Column, print_list
from thunder.cli.task_view import print_tasks
from thunder.cli.times import Moment, how_long_ago, iso, when

if TYPE_CHECKING:
    from thunderagent.client import ThunderClient

READ_UNASKED = 1_000
NAMED = 3  # types and queues of a group that a table names


@click.group(cls=Noun)
def dlq() -> None:
    """Dead letters: failed tasks, by error, and their redrive."""


@dataclass
class Group:
    """The failed tasks with one type of error. The first one added is the newest."""

    error_type: str
    count: int = 0
    reasons: Counter[str] = field(default_factory=Counter)
    types: Counter[str] = field(default_factory=Counter)
    queues: Counter[str] = field(default_factory=Counter)
    newest: float | None = None
    oldest: float | None = None
    example: Mapping[str, Any] = field(default_factory=dict)

    def add(self, task: Mapping[str, Any]) -> None:
        error = task.get("error") or {}
        self.example = self.example or task
        self.count += 1
        self.reasons[str(error.get("reason", "error"))] += 1
        self.types[str(task.get("type"))] += 1
        self.queues[str(task.get("queue"))] += 1
        at = task.get("finishedAt")
        if isinstance(at, int | float):
            self.newest = at if self.newest is None else max(self.newest, at)
            self.oldest = at if self.oldest is None else min(self.oldest, at)

    def as_answer(self) -> dict[str, Any]:
        return {
            "errorType": self.error_type,
            "count": self.count,
            "reasons": dict(self.reasons),
            "types": dict(self.types),
            "queues": dict(self.queues),
            "newest": self.newest,
            "oldest": self.oldest,
            "example": {
                "taskId": self.example.get("taskId"),
                "message": (self.example.get("error") or {}).get("message"),
            },
        }


def _named(counts: Mapping[str, int]) -> str:
    names = sorted(counts, key=lambda name: (-counts[name], name))
    more = f" +{len(names) - NAMED}" if len(names) > NAMED else ""
    return ", ".join(names[:NAMED]) + more


GROUP_COLUMNS: Sequence[Column] = (
    Column("count", lambda row: row["count"], right=True),
    Column("error", lambda row: row["errorType"], colour=lambda row: "red"),
    Column("types", lambda row: _named(row["types"]), may_be_cut=True, spared=1),
    Column("queues", lambda row: _named(row["queues"]), may_be_cut=True, spared=3),
    Column(
        "newest",
        lambda row: when(row["newest"]),
        raw=lambda row: iso(row["newest"]),
        brief=lambda row: how_long_ago(row["newest"]),
        spared=2,
    ),
    Column("example", lambda row: row["example"]["taskId"]),
    Column("message", lambda row: row["example"]["message"], may_be_cut=True),
)


@dlq.command("list")
@queue_option()
@type_option()
@click.option("--error-type", help="Only tasks with this type of error.")
@click.option("--since", type=Moment(), help="Only what failed since then: 2h (ago), RFC 3339, or epoch seconds.")
@click.option("--tasks", "singly", is_flag=True, help="The tasks themselves instead of groups.")
@click.option("--limit", type=click.IntRange(min=1), default=READ_UNASKED, show_default=True, help="Read so many.")
@click.option("--all", "everything", is_flag=True, help="Read them all.")
@click.pass_obj
def list_(
    options: Options,
    queue: str | None,
    task_type: str | None,
    error_type: str | None,
    since: float | None,
    singly: bool,
    limit: int,
    everything: bool,
) -> None:
    """Failed tasks grouped by their error, the newest read first."""
    reading = Reading(target.connect(options), queue, task_type, since, None if everything else limit)
    tasks = [task for task in reading.tasks() if error_type in (None, _error_type(task))]
    if singly:
        print_tasks(tasks, options.output, answer={"tasks": tasks})
    else:
        rows = [group.as_answer() for group in grouped(tasks)]
        answer = {"groups": rows, "read": reading.read, "complete": reading.is_complete}
        if rows or options.output == "json":
            print_list(rows, GROUP_COLUMNS, options.output, answer=answer)
        else:
            click.echo("no dead letters", err=True)
    if not reading.is_complete:
        click.echo(f"only the newest {reading.read} were read: there are more (--limit, --all)", err=True)


def grouped(tasks: Iterable[Mapping[str, Any]]) -> list[Group]:
    """One group for each type of error, the largest first."""
    groups: dict[str, Group] = {}
    for task in tasks:
        name = _error_type(task)
        groups.setdefault(name, Group(name)).add(task)
    return sorted(groups.values(), key=lambda group: (-group.count, group.error_type))


def _error_type(task: Mapping[str, Any]) -> str:
    return str((task.get("error") or {}).get("type", "?"))


@dataclass
class Reading:
    """The failed tasks, newest first, as many as asked for. `read` and `is_complete` tell how far it came."""

    client: ThunderClient
    queue: str | None
    task_type: str | None
    since: float | None
    most: int | None
    read: int = 0
    is_complete: bool = True

    def tasks(self) -> Iterator[Mapping[str, Any]]:
        """With progress on stderr from the second page on."""
        token: str | None = None
        with bar("read", self.most) as advance:
            while True:
                size = 100 if self.most is None else min(100, self.most - self.read)
                page = self.client.list_page(
                    "FAILED", queue=self.queue, type=self.task_type, limit=size, next_token=token
                )
                fields = [task.fields for task in page.tasks]
                fresh = [each for each in fields if self.since is None or each.get("finishedAt", 0) >= self.since]
                self.read += len(fresh)
                yield from fresh
                token = page.next_token
                if token is None or len(fresh) < len(fields):
                    return
                if self.most is not None and self.read >= self.most:
                    self.is_complete = False
                    return
                advance(len(fresh))


@dlq.command()
@filter_options
@bulk_options
@reason_option
@click.pass_obj
def redrive(options: Options, /, reason: str | None, **given: Any) -> None:
    """Give failed tasks that match a filter a full budget again. Counts first, and asks."""
    chosen = Filter(given["queue"], given["task_type"], given["error_type"], given["since"], given["everything"])
    bulk = Bulk(target.connect(options).redrive_many, "redrive", "redriven", chosen, reason)
    bulk.run(limit=given["limit"], dry_run=given["dry_run"], yes=given["yes"], output=options.output)
