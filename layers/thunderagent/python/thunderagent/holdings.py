"""What is ours: the tasks of a batch that are held under its lease, as consistent reads show them."""

from __future__ import annotations

from collections.abc import Callable, Container, Sequence
from typing import TypeVar

from thunderagent import expressions
from thunderagent.codec import Item
from thunderagent.endings import Endings
from thunderagent.errors import StoreError
from thunderagent.held_lease import HeldLease
from thunderagent.leased_batch import Tally
from thunderagent.model import Task, TaskId
from thunderagent.running_task import RunningTask
from thunderagent.schema import DEFER_SECONDS
from thunderagent.states import Status
from thunderagent.store import Store, readable
from thunderagent.telemetry import Observer

Value = TypeVar("Value")


class Holdings:
    """Reads the batch's tasks and sorts them: who may run, who goes back or ends at once, and who is not ours (yet: a
    claim whose answer was lost may still arrive)."""

    def __init__(
        self,
        store: Store,
        lease: HeldLease,
        *,
        endings: Endings,
        types: Container[str],
        remaining_seconds: Callable[[], float],
        tally: Tally,
        observer: Observer,
    ) -> None:
        self._store = store
        self._lease = lease
        self._endings = endings
        self._types = types
        self._remaining_seconds = remaining_seconds
        self._tally = tally
        self._observer = observer
        self._not_ours: set[TaskId] = set()

    def take_up(self, task_ids: Sequence[TaskId]) -> list[RunningTask]:
        """The look at begin: those that may run, in their order. Nothing runs yet, so it can wait for its answer."""
        tasks = self._read(task_ids, patiently=True) or []
        return [running for task in tasks if not self._ends_at_once(running := self._held(task))]

    def return_late_claims(self, *, patiently: bool = False) -> bool:
        """Look again at those that were not ours, and hand back what has arrived: it is too late to run it here. False
        when that was not answered. `patiently`: nothing runs any more that would have to be renewed meanwhile."""
        if not self._not_ours or self._lease.lost:
            return True
        tasks = self._read(sorted(self._not_ours), patiently=patiently)
        for running in map(self._held, tasks or []):
            if not self._ends_at_once(running):
                self._tally.ended(running, self._endings.hand_back(running, why="claimed_late"))
        return tasks is not None

    def _read(self, task_ids: Sequence[TaskId], *, patiently: bool) -> list[Task] | None:
        """One consistent look; None when it was not answered."""
        try:
            items = self._ask(lambda: self._store.get_items(task_ids, consistent=True), patiently=patiently)
        except StoreError as error:
            self._observer.log("batch.read_failed", level="WARNING", code=error.code)
            self._not_ours |= set(task_ids)
            return None
        ours = {task_id: item for task_id, item in items.items() if self._is_ours(item)}
        self._not_ours = (self._not_ours | set(task_ids)) - {TaskId(task_id) for task_id in ours}
        tasks, bad = readable(ours)
        for problem in bad:
            self._park(ours[problem.item_id], problem.problem, patiently=patiently)
        return [tasks[each] for each in task_ids if each in tasks]

    def _ask(self, send: Callable[[], Value], *, patiently: bool) -> Value:
        return self._lease.persist(send, self._remaining_seconds) if patiently else send()

    def _is_ours(self, item: Item) -> bool:
        return item.get("status") == Status.RUNNING and item.get("leaseToken") == self._lease.token

    def _held(self, task: Task) -> RunningTask:
        return RunningTask(task, self._lease, self._store, remaining_seconds=self._remaining_seconds)

    def _ends_at_once(self, running: RunningTask) -> bool:
        if running.task.cancel_requested:
            self._tally.ended(running, self._endings.end_cancelled(running))
        elif running.task.type not in self._types:
            # deployed later than it was claimed, or not any more: it waits, at no cost, but not at the head of the line
            wait = self._store.randomness.uniform(DEFER_SECONDS / 2, DEFER_SECONDS)
            self._tally.ended(running, self._endings.hand_back(running, wait_seconds=wait, why="no_handler"))
        else:
            return False
        return True

    def _park(self, item: Item, problem: str, *, patiently: bool) -> None:
        """A claimed row that is no task can never run: it becomes a dead letter."""
        write = expressions.park(item, problem=problem, layout=self._store.layout, now=self._store.clock.now())
        try:
            self._ask(lambda: self._store.apply(write), patiently=patiently)
        except StoreError:
            self._tally.answered = False
            return
        self._observer.log("task.parked", level="ERROR", taskId=item["taskId"], problem=problem)
        self._tally.count("parked")
