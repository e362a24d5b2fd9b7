"""How DynamoDB is asked: one pure builder per transition and per lease step. Values and `now` in, a `Write` out.

No expression is written anywhere else. Each builder names the clauses its condition is made of; together with
`states.TRANSITIONS` this is the whole protocol.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from thunderagent.codec import Item
from thunderagent.conditions import (
    Clause,
    Write,
    absent,
    as_seen,
    at_most,
    check,
    delete,
    either,
    equals,
    exists,
    less,
    more,
    none_of,
    not_more,
    put,
    put_body,
    update,
)
from thunderagent.model import Attempt, Failure, Lease, LeaseToken, Task, TaskId, mended
from thunderagent.schema import (
    ATTEMPTS_KEPT,
    BLOCKED_LOOK_SECONDS,
    BODY_RETENTION_SECONDS,
    FORMAT_VERSION,
    LEASE_SHARDS,
    REDRIVES_KEPT,
    RETENTION_SECONDS,
    Layout,
    edge_id,
    edge_key,
    lease_id,
    lease_key,
    shard_of,
    unique_id,
)
from thunderagent.states import TERMINAL, Event, Outcome, Status, is_terminal

PENDING, RUNNING = Status.PENDING.value, Status.RUNNING.value

# ---- the clauses rights are made of ----------------------------------------------------------------------------------


def held_by(token: LeaseToken) -> list[Clause]:
    """RUNNING, and under this token: the holder's right, and the reaper's premise."""
    return [equals("status", RUNNING), equals("leaseToken", token)]


def not_cancelled() -> Clause:
    """An acknowledged cancel is decisive: no exit from RUNNING but CANCEL_END may overtake it."""
    return absent("cancelRequested")


def not_blocked() -> Clause:
    return either(absent("blockedCount"), equals("blockedCount", 0))


def before_deadline(now: float) -> Clause:
    return either(absent("deadline"), more("deadline", now))


def of_region(region: str) -> Clause:
    return either(absent("homeRegion"), equals("homeRegion", region))


def of_known_format() -> Clause:
    """Written by this version of the library or an earlier one. What a newer one wrote is the newer one's to move."""
    return not_more("formatVersion", FORMAT_VERSION)


def keep_attempts(task: Task, attempt: Attempt | None) -> list[dict[str, Any]]:
    """The last ten lines of history with this one. While a task is RUNNING only its holder writes them."""
    lines = task.attempts + ([attempt.as_entry()] if attempt else [])
    return lines[-ATTEMPTS_KEPT:]


@dataclass(frozen=True)
class Result:
    """A result to store with a commit: inline JSON text, or a reference to a body that is stored already.

    `attempts`, where it is not None, is the history that is kept beside an inline text.
    """

    text: str | None = None
    reference: str | None = None
    size: int = 0
    attempts: list[dict[str, Any]] | None = None

    def attributes(self) -> dict[str, Any]:
        if self.reference is not None:
            return {"resultRef": self.reference, "resultBytes": self.size}
        return {"result": self.text} if self.text is not None else {}


# ---- submit, claim, defer ----------------------------------------------------------------------------------------


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
    sets = {**_end(Status.FAILED, now), **listed, "error": error}
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
        sets={**sets, **_given(**damaged)},
        removes=[*removes, *(name for name, value in damaged.items() if value is None)],
        applied=lambda old: old.get("status") == Status.FAILED and old.get("finishedAt") == now,
        returns="ALL_NEW",
    )


def _cancelled_row(item: Item, *, layout: Layout, now: float) -> Write:
    """CANCEL_END for a row that is no task any more."""
    listed, unlisted = _listing_of_row(Status.DONE, item, layout, now)
    sets = {**_end(Status.DONE, now), **listed, "outcome": Outcome.CANCELLED.value}
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
        sets={**sets, **_given(**damaged)},
        removes=[*removes, *(name for name, value in damaged.items() if value is None)],
        applied=_ended_as(Outcome.CANCELLED),
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
    sets, removes = _listing(task.status, task.queue, task.task_id, layout, finished, task.dispatch_key)
    return update(
        "relist",
        task.task_id,
        require=[equals("status", task.status.value), as_seen("dispatchKey", task.dispatch_key)],
        sets=sets,
        removes=removes,
        applied=lambda old: old.get("dispatchKey") == sets.get("dispatchKey"),
    )


