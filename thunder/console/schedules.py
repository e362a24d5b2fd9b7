"""Schedules: when each fires next, whether it does, and the form that sets one."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Final

from starlette.responses import Response

from thunder.console import shown
from thunder.console.forms import FieldError, Fields
from thunder.console.routing import Asked, failed, on_to
from thunder.console.single import reason_of
from thunder.console.site import Notice
from thunder.console.tasks import NAME
from thunder.console.typed_json import typed_json
from thunderagent.signed_http import ApiError

CATCH_UPS: Final = {
    "one": "one task for the last of them",
    "none": "none",
    "all": "all of the last day",
}
ORDERS: Final = ("run", "delete")
NEW: Final[Mapping[str, str]] = {
    "name": "",
    "cron": "",
    "timezone": "UTC",
    "catchUp": "one",
    "task": '{\n  "type": "",\n  "payload": {}\n}',
}


def page(asked: Asked) -> Response:
    return asked.page("schedules.html", title="Schedules", schedules=asked.console.client.schedules())


def rows(asked: Asked) -> Response:
    return asked.page("schedules_rows.html", title="Schedules", schedules=asked.console.client.schedules())


def edit(asked: Asked) -> Response:
    """The form of a new schedule, or of one there is."""
    name = asked.path.get("name", "")
    if asked.is_post:
        return _put(asked, name)
    typed = NEW if not name else _as_typed(asked.console.client.schedule(name))
    return _form(asked, name, typed)


def _as_typed(schedule: Mapping[str, Any]) -> dict[str, str]:
    plain = {field: str(schedule.get(field) or NEW[field]) for field in ("name", "cron", "timezone", "catchUp")}
    return {**plain, "task": shown.pretty(schedule["task"])}


def _put(asked: Asked, existing: str) -> Response:
    typed = {field: asked.form.raw(field) if field == "task" else asked.form.text(field) for field in NEW}
    name = existing or typed["name"]
    try:
        asked.console.client.put_schedule(name, _schedule(asked.form, name))
    except FieldError as error:
        return _form(asked, existing, typed, problem=error.message, field=error.field)
    except ApiError as error:
        if error.status not in (400, 422):
            raise
        return _form(asked, existing, typed, problem=error.message, field=(error.path or "").partition(".")[0])
    return on_to(asked, "/schedules", Notice("good", f"Schedule {name} is {'changed' if existing else 'made'}."))


def _schedule(form: Fields, name: str) -> dict[str, Any]:
    if not NAME.fullmatch(name):
        raise FieldError("name", "A name has 1-64 of a-z, 0-9, dot, underscore, hyphen.")
    task = typed_json(form, "task")
    if not isinstance(task, dict):
        raise FieldError("task", "The task must be a JSON object with a type.")
    reason = reason_of(form)
    plain = {field: form.text(field) for field in ("cron", "timezone", "catchUp") if form.is_set(field)}
    if "cron" not in plain:
        raise FieldError("cron", "Say when, in five fields: minute, hour, day of month, month, day of week.")
    return {**plain, "task": task, **({"reason": reason} if reason else {})}


def _form(
    asked: Asked, name: str, typed: Mapping[str, str], *, problem: str | None = None, field: str = ""
) -> Response:
    return asked.page(
        "schedule.html",
        status=422 if problem else 200,
        title=f"Schedule {name}" if name else "New schedule",
        name=name,
        typed=typed,
        catch_ups=CATCH_UPS,
        problem=problem,
        field=field,
    )


def order(asked: Asked) -> Response:
    """Run one now, or delete it: asked about, then done."""
    name, order = asked.path["name"], asked.path["order"]
    if order not in ORDERS:
        return failed(asked, 404, "There is no such action", order[:80])
    if not asked.is_post:
        title = f"Run schedule {name} now?" if order == "run" else f"Delete schedule {name}?"
        schedule = asked.console.client.schedule(name)
        return asked.page("confirm_schedule.html", title=title, schedule=schedule, order=order)
    if order == "run":
        task = asked.console.client.run_schedule(name)
        return on_to(asked, f"/task/{task.task_id}", Notice("good", f"Schedule {name} has made this task."))
    asked.console.client.delete_schedule(name)
    return on_to(asked, "/schedules", Notice("good", f"Schedule {name} is deleted; tasks it made stay."))
