"""Lists of tasks: a tab for each status, filters in the address, pages that are read by index and never scanned."""

from __future__ import annotations

import re
import time
from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import Any, Final

from starlette.responses import Response

from thunder.console import shown
from thunder.console.forms import FieldError, Fields
from thunder.console.rendering import query_of
from thunder.console.routing import Asked, on_to
from thunder.console.site import Console, Notice
from thunderagent.client import TaskView
from thunderagent.signed_http import ApiError, NotFoundError

ROWS: Final = 50
CALLS_A_PAGE: Final = 6  # the API may answer with a short page, or an empty one, that is not the end
SECONDS_A_PAGE: Final = 0.7
NAME = re.compile(r"[a-z0-9][a-z0-9._-]{0,63}")
TASK_ID = re.compile(r"[A-Za-z0-9][A-Za-z0-9._:-]{0,127}")


@dataclass(frozen=True)
class Selection:
    """Which tasks a list shows: what its address says."""

    status: str = "PENDING"
    queue: str = ""
    type: str = ""
    token: str = ""

    @staticmethod
    def of(query: Fields) -> Selection:
        """Raises FieldError for what cannot be the name of anything."""
        found = Selection(
            query.text("status", "PENDING").upper(), query.text("queue"), query.text("type"), query.text("after")
        )
        if found.status not in shown.STATUSES:
            raise FieldError("status", f"there is no status {found.status[:40]}")
        for field, value in (("queue", found.queue), ("type", found.type)):
            if value and not NAME.fullmatch(value):
                raise FieldError(field, f"{value[:80]!r} cannot be the name of a {field}")
        return found

    @property
    def query(self) -> str:
        """As an address has it."""
        named = {"status": self.status, "queue": self.queue, "type": self.type, "after": self.token}
        return query_of(named)

    @property
    def filters(self) -> dict[str, str]:
        """As bulk actions take it."""
        return {name: value for name, value in (("queue", self.queue), ("type", self.type)) if value}

    def under(self, status: str) -> Selection:
        return replace(self, status=status, token="")


def page(asked: Asked) -> Response:
    """The list alone: what stands around it is fetched by the page, so that it never waits for figures."""
    return asked.page(
        "tasks.html", title="Tasks", queues=(), totals={}, **_rows(asked.console, Selection.of(asked.query))
    )


def tabs(asked: Asked) -> Response:
    """How many there are of each status, and which queues; without figures they are tabs all the same."""
    selection = Selection.of(asked.query)
    try:
        queues, totals = _queues_and_totals(asked.console)
    except ApiError:
        queues, totals = [], {}
    return asked.page("tasks_tabs.html", title="Tasks", queues=queues, totals=totals, selection=selection)


def rows(asked: Asked) -> Response:
    return asked.page("tasks_rows.html", title="Tasks", **_rows(asked.console, Selection.of(asked.query)))


def _rows(console: Console, selection: Selection) -> dict[str, Any]:
    found, token = read(console, selection)
    following = replace(selection, token=token).query if token else None
    return {"selection": selection, "tasks": found, "following": following}


def read(console: Console, selection: Selection, *, rows: int = ROWS) -> tuple[list[TaskView], str | None]:
    """About a page of tasks, and where the next one begins. Bounded in calls and time, whatever the filter: no call is
    begun that would not end in time if it took as long as the one before."""
    found: list[TaskView] = []
    token: str | None = selection.token or None
    began = time.monotonic()
    for _ in range(CALLS_A_PAGE):
        asked = time.monotonic()
        answer = console.client.list_page(
            selection.status,
            queue=selection.queue or None,
            type=selection.type or None,
            limit=rows - len(found),
            next_token=token,
        )
        found += answer.tasks
        token = answer.next_token
        answered = time.monotonic()
        if token is None or len(found) >= rows or (answered - began) + (answered - asked) > SECONDS_A_PAGE:
            break
    return found, token


def _queues_and_totals(console: Console) -> tuple[list[str], Mapping[str, Any]]:
    stats = console.client.stats()
    totals = stats["totals"]
    by_status = {"PENDING": "backlog", "RUNNING": "running", "FAILED": "failed"}
    return (
        [queue["queue"] for queue in stats["queues"]],
        {status: totals[name] for status, name in by_status.items() if name in totals},
    )


def find(asked: Asked) -> Response:
    """To a task by its id."""
    id = asked.query.text("id")
    if not TASK_ID.fullmatch(id):
        words = f"{id[:140]} cannot be the id of a task." if id else "Type the id of a task."
        return on_to(asked, "/tasks", Notice("note", words))
    try:
        asked.console.client.get(id)
    except NotFoundError:
        gone = f"There is no task {id}. It may have reached the end of its retention."
        return on_to(asked, "/tasks", Notice("note", gone))
    return on_to(asked, f"/task/{id}")