# ---- while it runs -----------------------------------------------------------------------------------------------


def step(task_id: TaskId, token: LeaseToken, *, steps: Mapping[str, Any], now: float) -> Write:
    """RUNNING → RUNNING with the steps done so far. `steps` is the whole map: only the holder writes it."""
    return update(
        Event.STEP,
        task_id,
        require=[*held_by(token), not_cancelled()],
        sets={"steps": dict(steps), "updatedAt": now},
        applied=lambda old: old.get("leaseToken") == token and old.get("steps") == dict(steps),
    )


def progress(task_id: TaskId, token: LeaseToken, *, fraction: float, message: str, now: float) -> Write:
    return update(
        Event.PROGRESS,
        task_id,
        require=[*held_by(token), not_cancelled()],
        sets={"progress": {"fraction": fraction, "message": message, "at": now}, "updatedAt": now},
        applied=lambda old: old.get("leaseToken") == token and old.get("updatedAt") == now,
    )


def move_aside(task: Task, token: LeaseToken, *, layout: Layout) -> Write:
    """A long task leaves the head of its open partition, once."""
    key = layout.running(task.queue, task.task_id, task.dispatch_key)
    return update(
        Event.MOVE_ASIDE,
        task.task_id,
        require=held_by(token),
        sets={"dispatchKey": key},
        applied=lambda old: old.get("leaseToken") == token and old.get("dispatchKey") == key,
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


# ---- the exits from RUNNING --------------------------------------------------------------------------------------


def commit(task: Task, token: LeaseToken, *, result: Result, attempt: Attempt, layout: Layout, now: float) -> Write:
    """RUNNING → SUCCESS. The attempt that succeeded is not added to `attempts`: startedAt and finishedAt tell it.

    No other write leaves SUCCESS under this token, nor the acknowledgement that may have followed.
    """
    return _end_running(
        Event.COMMIT,
        Status.SUCCESS,
        task,
        [*held_by(token), not_cancelled()],
        token=token,
        layout=layout,
        now=now,
        sets={**result.attributes(), "startedAt": _started(task, attempt), **_given(attempts=result.attempts or None)},
        removes=["error", *_stale_body(task, result), *(["attempts"] if result.attempts == [] else [])],
        recognised=lambda old: old.get("status") == Status.SUCCESS or old.get("outcome") == Outcome.ACKNOWLEDGED,
    )


def finish(task: Task, token: LeaseToken, *, reason: str | None, attempt: Attempt, layout: Layout, now: float) -> Write:
    """RUNNING → DONE: the handler said there is nothing to keep. Of the attempt, see `commit`."""
    return _end_running(
        Event.FINISH,
        Status.DONE,
        task,
        [*held_by(token), not_cancelled()],
        token=token,
        layout=layout,
        now=now,
        sets={"outcome": Outcome.SKIPPED.value, "startedAt": _started(task, attempt), **_given(outcomeReason=reason)},
        removes=["error"],
        recognised=_ended_as(Outcome.SKIPPED),
    )


def fail(
    task: Task,
    token: LeaseToken,
    *,
    failure: Failure,
    attempt: Attempt,
    layout: Layout,
    now: float,
    result: Result | None = None,
) -> Write:
    """RUNNING → FAILED: retries used up, or a permanent error."""
    return _end_running(
        Event.FAIL,
        Status.FAILED,
        task,
        [*held_by(token), not_cancelled()],
        token=token,
        layout=layout,
        now=now,
        sets={"error": failure.as_map(at=now), **_history(task, attempt), **(result.attributes() if result else {})},
        removes=_stale_body(task, result) if result else [],
        recognised=_failed_with(failure),
    )


def retry(
    task: Task, token: LeaseToken, *, due_at: float, failure: Failure, attempt: Attempt, layout: Layout, now: float
) -> Write:
    """RUNNING → PENDING with one retry spent. `due_at` is never after the deadline (the caller fails it instead)."""
    return _back_to_pending(
        Event.RETRY,
        task,
        [*held_by(token), not_cancelled()],
        token=token,
        due_at=due_at,
        layout=layout,
        now=now,
        sets={
            "retryCount": task.retry_count + 1,
            "error": failure.as_map(at=now),
            "attempts": keep_attempts(task, attempt),
        },
    )


def release(task: Task, token: LeaseToken, *, due_at: float, layout: Layout, now: float) -> Write:
    """RUNNING → PENDING, handed back unharmed: nothing is charged."""
    return _back_to_pending(
        Event.RELEASE,
        task,
        [*held_by(token), not_cancelled()],
        token=token,
        due_at=due_at,
        layout=layout,
        now=now,
        sets={},
    )


def snooze(task: Task, token: LeaseToken, *, due_at: float, attempt: Attempt, layout: Layout, now: float) -> Write:
    """RUNNING → PENDING, again later because the handler asked for it: no retry spent."""
    return _back_to_pending(
        Event.SNOOZE,
        task,
        [*held_by(token), not_cancelled()],
        token=token,
        due_at=due_at,
        layout=layout,
        now=now,
        sets={"attempts": keep_attempts(task, attempt)},
    )


def cancel_end(task: Task, *, attempt: Attempt | None, layout: Layout, now: float) -> Write:
    """RUNNING → DONE after a cancel request, by the holder or the reaper (token as seen, absence included)."""
    require = [equals("status", RUNNING), as_seen("leaseToken", task.lease_token), exists("cancelRequested")]
    return _end_running(
        Event.CANCEL_END,
        Status.DONE,
        task,
        require,
        token=task.lease_token,
        layout=layout,
        now=now,
        sets={"outcome": Outcome.CANCELLED.value, **(_history(task, attempt) if attempt else {})},
        recognised=_ended_as(Outcome.CANCELLED),
    )


def reap(task: Task, *, charged: bool, due_at: float, attempt: Attempt | None, layout: Layout, now: float) -> Write:
    """RUNNING → PENDING. Only for a task whose lease is closed or gone; a started attempt is charged."""
    sets: dict[str, Any] = {}
    if charged:
        lost = Failure("WorkerLost", "the worker stopped without a word", reason="worker_lost")
        sets = {
            "retryCount": task.retry_count + 1,
            "lost": task.lost + 1,
            "error": lost.as_map(at=now),
            "attempts": keep_attempts(task, attempt),
        }
    require = [equals("status", RUNNING), as_seen("leaseToken", task.lease_token), not_cancelled()]
    return _back_to_pending(
        Event.REAP, task, require, token=task.lease_token, due_at=due_at, layout=layout, now=now, sets=sets
    )


def reap_failed(task: Task, *, failure: Failure, attempt: Attempt | None, layout: Layout, now: float) -> Write:
    """RUNNING → FAILED: the worker was lost, and no retry is left (or none could start before the deadline)."""
    require = [equals("status", RUNNING), as_seen("leaseToken", task.lease_token), not_cancelled()]
    return _end_running(
        Event.REAP_FAILED,
        Status.FAILED,
        task,
        require,
        token=task.lease_token,
        layout=layout,
        now=now,
        sets={"error": failure.as_map(at=now), "lost": task.lost + 1, "attempts": keep_attempts(task, attempt)},
        recognised=_failed_with(failure),
    )


# ---- by the API and the sweeps -----------------------------------------------------------------------------------


def cancel(task: Task, *, reason: str | None, operator: Mapping[str, Any] | None, layout: Layout, now: float) -> Write:
    """PENDING → DONE. Fence as seen, so that a claim in between makes it look again."""
    return _end_pending(
        Event.CANCEL,
        Status.DONE,
        task,
        [as_seen("fence", task.item.get("fence"))],
        layout=layout,
        now=now,
        sets={"outcome": Outcome.CANCELLED.value, **_given(outcomeReason=reason, operator=operator)},
    )


def cancel_request(task: Task, *, reason: str | None, operator: Mapping[str, Any] | None, now: float) -> Write:
    """RUNNING stays RUNNING; from now on its only exit is CANCEL_END."""
    return update(
        Event.CANCEL_REQUEST,
        task.task_id,
        require=[equals("status", RUNNING), as_seen("leaseToken", task.lease_token)],
        sets={"cancelRequested": True, "updatedAt": now, **_given(outcomeReason=reason, operator=operator)},
        applied=lambda old: bool(old.get("cancelRequested")) and old.get("status") == RUNNING,
    )


def expire(task: Task, *, layout: Layout, now: float) -> Write:
    """PENDING → DONE: it could not start before its deadline."""
    return _end_pending(
        Event.EXPIRE,
        Status.DONE,
        task,
        [less("deadline", now), of_known_format()],
        layout=layout,
        now=now,
        sets={"outcome": Outcome.EXPIRED.value},
    )


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
    return _end_pending(
        Event.PARENT_FAILED,
        Status.FAILED,
        task,
        [more("blockedCount", 0)],
        layout=layout,
        now=now,
        sets={"error": failure.as_map(at=now)},
        removes=[],
    )


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
            **_given(operator=operator),
        },
        removes=removes,
        applied=lambda old: redrive_id in old.get("redriveIds", []),
        returns="ALL_NEW",
    )


