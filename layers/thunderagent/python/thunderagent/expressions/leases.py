"""The lease, from `open_lease` to its end, and its repair."""

from __future__ import annotations

from collections.abc import Iterable, Sequence

from thunderagent.codec import Item
from thunderagent.conditions import Write, absent, as_seen, at_most, delete, either, equals, exists, more, put, update
from thunderagent.model import Lease, LeaseToken, TaskId
from thunderagent.schema import FORMAT_VERSION, LEASE_SHARDS, lease_id, lease_key, shard_of


def open_lease(token: LeaseToken, *, profile: str, task_ids: Sequence[TaskId], lock_time: float, now: float) -> Write:
    """Put if absent, under a fresh token. Send it once: an unknown outcome abandons the token."""
    item = {
        "taskId": lease_id(token),
        "profile": profile,
        "taskIds": list(task_ids),
        "lockTime": lock_time,
        "dispatchKey": lease_key(profile, shard_of(token, LEASE_SHARDS)),
        "dueAt": lock_time,
        "createdAt": now,
        "formatVersion": FORMAT_VERSION,
    }
    return put("open", item, require=[absent()], applied=lambda old: False)


def begin(token: LeaseToken, *, nonce: str, lock_time: float, now: float) -> Write:
    """One delivery of the event may begin: a second one meets another nonce. Not when past or closed."""
    return update(
        "begin",
        lease_id(token),
        require=[
            absent("closed"),
            more("lockTime", now),
            at_most("lockTime", lock_time),
            either(absent("begun"), equals("begun", nonce)),
        ],
        sets={"begun": nonce, "lockTime": lock_time},
        applied=lambda old: old.get("begun") == nonce and not old.get("closed"),
        returns="ALL_NEW",
    )


def heartbeat(token: LeaseToken, *, nonce: str, lock_time: float, starting: Iterable[TaskId] = ()) -> Write:
    """Renew the whole batch, and add the ids about to start. A late copy of an earlier one cannot shorten the lease.

    `lock_time` must not be below the last one known: refused with the lease open and ours, somebody's clock went back.
    """
    started = frozenset(starting)
    return update(
        "heartbeat",
        lease_id(token),
        require=[equals("begun", nonce), absent("closed"), either(absent("lockTime"), at_most("lockTime", lock_time))],
        sets={"lockTime": lock_time},
        adds={"started": started} if started else None,
        applied=lambda old: (
            old.get("begun") == nonce and not old.get("closed") and started <= frozenset(old.get("started", ()))
        ),
        returns="ALL_NEW",
    )


def tell_lease(token: LeaseToken, task_id: TaskId) -> Write:
    """A cancel request reaches the holder with its next heartbeat."""
    return update(
        "tell",
        lease_id(token),
        require=[],
        adds={"cancelled": frozenset({task_id})},
        applied=lambda old: task_id in old.get("cancelled", ()),
    )


def settle(token: LeaseToken, *, nonce: str) -> Write:
    """The batch is over and every task's last write was answered: the lease goes."""
    return delete("settle", lease_id(token), require=[equals("begun", nonce), absent("closed")])


def void(token: LeaseToken) -> Write:
    """The dispatch failed or nothing was claimed: the lease goes, but only if no executor has begun."""
    return delete("void", lease_id(token), require=[absent("begun"), absent("closed")])


# ---- the reaper's ----------------------------------------------------------------------------------------------------


def close(lease: Lease, *, now: float) -> Write:
    """No one may renew or start under this lease any more. The lockTime as seen: a renewal in between wins."""
    return update(
        "close",
        lease_id(lease.token),
        require=[as_seen("lockTime", lease.lock_time), absent("closed")],
        sets={"closed": now},
        applied=lambda old: bool(old.get("closed")),
        returns="ALL_NEW",
    )


def move_lease(lease: Lease) -> Write:
    """A renewed lease that a reaper met early stands again where its lockTime says."""
    return update(
        "move_lease",
        lease_id(lease.token),
        require=[equals("lockTime", lease.lock_time), absent("closed")],
        sets={"dueAt": lease.lock_time},
        applied=lambda old: old.get("dueAt") == lease.lock_time,
    )


def repair_lease(item: Item, *, lock_time: float) -> Write:
    """A lease whose lockTime is missing or no number gets one more term: nobody can tell whether it is alive."""
    return update(
        "repair_lease",
        str(item["taskId"]),
        require=[as_seen("lockTime", item.get("lockTime")), absent("closed")],
        sets={"lockTime": lock_time, "dueAt": lock_time},
        applied=lambda old: old.get("lockTime") == lock_time,
    )


def bury_lease(token: LeaseToken) -> Write:
    """A closed lease whose tasks were all answered is deleted."""
    return delete("bury", lease_id(token), require=[exists("closed")])
