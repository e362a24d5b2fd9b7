"""How DynamoDB is asked about what limits a queue: its settings, slots and token buckets. Pure builders, like
`expressions`; none of them touches a task.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from thunderagent.codec import Item
from thunderagent.conditions import Write, absent, as_seen, delete, equals, put
from thunderagent.model import LeaseToken, TaskId
from thunderagent.schema import DAY_SECONDS

SLOT_RETENTION_SECONDS = 30 * DAY_SECONDS  # longer than any task runs: a slot must not vanish under its holder
BUCKET_RETENTION_SECONDS = DAY_SECONDS  # after the bucket is full again, which is what an absent one is


def take_slot(
    slot_id: str, *, seen: Item | None, holder: TaskId, fence: int, token: LeaseToken, claim_by: float, now: float
) -> Write:
    """Hold one slot for a claim about to be made, if it is still absent or held as seen."""
    item = {
        "taskId": slot_id,
        "holder": holder,
        "leaseToken": token,
        "fence": fence,
        "claimBy": claim_by,
        "expiresAt": int(now) + SLOT_RETENTION_SECONDS,
    }
    require = (
        [absent()] if seen is None else [equals("leaseToken", seen["leaseToken"]), equals("holder", seen["holder"])]
    )
    return put("take_slot", item, require=require, applied=lambda old: _held(old, holder, token))


def give_back_slot(slot_id: str, *, holder: TaskId, token: LeaseToken) -> Write:
    """The claim this slot was taken for was not made: nobody need wait for its `claimBy`."""
    return delete("give_back_slot", slot_id, require=[equals("leaseToken", token), equals("holder", holder)])


def _held(old: Item, holder: TaskId, token: LeaseToken) -> bool:
    return old.get("leaseToken") == token and old.get("holder") == holder


def fill_bucket(
    bucket_id: str, *, seen: Item | None, tokens: float, stamp: float, taken_by: str, full_in: float, now: float
) -> Write:
    """The bucket's new level, on the premise that nobody took from it since the look."""
    item = {
        "taskId": bucket_id,
        "tokens": tokens,
        "stamp": stamp,
        "takenBy": taken_by,
        "expiresAt": int(now + full_in) + BUCKET_RETENTION_SECONDS,
    }
    require = [absent()] if seen is None else [equals("takenBy", seen["takenBy"])]
    return put("fill_bucket", item, require=require, applied=lambda old: old.get("takenBy") == taken_by)


def put_settings(item_id: str, *, seen: Item | None, settings: Mapping[str, Any]) -> Write:
    """A queue's (or the service's) settings as a whole, if they are still as seen. None leaves an attribute out."""
    item = {**settings, "taskId": item_id}
    require = [absent()] if seen is None else [as_seen("revision", seen.get("revision"))]
    return put("put_settings", item, require=require, applied=lambda old: old.get("revision") == item.get("revision"))
