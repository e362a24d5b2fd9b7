"""The task state machine as data: what may happen, from where, by whose right. Code, tests and docs read this table."""

from __future__ import annotations

from dataclasses import dataclass, field
from enum import StrEnum


class Status(StrEnum):
    """The stored states of a task. Each comment says who moves a task out of it, and when."""

    PENDING = "PENDING"  # a poller claims it once it is due; the API cancels it; poller or reaper expires it
    RUNNING = "RUNNING"  # the holder of its lease token ends it; the reaper does, once that lease is closed or gone
    SUCCESS = "SUCCESS"  # a client acknowledges the result; otherwise it stays until its time to live ends
    FAILED = "FAILED"  # the dead letter: an operator redrives it; otherwise its time to live ends
    DONE = "DONE"  # nobody: nothing left to do (skipped, cancelled, expired, acknowledged)


TERMINAL = frozenset({Status.SUCCESS, Status.FAILED, Status.DONE})


def is_terminal(status: object) -> bool:
    """Of a stored value, whatever others have made of it: a list can be in no set."""
    return isinstance(status, str) and status in TERMINAL


class Outcome(StrEnum):
    """Why a task is DONE."""

    SKIPPED = "skipped"
    CANCELLED = "cancelled"
    EXPIRED = "expired"
    ACKNOWLEDGED = "acknowledged"


class Event(StrEnum):
    SUBMIT = "submit"
    CLAIM = "claim"
    DEFER = "defer"
    PARK = "park"
    STEP = "step"
    PROGRESS = "progress"
    MOVE_ASIDE = "move_aside"
    REPAIR = "repair"
    COMMIT = "commit"
    FINISH = "finish"
    RETRY = "retry"
    FAIL = "fail"
    RELEASE = "release"
    SNOOZE = "snooze"
    REAP = "reap"
    REAP_FAILED = "reap_failed"
    CANCEL = "cancel"
    CANCEL_REQUEST = "cancel_request"
    CANCEL_END = "cancel_end"
    EXPIRE = "expire"
    UNBLOCK = "unblock"
    PARENT_FAILED = "parent_failed"
    REDRIVE = "redrive"
    ACKNOWLEDGE = "acknowledge"


class Proof(StrEnum):
    """What the write's condition must show, besides the item's existence and its status."""

    ABSENT = "the item does not exist"
    AS_SEEN = "fence and dueAt as seen"
    DUE_AS_SEEN = "dueAt as seen"
    FENCE_AS_SEEN = "fence as seen"
    READY = "due, not blocked, before its deadline, of this home region, of a format known here"
    TOKEN = "the lease token is mine"
    TOKEN_AS_SEEN = "the lease token as seen"
    NOT_CANCELLED = "no cancel requested"
    CANCEL_REQUESTED = "a cancel was requested"
    LAPSED = "the lease token seen, of a lease that is closed or gone"
    LATE = "the deadline has passed"
    EDGE = "the edge to that parent exists, deleted in the same transaction"
    DEAD_PARENT = "the edge exists and that parent is as dead as seen, in the same transaction"
    BLOCKED = "a parent is waited for"
    UNCHANGED = "updatedAt as seen"
    STATUS_ONLY = "nothing more"


LEASED = frozenset({"leaseToken", "lockTime", "owner"})
LISTED = frozenset({"dispatchKey", "dueAt"})


@dataclass(frozen=True)
class Transition:
    """One row: `sets` are always written, `removes` are gone afterwards; `may_set` and `may_remove` depend on the task.

    Terminal tasks that are not listed (LIST_COMPLETED off) have LISTED removed instead of set.
    """

    event: Event
    source: Status | None
    target: Status
    proofs: tuple[Proof, ...]
    effect: str
    sets: frozenset[str] = field(default_factory=frozenset)
    may_set: frozenset[str] = field(default_factory=frozenset)
    removes: frozenset[str] = field(default_factory=frozenset)
    may_remove: frozenset[str] = field(default_factory=frozenset)


_HELD = (Proof.TOKEN, Proof.NOT_CANCELLED)
_END = frozenset({"status", "updatedAt", "finishedAt", "expiresAt"})
_END_REMOVES = frozenset({"lockTime", "owner", "deferredFor"})
_BACK = frozenset({"status", "updatedAt", "dueAt", "dispatchKey"})
_BACK_REMOVES = LEASED
_BODY = frozenset({"result", "resultRef", "resultBytes"})
_S, _F = frozenset, Status

