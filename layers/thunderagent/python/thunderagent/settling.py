"""The end of a parent: each of its edges is settled, and so are those of the children that fail by it."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

from thunderagent import expressions
from thunderagent.codec import Item
from thunderagent.errors import MalformedItem, StoreError, StoreThrottled
from thunderagent.model import Task
from thunderagent.parents import Verdict, failure_for, opens_at, verdict_of, waits
from thunderagent.schema import child_of, edge_id, edge_key
from thunderagent.states import Status
from thunderagent.store import Store, Written
from thunderagent.telemetry import Observer, ids_of

ROUNDS = 6  # looks at one child that keeps changing under us; each sends a transaction with its own retries
SETTLE_SECONDS = 20.0  # of one end; children left over are found by the repair look


class Settling:
    """What follows a terminal write. Thread-safe as far as the store is."""

    def __init__(self, store: Store, *, observer: Observer) -> None:
        self._store = store
        self._observer = observer

    def on_end(self, ended: Item | None) -> None:
        """Call it after every terminal write, with the item as written. Costs nothing unless somebody waits; never
        raises: the task has ended, and what is left here the repair look finds."""
        if ended is None or not ended.get("hasDependents"):
            return
        try:
            self.settle(ended)
        except (StoreError, MalformedItem) as error:
            left_to_repair(self._observer, str(ended["taskId"]), error)

    def on_end_of(self, task_id: str) -> None:
        """Like `on_end`, for a terminal write whose answer did not bring the item (a transaction)."""
        try:
            self.on_end(self._store.get_item(task_id, consistent=True))
        except StoreError as error:
            left_to_repair(self._observer, task_id, error)

    def settle(self, ended: Item) -> bool:
        """Tell every child of a task that ended, and the children of those that fail by it, and so on.

        Returns False when time ran out before all were told. Raises a StoreError; repeating is harmless.
        """
        if verdict_of(ended) is Verdict.OPEN or not ended.get("hasDependents"):
            return True
        parent_id = str(ended["taskId"])
        edges = self._store.walk(edge_key(parent_id))
        return self.settle_all((parent_id, ended, child_of(key.task_id)) for key in edges)

    def settle_all(self, edges: Iterable[tuple[str, Item | None, str]]) -> bool:
        """Settle edges to ended parents; a chain of failures is followed with a list, not by recursion."""
        until = self._store.clock.monotonic() + SETTLE_SECONDS
        waiting = [edges]
        while waiting:
            for parent_id, parent, child_id in waiting.pop():
                if self._store.clock.monotonic() > until:
                    self._observer.log("dependencies.cut_short", level="WARNING", taskId=parent_id)
                    return False
                failed = self._settle_edge(parent_id, parent, child_id)
                if failed is not None and failed.get("hasDependents"):
                    waiting.append(self._edges_of(failed))
        return True

    def _edges_of(self, parent: Item) -> Iterable[tuple[str, Item | None, str]]:
        parent_id = str(parent["taskId"])
        return ((parent_id, parent, child_of(key.task_id)) for key in self._store.walk(edge_key(parent_id)))

    def _settle_edge(self, parent_id: str, parent: Item | None, child_id: str) -> Item | None:
        """One edge to an ended parent. Returns the child's item when it failed by this."""
        satisfied = verdict_of(parent) is Verdict.SATISFIED
        for turn in range(ROUNDS):
            try:
                child = self._store.get_task(child_id, consistent=True)
            except MalformedItem as problem:
                self._observer.log("task.malformed", level="ERROR", taskId=child_id, problem=problem.problem)
                return None
            if child is None or not waits(child):
                self._store.apply(expressions.cut_edge(parent_id, child_id))  # it ended otherwise: nobody needs it
                return None
            if not satisfied and child.status is Status.FAILED:
                return None
            try:
                done = self._unblock(child, parent_id) if satisfied else self._fail(child, parent_id, parent)
            except StoreThrottled:
                if turn == ROUNDS - 1:
                    raise
                continue  # many parents of one child end at once
            if done:
                return None if satisfied else self._store.get_item(child_id, consistent=True)
            if not self._store.get_item(edge_id(parent_id, child_id), consistent=True):
                return None  # settled by somebody else
            if not satisfied and self._is_alive_again(parent_id, parent):
                return None
        raise StoreThrottled("TransactWriteItems", "Contention", f"task {child_id} keeps changing")

    def _unblock(self, child: Task, parent_id: str) -> bool:
        now, layout = self._store.clock.now(), self._store.layout
        opened = expressions.unblock(child, due_at=opens_at(child, now), layout=layout, now=now)
        if not isinstance(self._store.transact([expressions.cut_edge(parent_id, child.task_id), opened]), Written):
            return False
        if child.blocked_count == 1 and child.status is Status.PENDING:
            self._note("task.unblocked", child, parentId=parent_id)
        return True

    def _fail(self, child: Task, parent_id: str, parent: Item | None) -> bool:
        now, layout = self._store.clock.now(), self._store.layout
        writes = [
            expressions.parent_failed(child, failure=failure_for(parent_id, parent), layout=layout, now=now),
            expressions.dead_as_seen(parent_id, parent),
            expressions.edge_stands(parent_id, child.task_id),
        ]
        if not isinstance(self._store.transact(writes), Written):
            return False
        self._observer.measure("Failed", queue=child.queue, type=child.type)
        self._note("task.failed", child, level="ERROR", reason="dependency_failed", parentId=parent_id)
        return True

    def _is_alive_again(self, parent_id: str, seen: Item | None) -> bool:
        """Whether the parent is no longer the dead one that was seen: whoever changed it settles it."""
        now = self._store.get_item(parent_id, consistent=True)
        if now is None or seen is None:
            return now is not seen
        return (now.get("status"), now.get("fence")) != (seen.get("status"), seen.get("fence"))

    def _note(self, event: str, task: Task, *, level: str = "INFO", **fields: Any) -> None:
        self._observer.log(event, level=level, **ids_of(task), **fields)


def left_to_repair(observer: Observer, task_id: str, error: Exception) -> None:
    code = getattr(error, "code", type(error).__name__)
    observer.log("dependencies.left_to_repair", level="WARNING", taskId=task_id, code=code)