def acknowledge(task: Task, *, layout: Layout, now: float) -> Write:
    """SUCCESS → DONE: the result was collected. The time to live stays as the success set it."""
    finished = task.finished_at if task.finished_at is not None else now
    listed, unlisted = _listing(Status.DONE, task.queue, task.task_id, layout, finished, task.dispatch_key)
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


def renew_body(item_id: str, *, expires_at: int) -> Write:
    """A side item lives longer; one that is gone stays gone."""
    return update(
        "renew_body",
        item_id,
        require=[],
        sets={"expiresAt": expires_at},
        applied=lambda old: old.get("expiresAt") == expires_at,
    )


# ---- dependencies ------------------------------------------------------------------------------------------------


def next_look(now: float, *, created_at: float, deadline: float | None) -> float:
    """When a blocked task is looked at again: after its own age, so that the pause doubles; not past its deadline."""
    shortest, longest = BLOCKED_LOOK_SECONDS
    look = round(now + min(longest, max(shortest, now - created_at)), 3)
    return look if deadline is None else min(look, deadline)


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


def born_blocked(
    item: Item, *, blocked: int, unlinked: int, death: Failure | None, layout: Layout, now: float
) -> dict[str, Any]:
    """What a new task with parents to wait for has besides: a BLOCKED key, or its end when one of them is dead."""
    task_id, queue, kept = str(item["taskId"]), str(item["queue"]), str(item["dispatchKey"])
    counts = {"blockedCount": blocked, **({"unlinked": unlinked} if unlinked else {})}
    if death is not None:
        listed, _ = _listing(Status.FAILED, queue, task_id, layout, now, kept)
        return {**counts, **_end(Status.FAILED, now), **listed, "error": death.as_map(at=now)}
    look = next_look(now, created_at=now, deadline=item.get("deadline"))
    return {**counts, "dispatchKey": layout.blocked(queue, task_id, kept), "dueAt": look}


