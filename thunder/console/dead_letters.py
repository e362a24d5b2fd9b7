"""Dead letters by their error: what fails most, with what messages, and the way back."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable
from dataclasses import dataclass, field
from typing import Any, Final

from starlette.responses import Response

from thunder.console import shown
from thunder.console.forms import Fields
from thunder.console.rendering import query_of
from thunder.console.routing import Asked
from thunder.console.site import Console
from thunder.console.tasks import Selection, read
from thunderagent.client import TaskView

LOOKS: Final = (100, 1000, 5000)
PAGE: Final = 100
MESSAGES_SHOWN: Final = 3
TASKS_SHOWN: Final = 5
UNKNOWN: Final = "(no error type)"


@dataclass
class Group:
    """Dead letters that ended with one type of error."""

    error_type: str
    count: int = 0
    reasons: Counter[str] = field(default_factory=Counter)
    messages: Counter[str] = field(default_factory=Counter)
    types: Counter[str] = field(default_factory=Counter)
    queues: Counter[str] = field(default_factory=Counter)
    tasks: list[TaskView] = field(default_factory=list)
    newest: float | None = None
    oldest: float | None = None

    def add(self, task: TaskView) -> None:
        error = task.error or {}
        self.count += 1
        self.reasons[str(error.get("reason", ""))] += 1
        self.messages[shown.message_pattern(str(error.get("message", "")))] += 1
        self.types[task.type] += 1
        self.queues[task.queue] += 1
        if len(self.tasks) < TASKS_SHOWN:
            self.tasks.append(task)
        if task.finished_at is not None:
            self.newest = max(self.newest or task.finished_at, task.finished_at)
            self.oldest = min(self.oldest or task.finished_at, task.finished_at)

    @property
    def can_be_named(self) -> bool:
        """Whether the API can filter by it."""
        return self.error_type != UNKNOWN

    @property
    def shown_messages(self) -> list[tuple[str, int]]:
        return self.messages.most_common(MESSAGES_SHOWN)

    @property
    def other_messages(self) -> int:
        return max(0, len(self.messages) - MESSAGES_SHOWN)


def grouped(tasks: Iterable[TaskView]) -> list[Group]:
    """The largest group first."""
    groups: dict[str, Group] = {}
    for task in tasks:
        error_type = str((task.error or {}).get("type") or UNKNOWN)
        groups.setdefault(error_type, Group(error_type)).add(task)
    return sorted(groups.values(), key=lambda group: -group.count)


def page(asked: Asked) -> Response:
    queues = [queue["queue"] for queue in asked.console.client.queues()]
    return asked.page("dead_letters.html", title="Dead letters", queues=queues, **_groups(asked))


def groups(asked: Asked) -> Response:
    return asked.page("dead_letters_groups.html", title="Dead letters", **_groups(asked))


def _groups(asked: Asked) -> dict[str, Any]:
    selection = Selection.of(_as_failed(asked.query))
    look = next((most for most in LOOKS if asked.query.text("look") == str(most)), LOOKS[0])
    tasks, is_all = _newest(asked.console, selection, look)
    further = next((most for most in LOOKS if most > look), None)
    return {
        "selection": selection,
        "groups": grouped(tasks),
        "looked_at": len(tasks),
        "is_all": is_all,
        "further": query_of({**selection.filters, "look": further}) if further and not is_all else None,
        "own_query": query_of({**selection.filters, "look": look}),
        "filters": query_of(selection.filters),
    }


def _as_failed(query: Fields) -> Fields:
    return Fields({"status": ["FAILED"], "queue": [query.text("queue")], "type": [query.text("type")]})


def _newest(console: Console, selection: Selection, most: int) -> tuple[list[TaskView], bool]:
    """Up to so many dead letters, newest first, and whether these are all."""
    found: list[TaskView] = []
    token: str | None = ""
    calls = 0
    while token is not None and len(found) < most and calls <= most // PAGE + 5:
        current = Selection(selection.status, selection.queue, selection.type, token)
        tasks, token = read(console, current, rows=min(PAGE, most - len(found)))
        found += tasks
        calls += 1
    return found, token is None
