"""What a record of the table's stream says: which item changed, how, when and by whom, in plain values. No I/O."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

from thunderagent.codec import Item, from_item
from thunderagent.schema import TABLE_KEY
from thunderagent.states import Status, is_terminal

TTL_PRINCIPAL = "dynamodb.amazonaws.com"  # who removes what has outlived its time to live
STATUSES = frozenset(Status)


class BadRecord(Exception):
    """A record that says nothing usable. `item_id` is its key where that could be read."""

    def __init__(self, problem: str, *, item_id: str | None = None) -> None:
        super().__init__(problem)
        self.problem = problem
        self.item_id = item_id


@dataclass(frozen=True)
class Change:
    """One change of one item. `event_id` is unique in the stream, `sequence` orders the changes of a shard."""

    event_id: str
    sequence: str
    item_id: str
    at: float
    by_ttl: bool
    old: Item | None = field(default=None, repr=False)
    new: Item | None = field(default=None, repr=False)
    record: Mapping[str, Any] = field(default_factory=dict, repr=False, compare=False)

    @staticmethod
    def from_record(record: Any) -> Change:
        """Read one record. Raises BadRecord for anything that is none, or a task's removal without what was removed."""
        item_id = key_of(record)
        if item_id is None:
            raise BadRecord("it has no key")
        try:
            change = _change(record, item_id)
        except (KeyError, ValueError, TypeError, AttributeError) as error:
            raise BadRecord(f"{type(error).__name__}: it is not a stream record", item_id=item_id) from error
        if change.new is None and change.old is None and is_task_id(item_id):
            raise BadRecord("a removal without its old image", item_id=item_id)
        return change

    @property
    def is_end(self) -> bool:
        """A task came to its end (an acknowledgement or a move in the lists is none: it had ended before)."""
        return _ended(self.new) and not _ended(self.old) and is_task_id(self.item_id)

    @property
    def is_removal(self) -> bool:
        """A task is gone from the table, in whatever state it was."""
        return self.new is None and self.old is not None and is_task_id(self.item_id) and "status" in self.old


def key_of(record: Any) -> str | None:
    """The id of the item a record is about, of a broken one too, as long as it can be made out."""
    try:
        item_id = record["dynamodb"]["Keys"][TABLE_KEY]["S"]
    except (KeyError, TypeError):
        return None
    return item_id if isinstance(item_id, str) and item_id else None


def is_task_id(item_id: str) -> bool:
    return "#" not in item_id


def _change(record: Mapping[str, Any], item_id: str) -> Change:
    body = record["dynamodb"]
    identity = record.get("userIdentity") or {}
    return Change(
        event_id=str(record["eventID"]),
        sequence=str(body["SequenceNumber"]),
        item_id=item_id,
        at=float(body["ApproximateCreationDateTime"]),
        by_ttl=identity.get("principalId") == TTL_PRINCIPAL,
        old=_image(body, "OldImage"),
        new=_image(body, "NewImage"),
        record=record,
    )


def _image(body: Mapping[str, Any], name: str) -> Item | None:
    raw = body.get(name)
    return None if raw is None else from_item(raw)


def _ended(item: Item | None) -> bool:
    status = None if item is None else item.get("status")
    return is_terminal(status)
