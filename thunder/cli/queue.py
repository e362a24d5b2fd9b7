"""`thunder queue`: list, pause, resume, set."""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, Any

import click

from thunder.cli import target
from thunder.cli.bulk import reason_option
from thunder.cli.errors import NotFound, Refused
from thunder.cli.figures import QUEUE_COLUMNS, SETTING_COLUMNS, as_of_words
from thunder.cli.inert import inert
from thunder.cli.names import complete_queue
from thunder.cli.options import Noun, Options
from thunder.cli.output import print_list
from thunder.cli.values import read_json
from thunder.cli.watch import watch, watch_options

if TYPE_CHECKING:
    from thunderagent.client import ThunderClient

RESET = "none"


class OrNone(click.ParamType):  # type: ignore[type-arg]  # generic since click 8.2 only
    """A value of another type, or `none`: back to the default."""

    def __init__(self, inner: Any) -> None:
        self.inner = inner
        self.name = f"{inner.name}|{RESET}"

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> Any:
        return RESET if value == RESET else self.inner.convert(value, param, ctx)

    def get_metavar(self, param: click.Parameter, *context: Any) -> str:
        return "N|none"


@click.group(cls=Noun)
def queue() -> None:
    """Queues: how they stand, and their limits."""


names_argument: Callable[[Any], Any] = click.argument(
    "names", metavar="QUEUE...", nargs=-1, required=True, shell_complete=complete_queue
)


@queue.command("list")
@watch_options
@click.pass_obj
def list_(options: Options, watching: bool, interval: float) -> None:
    """All queues: backlog, what runs, limits."""
    client = target.connect(options)

    def show(rows: Any) -> None:
        print_list(rows, QUEUE_COLUMNS, options.output, answer={"queues": rows})
        if options.output == "table":
            click.echo(as_of_words(rows), err=True)

    watch(client.queues, show, watching=watching, interval=interval)


@queue.command()
@names_argument
@reason_option
@click.pass_obj
def pause(options: Options, names: tuple[str, ...], reason: str | None) -> None:
    """Start no more tasks of these queues. They go on accepting tasks; what runs goes on running."""
    _set_paused(options, names, True, reason)


@queue.command()
@names_argument
@reason_option
@click.pass_obj
def resume(options: Options, names: tuple[str, ...], reason: str | None) -> None:
    """Start tasks of these queues again."""
    _set_paused(options, names, False, reason)


def _set_paused(options: Options, names: tuple[str, ...], paused: bool, reason: str | None) -> None:
    """The API would declare a queue it does not know; here an unknown one is a misspelling."""
    client = target.connect(options)
    _require_all(client, names)
    body = {"paused": paused} | ({} if reason is None else {"reason": reason})
    _print([client.set_queue(name, body) for name in names], options)


def _require_all(client: ThunderClient, names: tuple[str, ...]) -> None:
    known = {row["queue"] for row in client.queues()}
    unknown = [name for name in names if name not in known]
    if unknown:
        raise NotFound(
            f"there is no queue {inert(unknown[0])}: there are {', '.join(sorted(known))}. "
            "`thunder queue set` declares a new one."
        )


@queue.command("set")
@click.argument("name", metavar="QUEUE", shell_complete=complete_queue)
@click.option("--max-concurrency", type=OrNone(click.INT), help="Tasks running at once.")
@click.option("--rate-per-second", type=OrNone(click.FLOAT), help="Starts per second.")
@click.option("--burst", type=OrNone(click.INT), help="Starts at once after a pause.")
@click.option("--max-backlog", type=OrNone(click.INT), help="Open tasks beyond which a submit is refused (429).")
@click.option(
    "--per-key",
    metavar="JSON|none",
    help='The same limits for each value of a tag: \'{"tag": "tenant", "maxConcurrency": 2}\'.',
)
@click.option("--shards", type=OrNone(click.INT), help="Index partitions for new tasks; about 500 tasks/s each.")
@reason_option
@click.pass_obj
def set_(options: Options, /, name: str, reason: str | None, per_key: str | None, **given: Any) -> None:
    """Change limits of a queue, or declare a new one. What is not named stays; `none` resets."""
    changes = {_SETTINGS[option]: _reset(value) for option, value in given.items() if value is not None}
    if per_key is not None:
        changes["perKey"] = None if per_key == RESET else read_json(per_key, "per-key")
    client = target.connect(options)
    is_new = all(row["queue"] != name for row in client.queues())
    if not changes and not is_new:
        raise Refused("nothing to set: name at least one limit")
    answer = client.set_queue(name, changes | ({} if reason is None else {"reason": reason}))
    if is_new:
        click.echo(f"queue {inert(name)} is new: declared", err=True)
    _print([answer], options)


_SETTINGS = {
    "max_concurrency": "maxConcurrency",
    "rate_per_second": "ratePerSecond",
    "burst": "burst",
    "max_backlog": "maxBacklog",
    "shards": "shards",
}


def _reset(value: Any) -> Any:
    return None if value == RESET else value


def _print(rows: list[Any], options: Options) -> None:
    print_list(rows, SETTING_COLUMNS, options.output, answer=rows[0] if len(rows) == 1 else {"queues": rows})
