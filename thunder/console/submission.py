"""Submit a task from a form. The form carries its idempotency key: sent twice, it makes one task."""

from __future__ import annotations

import secrets
from collections.abc import Mapping
from typing import Any, Final

from starlette.responses import Response

from thunder.console import shown
from thunder.console.forms import FieldError, Fields
from thunder.console.routing import Asked, on_to
from thunder.console.site import Notice
from thunder.console.tasks import TASK_ID
from thunder.console.typed_json import typed_json
from thunderagent.errors import InvalidInput
from thunderagent.signed_http import ApiError

TEXTS: Final = ("type", "queue", "priority", "runAt", "taskId", "tags", "dependsOn")
WHOLE: Final[Mapping[str, tuple[str, str]]] = {
    "delaySeconds": ("delay_seconds", "The delay"),
    "maxRetryNumber": ("max_retry_number", "Retries"),
    "timeoutSeconds": ("timeout_seconds", "The time limit"),
    "startWithinSeconds": ("start_within_seconds", "The time to start"),
    "uniqueSeconds": ("unique_window_seconds", "The window of uniqueness"),
}
REFUSED: Final = (400, 409, 413, 422, 429)


def page(asked: Asked) -> Response:
    if asked.is_post:
        return _submit(asked)
    like = asked.query.text("like")
    typed = _like(asked, like) if TASK_ID.fullmatch(like) else {"payload": "{}"}
    return _form(asked, typed)


def _like(asked: Asked, id: str) -> dict[str, str]:
    """The form filled with what another task was made of; its id, its parents and its time are its own."""
    task = asked.console.client.get(id)
    fields = task.fields
    payload = fields["payload"] if "payload" in fields else asked.console.client.payload(id)
    tags = _typed_tags(fields.get("tags") or {})
    plain = {name: str(fields[name]) for name in ("type", "queue", "priority", "maxRetryNumber") if name in fields}
    return {**plain, "tags": tags, "payload": shown.pretty(payload)}


def _form(asked: Asked, typed: Mapping[str, str], *, problem: str | None = None, field: str = "") -> Response:
    key = typed.get("key") or secrets.token_hex(16)
    queues = _queues(asked)
    return asked.page(
        "submit.html",
        status=422 if problem else 200,
        title="Submit a task",
        typed={name: typed.get(name, "") for name in (*TEXTS, *WHOLE, "payload")},
        key=key,
        queues=queues,
        types=asked.console.task_types,
        problem=problem,
        field=field,
    )


def _queues(asked: Asked) -> list[str]:
    try:
        return [queue["queue"] for queue in asked.console.client.queues()]
    except ApiError:
        return []


def _submit(asked: Asked) -> Response:
    form = asked.form
    typed = {name: form.raw(name) for name in (*TEXTS, *WHOLE, "payload", "key")}
    try:
        payload, options = typed_json(form, "payload"), _options(form)
        key = form.text("key") or secrets.token_hex(16)
        task = asked.console.client.submit(form.text("type"), payload, idempotency_key=key, **options)
    except FieldError as error:
        return _form(asked, typed, problem=error.message, field=error.field)
    except InvalidInput as error:
        return _form(asked, typed, problem=str(error), field=(error.path or "").partition(".")[0])
    except ApiError as error:
        if error.status not in REFUSED:
            raise
        return _refused(asked, typed, error)
    words = "There was an equal task already: this one." if task.duplicate else "The task is submitted."
    return on_to(asked, f"/task/{task.task_id}", Notice("note" if task.duplicate else "good", words))


def _refused(asked: Asked, typed: dict[str, str], error: ApiError) -> Response:
    if error.status != 409:
        return _form(asked, typed, problem=error.message, field=_field(error.path))
    # Its key made another task, before the form was changed or of an id that is taken: the next try is a new request.
    problem = error.message
    if typed["taskId"]:
        problem = f"There is a task {typed['taskId']} already, made of something else."
    return _form(asked, {**typed, "key": ""}, problem=problem, field="taskId" if typed["taskId"] else "")


def _options(form: Fields) -> Any:
    """As ThunderClient takes them. Empty fields are left to the handler's declaration."""
    options: dict[str, Any] = {}
    if not form.is_set("type"):
        raise FieldError("type", "Say which type of task: one of a deployed handler.")
    for name, option in (("queue", "queue"), ("priority", "priority"), ("runAt", "run_at"), ("taskId", "task_id")):
        if form.is_set(name):
            options[option] = form.text(name)
    for name, (option, label) in WHOLE.items():
        if (value := form.whole(name, what=label)) is not None:
            options[option] = value
    if parents := form.raw("dependsOn").split():
        options["depends_on"] = parents
    if tags := _tags(form.raw("tags")):
        options["tags"] = tags
    return options


def _typed_tags(tags: Mapping[str, str]) -> str:
    """As `_tags` reads them: in lines, or as JSON where a line break or an equals sign would make others of them."""
    lines = "\n".join(f"{name}={value}" for name, value in tags.items())
    try:
        return lines if _tags(lines) == tags else shown.pretty(tags)
    except FieldError:
        return shown.pretty(tags)


def _tags(text: str) -> dict[str, str]:
    """`name=value`, one a line; or a JSON object."""
    if text.lstrip().startswith("{"):
        return _tags_of_json(text)
    tags: dict[str, str] = {}
    for line in filter(None, map(str.strip, text.split("\n"))):
        name, sign, value = line.partition("=")
        if not sign or not name.strip():
            raise FieldError("tags", f"A tag is name=value, one a line; this is not: {line[:60]}")
        tags[name.strip()] = value.strip()
    return tags


def _tags_of_json(text: str) -> dict[str, str]:
    tags = typed_json(Fields({"tags": [text]}), "tags")
    if not isinstance(tags, dict) or not all(isinstance(value, str) for value in tags.values()):
        raise FieldError("tags", "Tags as JSON are an object of texts.")
    return tags


def _field(path: str | None) -> str:
    """The form's field for the path of a value in the API's request."""
    first = (path or "").partition(".")[0].partition("[")[0]
    return "uniqueSeconds" if first == "unique" else first
