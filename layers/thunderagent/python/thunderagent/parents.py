"""What is known of parents: whether one satisfies its children, and how a task that names some is born. No I/O."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from enum import Enum

from thunderagent import expressions
from thunderagent.codec import Item
from thunderagent.conditions import Write
from thunderagent.errors import InvalidInput, Unprocessable
from thunderagent.model import Failure, Task
from thunderagent.schema import EDGES_AT_ONCE, PARENTS_MAX
from thunderagent.states import Outcome, Status

DEPENDENCY_FAILED = "dependency_failed"
NAMED_AT_MOST = 3  # unknown parents in one error message


class Verdict(Enum):
    """What a parent means for those who wait for it."""

    OPEN = "it has not ended"
    SATISFIED = "SUCCESS, or DONE because it was skipped or acknowledged; that never changes"
    DEAD = "FAILED, cancelled, expired or gone; only a redrive of a FAILED one changes that"


def verdict_of(parent: Item | None) -> Verdict:
    """The verdict on a parent as stored (None: there is no such item)."""
    status = parent.get("status") if parent is not None else Status.FAILED
    if status == Status.SUCCESS:
        return Verdict.SATISFIED
    if status == Status.DONE:
        well = parent is not None and parent.get("outcome") in {Outcome.SKIPPED, Outcome.ACKNOWLEDGED}
        return Verdict.SATISFIED if well else Verdict.DEAD
    return Verdict.DEAD if status == Status.FAILED else Verdict.OPEN


def needs_mark(parent: Item | None) -> bool:
    """Whether a later end of it would not know yet that somebody waits."""
    lively = parent is not None and parent.get("status") in {Status.PENDING, Status.RUNNING, Status.FAILED}
    return lively and parent is not None and not parent.get("hasDependents")


def failure_for(parent_id: str, parent: Item | None) -> Failure:
    """The error of a child: it names the parent, and what a longer chain of failures began with."""
    return Failure("DependencyFailed", f"parent {parent_id} {_fate(parent)}", DEPENDENCY_FAILED, parent_id)


def _fate(parent: Item | None) -> str:
    if parent is None:
        return "is gone"
    if parent.get("status") == Status.DONE:
        return "expired" if parent.get("outcome") == Outcome.EXPIRED else "was cancelled"
    error = parent.get("error") or {}
    if error.get("reason") == DEPENDENCY_FAILED:
        return f"failed: {str(error.get('message', '')).rpartition(': ')[2]}"
    return f"failed ({error.get('reason', 'error')})"


def waits(child: Task) -> bool:
    """Whether its count means something: it is blocked, or it failed for a parent and may be redriven."""
    return child.blocked_count > 0 and child.status in {Status.PENDING, Status.FAILED}


def opens_at(child: Task, now: float) -> float:
    """When an unblocked task is due: not before the time it was submitted for, never past its deadline."""
    due_at = max(now, float(child.item.get("runAt", now)))
    return due_at if child.deadline is None else min(due_at, child.deadline)


@dataclass(frozen=True)
class Birth:
    """How a task with parents is put: in one transaction with the edges to the first parents that have not satisfied.

    `unlinked` parents, at the end of the list, get theirs in further transactions. `death` is why it is born FAILED.
    """

    parents: tuple[str, ...]
    awaited: tuple[str, ...]
    unlinked: int
    death: Failure | None

    @property
    def blocked_count(self) -> int:
        return len(self.awaited) + self.unlinked

    def edges(self, child_id: str, *, now: float) -> list[Write]:
        return [expressions.put_edge(parent_id, child_id, now=now) for parent_id in self.awaited]


def birth_of(child_id: str, parent_ids: Sequence[str], found: Mapping[str, Item], *, now: float) -> Birth:
    """Judge the parents as they were read. Raises InvalidInput or Unprocessable (unknown, self)."""
    parents = checked(child_id, parent_ids)
    unknown = [parent_id for parent_id in parents if not _is_known(found.get(parent_id), now)]
    if unknown:
        more = f" and {len(unknown) - NAMED_AT_MOST} more" if len(unknown) > NAMED_AT_MOST else ""
        named = ", ".join(unknown[:NAMED_AT_MOST])
        raise Unprocessable(f"there is no task {named}{more}", path="dependsOn", code="unknown_dependency")
    missing = [place for place, each in enumerate(parents) if verdict_of(found[each]) is not Verdict.SATISFIED]
    linked_up_to = missing[EDGES_AT_ONCE] if len(missing) > EDGES_AT_ONCE else len(parents)
    dead = next((parent_id for parent_id in parents if verdict_of(found[parent_id]) is Verdict.DEAD), None)
    return Birth(
        parents=parents,
        awaited=tuple(parents[place] for place in missing if place < linked_up_to),
        unlinked=len(parents) - linked_up_to,
        death=failure_for(dead, found[dead]) if dead is not None else None,
    )


def checked(child_id: str, parent_ids: Sequence[str]) -> tuple[str, ...]:
    """The parents, each once. Raises InvalidInput for too many, Unprocessable for the task itself."""
    parents = tuple(dict.fromkeys(parent_ids))
    if len(parents) > PARENTS_MAX:
        raise InvalidInput(f"dependsOn has {len(parents)} entries; at most {PARENTS_MAX} are allowed", path="dependsOn")
    if child_id in parents:
        raise Unprocessable("a task cannot depend on itself", path="dependsOn", code="dependency_cycle")
    return parents


def _is_known(item: Item | None, now: float) -> bool:
    """A task as readers see it: not a side item, and not one past its time to live."""
    if item is None or "type" not in item or item.get("status") not in Status.__members__:
        return False
    expires_at = item.get("expiresAt")
    return not isinstance(expires_at, int | float) or expires_at > now
