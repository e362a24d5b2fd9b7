"""Slots: the right to be one of at most N running tasks. They need no release, and so cannot leak.

A slot names its holder, the lease token of the claim it was taken for, the fence seen before that claim, and until when
the claim may be made. Whether it is free follows from the holder alone, and once free it stays so until it is taken.
"""

from __future__ import annotations

from collections.abc import Mapping

from thunderagent.clock import Randomness
from thunderagent.codec import Item
from thunderagent.model import TaskId
from thunderagent.schema import slot_id
from thunderagent.states import Status, is_terminal
from thunderagent.store import Store

SAMPLE = 100  # slots looked at for one limit in one pass: of more, a random part
REQUEST_SECONDS = 30.0  # how long a claim sent in time may still be on its way


def is_free(slot: Item, holder: Item | None, *, now: float) -> bool:
    """Whether the task a slot names neither runs under it nor can any more.

    `holder` must have been read consistently, after the slot. An equal fence means that the claim was not made: it may
    still be, until `claimBy`. Another one means that it was made, or lost to somebody else's.
    """
    if holder is None or is_terminal(holder.get("status")):
        return True
    if holder.get("fence", 0) == slot.get("fence"):
        return bool(slot.get("claimBy", 0) + REQUEST_SECONDS < now)
    return not (holder.get("status") == Status.RUNNING and holder.get("leaseToken") == slot.get("leaseToken"))


def free_slots(
    store: Store, queue: str, key: str, count: int, *, randomness: Randomness
) -> list[tuple[str, Item | None]]:
    """Ids of free slots with what is stored there now, in random order, so that pollers rarely want the same one."""
    ids = [slot_id(queue, key, number) for number in _sample(count, randomness)]
    slots = store.get_items(ids, consistent=True)
    holders = store.get_items([TaskId(str(slot.get("holder"))) for slot in slots.values()], consistent=True)
    now = store.clock.now()
    return [(item_id, slots.get(item_id)) for item_id in ids if _is_free(slots.get(item_id), holders, now)]


def _is_free(slot: Item | None, holders: Mapping[str, Item], now: float) -> bool:
    return slot is None or is_free(slot, holders.get(str(slot.get("holder"))), now=now)


def _sample(count: int, randomness: Randomness) -> list[int]:
    """At most SAMPLE different numbers below `count`, in random order (the first steps of Fisher and Yates)."""
    numbers = list(range(count))
    wanted = min(count, SAMPLE)
    for position in range(wanted):
        other = position + randomness.below(count - position)
        numbers[position], numbers[other] = numbers[other], numbers[position]
    return numbers[:wanted]
