"""Of a RUNNING task: what its holder notes, the cancel request, and every exit, the holder's and the reaper's."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from thunderagent.codec import Item
from thunderagent.conditions import Clause, Write, as_seen, equals, exists, update
from thunderagent.expressions.clauses import PENDING, RUNNING, held_by, not_cancelled
from thunderagent.expressions.shapes import end, ended_as, given, listing
from thunderagent.model import Attempt, Failure, LeaseToken, Task, TaskId
from thunderagent.schema import ATTEMPTS_KEPT, Layout
from thunderagent.states import Event, Outcome, Status, is_terminal


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


def cancel_request(task: Task, *, reason: str | None, operator: Mapping[str, Any] | None, now: float) -> Write:
    """RUNNING stays RUNNING; from now on its only exit is CANCEL_END."""
    return update(
        Event.CANCEL_REQUEST,
        task.task_id,
        require=[equals("status", RUNNING), as_seen("leaseToken", task.lease_token)],
        sets={"cancelRequested": True, "updatedAt": now, **given(outcomeReason=reason, operator=operator)},
        applied=lambda old: bool(old.get("cancelRequested")) and old.get("status") == RUNNING,
    )


# ---- exits -----------------------------------------------------------------------------------------------------------


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
        sets={**result.attributes(), "startedAt": _started(task, attempt), **given(attempts=result.attempts or None)},
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
        sets={"outcome": Outcome.SKIPPED.value, "startedAt": _started(task, attempt), **given(outcomeReason=reason)},
        removes=["error"],
        recognised=ended_as(Outcome.SKIPPED),
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
        recognised=ended_as(Outcome.CANCELLED),
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


def keep_attempts(task: Task, attempt: Attempt | None) -> list[dict[str, Any]]:
    """The last ten lines of history with this one. While a task is RUNNING only its holder writes them."""
    lines = task.attempts + ([attempt.as_entry()] if attempt else [])
    return lines[-ATTEMPTS_KEPT:]


# ---- what the exits share --------------------------------------------------------------------------------------------


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
    listed, unlisted = listing(status, task.queue, task.task_id, layout, now, task.dispatch_key)
    return update(
        event,
        task.task_id,
        require=require,
        sets={**end(status, now), **listed, **given(**sets)},
        removes=["lockTime", "owner", "deferredFor", *removes, *unlisted],
        applied=lambda old: is_terminal(old.get("status")) and old.get("leaseToken") == token and recognised(old),
        returns="ALL_NEW",  # free of charge, and tells whether somebody waits for this end
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


def _started(task: Task, attempt: Attempt) -> float | None:
    """When the handler really started: the claim only knew when the batch was taken."""
    return attempt.started_at if attempt.started_at is not None else task.started_at


def _history(task: Task, attempt: Attempt) -> dict[str, Any]:
    return {"startedAt": _started(task, attempt), "attempts": keep_attempts(task, attempt)}


def _stale_body(task: Task, result: Result) -> list[str]:
    """What an earlier life of the task left of another result: one body only may be found."""
    kept = result.attributes()
    return [name for name in ("result", "resultRef", "resultBytes") if name in task.item and name not in kept]


def _failed_with(failure: Failure) -> Callable[[Item], bool]:
    """The end a holder and the reaper may both write: told apart by what the error says."""
    expected = {"type": failure.type, "message": failure.message, "reason": failure.reason}

    def recognised(old: Item) -> bool:
        error = old.get("error")
        return old.get("status") == Status.FAILED and isinstance(error, dict) and expected.items() <= error.items()

    return recognised
