"""Frozen values the protocol works on: a task, a lease, an index key. Read from items, never written back whole."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field
from typing import Any, NewType

from thunderagent.codec import Item
from thunderagent.errors import MalformedItem
from thunderagent.schema import FORMAT_VERSION, PRIORITIES, TASK_ATTRIBUTES
from thunderagent.states import TERMINAL, Status

TaskId = NewType("TaskId", str)
LeaseToken = NewType("LeaseToken", str)

_PYTHON_TYPES: dict[str, tuple[type, ...]] = {
    "S": (str,),
    "N": (int, float),
    "BOOL": (bool,),
    "M": (dict,),
    "L": (list,),
}
_REQUIRED = ("type", "queue", "status", "retryCount", "maxRetryNumber", "createdAt")
_COUNTS = ("retryCount", "maxRetryNumber", "fence", "lost", "blockedCount", "unlinked", "depth")
_WHOLE = (*_COUNTS, "payloadBytes", "resultBytes")
_NESTED = tuple(name for name, tag in TASK_ATTRIBUTES.items() if tag in ("M", "L"))
_TYPED = tuple((name, _PYTHON_TYPES[tag], tag == "N") for name, tag in TASK_ATTRIBUTES.items())
_STATUSES = (None, *Status.__members__)  # no set: a damaged status may be a list


@dataclass(frozen=True)
class Task:
    """A task as stored. `item` is the whole plain item: conditions 'as seen' are made from it.

    Times are epoch seconds. `payload` and `result` are JSON text when inline; otherwise the `…_ref` names the body.
    """

    task_id: TaskId
    type: str
    queue: str
    priority: str
    status: Status
    retry_count: int
    max_retry_number: int
    fence: int
    created_at: float
    item: Item = field(repr=False, compare=False)
    payload: str | None = field(default=None, repr=False)
    payload_ref: str | None = None
    due_at: float = 0
    lock_time: float | None = None
    lease_token: LeaseToken | None = field(default=None, repr=False)
    timeout_seconds: float = 300
    deadline: float | None = None
    started_at: float | None = None
    finished_at: float | None = None
    updated_at: float | None = None
    expires_at: float | None = None
    result: str | None = field(default=None, repr=False)
    result_ref: str | None = None
    blocked_count: int = 0
    lost: int = 0
    cancel_requested: bool = False
    outcome: str | None = None
    dispatch_key: str | None = None

    @staticmethod
    def from_item(item: Item) -> Task:
        """Read a stored task. Raises MalformedItem, saying what is wrong, when the row has not a task's form."""
        task_id = str(item.get("taskId", "?"))
        check_form(task_id, item)
        return Task(
            task_id=TaskId(task_id),
            type=item["type"],
            queue=item["queue"],
            priority=item.get("priority", "normal"),
            status=Status(item["status"]),
            retry_count=item["retryCount"],
            max_retry_number=item["maxRetryNumber"],
            fence=item.get("fence", 0),
            created_at=item["createdAt"],
            item=item,
            payload=item.get("payload"),
            payload_ref=item.get("payloadRef"),
            due_at=item.get("dueAt", 0),
            lock_time=item.get("lockTime"),
            lease_token=item.get("leaseToken"),
            timeout_seconds=item.get("timeoutSeconds", 300),
            deadline=item.get("deadline"),
            started_at=item.get("startedAt"),
            finished_at=item.get("finishedAt"),
            updated_at=item.get("updatedAt"),
            expires_at=item.get("expiresAt"),
            result=item.get("result"),
            result_ref=item.get("resultRef"),
            blocked_count=item.get("blockedCount", 0),
            lost=item.get("lost", 0),
            cancel_requested=item.get("cancelRequested", False),
            outcome=item.get("outcome"),
            dispatch_key=item.get("dispatchKey"),
        )

    @property
    def is_terminal(self) -> bool:
        return self.status in TERMINAL

    @property
    def attempts(self) -> list[dict[str, Any]]:
        return list(self.item.get("attempts", []))

    @property
    def attempt(self) -> int:
        """The number of the attempt that a claim would start or has started, from 1."""
        return self.retry_count + 1

    def is_shown(self, now: float) -> bool:
        """A terminal task past its time to live is gone for readers, even before DynamoDB removes it."""
        return not (self.is_terminal and self.expires_at is not None and self.expires_at <= now)


def is_of_newer_format(item: Mapping[str, Any]) -> bool:
    """Whether a later version of the library wrote the row. This one does not know what it means: it is left alone."""
    version = item.get("formatVersion")
    return isinstance(version, int | float) and not isinstance(version, bool) and version > FORMAT_VERSION


def check_form(task_id: str, item: Mapping[str, Any]) -> None:
    """Raise MalformedItem unless every known attribute has its type and the required ones are there."""
    if "#" in task_id:
        raise MalformedItem(task_id, "this is the id of a side item")
    for name, problem in _flaws(item):
        raise MalformedItem(task_id, f"{name} {problem}")


def mended(item: Mapping[str, Any], *, now: float) -> dict[str, Any]:
    """The attributes that keep a row from being read as a task, with what makes it one: None takes an attribute away.

    For rows that are parked: a dead letter that no reader could show would be none. The status is left to the caller.
    """
    stand_ins = {"type": "malformed", "queue": "default", "retryCount": 0, "maxRetryNumber": 0, "createdAt": now}
    return {name: stand_ins.get(name) for name, _ in _flaws(item) if name != "status"}


