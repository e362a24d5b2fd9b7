"""The invariants as far as one item, or one change of it, can show them. Pure; `audit` looks at what takes more reads.

The numbers are those of ARCHITECTURE §8 and docs/audit.md. Every write of a task is atomic, so an item that breaks one
of these rules was left so by a defect or by a hand; only the rules that compare with the clock need a second look.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

from thunderagent.codec import Item
from thunderagent.states import TERMINAL, TRANSITIONS, Status

REAPER_PERIOD_SECONDS = 60
LEASES_KEPT, KEYS_FIT, NO_TTL_WHILE_OPEN, RETRIES_BOUND = 3, 4, 5, 6
RUNNING_IS_LEASED, ONE_SUCCESS, EDGES_MATCH, SLOTS_LAPSE, ALL_OWNED, NONE_LOST = 2, 7, 8, 9, 10, 1
OPEN_KEYS = ("OPEN#", "RUNNING#", "BLOCKED#")
OWN_LIFE = ("control#", "schedule#", "counter#")  # they belong to the service itself, not to a task
SHOWN_CHARACTERS = 14  # of a lease's id: the whole token is a right

_ALLOWED = {(row.source, row.target) for row in TRANSITIONS if row.source is not None}


@dataclass(frozen=True, order=True)
class Finding:
    """One broken invariant. Equal findings of two looks are one."""

    invariant: int
    item_id: str
    problem: str

    @property
    def shown_id(self) -> str:
        return self.item_id[:SHOWN_CHARACTERS] if self.item_id.startswith("lease#") else self.item_id

    def as_fields(self) -> dict[str, Any]:
        """For a log line or an answer."""
        return {"invariant": self.invariant, "taskId": self.shown_id, "problem": self.problem}


def is_task(item: Item) -> bool:
    status = item.get("status")
    return "#" not in str(item["taskId"]) and isinstance(status, str) and status in Status.__members__


def patience_seconds(grace_seconds: float) -> float:
    """How long after a lease's end the reaper may take: the grace and two of its periods."""
    return grace_seconds + 2 * REAPER_PERIOD_SECONDS


def item_findings(item: Item, *, now: float, grace_seconds: float) -> Iterator[Finding]:
    """What this item alone shows to be wrong."""
    item_id = str(item["taskId"])
    if item_id.startswith("lease#"):
        yield from _lease_findings(item_id, item, now - patience_seconds(grace_seconds))
    elif is_task(item):
        yield from _task_findings(item_id, item)


def _lease_findings(item_id: str, item: Item, latest: float) -> Iterator[Finding]:
    lock_time = item.get("lockTime")
    if not isinstance(lock_time, int | float):
        yield Finding(LEASES_KEPT, item_id, "a lease without lockTime")
    elif lock_time < latest:
        yield Finding(LEASES_KEPT, item_id, "a lease that no reaper has taken")


def _task_findings(item_id: str, item: Item) -> Iterator[Finding]:
    status, key = item["status"], str(item.get("dispatchKey", ""))
    under_open_key = key.startswith(OPEN_KEYS)
    if status in TERMINAL:
        if under_open_key:
            yield Finding(KEYS_FIT, item_id, f"{status} under a key of open tasks")
    else:
        if not key or not isinstance(item.get("dueAt"), int | float):
            yield Finding(KEYS_FIT, item_id, f"{status} without a key: nobody finds it")
        elif not under_open_key:
            yield Finding(KEYS_FIT, item_id, f"{status} under a key of ended tasks")
        if "expiresAt" in item:
            yield Finding(NO_TTL_WHILE_OPEN, item_id, f"{status} with a time to live")
    retries, most = item.get("retryCount"), item.get("maxRetryNumber")
    if isinstance(retries, int | float) and isinstance(most, int | float) and retries > most:
        yield Finding(RETRIES_BOUND, item_id, "more retries than it may have")
    if status == Status.RUNNING and not ("leaseToken" in item and "lockTime" in item):
        yield Finding(RUNNING_IS_LEASED, item_id, "RUNNING without a token or a lock")


def change_findings(old: Item | None, new: Item | None) -> Iterator[Finding]:
    """What only the item before and after one write can show: an end that was ended again, a fence that fell."""
    if old is None or new is None or not (is_task(old) and is_task(new)):
        return
    item_id = str(new["taskId"])
    before, after = Status(old["status"]), Status(new["status"])
    fence_before, fence_after = old.get("fence", 0), new.get("fence", 0)
    if _is_number(fence_before) and _is_number(fence_after) and fence_after < fence_before:
        yield Finding(ONE_SUCCESS, item_id, "its fence fell")
    if before is not after and (before, after) not in _ALLOWED:
        yield Finding(ONE_SUCCESS, item_id, f"{before} became {after}")
    elif before is after and before in TERMINAL and old.get("finishedAt") != new.get("finishedAt"):
        yield Finding(ONE_SUCCESS, item_id, f"{before} ended a second time")


def _is_number(value: Any) -> bool:
    return isinstance(value, int | float)
