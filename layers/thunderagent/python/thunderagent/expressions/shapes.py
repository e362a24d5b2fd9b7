"""What the ends of a task set, whoever writes them, and how a stored end is recognised."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any

from thunderagent.codec import Item
from thunderagent.conditions import Clause, Write, equals, update
from thunderagent.expressions.clauses import PENDING
from thunderagent.model import Task
from thunderagent.schema import RETENTION_SECONDS, Layout
from thunderagent.states import Event, Outcome, Status


def end(status: Status, now: float) -> dict[str, Any]:
    return {
        "status": status.value,
        "finishedAt": now,
        "updatedAt": now,
        "expiresAt": int(now) + RETENTION_SECONDS[status],
    }


def listing(
    status: Status, queue: str, task_id: str, layout: Layout, finished_at: float, kept: str | None
) -> tuple[dict[str, Any], list[str]]:
    """What puts a terminal task into its list, or takes it off the index."""
    key = layout.listed(status, queue, task_id, kept)
    return ({"dispatchKey": key, "dueAt": finished_at}, []) if key else ({}, ["dispatchKey", "dueAt"])


def end_pending(
    event: Event,
    status: Status,
    task: Task,
    require: list[Clause],
    *,
    layout: Layout,
    now: float,
    sets: Mapping[str, Any],
    removes: Sequence[str] = ("blockedCount",),
) -> Write:
    listed, unlisted = listing(status, task.queue, task.task_id, layout, now, task.dispatch_key)
    return update(
        event,
        task.task_id,
        require=[equals("status", PENDING), *require],
        sets={**end(status, now), **listed, **sets},
        removes=["lockTime", "owner", "deferredFor", *removes, *unlisted],
        applied=lambda old: (
            old.get("status") == status and old.get("finishedAt") == now and old.get("outcome") == sets.get("outcome")
        ),
        returns="ALL_NEW",
    )


def ended_as(outcome: Outcome) -> Callable[[Item], bool]:
    return lambda old: old.get("status") == Status.DONE and old.get("outcome") == outcome


def given(**attributes: Any) -> dict[str, Any]:
    return {name: value for name, value in attributes.items() if value is not None}
