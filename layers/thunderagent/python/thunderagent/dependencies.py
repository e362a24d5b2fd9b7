"""Tasks that wait for others: how they are born, revived and read, and the repair of what was missed.

An edge `edge#<parent>#<child>` exists from the child's birth (one transaction) until that parent satisfied it, and the
child's `blockedCount` is the number of its edges: both change in one transaction only, so that nothing is counted
twice or forgotten, whoever settles, crashes or repeats. Edges to a dead parent stay, and so does the count: that is
how a redrive knows for whom to wait, and a cascade whom to revive.

Three looks keep a child from waiting for ever. Every terminal write of a marked parent settles its edges; whoever adds
an edge reads that parent again afterwards; and the reaper looks at blocked tasks, more rarely the longer they wait.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from thunderagent import expressions
from thunderagent.bodies import Bodies
from thunderagent.codec import Item
from thunderagent.conditions import put_body
from thunderagent.errors import BodyMissing, MalformedItem, StoreError, StoreThrottled
from thunderagent.jsontext import loads
from thunderagent.model import Task, TaskId
from thunderagent.parents import Birth, Verdict, birth_of, checked, needs_mark, opens_at, verdict_of, waits
from thunderagent.schema import (
    BODY_RETENTION_SECONDS,
    EDGES_AT_ONCE,
    PARENTS_INLINE_BYTES,
    child_of,
    digest,
    edge_id,
    edge_key,
    parents_id,
    utf8_size,
)
from thunderagent.settling import ROUNDS, Settling, left_to_repair
from thunderagent.states import Status
from thunderagent.store import Store, Written
from thunderagent.telemetry import Observer, ids_of

LINK_ROUNDS = 40
REPAIR_SECONDS = 20.0  # of one reaper run


class Dependencies:
    """Everything about parents and children. Thread-safe as far as the store is."""

    def __init__(self, store: Store, bodies: Bodies, *, observer: Observer) -> None:
        self._store = store
        self._bodies = bodies
        self._observer = observer
        self._settling = Settling(store, observer=observer)

    # ---- submit ------------------------------------------------------------------------------------------------------

    def prepare(self, child_id: str, parent_ids: Sequence[str]) -> Birth:
        """Read the parents and say how their child is to be born. Nothing is written.

        Raises InvalidInput (too many), Unprocessable (`unknown_dependency`, `dependency_cycle`) or a StoreError.
        """
        found = self._store.get_items(checked(child_id, parent_ids), consistent=True)
        return birth_of(child_id, parent_ids, found, now=self._store.clock.now())

    def place(self, child_id: str, birth: Birth, *, due_at: float) -> dict[str, Any]:
        """The attribute that names the parents: a list while it is short, else the side item it was stored in."""
        if sum(utf8_size(parent_id) + 2 for parent_id in birth.parents) <= PARENTS_INLINE_BYTES:
            return {"dependsOn": list(birth.parents)}
        reference = parents_id(child_id, digest("\n".join(birth.parents)))
        keep_until = int(due_at) + BODY_RETENTION_SECONDS
        self._store.apply(put_body({"taskId": reference, "ids": list(birth.parents), "expiresAt": keep_until}))
        return {"dependsOnRef": reference}

    def complete(self, child: Task, birth: Birth) -> Task:
        """The second half of a submit: the remaining edges, and a look at each parent that may have ended meanwhile.

        Returns the child as it then is. Never raises for a failing store: the repair look does what is left.
        """
        try:
            awaited = [*birth.awaited, *(self._link_rest(child.task_id) if birth.unlinked else ())]
            if not awaited or self._watch(child.task_id, awaited) == 0:
                return child
            return self._store.get_task(child.task_id, consistent=True) or child
        except (StoreError, MalformedItem, BodyMissing) as error:
            left_to_repair(self._observer, child.task_id, error)
            return child

    def complete_again(self, child: Task) -> None:
        """A submit was repeated: whatever its first reply did not live to do is done now."""
        if child.blocked_count:
            self.look_at(child.task_id)

    def _link_rest(self, child_id: TaskId) -> list[str]:
        """Edges for the parents that have none yet, as many at a time as a transaction holds. Returns those awaited."""
        awaited: list[str] = []
        for _ in range(LINK_ROUNDS):
            child = self._store.get_task(child_id, consistent=True)
            unlinked = child.item.get("unlinked", 0) if child is not None else 0
            if child is None or not unlinked or not waits(child):
                return awaited
            parents = self.parents_of(child)
            chunk = parents[len(parents) - unlinked :][:EDGES_AT_ONCE]
            found = self._store.get_items(chunk, consistent=True)
            missing = [parent_id for parent_id in chunk if verdict_of(found.get(parent_id)) is not Verdict.SATISFIED]
            satisfied = len(chunk) - len(missing)
            if self._recount(child, child.blocked_count - satisfied, unlinked - len(chunk), missing):
                awaited += missing
        return awaited

    def _recount(self, child: Task, blocked: int, unlinked: int, missing: Sequence[str]) -> bool:
        """One transaction: the child's counts as seen become these, and the missing edges exist."""
        now = self._store.clock.now()
        due_at = opens_at(child, now)
        writes = [
            expressions.recount(
                child, blocked=blocked, unlinked=unlinked, due_at=due_at, layout=self._store.layout, now=now
            ),
            *(expressions.put_edge(parent_id, child.task_id, now=now) for parent_id in missing),
        ]
        return isinstance(self._store.transact(writes), Written)

    def _watch(self, child_id: str, parent_ids: Sequence[str]) -> int:
        """Mark the parents, so that their ends settle, and settle those that ended already. The read comes after the
        mark: an end before it is seen here, an end after it sees the mark. Returns how many were settled."""
        found = self._store.get_items(parent_ids, consistent=True)
        settled = 0
        for parent_id in parent_ids:
            parent = found.get(parent_id)
            if needs_mark(parent):
                parent = self._store.apply(expressions.mark_dependents(parent_id)).item
            if verdict_of(parent) is not Verdict.OPEN:
                self._settling.settle_all([(parent_id, parent, child_id)])
                settled += 1
        return settled

    # ---- the end of a parent: see `Settling` -------------------------------------------------------------------------

    def on_end(self, ended: Item | None) -> None:
        self._settling.on_end(ended)

    def on_end_of(self, task_id: str) -> None:
        self._settling.on_end_of(task_id)

    def settle(self, ended: Item) -> bool:
        return self._settling.settle(ended)

    # ---- redrive -----------------------------------------------------------------------------------------------------

    def after_redrive(self, task: Task) -> None:
        """A redriven task may be blocked again: its parents are looked at now (a dead one fails it at once)."""
        if task.blocked_count:
            self.look_at(task.task_id)

    def revive(self, redriven: Task, *, operator: Mapping[str, Any] | None = None) -> int:
        """The cascade of a redrive: dependents that failed because of this task wait for it again, and theirs for
        them. Returns how many were revived now. Repeating it for the same redrive goes on where it stopped.

        Raises a StoreError: then repeat it.
        """
        redrives = redriven.item.get("redriveIds", [])
        tag = f"{redriven.task_id}/{redrives[-1] if redrives else redriven.fence}"
        waiting, seen, revived = [str(redriven.task_id)], {str(redriven.task_id)}, 0
        while waiting:
            parent_id = waiting.pop()
            for key in self._store.walk(edge_key(parent_id)):
                child_id = child_of(key.task_id)
                outcome = self._revive_one(child_id, parent_id, tag, operator)
                revived += outcome == "revived"
                if outcome is not None and child_id not in seen:
                    seen.add(child_id)
                    waiting.append(child_id)
        return revived

    def _revive_one(self, child_id: str, parent_id: str, tag: str, operator: Mapping[str, Any] | None) -> str | None:
        """Says "revived" (by this call), "earlier" (by the same cascade), or None: it failed for another reason."""
        for _ in range(ROUNDS):
            child = self._store.get_task(child_id, consistent=True)
            if child is None:
                return None
            if any(str(entry).partition(":")[2] == tag for entry in child.item.get("redriveIds", [])):
                return "earlier"
            if child.status is not Status.FAILED or (child.item.get("error") or {}).get("parent") != parent_id:
                return None
            now = self._store.clock.now()
            self._bodies.renew(child, due_at=now)
            redrive_id = f"{child.fence}:{tag}"
            write = expressions.redrive(
                child, redrive_id=redrive_id, operator=operator, layout=self._store.layout, now=now
            )
            if isinstance(self._store.apply(write), Written):
                self._note("task.revived", child, parentId=parent_id)
                self.look_at(child.task_id)
                return "revived"
        raise StoreThrottled("UpdateItem", "Contention", f"task {child_id} keeps changing")

    # ---- reading -----------------------------------------------------------------------------------------------------

    def parents_of(self, task: Task) -> tuple[str, ...]:
        """The parents named at submit, in that order, each once. Raises BodyMissing when their list is gone."""
        reference = task.item.get("dependsOnRef")
        if reference is None:
            return tuple(task.item.get("dependsOn", ()))
        stored = self._store.get_item(reference)
        if stored is None:
            raise BodyMissing(reference)
        return tuple(stored.get("ids", ()))

    def blocked_by(self, task: Task) -> list[str]:
        """The parents this task still waits for (as of a moment ago). Empty unless it is blocked."""
        if task.status is not Status.PENDING or not task.blocked_count:
            return []
        parents = self.parents_of(task)
        linked = len(parents) - task.item.get("unlinked", 0)
        edges = self._store.get_items(edge_id(parent_id, task.task_id) for parent_id in parents[:linked])
        return [parent_id for parent_id in parents[:linked] if edge_id(parent_id, task.task_id) in edges] + list(
            parents[linked:]
        )

    def results_of_parents(self, task: Task) -> dict[str, Any]:
        """Each parent's result as a JSON value; None for one that was skipped, is gone, or whose body is gone."""
        parents = self.parents_of(task)
        items = self._store.get_items(parents)
        return {parent_id: self._result_of(items.get(parent_id)) for parent_id in parents}

    def _result_of(self, parent: Item | None) -> Any:
        if parent is None:
            return None
        try:
            text = self._bodies.result(Task.from_item(parent))
        except (BodyMissing, MalformedItem):
            return None
        return None if text is None else loads(text)

    def forget(self, task: Task) -> None:
        """A task is erased: what it alone owns goes, edges to dead parents and its list of parents."""
        if task.blocked_count:
            for parent_id in self.parents_of(task):
                self._store.delete_body(edge_id(parent_id, task.task_id))
        if (reference := task.item.get("dependsOnRef")) is not None:
            self._store.delete_body(reference)

    # ---- repair ------------------------------------------------------------------------------------------------------

    def repair(self, partitions: Sequence[str]) -> int:
        """The reaper's part: look at blocked tasks whose time has come, from a random partition on, for a bounded
        time. Returns how many were looked at. Raises a StoreError only when the index cannot be read."""
        until = self._store.clock.monotonic() + REPAIR_SECONDS
        first = self._store.randomness.below(len(partitions)) if partitions else 0
        looked = 0
        for partition in [*partitions[first:], *partitions[:first]]:
            for key in self._store.walk(partition, until=self._store.clock.now()):
                self.look_at(key.task_id)
                looked += 1
                if self._store.clock.monotonic() > until:
                    return looked
        return looked

    def look_at(self, child_id: str) -> None:
        """Mend one blocked task: missing edges, counts, marks, parents that ended unheard. Then set its next look."""
        try:
            child = self._read_blocked(child_id)
            if child is not None:
                self._mend(child)
                self._look_later(child.task_id)
        except (StoreError, MalformedItem, BodyMissing) as error:
            left_to_repair(self._observer, child_id, error)

    def _read_blocked(self, child_id: str) -> Task | None:
        """The task when it still waits; what stands under a BLOCKED key for another reason is put right."""
        item = self._store.get_item(child_id, consistent=True)
        if item is None:
            return None
        now, layout = self._store.clock.now(), self._store.layout
        try:
            child = Task.from_item(item)
        except MalformedItem as problem:
            self._store.apply(expressions.park(item, problem=problem.problem, layout=layout, now=now))
            raise
        if child.is_terminal:
            if str(child.dispatch_key).startswith("BLOCKED#"):
                self._store.apply(expressions.relist(child, layout=layout))
            return child if waits(child) and child.item.get("unlinked") else None
        if child.status is not Status.PENDING or not str(child.dispatch_key).startswith("BLOCKED#"):
            return None
        if child.deadline is not None and child.deadline <= now:
            answer = self._store.apply(expressions.expire(child, layout=layout, now=now))
            if isinstance(answer, Written):
                self._note("task.expired", child)
                self.on_end(answer.item)
            return None
        return child

    def _mend(self, child: Task) -> None:
        if child.item.get("unlinked"):
            self._link_rest(child.task_id)
            child = self._store.get_task(child.task_id, consistent=True) or child
        parents = self.parents_of(child)
        unlinked = child.item.get("unlinked", 0)
        linked = parents[: len(parents) - unlinked]
        edges = self._store.get_items((edge_id(parent_id, child.task_id) for parent_id in linked), consistent=True)
        awaited = [parent_id for parent_id in linked if edge_id(parent_id, child.task_id) in edges]
        if len(awaited) + unlinked != child.blocked_count or not child.blocked_count:
            awaited += self._restore(child, [parent_id for parent_id in linked if parent_id not in awaited], awaited)
        if child.status is Status.PENDING:
            self._watch(child.task_id, awaited)

    def _restore(self, child: Task, without_edge: Sequence[str], awaited: Sequence[str]) -> list[str]:
        """Edges and count disagree (rows were lost or edited by hand). An edge is missing if its parent is stored and
        has not satisfied; a parent that is gone had: its edge would have been kept otherwise."""
        found = self._store.get_items(without_edge, consistent=True)
        lost = [parent_id for parent_id in found if verdict_of(found[parent_id]) is not Verdict.SATISFIED]
        unlinked = child.item.get("unlinked", 0)
        now_linked = lost[:EDGES_AT_ONCE]  # more are restored by the next looks
        if self._recount(child, len(awaited) + len(lost) + unlinked, unlinked, now_linked):
            self._note("task.recounted", child, level="WARNING", edges=len(awaited) + len(lost))
        return now_linked

    def _look_later(self, child_id: TaskId) -> None:
        child = self._store.get_task(child_id, consistent=True)
        if child is not None and child.status is Status.PENDING and child.blocked_count:
            now = self._store.clock.now()
            until = expressions.next_look(now, created_at=child.created_at, deadline=child.deadline)
            self._store.apply(expressions.look_again(child, until=until))

    # ---- below -------------------------------------------------------------------------------------------------------

    def _note(self, event: str, task: Task, *, level: str = "INFO", **fields: Any) -> None:
        self._observer.log(event, level=level, **ids_of(task), **fields)
