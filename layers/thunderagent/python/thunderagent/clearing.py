"""Dealing with what stands at the head of a partition and cannot be claimed: deferred, expired, parked, put in place.

A write that fails is only noted: the next look meets the same row.
"""

from __future__ import annotations

from collections.abc import Callable

from thunderagent import expressions
from thunderagent.codec import Item
from thunderagent.conditions import Write
from thunderagent.errors import StoreError
from thunderagent.in_flight import InFlight
from thunderagent.model import Task
from thunderagent.states import is_terminal
from thunderagent.store import Store, Written
from thunderagent.telemetry import Observer, ids_of

FORGET_SECONDS = 60.0  # how long a row that was dealt with is not looked at again

OnEnd = Callable[[Item | None], None]


class Clearing:
    """`on_end` is told of every task ended here, with its new item."""

    def __init__(self, store: Store, in_flight: InFlight, *, on_end: OnEnd, observer: Observer) -> None:
        self._store = store
        self._in_flight = in_flight
        self._on_end = on_end
        self._observer = observer

    def defer(self, task: Task, *, until: float, reason: str) -> None:
        """Due again at `until`, or at its deadline if that comes first."""
        until = round(until if task.deadline is None else min(until, task.deadline), 3)
        write = expressions.defer(task, until=until, reason=reason, now=self._store.clock.now())
        self._write("task.deferred", task, write, level="DEBUG", reason=reason)

    def expire(self, task: Task) -> None:
        write = expressions.expire(task, layout=self._store.layout, now=self._store.clock.now())
        self._on_end(self._write("task.expired", task, write))

    def relist(self, task: Task) -> None:
        """A terminal task under an open key goes where terminal tasks are."""
        self._write("task.relisted", task, expressions.relist(task, layout=self._store.layout))

    def park(self, item: Item, problem: str) -> None:
        """A row that can never run becomes a dead letter; a side item, or a task that has ended, leaves the index."""
        now = self._store.clock.now()
        is_open_task = "#" not in item["taskId"] and not is_terminal(item.get("status"))
        write = (
            expressions.park(item, problem=problem, layout=self._store.layout, now=now)
            if is_open_task
            else expressions.take_off_index(item)
        )
        event = "task.parked" if is_open_task else "row.taken_off_index"
        try:
            answer = self._store.apply(write)
            if isinstance(answer, Written):
                self._observer.log(event, level="ERROR", taskId=item["taskId"], problem=problem)
                self._on_end(answer.item)
        except StoreError as error:
            self._observer.log("task.park_failed", level="WARNING", taskId=item["taskId"], code=error.code)
        self._in_flight.note(str(item["taskId"]), item["dueAt"], until=now + FORGET_SECONDS)

    def _write(self, event: str, task: Task, write: Write, *, level: str = "INFO", **fields: str) -> Item | None:
        try:
            answer = self._store.apply(write)
            if isinstance(answer, Written):
                self._observer.log(event, level=level, **ids_of(task), **fields)
                return answer.item
        except StoreError as error:
            self._observer.log(f"{event}_failed", level="WARNING", taskId=task.task_id, code=error.code)
        return None
