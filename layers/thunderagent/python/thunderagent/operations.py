"""What operators do to a task: cancel, redrive, acknowledge, erase. Each is one conditional write, and repeatable.

A refused write is looked at again: the answer is decided by what is stored, never by what was read before the write.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

from thunderagent import expressions
from thunderagent.bodies import Bodies
from thunderagent.conditions import Write
from thunderagent.dependencies import Dependencies
from thunderagent.errors import Conflict, NotFound, StoreThrottled
from thunderagent.model import Task
from thunderagent.states import Outcome, Status
from thunderagent.store import Refusal, Refused, Store, Written

ROUNDS = 8  # looks at a task that keeps changing under us


@dataclass(frozen=True)
class Operator:
    """Who asked, and why. Kept with the task."""

    caller: str
    reason: str | None = None

    def entry(self, action: str, at: float) -> dict[str, Any]:
        entry = {"action": action, "caller": self.caller, "reason": self.reason, "at": at}
        return {name: value for name, value in entry.items() if value is not None}


class Operations:
    """Operator actions on single tasks. Each raises NotFound, Conflict (with the actual status) or a StoreError."""

    def __init__(self, store: Store, bodies: Bodies, dependencies: Dependencies) -> None:
        self._store = store
        self._bodies = bodies
        self._dependencies = dependencies

    def task(self, task_id: str) -> Task:
        """The task as readers see it: one past its time to live is gone, whether DynamoDB has removed it or not."""
        task = self._store.get_task(task_id, consistent=True)
        if task is None or not task.is_shown(self._store.clock.now()):
            raise NotFound(f"there is no task {task_id}")
        return task

    def cancel(self, task_id: str, operator: Operator) -> Task:
        """End a pending task; ask for the end of a running one. When this returns, the task cannot end otherwise."""
        task = self._until_decided(task_id, lambda task: self._cancel(task, operator))
        self._dependencies.on_end(task.item)
        return task

    def _cancel(self, task: Task, operator: Operator) -> Task | Write:
        now = self._store.clock.now()
        entry = operator.entry("cancel", now)
        if task.status is Status.PENDING:
            return expressions.cancel(task, reason=operator.reason, operator=entry, layout=self._store.layout, now=now)
        if task.status is Status.RUNNING and not task.cancel_requested:
            answer = self._store.apply(
                expressions.cancel_request(task, reason=operator.reason, operator=entry, now=now)
            )
            task = self.task(task.task_id)
            if isinstance(answer, Refused):
                return self._cancel(task, operator)
        if task.status is Status.RUNNING:
            self._tell_holder(task)
            return task
        if task.outcome == Outcome.CANCELLED:
            return task
        raise _conflict(task, "cancelled")

    def _tell_holder(self, task: Task) -> None:
        """So that its next heartbeat brings the news. The task has the request: a lease already gone is no matter."""
        if task.lease_token is not None:
            self._store.apply(expressions.tell_lease(task.lease_token, task.task_id))

    def redrive(self, task_id: str, operator: Operator, *, key: str | None, cascade: bool = False) -> Task:
        """A failed task starts anew with a full budget. Two requests for one failure have one effect.

        One that failed for a parent waits for its parents again: while one of them is dead it fails again at once.
        `cascade` also revives the dependents that failed because of this task; repeating it goes on where it stopped.
        """
        task = self._until_decided(task_id, lambda task: self._redrive(task, operator, key))
        if task.status is Status.PENDING and task.blocked_count:
            self._dependencies.after_redrive(task)
            task = self.task(task_id)
        if cascade:
            now = self._store.clock.now()
            self._dependencies.revive(task, operator=operator.entry("redrive", now))
        return task

    def _redrive(self, task: Task, operator: Operator, key: str | None) -> Task | Write:
        done = [str(entry) for entry in task.item.get("redriveIds", [])]
        if key is not None and any(entry.partition(":")[2] == key for entry in done):
            return task
        if task.status is Status.FAILED:
            now = self._store.clock.now()
            self._bodies.renew(task, due_at=now)
            return expressions.redrive(
                task,
                redrive_id=f"{task.fence}:{key or ''}",
                operator=operator.entry("redrive", now),
                layout=self._store.layout,
                now=now,
            )
        if task.status is Status.PENDING and any(entry.startswith(f"{task.fence - 1}:") for entry in done):
            return task  # redriven, and not claimed since: this request asks for what has just been done
        raise _conflict(task, "redriven")

    def acknowledge(self, task_id: str) -> Task:
        """The result was collected: SUCCESS to DONE."""
        return self._until_decided(task_id, self._acknowledge)

    def _acknowledge(self, task: Task) -> Task | Write:
        if task.status is Status.SUCCESS:
            return expressions.acknowledge(task, layout=self._store.layout, now=self._store.clock.now())
        if task.outcome == Outcome.ACKNOWLEDGED:
            return task
        raise _conflict(task, "acknowledged")

    def erase(self, task_id: str) -> Task:
        """Delete a terminal task and its bodies. Returns what was deleted.

        Whoever waits for it is told first: a parent that is gone fails its children, one that succeeded must not.
        """
        for _ in range(ROUNDS):
            task = self.task(task_id)
            if not task.is_terminal:
                raise _conflict(task, "erased")
            if not self._dependencies.settle(task.item):
                raise _restless(task_id)
            answer = self._store.apply(expressions.erase(task))
            if isinstance(answer, Written) or answer.reason is Refusal.GONE:
                self._bodies.erase(task)
                self._dependencies.forget(task)
                return task
        raise _restless(task_id)

    def _until_decided(self, task_id: str, decide: Callable[[Task], Task | Write]) -> Task:
        """Look, decide, write; look again when the write was refused. A Task from `decide` is the answer."""
        for _ in range(ROUNDS):
            decision = decide(self.task(task_id))
            if isinstance(decision, Task):
                return decision
            answer = self._store.apply(decision)
            if isinstance(answer, Written):
                return Task.from_item(answer.item) if answer.item is not None else self.task(task_id)
        raise _restless(task_id)


def _conflict(task: Task, what: str) -> Conflict:
    outcome = f" ({task.outcome})" if task.outcome else ""
    return Conflict(f"task {task.task_id} is {task.status}{outcome} and cannot be {what}", status=task.status.value)


def _restless(task_id: str) -> StoreThrottled:
    return StoreThrottled("UpdateItem", "Contention", f"task {task_id} keeps changing; try again")
