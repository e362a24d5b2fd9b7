"""Rows that are not as the library writes them: malformed tasks, strays, keys and locks that are missing or wrong."""

from __future__ import annotations

from typing import Any

from thunderagent.codec import Item
from thunderagent.conditions import Write, absent, as_seen, equals, exists, none_of, update
from thunderagent.expressions.clauses import RUNNING, of_known_format
from thunderagent.expressions.shapes import end, ended_as, given, listing
from thunderagent.model import Failure, Task, mended
from thunderagent.schema import Layout
from thunderagent.states import TERMINAL, Event, Outcome, Status


def park(item: Item, *, problem: str, layout: Layout, now: float) -> Write:
    """A row that can never run → FAILED with the reason, on the premise that it is still as malformed as seen.

    What keeps it from being read as a task is mended or taken away: a dead letter can be listed, read and erased. A
    cancel that was requested stays decisive: then it is the CANCEL_END.
    """
    if item.get("status") == RUNNING and item.get("cancelRequested") is True:
        return _cancelled_row(item, layout=layout, now=now)
    task_id = str(item["taskId"])
    listed, _ = _listing_of_row(Status.FAILED, item, layout, now)
    error = Failure("MalformedTask", problem, reason="malformed").as_map(at=now)
    sets = {**end(Status.FAILED, now), **listed, "error": error}
    removes = ["lockTime", "owner", "deferredFor"]
    damaged = {name: value for name, value in mended(item, now=now).items() if name not in {*sets, *removes}}
    return update(
        Event.PARK,
        task_id,
        require=[
            as_seen("status", item.get("status")),
            none_of("status", sorted(TERMINAL)),
            as_seen("updatedAt", item.get("updatedAt")),
            of_known_format(),
        ],
        sets={**sets, **given(**damaged)},
        removes=[*removes, *(name for name, value in damaged.items() if value is None)],
        applied=lambda old: old.get("status") == Status.FAILED and old.get("finishedAt") == now,
        returns="ALL_NEW",
    )


def _cancelled_row(item: Item, *, layout: Layout, now: float) -> Write:
    """CANCEL_END for a row that is no task any more."""
    listed, unlisted = _listing_of_row(Status.DONE, item, layout, now)
    sets = {**end(Status.DONE, now), **listed, "outcome": Outcome.CANCELLED.value}
    removes = ["lockTime", "owner", "deferredFor", *unlisted]
    damaged = {name: value for name, value in mended(item, now=now).items() if name not in {*sets, *removes}}
    return update(
        Event.CANCEL_END,
        str(item["taskId"]),
        require=[
            equals("status", RUNNING),
            as_seen("leaseToken", item.get("leaseToken")),
            exists("cancelRequested"),
        ],
        sets={**sets, **given(**damaged)},
        removes=[*removes, *(name for name, value in damaged.items() if value is None)],
        applied=ended_as(Outcome.CANCELLED),
        returns="ALL_NEW",
    )


def take_off_index(key_of: Item) -> Write:
    """A stray row (no task's status) leaves the index, so that no look meets it again. Nothing else changes."""
    return update(
        "take_off_index",
        str(key_of["taskId"]),
        require=[as_seen("dispatchKey", key_of.get("dispatchKey")), as_seen("dueAt", key_of.get("dueAt"))],
        removes=["dispatchKey"],
        applied=lambda old: "dispatchKey" not in old,
    )


def relist(task: Task, *, layout: Layout) -> Write:
    """A terminal task found under an open key goes to its list partition (or off the index)."""
    finished = task.finished_at if task.finished_at is not None else task.due_at
    sets, removes = listing(task.status, task.queue, task.task_id, layout, finished, task.dispatch_key)
    return update(
        "relist",
        task.task_id,
        require=[equals("status", task.status.value), as_seen("dispatchKey", task.dispatch_key)],
        sets=sets,
        removes=removes,
        applied=lambda old: old.get("dispatchKey") == sets.get("dispatchKey"),
    )


def repair_lock(item: Item, *, lock_time: float) -> Write:
    """A RUNNING row whose lockTime is missing gets its lease's."""
    return update(
        Event.REPAIR,
        str(item["taskId"]),
        require=[equals("status", RUNNING), as_seen("leaseToken", item.get("leaseToken")), absent("lockTime")],
        sets={"lockTime": lock_time},
        applied=lambda old: old.get("lockTime") == lock_time,
    )


def _listing_of_row(status: Status, item: Item, layout: Layout, finished_at: float) -> tuple[dict[str, Any], list[str]]:
    queue, kept = item.get("queue"), item.get("dispatchKey")
    return listing(
        status,
        queue if isinstance(queue, str) else "default",
        str(item["taskId"]),
        layout,
        finished_at,
        kept if isinstance(kept, str) else None,
    )
