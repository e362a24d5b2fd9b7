"""Of a task that has ended: redrive, acknowledge, erase."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from thunderagent.conditions import Write, as_seen, delete, equals, update
from thunderagent.expressions.clauses import PENDING
from thunderagent.expressions.edges import next_look
from thunderagent.expressions.shapes import given, listing
from thunderagent.model import Task
from thunderagent.schema import REDRIVES_KEPT, Layout
from thunderagent.states import Event, Outcome, Status


def redrive(task: Task, *, redrive_id: str, operator: Mapping[str, Any] | None, layout: Layout, now: float) -> Write:
    """FAILED → PENDING with a full budget. The fence as seen and the recorded id make a repeat harmless.

    A task that failed for a parent has kept its edges and their count: while some are left it is BLOCKED again.
    """
    known = [entry for entry in task.item.get("redriveIds", []) if entry != redrive_id]
    expired = task.deadline is not None and task.deadline <= now
    blocked = task.blocked_count > 0
    key, due_at = layout.open(task.queue, task.priority, task.task_id, task.dispatch_key), now
    if blocked:
        key = layout.blocked(task.queue, task.task_id, task.dispatch_key)
        due_at = next_look(now, created_at=now, deadline=None if expired else task.deadline)
    removes = [
        "leaseToken",
        "lockTime",
        "owner",
        "expiresAt",
        "finishedAt",
        "cancelRequested",
        "exitedBy",
        "deferredFor",
        "outcome",
        *([] if blocked else ["blockedCount"]),
        *(["deadline"] if expired else []),
    ]
    return update(
        Event.REDRIVE,
        task.task_id,
        require=[
            equals("status", Status.FAILED.value),
            as_seen("fence", task.item.get("fence")),
            as_seen("blockedCount", task.item.get("blockedCount")),
        ],
        sets={
            "status": PENDING,
            "retryCount": 0,
            "lost": 0,
            "fence": task.fence + 1,
            "redriveIds": [*known, redrive_id][-REDRIVES_KEPT:],
            "dispatchKey": key,
            "dueAt": due_at,
            "updatedAt": now,
            **given(operator=operator),
        },
        removes=removes,
        applied=lambda old: redrive_id in old.get("redriveIds", []),
        returns="ALL_NEW",
    )


def acknowledge(task: Task, *, layout: Layout, now: float) -> Write:
    """SUCCESS → DONE: the result was collected. The time to live stays as the success set it."""
    finished = task.finished_at if task.finished_at is not None else now
    listed, unlisted = listing(Status.DONE, task.queue, task.task_id, layout, finished, task.dispatch_key)
    return update(
        Event.ACKNOWLEDGE,
        task.task_id,
        require=[equals("status", Status.SUCCESS.value)],
        sets={"status": Status.DONE.value, "outcome": Outcome.ACKNOWLEDGED.value, "updatedAt": now, **listed},
        removes=unlisted,
        applied=lambda old: old.get("outcome") == Outcome.ACKNOWLEDGED,
        returns="ALL_NEW",
    )


def erase(task: Task) -> Write:
    """A terminal task is deleted, on the premise that it is terminal in the very life that was looked at."""
    return delete(
        "erase",
        task.task_id,
        require=[equals("status", task.status.value), as_seen("fence", task.item.get("fence"))],
    )