def cut_edge(parent_id: str, child_id: str) -> Write:
    """The edge goes, once: whoever deletes it may count the parent as satisfied, in the same transaction."""
    return delete("cut_edge", edge_id(parent_id, child_id), require=[])


def edge_stands(parent_id: str, child_id: str) -> Write:
    return check(edge_id(parent_id, child_id), require=[exists()])


def dead_as_seen(parent_id: str, parent: Item | None) -> Write:
    """The parent is still gone, or in the very life and end that was looked at (a redrive raises the fence)."""
    if parent is None:
        return check(parent_id, require=[absent()])
    return check(parent_id, require=[equals("status", parent["status"]), as_seen("fence", parent.get("fence"))])


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


# ---- schedules ---------------------------------------------------------------------------------------------------


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
        sets={"dueAt": due_at, **_given(last=last, lastTaskId=task_id, problem=problem)},
        removes=[] if problem is not None else ["problem"],
        applied=lambda old: old.get("dueAt") == due_at and (last is None or old.get("last") == last),
    )


def delete_schedule(item_id: str) -> Write:
    return delete("delete_schedule", item_id, require=[])


# ---- the lease ---------------------------------------------------------------------------------------------------


def open_lease(token: LeaseToken, *, profile: str, task_ids: Sequence[TaskId], lock_time: float, now: float) -> Write:
    """Put if absent, under a fresh token. Send it once: an unknown outcome abandons the token."""
    item = {
        "taskId": lease_id(token),
        "profile": profile,
        "taskIds": list(task_ids),
        "lockTime": lock_time,
        "dispatchKey": lease_key(profile, shard_of(token, LEASE_SHARDS)),
        "dueAt": lock_time,
        "createdAt": now,
        "formatVersion": FORMAT_VERSION,
    }
    return put("open", item, require=[absent()], applied=lambda old: False)


