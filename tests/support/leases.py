"""Lease items in every state, for the tests of their steps."""

from __future__ import annotations

from typing import Any

from tests.support.protocol import NOW
from thunderagent.codec import Item
from thunderagent.model import LeaseToken
from thunderagent.schema import LEASE_SHARDS, lease_id, lease_key, shard_of

MINE, THEIRS = "nonce-mine", "nonce-of-another"

STATES: dict[str, dict[str, Any]] = {
    "open": {},
    "begun by me": {"begun": MINE},
    "begun by another": {"begun": THEIRS},
    "past": {"lockTime": NOW - 1},
    "begun by me, past": {"begun": MINE, "lockTime": NOW - 1},
    "closed": {"closed": NOW - 1, "lockTime": NOW - 10},
    "closed by a clock ahead": {"closed": NOW - 1, "lockTime": NOW + 30},
    "begun by me, closed": {"begun": MINE, "closed": NOW - 1, "lockTime": NOW - 10},
}


def stored_lease(token: str, **changes: Any) -> Item:
    """An open lease of two tasks that has 100 s left. A change of None takes the attribute away."""
    item: Item = {
        "taskId": lease_id(LeaseToken(token)),
        "profile": "default",
        "taskIds": ["a", "b"],
        "lockTime": NOW + 100,
        "dispatchKey": lease_key("default", shard_of(token, LEASE_SHARDS)),
        "dueAt": NOW - 50,
        "createdAt": NOW - 200,
        "formatVersion": 1,
    }
    return {name: value for name, value in (item | changes).items() if value is not None}
