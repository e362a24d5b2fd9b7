"""Tasks that wait for parents: the edges between them, and what settling one does to the child."""

from __future__ import annotations

from typing import Any

from thunderagent.codec import Item
from thunderagent.conditions import (
    Write,
    absent,
    as_seen,
    at_most,
    check,
    delete,
    either,
    equals,
    exists,
    more,
    put_body,
    update,
)
from thunderagent.expressions.clauses import PENDING
from thunderagent.expressions.shapes import end, end_pending, listing
from thunderagent.model import Failure, Task
from thunderagent.schema import BLOCKED_LOOK_SECONDS, BODY_RETENTION_SECONDS, Layout, edge_id, edge_key
from thunderagent.states import Event, Status


def put_edge(parent_id: str, child_id: str, *, now: float) -> Write:
    """An edge, always in a transaction that proves it is missing: with the child's birth, or its count as seen."""
    item = {
        "taskId": edge_id(parent_id, child_id),
        "dispatchKey": edge_key(parent_id),
        "dueAt": now,
        "createdAt": now,
        "expiresAt": int(now) + BODY_RETENTION_SECONDS,  # the backstop; a settled edge is deleted long before
    }
    return put_body(item)


def cut_edge(parent_id: str, child_id: str) -> Write:
    """The edge goes, once: whoever deletes it may count the parent as satisfied, in the same transaction."""
    return delete("cut_edge", edge_id(parent_id, child_id), require=[])


def cut_left_edge(parent_id: str, child_id: str, *, latest: float) -> Write:
    """An edge that a removed child left, on the premise that it is no younger than `latest`: of no later life."""
    return delete("cut_edge", edge_id(parent_id, child_id), require=[at_most("createdAt", latest)])


def edge_stands(parent_id: str, child_id: str) -> Write:
    return check(edge_id(parent_id, child_id), require=[exists()])


def mark_dependents(parent_id: str) -> Write:
    """From now on every end of that task settles its edges. Refused once it has ended for good: the caller settles."""
    lively = [equals("status", status.value) for status in (Status.PENDING, Status.RUNNING, Status.FAILED)]
    return update(
        "mark_dependents",
        parent_id,
        require=[absent("hasDependents"), either(*lively)],
        sets={"hasDependents": True},
        applied=lambda old: bool(old.get("hasDependents")),
        returns="ALL_NEW",
    )


# ---- the child -------------------------------------------------------------------------------------------------------


def born_blocked(
    item: Item, *, blocked: int, unlinked: int, death: Failure | None, layout: Layout, now: float
) -> dict[str, Any]:
    """What a new task with parents to wait for has besides: a BLOCKED key, or its end when one of them is dead."""
    task_id, queue, kept = str(item["taskId"]), str(item["queue"]), str(item["dispatchKey"])
    counts = {"blockedCount": blocked, **({"unlinked": unlinked} if unlinked else {})}
    if death is not None:
        listed, _ = listing(Status.FAILED, queue, task_id, layout, now, kept)
        return {**counts, **end(Status.FAILED, now), **listed, "error": death.as_map(at=now)}
    look = next_look(now, created_at=now, deadline=item.get("deadline"))
    return {**counts, "dispatchKey": layout.blocked(queue, task_id, kept), "dueAt": look}


def unblock(task: Task, *, due_at: float, layout: Layout, now: float) -> Write:
    """One parent less, PENDING or FAILED for another one. Part of the transaction that deletes the edge, the proof.

    Only whether it is the last parent must be as seen: a thousand parents ending at once need not agree on the count.
    """
    last = task.blocked_count == 1
    status = Status.FAILED if task.status is Status.FAILED else Status.PENDING
    opened = {"dispatchKey": layout.open(task.queue, task.priority, task.task_id, task.dispatch_key), "dueAt": due_at}
    return update(
        Event.UNBLOCK,
        task.task_id,
        require=[
            equals("status", status.value),
            equals("blockedCount", 1) if last else more("blockedCount", 1),
        ],
        sets={"updatedAt": now, **(opened if last and status is Status.PENDING else {})},
        adds={"blockedCount": -1},
        applied=lambda old: old.get("blockedCount") == task.blocked_count - 1 and old.get("updatedAt") == now,
    )


def parent_failed(task: Task, *, failure: Failure, layout: Layout, now: float) -> Write:
    """PENDING (blocked) → FAILED: a parent will never succeed. The error names it. The count stays: see `redrive`."""
    return end_pending(
        Event.PARENT_FAILED,
        Status.FAILED,
        task,
        [more("blockedCount", 0)],
        layout=layout,
        now=now,
        sets={"error": failure.as_map(at=now)},
        removes=[],
    )


def dead_as_seen(parent_id: str, parent: Item | None) -> Write:
    """The parent is still gone, or in the very life and end that was looked at (a redrive raises the fence)."""
    if parent is None:
        return check(parent_id, require=[absent()])
    return check(parent_id, require=[equals("status", parent["status"]), as_seen("fence", parent.get("fence"))])


def recount(child: Task, *, blocked: int, unlinked: int, due_at: float, layout: Layout, now: float) -> Write:
    """A blocked child's counts become what its edges say, on the premise that they are as seen. 0 makes it due."""
    key = layout.open(child.queue, child.priority, child.task_id, child.dispatch_key)
    opened = {"dispatchKey": key, "dueAt": due_at}
    return update(
        "recount",
        child.task_id,
        require=[
            equals("status", child.status.value),
            as_seen("blockedCount", child.item.get("blockedCount")),
            as_seen("unlinked", child.item.get("unlinked")),
        ],
        sets={
            "blockedCount": blocked,
            "updatedAt": now,
            **({"unlinked": unlinked} if unlinked else {}),
            **(opened if not blocked and child.status is Status.PENDING else {}),
        },
        removes=[] if unlinked else ["unlinked"],
        applied=lambda old: old.get("blockedCount") == blocked and old.get("updatedAt") == now,
    )


def look_again(child: Task, *, until: float) -> Write:
    """A blocked child's next repair look. Nothing else changes."""
    return update(
        "look_again",
        child.task_id,
        require=[equals("status", PENDING), more("blockedCount", 0), as_seen("dueAt", child.item.get("dueAt"))],
        sets={"dueAt": until},
        applied=lambda old: old.get("dueAt") == until,
    )


def next_look(now: float, *, created_at: float, deadline: float | None) -> float:
    """When a blocked task is looked at again: after its own age, so that the pause doubles; not past its deadline."""
    shortest, longest = BLOCKED_LOOK_SECONDS
    look = round(now + min(longest, max(shortest, now - created_at)), 3)
    return look if deadline is None else min(look, deadline)
