"""Into PENDING for the first time, and out of it: submit, claim, defer, cancel, expire."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from thunderagent.codec import Item
from thunderagent.conditions import Write, absent, as_seen, at_most, check, delete, equals, exists, less, put, update
from thunderagent.expressions.clauses import PENDING, RUNNING, before_deadline, not_blocked, of_known_format, of_region
from thunderagent.expressions.shapes import end_pending, given
from thunderagent.model import LeaseToken, Task
from thunderagent.schema import Layout, unique_id
from thunderagent.states import Event, Outcome, Status


def submit(item: Item) -> Write:
    """∅ → PENDING (or FAILED, for the child of a failed parent).

    Ours after a lost reply: the same instant and, where others may ask for the same id, the nonce of this very request.
    """
    return put(
        Event.SUBMIT,
        item,
        require=[absent()],
        applied=lambda old: all(old.get(name) == item.get(name) for name in ("createdAt", "nonce")),
    )


def take_unique(item: Item, *, pointer: Item | None, holder: Item | None) -> list[Write]:
    """The writes that make the new task the holder of its fingerprint, as part of the transaction that creates it.

    `pointer` and `holder` as they were seen: the pointer must be unchanged, and its holder still as terminal (or gone)
    as when it was found to suppress nothing.
    """
    own = unique_id(item["unique"])
    record = {"taskId": own, "holder": item["taskId"], "createdAt": item["createdAt"]}

    def taken(old: Item) -> bool:
        return bool(old.get("holder") == item["taskId"] and old.get("createdAt") == item["createdAt"])

    if pointer is None:
        return [put("take_unique", record, require=[absent()], applied=taken)]
    seen = pointer.get("holder")
    writes = [put("take_unique", record, require=[exists(), as_seen("holder", seen)], applied=taken)]
    if isinstance(seen, str) and seen != item["taskId"]:
        premises = [absent()]
        if holder is not None:
            premises = [as_seen("status", holder.get("status")), as_seen("fence", holder.get("fence"))]
        writes.append(check(seen, require=premises))
    return writes


def free_unique(fingerprint: str, *, holder: str, created_at: float) -> Write:
    """A removed task lets go of its fingerprint, on the premise that this very life of it still is the holder."""
    return delete(
        "free_unique", unique_id(fingerprint), require=[equals("holder", holder), equals("createdAt", created_at)]
    )


def claim(task: Task, *, token: LeaseToken, lock_time: float, owner: str, now: float, region: str) -> Write:
    """PENDING → RUNNING. Fence and dueAt as seen make the claim lose to anything that happened since the look."""
    return update(
        Event.CLAIM,
        task.task_id,
        require=[
            equals("status", PENDING),
            as_seen("fence", task.item.get("fence")),
            as_seen("dueAt", task.item.get("dueAt")),
            at_most("dueAt", now),
            not_blocked(),
            before_deadline(now),
            of_region(region),
            of_known_format(),
        ],
        sets={
            "status": RUNNING,
            "leaseToken": token,
            "lockTime": lock_time,
            "owner": owner,
            "fence": task.fence + 1,
            "startedAt": now,
            "updatedAt": now,
        },
        removes=["deferredFor"],
        applied=lambda old: old.get("leaseToken") == token and old.get("status") == RUNNING,
        returns="ALL_NEW",
    )


def defer(task: Task, *, until: float, reason: str, now: float) -> Write:
    """PENDING → PENDING, looked at again later: a limit is reached, or no handler is deployed."""
    return update(
        Event.DEFER,
        task.task_id,
        require=[equals("status", PENDING), as_seen("dueAt", task.item.get("dueAt"))],
        sets={"dueAt": until, "deferredFor": reason, "updatedAt": now},
        applied=lambda old: old.get("dueAt") == until and old.get("deferredFor") == reason,
    )


def cancel(task: Task, *, reason: str | None, operator: Mapping[str, Any] | None, layout: Layout, now: float) -> Write:
    """PENDING → DONE. Fence as seen, so that a claim in between makes it look again."""
    return end_pending(
        Event.CANCEL,
        Status.DONE,
        task,
        [as_seen("fence", task.item.get("fence"))],
        layout=layout,
        now=now,
        sets={"outcome": Outcome.CANCELLED.value, **given(outcomeReason=reason, operator=operator)},
    )


def expire(task: Task, *, layout: Layout, now: float) -> Write:
    """PENDING → DONE: it could not start before its deadline."""
    return end_pending(
        Event.EXPIRE,
        Status.DONE,
        task,
        [less("deadline", now), of_known_format()],
        layout=layout,
        now=now,
        sets={"outcome": Outcome.EXPIRED.value},
    )
