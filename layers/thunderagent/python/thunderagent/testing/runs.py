"""One attempt of a handler, in process, and everything that came of it."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from functools import partial
from typing import Any

from thunderagent import expressions
from thunderagent.jsontext import dumps, loads
from thunderagent.model import Task, TaskId
from thunderagent.schema import listed_key
from thunderagent.states import Status
from thunderagent.submit import Submission
from thunderagent.testing.fakes import FakeClock
from thunderagent.testing.faults import Call
from thunderagent.testing.rig import Rig, Tables

Rows = Mapping[str, Sequence[Mapping[str, Any]]]


@dataclass(frozen=True)
class Child:
    """A task the handler submitted."""

    type: str
    payload: Any
    queue: str
    task_id: str


@dataclass(frozen=True)
class TaskRun:
    """What one attempt came to. `ended` is the word for it: succeeded, retried, timed_out, failed, skipped, snoozed,
    cancelled. `due_in` is when the next attempt may start, in seconds; None for a task that has ended."""

    ended: str
    status: str
    result: Any = None
    error: Mapping[str, Any] | None = None
    due_in: float | None = None
    retry_count: int = 0
    progress: Mapping[str, Any] | None = None
    steps: Mapping[str, Any] = field(default_factory=dict)
    children: tuple[Child, ...] = ()
    rows: Mapping[str, Sequence[Mapping[str, Any]]] = field(default_factory=dict)
    log: tuple[Mapping[str, Any], ...] = ()


def run_task(
    handler: Callable[..., Any],
    payload: Any = None,
    *,
    attempt: int = 1,
    steps: Mapping[str, Any] | None = None,
    parents: Mapping[str, Any] | None = None,
    tags: Mapping[str, str] | None = None,
    cancel: bool = False,
    tables: Tables | None = None,
    rows: Rows | None = None,
    queues: Sequence[str] = (),
    clock: FakeClock | None = None,
) -> TaskRun:
    """Run a function declared with `@task` once, as an executor would, and say what came of it.

    `attempt` is which one it is, `steps` what earlier ones completed (results by name, in order), `parents` the results
    of the tasks it depended on, by their ids. With `cancel`, the task is cancelled just after it started. `tables` are
    the user's own for `commit_with` (name → key attributes), `rows` what they hold; `queues` other queues that children
    may be sent to. A handler that measures time should take a `clock`'s, which `clock.advance` moves.

    Writes of the handler's own clients are not caught: give it fakes. Raises ConfigurationError for what is no handler.
    """
    rig = Rig(handler, tables=tables, queues=queues, clock=clock)
    for table, found in (rows or {}).items():
        rig.db.fill(table, found)
    for parent, result in (parents or {}).items():
        _put_parent(rig, parent, result)
    task_id = rig.submit(dumps(payload, root="payload"), depends_on=tuple(parents or ()), tags=dict(tags or {}))
    stored = {name: {"n": n, "result": dumps(value)} for n, (name, value) in enumerate((steps or {}).items(), start=1)}
    most = max(attempt - 1, rig.task(task_id).max_retry_number)
    rig.change(task_id, retryCount=attempt - 1, maxRetryNumber=most, **({"steps": stored} if stored else {}))
    if cancel:
        rig.db.after(_is_start, lambda: _cancel(rig, task_id))
    rig.seen.events.clear()
    summary = rig.attempt(task_id)
    return _outcome(rig, task_id, next(iter(summary.ends), "not started"), tables or {})


def _put_parent(rig: Rig, parent: str, result: Any) -> None:
    """A task that has succeeded, as a commit leaves it."""
    service, now = rig.service, rig.clock.now()
    service.submitter.submit(Submission(type="parent", task_id=parent))
    listed = listed_key(Status.SUCCESS, "default", 0)
    ended = {"status": Status.SUCCESS.value, "result": dumps(result), "finishedAt": now, "dueAt": now}
    rig.change(parent, dispatchKey=listed, **ended)


def _is_start(call: Call) -> bool:
    return call.operation == "UpdateItem" and "started" in call.sets


def _cancel(rig: Rig, task_id: str) -> None:
    """What the API does, both writes."""
    store, task = rig.service.store, rig.task(task_id)
    store.apply(expressions.cancel_request(task, reason=None, operator=None, now=rig.clock.now()))
    if task.lease_token is not None:
        store.apply(expressions.tell_lease(task.lease_token, TaskId(task_id)))


def _outcome(rig: Rig, task_id: str, ended: str, tables: Tables) -> TaskRun:
    task = rig.task(task_id)
    result = rig.service.bodies.result(task)
    steps: Mapping[str, Any] = task.item.get("steps", {})
    return TaskRun(
        ended=ended,
        status=task.status.value,
        result=None if result is None else loads(result),
        error=task.item.get("error"),
        due_in=None if task.is_terminal else round(task.due_at - rig.clock.now(), 3),
        retry_count=task.retry_count,
        progress=task.item.get("progress"),
        steps={name: loads(steps[name]["result"]) for name in sorted(steps, key=lambda name: int(steps[name]["n"]))},
        children=tuple(map(partial(_child, rig), rig.children(task_id))),
        rows={table: rig.db.rows(table) for table in tables},
        log=tuple(fields for event, fields in rig.seen.events if event == "task.message"),
    )


def _child(rig: Rig, task: Task) -> Child:
    return Child(task.type, loads(rig.service.bodies.payload(task)), task.queue, task.task_id)