TRANSITIONS: tuple[Transition, ...] = (
    Transition(Event.SUBMIT, None, _F.PENDING, (Proof.ABSENT,), "the task exists"),
    Transition(
        Event.CLAIM,
        _F.PENDING,
        _F.RUNNING,
        (Proof.AS_SEEN, Proof.READY),
        "lease token and lock set, fence + 1",
        sets=_S({"status", "leaseToken", "lockTime", "owner", "fence", "startedAt", "updatedAt"}),
        removes=_S({"deferredFor"}),
    ),
    Transition(
        Event.DEFER,
        _F.PENDING,
        _F.PENDING,
        (Proof.DUE_AS_SEEN,),
        "looked at again at most 60 s later, with the reason",
        sets=_S({"dueAt", "deferredFor", "updatedAt"}),
    ),
    Transition(
        Event.PARK,
        _F.PENDING,
        _F.FAILED,
        (Proof.UNCHANGED,),
        "a row that can never run becomes a dead letter, what is damaged of it mended or taken away",
        sets=_END | LISTED | {"error"},
        removes=_END_REMOVES,
    ),
    Transition(
        Event.PARK,
        _F.RUNNING,
        _F.FAILED,
        (Proof.UNCHANGED,),
        "so does a RUNNING row that is malformed, once its lock has passed",
        sets=_END | LISTED | {"error"},
        removes=_END_REMOVES,
    ),
    Transition(
        Event.STEP,
        _F.RUNNING,
        _F.RUNNING,
        _HELD,
        "the result of one step is remembered",
        sets=_S({"steps", "updatedAt"}),
    ),
    Transition(
        Event.PROGRESS,
        _F.RUNNING,
        _F.RUNNING,
        _HELD,
        "fraction and message",
        sets=_S({"progress", "updatedAt"}),
    ),
    Transition(
        Event.MOVE_ASIDE,
        _F.RUNNING,
        _F.RUNNING,
        (Proof.TOKEN,),
        "a long task leaves the head of the open partition",
        sets=_S({"dispatchKey"}),
    ),
    Transition(
        Event.REPAIR,
        _F.RUNNING,
        _F.RUNNING,
        (Proof.TOKEN_AS_SEEN,),
        "a lost lockTime is set again",
        sets=_S({"lockTime"}),
    ),
    Transition(
        Event.COMMIT,
        _F.RUNNING,
        _F.SUCCESS,
        _HELD,
        "the result is stored",
        sets=_END | {"startedAt"},
        may_set=_BODY | LISTED | {"attempts"},
        removes=_END_REMOVES | {"error"},
        may_remove=_BODY | {"attempts"},
    ),
    Transition(
        Event.FINISH,
        _F.RUNNING,
        _F.DONE,
        _HELD,
        "the handler said there is nothing to keep (skipped)",
        sets=_END | {"outcome", "startedAt"},
        may_set=LISTED | {"outcomeReason"},
        removes=_END_REMOVES | {"error"},
    ),
    Transition(
        Event.RETRY,
        _F.RUNNING,
        _F.PENDING,
        _HELD,
        "retryCount + 1, due again after the backoff",
        sets=_BACK | {"retryCount", "error", "attempts", "exitedBy"},
        removes=_BACK_REMOVES,
    ),
    Transition(
        Event.FAIL,
        _F.RUNNING,
        _F.FAILED,
        _HELD,
        "retries used up, or a permanent error: the dead letter",
        sets=_END | LISTED | {"error", "startedAt", "attempts"},
        may_set=_BODY,
        removes=_END_REMOVES,
        may_remove=_BODY,
    ),
    Transition(
        Event.RELEASE,
        _F.RUNNING,
        _F.PENDING,
        _HELD,
        "handed back unharmed, 1-5 s later",
        sets=_BACK | {"exitedBy"},
        removes=_BACK_REMOVES,
    ),
    Transition(
        Event.SNOOZE,
        _F.RUNNING,
        _F.PENDING,
        _HELD,
        "later, no retry spent",
        sets=_BACK | {"exitedBy", "attempts"},
        removes=_BACK_REMOVES,
    ),
    Transition(
        Event.REAP,
        _F.RUNNING,
        _F.PENDING,
        (Proof.LAPSED, Proof.NOT_CANCELLED),
        "a started attempt costs a retry and raises lost; one that never started is free",
        sets=_BACK | {"exitedBy"},
        may_set=_S({"retryCount", "lost", "error", "attempts"}),
        removes=_BACK_REMOVES,
    ),
    Transition(
        Event.REAP_FAILED,
        _F.RUNNING,
        _F.FAILED,
        (Proof.LAPSED, Proof.NOT_CANCELLED),
        "the worker was lost and no retry is left",
        sets=_END | LISTED | {"error", "attempts", "lost"},
        removes=_END_REMOVES,
    ),
    Transition(
        Event.CANCEL,
        _F.PENDING,
        _F.DONE,
        (Proof.FENCE_AS_SEEN,),
        "outcome cancelled",
        sets=_END | {"outcome"},
        may_set=LISTED | {"outcomeReason", "operator"},
        removes=_END_REMOVES | {"blockedCount"},
    ),
    Transition(
        Event.CANCEL_REQUEST,
        _F.RUNNING,
        _F.RUNNING,
        (Proof.TOKEN_AS_SEEN,),
        "no exit but CANCEL_END is open any more",
        sets=_S({"cancelRequested", "updatedAt"}),
        may_set=_S({"outcomeReason", "operator"}),
    ),
    Transition(
        Event.CANCEL_END,
        _F.RUNNING,
        _F.DONE,
        (Proof.TOKEN_AS_SEEN, Proof.CANCEL_REQUESTED),
        "outcome cancelled",
        sets=_END | {"outcome"},
        may_set=LISTED | {"attempts", "startedAt"},
        removes=_END_REMOVES,
    ),
    Transition(
        Event.EXPIRE,
        _F.PENDING,
        _F.DONE,
        (Proof.LATE,),
        "outcome expired",
        sets=_END | {"outcome"},
        may_set=LISTED,
        removes=_END_REMOVES | {"blockedCount"},
    ),
    Transition(
        Event.UNBLOCK,
        _F.PENDING,
        _F.PENDING,
        (Proof.EDGE,),
        "blockedCount - 1; the last one makes it due",
        sets=_S({"blockedCount", "updatedAt"}),
        may_set=LISTED,
    ),
    Transition(
        Event.UNBLOCK,
        _F.FAILED,
        _F.FAILED,
        (Proof.EDGE,),
        "a child that failed for another parent keeps count, so that a redrive knows for how many to wait",
        sets=_S({"blockedCount", "updatedAt"}),
    ),
    Transition(
        Event.PARENT_FAILED,
        _F.PENDING,
        _F.FAILED,
        (Proof.DEAD_PARENT, Proof.BLOCKED),
        "the error names the parent; blockedCount stays",
        sets=_END | LISTED | {"error"},
        removes=_END_REMOVES,
    ),
    Transition(
        Event.REDRIVE,
        _F.FAILED,
        _F.PENDING,
        (Proof.FENCE_AS_SEEN,),
        "a full budget again; history and steps kept; blocked again while parents are missing",
        sets=_BACK | {"retryCount", "lost", "fence", "redriveIds"},
        may_set=_S({"operator"}),
        removes=LEASED | {"expiresAt", "finishedAt", "cancelRequested", "exitedBy", "deferredFor", "outcome"},
        may_remove=_S({"deadline", "blockedCount"}),
    ),
    Transition(
        Event.ACKNOWLEDGE,
        _F.SUCCESS,
        _F.DONE,
        (Proof.STATUS_ONLY,),
        "the result was collected",
        sets=_S({"status", "updatedAt", "outcome"}),
        may_set=LISTED,
    ),
)


def transitions_for(event: Event) -> tuple[Transition, ...]:
    """The rows of one event: one for each state it may happen in."""
    return tuple(row for row in TRANSITIONS if row.event is event)


def allows(event: Event, status: Status) -> bool:
    """Whether the event may happen to a task in that state."""
    return any(row.source is status for row in transitions_for(event))