def begin(token: LeaseToken, *, nonce: str, lock_time: float, now: float) -> Write:
    """One delivery of the event may begin: a second one meets another nonce. Not when past or closed."""
    return update(
        "begin",
        lease_id(token),
        require=[
            absent("closed"),
            more("lockTime", now),
            at_most("lockTime", lock_time),
            either(absent("begun"), equals("begun", nonce)),
        ],
        sets={"begun": nonce, "lockTime": lock_time},
        applied=lambda old: old.get("begun") == nonce and not old.get("closed"),
        returns="ALL_NEW",
    )


def heartbeat(token: LeaseToken, *, nonce: str, lock_time: float, starting: Iterable[TaskId] = ()) -> Write:
    """Renew the whole batch, and add the ids about to start. A late copy of an earlier one cannot shorten the lease.

    `lock_time` must not be below the last one known: refused with the lease open and ours, somebody's clock went back.
    """
    started = frozenset(starting)
    return update(
        "heartbeat",
        lease_id(token),
        require=[equals("begun", nonce), absent("closed"), either(absent("lockTime"), at_most("lockTime", lock_time))],
        sets={"lockTime": lock_time},
        adds={"started": started} if started else None,
        applied=lambda old: (
            old.get("begun") == nonce and not old.get("closed") and started <= frozenset(old.get("started", ()))
        ),
        returns="ALL_NEW",
    )


def settle(token: LeaseToken, *, nonce: str) -> Write:
    """The batch is over and every task's last write was answered: the lease goes."""
    return delete("settle", lease_id(token), require=[equals("begun", nonce), absent("closed")])


def void(token: LeaseToken) -> Write:
    """The dispatch failed or nothing was claimed: the lease goes, but only if no executor has begun."""
    return delete("void", lease_id(token), require=[absent("begun"), absent("closed")])


def close(lease: Lease, *, now: float) -> Write:
    """No one may renew or start under this lease any more. The lockTime as seen: a renewal in between wins."""
    return update(
        "close",
        lease_id(lease.token),
        require=[as_seen("lockTime", lease.lock_time), absent("closed")],
        sets={"closed": now},
        applied=lambda old: bool(old.get("closed")),
        returns="ALL_NEW",
    )


def move_lease(lease: Lease) -> Write:
    """A renewed lease that a reaper met early stands again where its lockTime says."""
    return update(
        "move_lease",
        lease_id(lease.token),
        require=[equals("lockTime", lease.lock_time), absent("closed")],
        sets={"dueAt": lease.lock_time},
        applied=lambda old: old.get("dueAt") == lease.lock_time,
    )


def repair_lease(item: Item, *, lock_time: float) -> Write:
    """A lease whose lockTime is missing or no number gets one more term: nobody can tell whether it is alive."""
    return update(
        "repair_lease",
        str(item["taskId"]),
        require=[as_seen("lockTime", item.get("lockTime")), absent("closed")],
        sets={"lockTime": lock_time, "dueAt": lock_time},
        applied=lambda old: old.get("lockTime") == lock_time,
    )


def bury_lease(token: LeaseToken) -> Write:
    """A closed lease whose tasks were all answered is deleted."""
    return delete("bury", lease_id(token), require=[exists("closed")])


def tell_lease(token: LeaseToken, task_id: TaskId) -> Write:
    """A cancel request reaches the holder with its next heartbeat."""
    return update(
        "tell",
        lease_id(token),
        require=[],
        adds={"cancelled": frozenset({task_id})},
        applied=lambda old: task_id in old.get("cancelled", ()),
    )


def put_cursor(cursor_id: str, *, partition: str, start: Mapping[str, Any] | None) -> Write:
    """Where the reaper's deeper look ended. Two reapers may overwrite each other: it is a hint of where to go on."""
    return put_body({"taskId": cursor_id, "partition": partition, "start": dict(start) if start else None})


# ---- shared shapes -----------------------------------------------------------------------------------------------


def _end(status: Status, now: float) -> dict[str, Any]:
    return {
        "status": status.value,
        "finishedAt": now,
        "updatedAt": now,
        "expiresAt": int(now) + RETENTION_SECONDS[status],
    }


