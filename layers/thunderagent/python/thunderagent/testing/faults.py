"""Requests as a fake store sees them: what each asks for, and which of them are to meet a fault or a hook."""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from enum import Enum
from typing import Any

from thunderagent.codec import Item, from_item
from thunderagent.errors import OutcomeUnknown, StoreRefused, StoreThrottled, TransactionCancelled
from thunderagent.schema import TABLE_KEY
from thunderagent.testing.dynamodb_expressions import Expression, Invalid

WRITES = {"Put": "PutItem", "Update": "UpdateItem", "Delete": "DeleteItem", "ConditionCheck": "ConditionCheck"}


class Fault(Enum):
    LOST_REPLY = "the request takes effect, its answer never comes"
    LOST_REQUEST = "nothing takes effect, and no answer comes"
    THROTTLED = "refused for lack of throughput"
    CONFLICT = "refused because a transaction is in progress on the item"
    REFUSED = "refused as such (access denied)"


@dataclass(frozen=True)
class Call:
    """One request as it was sent, and what became of it."""

    operation: str
    arguments: Mapping[str, Any] = field(repr=False)
    outcome: str = "sent"

    @property
    def entries(self) -> list[tuple[str, Mapping[str, Any]]]:
        """The single writes of this request, those of a transaction one by one."""
        if self.operation != "TransactWriteItems":
            return [(self.operation, self.arguments)]
        return [(WRITES[kind], entry) for each in self.arguments["TransactItems"] for kind, entry in each.items()]

    @property
    def item_ids(self) -> list[str]:
        if self.operation == "BatchGetItem":
            requests = self.arguments["RequestItems"].values()
            return [key[TABLE_KEY]["S"] for request in requests for key in request["Keys"]]
        return [_name_of(arguments) for _, arguments in self.entries if "Key" in arguments or "Item" in arguments]

    @property
    def sets(self) -> Item:
        """What the request's updates set and its puts contain, as plain values (top-level attributes)."""
        found: Item = {}
        for operation, arguments in self.entries:
            if operation == "PutItem":
                found |= from_item(arguments["Item"])
            elif operation == "UpdateItem":
                found |= _set_by(arguments)
        return found


Where = Callable[[Call], bool]
Action = Callable[[], None]


@dataclass
class Rule:
    """A fault or a hook, for the `skip`-th matching request on, `times` times (None: always)."""

    where: Where
    effect: Fault | Exception | Action
    times: int | None
    skip: int

    def takes(self, call: Call) -> bool:
        if self.times == 0 or not self.where(call):
            return False
        if self.skip > 0:
            self.skip -= 1
            return False
        if self.times is not None:
            self.times -= 1
        return True


def error_of(fault: Fault, call: Call) -> Exception:
    match fault:
        case Fault.THROTTLED:
            return StoreThrottled(call.operation, "ProvisionedThroughputExceededException")
        case Fault.CONFLICT if call.operation == "TransactWriteItems":
            return TransactionCancelled(call.operation, [("TransactionConflict", None) for _ in call.entries])
        case Fault.CONFLICT:
            return StoreRefused(call.operation, "TransactionConflictException")
        case Fault.REFUSED:
            return StoreRefused(call.operation, "AccessDeniedException")
    return OutcomeUnknown(call.operation, "ConnectionError", "the request was lost")


def _set_by(arguments: Mapping[str, Any]) -> Item:
    """The top-level attributes an update assigns, by evaluating it on an empty item where that is possible."""
    names, values = arguments.get("ExpressionAttributeNames", {}), arguments.get("ExpressionAttributeValues", {})
    try:
        new, _ = Expression(arguments["UpdateExpression"], names, values).update({})
    except Invalid:
        return {}
    return from_item(new)


def _name_of(arguments: Mapping[str, Any]) -> str:
    """The item a write names: its id, or for a table of the user's own its table and key."""
    key = arguments["Key"] if "Key" in arguments else arguments["Item"]
    if TABLE_KEY in key:
        return str(key[TABLE_KEY].get("S"))
    return f"{arguments.get('TableName')}/{json.dumps(key, sort_keys=True)}"
