"""`thunder task cancel|redrive|ack|delete`: by id, and cancel and redrive by filter too."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Any

import click

from thunder.cli import target
from thunder.cli.bulk import Bulk, Filter, bulk_options, filter_options, reason_option
from thunder.cli.errors import Refused
from thunder.cli.inert import inert
from thunder.cli.options import Command, Options
from thunder.cli.task_view import print_tasks

if TYPE_CHECKING:
    from thunderagent.client import TaskView

some_ids: Callable[[Any], Any] = click.argument("task_ids", metavar="[ID...]", nargs=-1)
ids: Callable[[Any], Any] = click.argument("task_ids", metavar="ID...", nargs=-1, required=True)


@click.command(cls=Command)
@some_ids
@filter_options
@bulk_options
@reason_option
@click.pass_obj
def cancel(options: Options, /, task_ids: tuple[str, ...], reason: str | None, **given: Any) -> None:
    """Cancel tasks, pending or running: by ids, or all open ones that match a filter.

    Once this returns, a cancelled task cannot end otherwise. With a filter it counts first, and asks.
    """
    client = target.connect(options)
    if task_ids:
        _refuse_both(given)
        each(task_ids, lambda task_id: client.cancel(task_id, reason=reason), options.output)
    else:
        run_bulk(Bulk(client.cancel_many, "cancel", "cancelled", _filter(given), reason), given, options.output)


@click.command(cls=Command)
@some_ids
@click.option("--cascade", is_flag=True, help="Also revive the dependents that failed because of it (ids only).")
@filter_options
@bulk_options
@reason_option
@click.pass_obj
def redrive(options: Options, /, task_ids: tuple[str, ...], cascade: bool, reason: str | None, **given: Any) -> None:
    """Give failed tasks a full budget again: by ids, or all that match a filter.

    With a filter it counts first, and asks.
    """
    client = target.connect(options)
    if task_ids:
        _refuse_both(given)
        each(task_ids, lambda task_id: client.redrive(task_id, cascade=cascade, reason=reason), options.output)
        return
    if cascade:
        raise Refused("--cascade goes with ids: redrive the parents by id")
    run_bulk(Bulk(client.redrive_many, "redrive", "redriven", _filter(given), reason), given, options.output)


@click.command(cls=Command)
@ids
@reason_option
@click.pass_obj
def ack(options: Options, task_ids: tuple[str, ...], reason: str | None) -> None:
    """Say that results were collected: SUCCESS becomes DONE."""
    client = target.connect(options)
    each(task_ids, lambda task_id: client.ack(task_id, reason=reason), options.output)


@click.command(cls=Command)
@ids
@click.pass_obj
def delete(options: Options, task_ids: tuple[str, ...]) -> None:
    """Erase ended tasks with their payloads and results. There is no way back."""
    client = target.connect(options)

    def erase(task_id: str) -> None:
        client.delete(task_id)
        click.echo(f"{inert(task_id)} is erased", err=True)

    each(task_ids, erase, options.output)


def each(task_ids: Sequence[str], action: Callable[[str], TaskView | None], output: str) -> None:
    """Act on each task, print those that could be, and tell of the others. One bad id does not stop the rest; the
    exit code is the first failure's. JSON of a single task is the API's answer."""
    from thunder.cli.explain import explained
    from thunderagent.signed_http import ApiError

    changed: list[Any] = []
    failures: list[click.ClickException] = []
    for task_id in dict.fromkeys(task_ids):
        try:
            task = action(task_id)
        except ApiError as error:
            failure = explained(error)
            if failure is None or len(task_ids) == 1:
                raise
            failures.append(failure)
            click.echo(inert(f"{task_id}: {failure.message}"), err=True)
            continue
        if task is not None:
            changed.append(task.fields)
    if changed:
        print_tasks(changed, output, answer=changed[0] if len(task_ids) == 1 else {"tasks": changed})
    if failures:
        worst = type(failures[0])(f"{len(failures)} of {len(task_ids)} could not be")
        raise worst


def run_bulk(bulk: Bulk, given: dict[str, Any], output: str) -> None:
    bulk.run(limit=given["limit"], dry_run=given["dry_run"], yes=given["yes"], output=output)


def _filter(given: dict[str, Any]) -> Filter:
    return Filter(given["queue"], given["task_type"], given["error_type"], given["since"], given["everything"])


def _refuse_both(given: dict[str, Any]) -> None:
    if _filter(given) != Filter() or given["dry_run"] or given["limit"] is not None:
        raise Refused("ids or a filter, not both")