def _listing(
    status: Status, queue: str, task_id: str, layout: Layout, finished_at: float, kept: str | None
) -> tuple[dict[str, Any], list[str]]:
    """What puts a terminal task into its list, or takes it off the index."""
    key = layout.listed(status, queue, task_id, kept)
    return ({"dispatchKey": key, "dueAt": finished_at}, []) if key else ({}, ["dispatchKey", "dueAt"])


def _listing_of_row(status: Status, item: Item, layout: Layout, finished_at: float) -> tuple[dict[str, Any], list[str]]:
    queue, kept = item.get("queue"), item.get("dispatchKey")
    return _listing(
        status,
        queue if isinstance(queue, str) else "default",
        str(item["taskId"]),
        layout,
        finished_at,
        kept if isinstance(kept, str) else None,
    )


def _started(task: Task, attempt: Attempt) -> float | None:
    """When the handler really started: the claim only knew when the batch was taken."""
    return attempt.started_at if attempt.started_at is not None else task.started_at


def _history(task: Task, attempt: Attempt) -> dict[str, Any]:
    return {"startedAt": _started(task, attempt), "attempts": keep_attempts(task, attempt)}


def _stale_body(task: Task, result: Result) -> list[str]:
    """What an earlier life of the task left of another result: one body only may be found."""
    kept = result.attributes()
    return [name for name in ("result", "resultRef", "resultBytes") if name in task.item and name not in kept]


def _ended_as(outcome: Outcome) -> Callable[[Item], bool]:
    return lambda old: old.get("status") == Status.DONE and old.get("outcome") == outcome


def _failed_with(failure: Failure) -> Callable[[Item], bool]:
    """The end a holder and the reaper may both write: told apart by what the error says."""
    expected = {"type": failure.type, "message": failure.message, "reason": failure.reason}

    def recognised(old: Item) -> bool:
        error = old.get("error")
        return old.get("status") == Status.FAILED and isinstance(error, dict) and expected.items() <= error.items()

    return recognised


def _given(**attributes: Any) -> dict[str, Any]:
    return {name: value for name, value in attributes.items() if value is not None}


def _end_running(
    event: Event,
    status: Status,
    task: Task,
    require: list[Clause],
    *,
    token: LeaseToken | None,
    layout: Layout,
    now: float,
    sets: Mapping[str, Any],
    recognised: Callable[[Item], bool],
    removes: Sequence[str] = (),
) -> Write:
    """A terminal write. It keeps leaseToken: a lost reply is known by it, and by the end it would have left."""
    listed, unlisted = _listing(status, task.queue, task.task_id, layout, now, task.dispatch_key)
    return update(
        event,
        task.task_id,
        require=require,
        sets={**_end(status, now), **listed, **_given(**sets)},
        removes=["lockTime", "owner", "deferredFor", *removes, *unlisted],
        applied=lambda old: is_terminal(old.get("status")) and old.get("leaseToken") == token and recognised(old),
        returns="ALL_NEW",  # free of charge, and tells whether somebody waits for this end
    )


def _end_pending(
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
    listed, unlisted = _listing(status, task.queue, task.task_id, layout, now, task.dispatch_key)
    return update(
        event,
        task.task_id,
        require=[equals("status", PENDING), *require],
        sets={**_end(status, now), **listed, **sets},
        removes=["lockTime", "owner", "deferredFor", *removes, *unlisted],
        applied=lambda old: (
            old.get("status") == status and old.get("finishedAt") == now and old.get("outcome") == sets.get("outcome")
        ),
        returns="ALL_NEW",
    )


def _back_to_pending(
    event: Event,
    task: Task,
    require: list[Clause],
    *,
    token: LeaseToken | None,
    due_at: float,
    layout: Layout,
    now: float,
    sets: Mapping[str, Any],
) -> Write:
    """An exit to PENDING removes the token; `exitedBy` keeps whose exit it was, for a lost reply."""
    exit_mark = f"{token}:{event.value}"
    return update(
        event,
        task.task_id,
        require=require,
        sets={
            "status": PENDING,
            "dispatchKey": layout.open(task.queue, task.priority, task.task_id, task.dispatch_key),
            "dueAt": due_at,
            "updatedAt": now,
            "exitedBy": exit_mark,
            **sets,
        },
        removes=["leaseToken", "lockTime", "owner"],
        applied=lambda old: old.get("exitedBy") == exit_mark,
    )
