"""One task: what it is doing and why, what it did, what it was given and what came of it."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from typing import Any, Final

from starlette.responses import Response

from thunder.console import shown
from thunder.console.graph import drawing_of
from thunder.console.routing import Asked
from thunder.console.single import actions_for
from thunder.console.site import Console
from thunder.console.timeline import attempts_of, timeline_of
from thunderagent.client import TaskView
from thunderagent.signed_http import ApiError, NotFoundError

READERS: Final = 6
BODY_SHOWN: Final = 1_000_000


def page(asked: Asked) -> Response:
    task = asked.console.client.get(asked.path["id"])
    return asked.page("task.html", title=f"Task {task.task_id}", **_state(asked.console, task))


def state(asked: Asked) -> Response:
    task = asked.console.client.get(asked.path["id"])
    return asked.page("task_state.html", title=f"Task {task.task_id}", **_state(asked.console, task))


def _state(console: Console, task: TaskView) -> dict[str, Any]:
    fields = task.fields
    attempts = attempts_of(fields)
    return {
        "task": task,
        "fields": fields,
        "attempts": attempts,
        "timeline": timeline_of(fields, attempts, now=console.now()),
        "why": None if task.is_terminal else _why(console, task.task_id),
        "actions": () if console.read_only else actions_for(task.status),
        "payload": _inline(fields, "payload"),
        "result": _inline(fields, "result"),
        "now": console.now(),
    }


def _why(console: Console, task_id: str) -> Mapping[str, Any] | None:
    try:
        return console.client.why(task_id)
    except ApiError:
        return None  # gone or ended since: the next look shows it


def _inline(fields: Mapping[str, Any], name: str) -> str | None:
    """A body as text to show; None when there is none, or when only its size is told."""
    return shown.pretty(fields[name]) if name in fields else None


# ---- what is fetched when it is looked at ---------------------------------------------------------------------------


def logs(asked: Asked) -> Response:
    console = asked.console
    task = console.client.get(asked.path["id"])
    found = console.logs.of(task.fields, now=console.now())
    return asked.page("task_logs.html", title="Log lines", task=task, found=found)


def graph(asked: Asked) -> Response:
    task = asked.console.client.get(asked.path["id"])

    def read(ids: Sequence[str]) -> Mapping[str, Mapping[str, Any] | None]:
        with ThreadPoolExecutor(READERS) as pool:
            return dict(zip(ids, pool.map(lambda id: _found(asked.console, id), ids), strict=True))

    return asked.page("task_graph.html", title="Dependencies", task=task, drawing=drawing_of(task.fields, read))


def _found(console: Console, id: str) -> Mapping[str, Any] | None:
    try:
        return console.client.get(id).fields
    except NotFoundError:
        return None


def payload(asked: Asked) -> Response:
    return _whole(asked, "payload", asked.console.client.payload)


def result(asked: Asked) -> Response:
    return _whole(asked, "result", asked.console.client.result)


def _whole(asked: Asked, name: str, read: Any) -> Response:
    """A body whole: as a page up to a million characters, or as a file that a browser only stores."""
    id = asked.path["id"]
    text = shown.pretty(read(id))
    if asked.query.is_set("file"):
        headers = {"content-disposition": f'attachment; filename="{name}-{id.replace(":", "_")}.json"'}
        return Response(text.encode(), media_type="application/json", headers=headers)
    return asked.page(
        "body.html",
        title=f"{name.capitalize()} of task {id}",
        id=id,
        name=name,
        text=shown.cut(text, BODY_SHOWN),
        is_cut=len(text) > BODY_SHOWN,
        length=len(text.encode()),
    )
