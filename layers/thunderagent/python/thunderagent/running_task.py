"""One task while its holder runs it: the right to write it, what has become of that right, and who may end it."""

from __future__ import annotations

import threading
from collections.abc import Callable
from dataclasses import replace
from typing import Any, TypeVar

from thunderagent.conditions import Write
from thunderagent.errors import LeaseLost, TaskCancelled
from thunderagent.held_lease import HeldLease
from thunderagent.model import Task
from thunderagent.store import Answer, Refusal, Refused, Store
from thunderagent.threads import Interruption

Value = TypeVar("Value")


class RunningTask:
    """The right to write one task. Thread-safe, but for `task`, which only the handler's thread replaces.

    `lost`: a write was refused, and no later one follows. `cancelled`: a cancel was requested, and only the cancelled
    end is left. `unanswered`: what the last write did is unknown, so the lease must be left to the reaper. `committed`:
    the handler committed itself (`commit_with`); `commit_unknown`: it tried, and no answer came.
    """

    def __init__(self, task: Task, lease: HeldLease, store: Store, *, remaining_seconds: Callable[[], float]) -> None:
        self.task = task
        self.lease = lease
        self.store = store
        self.interruption = Interruption()
        self.started_at = store.clock.now()
        self.lost = False
        self.cancelled = False
        self.unanswered = False
        self.committed = False
        self.commit_unknown = False
        self._remaining_seconds = remaining_seconds
        self._end_lock = threading.Lock()
        self._end_taken = False

    # ---- what the handler is told ------------------------------------------------------------------------------------

    @property
    def must_stop(self) -> bool:
        """Nothing the handler still does can count."""
        return self.cancelled or self.lost or self.lease.lost or (self._end_taken and not self.committed)

    def check(self) -> None:
        """Raise TaskCancelled or LeaseLost when the handler's writes cannot count any more."""
        if self.cancelled:
            raise TaskCancelled(self.task.task_id)
        if self.lost or self.lease.lost:
            raise LeaseLost(self.task.task_id, reason="its lease was closed, or it moved on")
        if self._end_taken:
            raise LeaseLost(self.task.task_id, reason="this attempt has ended")

    # ---- writing -----------------------------------------------------------------------------------------------------

    def write(self, write: Write) -> Answer:
        """Send until it is answered, or until the lease or the invocation is about to end; then raises StoreError.

        A refusal is remembered: after it nothing but a cancelled end is written.
        """
        answer: Answer = self.persist(lambda: self.store.apply(write))
        if isinstance(answer, Refused):
            self.note(answer)
        return answer

    def note(self, refused: Refused) -> None:
        if refused.reason is Refusal.CANCELLED:
            self.cancelled = True
        else:
            self.lost = True

    def persist(self, send: Callable[[], Value]) -> Value:
        """Repeat what is safe to repeat, with jitter, while it is throttled or unanswered and there is time."""
        return self.lease.persist(send, self._remaining_seconds)

    def update(self, **attributes: Any) -> None:
        """Remember attributes this holder has just written: sizes are judged by the item as it now is."""
        self.task = replace(self.task, item={**self.task.item, **attributes})

    # ---- ending ------------------------------------------------------------------------------------------------------

    def take_end(self) -> bool:
        """Whoever takes it first writes the task's end: its handler's thread, or the coordinator after a time-out."""
        with self._end_lock:
            taken, self._end_taken = self._end_taken, True
            return not taken

    def give_back_end(self) -> None:
        """The end was not written after all (the user's own condition refused it): the handler goes on."""
        with self._end_lock:
            self._end_taken = False
