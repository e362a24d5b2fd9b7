"""Actions on all tasks that match: counted first, asked about, then done by a job that a page watches."""

from __future__ import annotations

import time
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Final

from starlette.responses import Response

from thunder.cli.times import parse_span
from thunder.console import shown
from thunder.console.forms import FieldError, Fields
from thunder.console.jobs import BulkCall, Job, Preview, preview
from thunder.console.routing import Asked, failed, on_to
from thunder.console.single import reason_of
from thunder.console.site import Console, Notice
from thunder.console.tasks import NAME

COUNTING_SECONDS: Final = 2.0
ERROR_TYPE_LENGTH: Final = 256
NO_JOB: Final = ("There is no such job", "It belongs to an earlier run of the console, or is long over.")


@dataclass(frozen=True)
class BulkAction:
    name: str
    word: str
    done: str
    what: str
    effect: str
    is_dangerous: bool = False


ACTIONS: Final[Mapping[str, BulkAction]] = {
    "redrive": BulkAction(
        "redrive",
        "Redrive",
        "redriven",
        "dead letters",
        "Each becomes PENDING again with its full number of retries.",
    ),
    "cancel": BulkAction(
        "cancel",
        "Cancel",
        "cancelled",
        "open tasks, pending and running",
        "Each ends DONE and cannot end otherwise; running handlers are told at their next heartbeat.",
        is_dangerous=True,
    ),
}


def act(asked: Asked) -> Response:
    action = ACTIONS.get(asked.path["action"])
    if action is None:
        return failed(asked, 404, "There is no such action", asked.path["action"][:80])
    filters = filters_of(asked.form if asked.is_post else asked.query, now=asked.console.now())
    return _begin(asked, action, filters) if asked.is_post else _ask(asked, action, filters)


def filters_of(fields: Fields, *, now: float) -> dict[str, Any]:
    """As the API takes them. Raises FieldError. `since` is a stretch before now, or epoch seconds."""
    found: dict[str, Any] = {}
    for name in ("queue", "type"):
        if value := fields.text(name):
            if not NAME.fullmatch(value):
                raise FieldError(name, f"{value[:80]!r} cannot be the name of a {name}")
            found[name] = value
    if error_type := fields.text("errorType"):
        found["errorType"] = error_type[:ERROR_TYPE_LENGTH]
    if since := fields.text("since"):
        before = parse_span(since) if since[-1:].isalpha() else None
        at = now - before if before is not None else fields.decimal("since", what="since")
        found["since"] = round(at or 0, 3)
    return found


def _call(console: Console, action: BulkAction) -> BulkCall:
    return console.client.redrive_many if action.name == "redrive" else console.client.cancel_many


def _ask(asked: Asked, action: BulkAction, filters: Mapping[str, Any]) -> Response:
    began = time.monotonic()
    counted = preview(_call(asked.console, action), filters, until=lambda: time.monotonic() - began > COUNTING_SECONDS)
    return asked.page(
        "confirm_all.html",
        title=f"{action.word} all matching?",
        action=action,
        filters=filters,
        words=words_of(filters),
        counted=counted,
    )


def _begin(asked: Asked, action: BulkAction, filters: Mapping[str, Any]) -> Response:
    reason = reason_of(asked.form)
    if not reason:
        raise FieldError("reason", "Say why: the reason is kept with every task.")
    expected = Preview(asked.form.whole("matched", what="the count") or 0, asked.form.is_set("atLeast"))
    call = _call(asked.console, action)
    job = asked.console.jobs.begin(action.name, call, filters, reason=reason, expected=expected)
    return on_to(asked, f"/job/{job.id}")


def words_of(filters: Mapping[str, Any]) -> list[tuple[str, str, bool]]:
    """Filters for people: name, value, and whether the value is a time."""
    names = {"queue": "Queue", "type": "Type", "errorType": "Error", "since": "Since"}
    return [(names[name], str(value), name == "since") for name, value in filters.items()]


# ---- jobs -----------------------------------------------------------------------------------------------------------


def job_page(asked: Asked) -> Response:
    return _job(asked, "job.html")


def job_state(asked: Asked) -> Response:
    return _job(asked, "job_state.html")


def _job(asked: Asked, template: str) -> Response:
    job = asked.console.jobs.find(asked.path["id"])
    if job is None:
        return failed(asked, 404, *NO_JOB)
    action = ACTIONS[job.action]
    return asked.page(
        template,
        title=f"{action.word} all matching",
        job=job,
        action=action,
        words=words_of(job.filters),
        sentence=_sentence(job, action),
    )


def _sentence(job: Job, action: BulkAction) -> str:
    """What a screen reader is told when it changes."""
    count = shown.number(job.done)
    match job.state:
        case "finished":
            return f"Finished: {count} {action.done}" + (f", {job.refused} refused." if job.refused else ".")
        case "stopped":
            return f"Stopped after {count}."
        case "broken":
            return f"The API refused a page after {count}."
    return "Under way."


def order(asked: Asked) -> Response:
    """Stop a job, or let it go on."""
    job = asked.console.jobs.find(asked.path["id"])
    if job is None or asked.path["order"] not in ("stop", "go-on"):
        return failed(asked, 404, *NO_JOB)
    if asked.path["order"] == "stop":
        job.stop()
        return on_to(asked, f"/job/{job.id}", Notice("note", "It stops after the page that is under way."))
    asked.console.jobs.go_on(job)
    return on_to(asked, f"/job/{job.id}")
