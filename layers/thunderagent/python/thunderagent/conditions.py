"""The clauses conditions are made of, and the one builder that turns them into DynamoDB arguments. No I/O.

Every attribute goes through a `#name` and every value through a `:value`. Every write asks for the old item on failure.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from thunderagent.codec import Item, to_attribute, to_item
from thunderagent.schema import TABLE_KEY


@dataclass
class Placeholders:
    """Names and values of one expression, in the order they were used."""

    names: dict[str, str] = field(default_factory=dict)
    values: dict[str, Any] = field(default_factory=dict)

    def name(self, attribute: str) -> str:
        self.names[f"#{attribute}"] = attribute
        return f"#{attribute}"

    def value(self, value: Any) -> str:
        key = f":v{len(self.values)}"
        self.values[key] = to_attribute(value)
        return key


Clause = Callable[[Placeholders], str]


def exists(attribute: str = TABLE_KEY) -> Clause:
    return lambda p: f"attribute_exists({p.name(attribute)})"


def absent(attribute: str = TABLE_KEY) -> Clause:
    return lambda p: f"attribute_not_exists({p.name(attribute)})"


def equals(attribute: str, value: Any) -> Clause:
    return lambda p: f"{p.name(attribute)} = {p.value(value)}"


def as_seen(attribute: str, value: Any) -> Clause:
    """The attribute is as it was read, absence included."""
    return absent(attribute) if value is None else equals(attribute, value)


def less(attribute: str, value: Any) -> Clause:
    return lambda p: f"{p.name(attribute)} < {p.value(value)}"


def at_most(attribute: str, value: Any) -> Clause:
    return lambda p: f"{p.name(attribute)} <= {p.value(value)}"


def more(attribute: str, value: Any) -> Clause:
    return lambda p: f"{p.name(attribute)} > {p.value(value)}"


def none_of(attribute: str, values: Sequence[Any]) -> Clause:
    """The attribute is absent, or has another value than these."""
    return lambda p: f"NOT {p.name(attribute)} IN ({', '.join(p.value(value) for value in values)})"


def not_more(attribute: str, value: Any) -> Clause:
    """The attribute is absent, no number, or at most this one."""
    return lambda p: f"NOT ({p.name(attribute)} > {p.value(value)})"


def either(*clauses: Clause) -> Clause:
    return lambda p: "(" + " OR ".join(clause(p) for clause in clauses) + ")"


@dataclass(frozen=True)
class Write:
    """One conditional write, ready to send.

    `event` names it in logs. `applied(old)` says whether a stored item is what this very write would have left: after a
    lost reply the SDK's retry fails its own condition, and that is how our own success is recognised.
    """

    event: str
    operation: str
    arguments: Mapping[str, Any]
    applied: Callable[[Item], bool] = field(default=lambda old: False, repr=False)


def update(
    event: str,
    item_id: str,
    *,
    require: Sequence[Clause],
    applied: Callable[[Item], bool],
    sets: Mapping[str, Any] | None = None,
    removes: Sequence[str] = (),
    adds: Mapping[str, Any] | None = None,
    returns: str = "NONE",
) -> Write:
    """An update of named attributes that never creates an item (existence is always part of the condition)."""
    p = Placeholders()
    parts = []
    if sets:
        parts.append("SET " + ", ".join(f"{p.name(name)} = {p.value(value)}" for name, value in sets.items()))
    if removes:
        parts.append("REMOVE " + ", ".join(p.name(name) for name in removes))
    if adds:
        parts.append("ADD " + ", ".join(f"{p.name(name)} {p.value(value)}" for name, value in adds.items()))
    condition = _join([exists(), *require], p)
    arguments = {
        "Key": {TABLE_KEY: {"S": item_id}},
        "UpdateExpression": " ".join(parts),
        "ConditionExpression": condition,
        "ReturnValues": returns,
        **_common(p),
    }
    return Write(event, "UpdateItem", arguments, applied)


def add_up(event: str, item_id: str, *, sets: Mapping[str, Any], adds: Mapping[str, float]) -> Write:
    """Add numbers to a counter item, which is made if it is not there: the only update without a condition. A lost
    reply may add twice: for estimates only, never for a task."""
    p = Placeholders()
    parts = "SET " + ", ".join(f"{p.name(name)} = {p.value(value)}" for name, value in sets.items())
    parts += " ADD " + ", ".join(f"{p.name(name)} {p.value(value)}" for name, value in adds.items()) if adds else ""
    arguments = {
        "Key": {TABLE_KEY: {"S": item_id}},
        "UpdateExpression": parts,
        "ExpressionAttributeNames": dict(p.names),
        "ExpressionAttributeValues": dict(p.values),
    }
    return Write(event, "UpdateItem", arguments)


def put(event: str, item: Mapping[str, Any], *, require: Sequence[Clause], applied: Callable[[Item], bool]) -> Write:
    """A put of a whole item under a condition (new items only: states never change by a put)."""
    p = Placeholders()
    arguments = {"Item": to_item(item), "ConditionExpression": _join(require, p), **_common(p)}
    return Write(event, "PutItem", arguments, applied)


def put_body(item: Mapping[str, Any]) -> Write:
    """A body under an id made of its content or of its writer's fence: nobody else can have that id."""
    return Write("put_body", "PutItem", {"Item": to_item(item)})


def delete(event: str, item_id: str, *, require: Sequence[Clause]) -> Write:
    """A conditional delete. An item that is gone already counts as refused with nothing stored: the caller decides."""
    p = Placeholders()
    arguments = {
        "Key": {TABLE_KEY: {"S": item_id}},
        "ConditionExpression": _join([exists(), *require], p),
        **_common(p),
    }
    return Write(event, "DeleteItem", arguments)


def check(item_id: str, *, require: Sequence[Clause]) -> Write:
    """A condition without a write, for transactions."""
    p = Placeholders()
    arguments = {"Key": {TABLE_KEY: {"S": item_id}}, "ConditionExpression": _join(require, p), **_common(p)}
    return Write("check", "ConditionCheck", arguments)


def _join(clauses: Sequence[Clause], p: Placeholders) -> str:
    return " AND ".join(clause(p) for clause in clauses)


def _common(p: Placeholders) -> dict[str, Any]:
    arguments: dict[str, Any] = {"ReturnValuesOnConditionCheckFailure": "ALL_OLD"}
    if p.names:
        arguments["ExpressionAttributeNames"] = dict(p.names)
    if p.values:
        arguments["ExpressionAttributeValues"] = dict(p.values)
    return arguments
