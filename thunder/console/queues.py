"""Queues: how each stands, its limits, and the switch that pauses it."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Final

from starlette.responses import Response

from thunder.cli.figures import LATE_SECONDS, as_of, limits, value_of
from thunder.console.forms import FieldError, Fields
from thunder.console.routing import Asked, failed, on_to
from thunder.console.single import reason_of
from thunder.console.site import Notice
from thunder.console.tasks import NAME
from thunderagent.signed_http import ApiError, NotFoundError

ORDERS: Final = {"pause": True, "resume": False}
NUMBERS: Final[Mapping[str, tuple[str, bool]]] = {
    "maxConcurrency": ("Running at once", True),
    "ratePerSecond": ("Starts per second", False),
    "burst": ("Burst", True),
    "maxBacklog": ("Largest backlog", True),
    "shards": ("Shards", True),
}
"""Setting → what the form calls it, and whether it is whole."""
KEY_NUMBERS: Final[Mapping[str, tuple[str, bool]]] = {
    "maxConcurrency": ("Running at once, each value", True),
    "ratePerSecond": ("Starts per second, each value", False),
    "burst": ("Burst, each value", True),
}


def page(asked: Asked) -> Response:
    if asked.query.is_set("name"):
        return _named(asked)
    return asked.page("queues.html", title="Queues", **_rows(asked))


def _named(asked: Asked) -> Response:
    name = asked.query.text("name")
    if not NAME.fullmatch(name):
        raise FieldError("name", f"{name[:80]!r} cannot be the name of a queue: a-z, 0-9, dot, underscore, hyphen")
    return on_to(asked, f"/queue/{name}")


def rows(asked: Asked) -> Response:
    return asked.page("queues_rows.html", title="Queues", **_rows(asked))


def _rows(asked: Asked) -> dict[str, Any]:
    found = asked.console.client.queues()
    late = {queue["queue"] for queue in found if (value_of(queue, "oldestDueAgeSeconds") or 0) > LATE_SECONDS}
    return {"queues": found, "counted_at": as_of(found), "limits": limits, "late": late}


def order(asked: Asked) -> Response:
    """Pause or resume: asked about, then done."""
    name, order = asked.path["name"], asked.path["order"]
    if order not in ORDERS:
        return failed(asked, 404, "There is no such action", order[:80])
    if not asked.is_post:
        queue = asked.console.client.queue(name)
        way_on = asked.address if asked.is_part else "/queues"
        title = f"{order.capitalize()} queue {name}?"
        return asked.page("confirm_queue.html", title=title, queue=queue, order=order, way_on=way_on)
    reason = reason_of(asked.form)
    asked.console.client.set_queue(name, {"paused": ORDERS[order], **_given(reason)})
    done = "paused: it accepts tasks and starts none" if ORDERS[order] else "resumed"
    return on_to(asked, asked.form.text("next", "/queues"), Notice("good", f"Queue {name} is {done}."))


def settings(asked: Asked) -> Response:
    name = asked.path["name"]
    if not NAME.fullmatch(name):
        return failed(asked, 404, "There is no such queue", f"{name[:80]} cannot be the name of a queue.")
    try:
        queue: Mapping[str, Any] | None = asked.console.client.queue(name)
    except NotFoundError:
        queue = None
    if not asked.is_post:
        return _form(asked, name, queue, _as_typed(queue or {}))
    try:
        changes = _changes(asked.form, queue or {})
        if queue is not None and not changes:
            return on_to(asked, f"/queue/{name}", Notice("note", "Nothing was changed."))
        asked.console.client.set_queue(name, {**changes, **_given(reason_of(asked.form))})
    except FieldError as error:
        return _form(asked, name, queue, _typed(asked.form), problem=error.message, field=error.field)
    except ApiError as error:
        if error.status not in (400, 422):
            raise
        return _form(asked, name, queue, _typed(asked.form), problem=error.message, field=error.path or "")
    words = "has its new settings" if queue is not None else "is declared"
    return on_to(asked, f"/queue/{name}", Notice("good", f"Queue {name} {words}."))


def _form(
    asked: Asked,
    name: str,
    queue: Mapping[str, Any] | None,
    typed: Mapping[str, str],
    *,
    problem: str | None = None,
    field: str = "",
) -> Response:
    return asked.page(
        "queue.html",
        status=422 if problem else 200,
        title=f"Queue {name}" if queue else f"Declare queue {name}",
        name=name,
        queue=queue,
        typed=typed,
        numbers=NUMBERS,
        key_numbers=KEY_NUMBERS,
        problem=problem,
        field=field,
    )


def _as_typed(queue: Mapping[str, Any]) -> dict[str, str]:
    """The settings as the form's fields hold them; an empty field is a limit that is not set."""
    typed = {name: _text(queue.get(name)) for name in NUMBERS}
    per_key = queue.get("perKey") or {}
    return {**typed, "key": str(per_key.get("tag", "")), **{f"key-{n}": _text(per_key.get(n)) for n in KEY_NUMBERS}}


def _text(value: Any) -> str:
    return "" if value is None else f"{value:.15g}" if isinstance(value, float) else str(value)


def _typed(form: Fields) -> dict[str, str]:
    names = [*NUMBERS, "key", *(f"key-{name}" for name in KEY_NUMBERS)]
    return {name: form.text(name) for name in names}


def _changes(form: Fields, queue: Mapping[str, Any]) -> dict[str, Any]:
    """What was changed in the form: a field left as it was says nothing, so that another's change stands."""
    was = {name: form.text(f"was-{name}") for name in _typed(form)}
    typed = _typed(form)
    changes: dict[str, Any] = {}
    for name, (label, whole) in NUMBERS.items():
        if typed[name] != was[name]:
            changes[name] = _number(form, name, label, whole)
    if any(typed[name] != was[name] for name in typed if name.startswith("key")):
        changes["perKey"] = _per_key(form)
    return changes


def _per_key(form: Fields) -> dict[str, Any] | None:
    numbers = {name: _number(form, f"key-{name}", label, whole) for name, (label, whole) in KEY_NUMBERS.items()}
    given = {name: value for name, value in numbers.items() if value is not None}
    tag = form.text("key")
    if not tag and given:
        raise FieldError("key", "Name the tag these limits count by.")
    return {"tag": tag, **given} if tag else None


def _number(form: Fields, name: str, label: str, whole: bool) -> float | int | None:
    return form.whole(name, what=label) if whole else form.decimal(name, what=label)


def _given(reason: str) -> dict[str, str]:
    return {"reason": reason} if reason else {}