def _flaws(item: Mapping[str, Any]) -> Iterator[tuple[str, str]]:
    """The attributes that are not as a task has them, and what is wrong with each."""
    for name in _REQUIRED:
        if item.get(name) is None:
            yield name, "is missing"
    for name, types, is_number in _TYPED:  # every claim and every look reads tasks: no call for each attribute
        if name in item and (not isinstance(item[name], types) or (is_number and isinstance(item[name], bool))):
            yield name, "has the wrong type"
    for name in _WHOLE:
        if name in item and not (isinstance(item[name], int) and item[name] >= 0):
            yield name, "is not a whole number"
    for name in _NESTED:
        if name in item and not _is_json(item[name]):
            yield name, "holds a value that JSON has not"
    if isinstance(item.get("steps"), dict) and not all(map(_is_step, item["steps"].values())):
        yield "steps", "holds something that is no step"
    if item.get("status") not in _STATUSES:
        yield "status", "is unknown"
    if item.get("priority", "normal") not in PRIORITIES:
        yield "priority", "is unknown"


def _is_step(value: Any) -> bool:
    return isinstance(value, dict) and isinstance(value.get("n"), int) and isinstance(value.get("result"), str)


@dataclass(frozen=True)
class Lease:
    """The right to run one batch. `started` only grows; `cancelled` brings cancel requests to the heartbeat."""

    token: LeaseToken
    profile: str
    lock_time: float
    due_at: float
    task_ids: tuple[TaskId, ...]
    begun: str | None = None
    closed: bool = False
    started: frozenset[str] = frozenset()
    cancelled: frozenset[str] = frozenset()

    @staticmethod
    def from_item(item: Item) -> Lease:
        """Read a stored lease. Raises MalformedItem when it has not a lease's form."""
        lease_id = str(item.get("taskId", "?"))
        if not lease_id.startswith("lease#") or not _is_number(item.get("lockTime")):
            raise MalformedItem(lease_id, "not a lease, or its lockTime is missing")
        wrong = [name for name, has_form in _LEASE_FORM.items() if name in item and not has_form(item[name])]
        if wrong:
            raise MalformedItem(lease_id, f"{wrong[0]} has the wrong type")
        return Lease.salvaged(item)

    @staticmethod
    def salvaged(item: Item) -> Lease:
        """What can be read of a lease that may be malformed: enough to close it and to take back what it names.

        `lock_time` is as stored, whatever that is: it is compared "as seen" only.
        """
        readable = {name: item[name] for name, has_form in _LEASE_FORM.items() if name in item and has_form(item[name])}
        lock_time: Any = item.get("lockTime")
        return Lease(
            token=LeaseToken(str(item.get("taskId", "")).removeprefix("lease#")),
            profile=readable.get("profile", "default"),
            lock_time=lock_time,
            due_at=readable.get("dueAt", lock_time),
            task_ids=tuple(TaskId(task_id) for task_id in readable.get("taskIds", ())),
            begun=readable.get("begun"),
            closed="closed" in item,
            started=readable.get("started", frozenset()),
            cancelled=readable.get("cancelled", frozenset()),
        )


def _is_json(value: Any) -> bool:
    """Whether readers can be shown it. DynamoDB nests 32 levels at most."""
    if isinstance(value, dict):
        return all(map(_is_json, value.values()))
    if isinstance(value, list):
        return all(map(_is_json, value))
    return value is None or isinstance(value, str | int | float)


def _is_number(value: Any) -> bool:
    return isinstance(value, int | float) and not isinstance(value, bool)


_LEASE_FORM: dict[str, Callable[[Any], bool]] = {
    "profile": lambda value: isinstance(value, str),
    "dueAt": _is_number,
    "taskIds": lambda value: isinstance(value, list) and all(isinstance(entry, str) and entry for entry in value),
    "begun": lambda value: isinstance(value, str),
    "started": lambda value: isinstance(value, frozenset),
    "cancelled": lambda value: isinstance(value, frozenset),
}


@dataclass(frozen=True)
class IndexKey:
    """One entry of `dispatch-index`: a hint where to look, possibly stale."""

    task_id: str
    dispatch_key: str
    due_at: float


@dataclass(frozen=True)
class Attempt:
    """One line of a task's history, as stored in `attempts` (short names: every state change pays for the item)."""

    number: int
    started_at: float | None
    ended_at: float
    outcome: str
    error_type: str | None = None
    message: str | None = None

    def as_entry(self) -> dict[str, Any]:
        entry = {
            "attempt": self.number,
            "startedAt": self.started_at,
            "endedAt": self.ended_at,
            "outcome": self.outcome,
            "errorType": self.error_type,
            "message": self.message,
        }
        return {name: value for name, value in entry.items() if value is not None}


@dataclass(frozen=True)
class Failure:
    """Why an attempt or a task failed. `reason` is a stable word: error, timeout, permanent, worker_lost, …"""

    type: str
    message: str
    reason: str = "error"
    parent: str | None = None  # the parent that will never succeed, when that is why

    def as_map(self, *, at: float) -> dict[str, Any]:
        told = {"type": self.type, "message": self.message, "reason": self.reason, "at": at}
        return told if self.parent is None else {**told, "parent": self.parent}
