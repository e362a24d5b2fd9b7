"""What stands beside tasks and leases: schedules, bodies, the reaper's cursor."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from thunderagent.codec import Item
from thunderagent.conditions import Write, absent, as_seen, at_most, delete, put, put_body, update
from thunderagent.expressions.shapes import given


def put_schedule(item: Item, *, stored: Item | None) -> Write:
    """A schedule, new or replaced, on the premise that it is as seen: a firing or another PUT in between wins."""
    premises = [absent()]
    if stored is not None:
        premises = [as_seen("version", stored.get("version")), as_seen("dueAt", stored.get("dueAt"))]
    return put(
        "put_schedule",
        item,
        require=premises,
        applied=lambda old: all(old.get(name) == item[name] for name in ("version", "updatedAt", "cron", "task")),
    )


def advance_schedule(
    seen: Item,
    *,
    due_at: float,
    last: float | None = None,
    task_id: str | None = None,
    problem: str | None = None,
) -> Write:
    """The next firing moves on, once: with the firing's task in one transaction, or alone when it makes none."""
    return update(
        "advance_schedule",
        str(seen["taskId"]),
        require=[as_seen("dueAt", seen.get("dueAt")), as_seen("version", seen.get("version"))],
        sets={"dueAt": due_at, **given(last=last, lastTaskId=task_id, problem=problem)},
        removes=[] if problem is not None else ["problem"],
        applied=lambda old: old.get("dueAt") == due_at and (last is None or old.get("last") == last),
    )


def delete_schedule(item_id: str) -> Write:
    return delete("delete_schedule", item_id, require=[])


def renew_body(item_id: str, *, expires_at: int) -> Write:
    """A side item lives longer; one that is gone stays gone."""
    return update(
        "renew_body",
        item_id,
        require=[],
        sets={"expiresAt": expires_at},
        applied=lambda old: old.get("expiresAt") == expires_at,
    )


def drop_body(item_id: str, *, latest: int) -> Write:
    """A body that a removed task left goes, unless a later life of that id keeps it longer than to `latest`."""
    return delete("delete_body", item_id, require=[at_most("expiresAt", latest)])


def shorten_body(item_id: str, *, latest: int, expires_at: int) -> Write:
    """Of such a body, an earlier end of its time to live."""
    return update(
        "expire_body",
        item_id,
        require=[at_most("expiresAt", latest)],
        sets={"expiresAt": expires_at},
        applied=lambda old: False,
    )


def put_cursor(cursor_id: str, *, partition: str, start: Mapping[str, Any] | None) -> Write:
    """Where the reaper's deeper look ended. Two reapers may overwrite each other: it is a hint of where to go on."""
    return put_body({"taskId": cursor_id, "partition": partition, "start": dict(start) if start else None})
