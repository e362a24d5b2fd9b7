"""What one write does to one item, and what it costs, by DynamoDB's rules."""

from __future__ import annotations

import base64
import json
from collections.abc import Mapping, Sequence
from copy import deepcopy
from dataclasses import dataclass
from decimal import Decimal, InvalidOperation
from math import ceil
from typing import Any

from thunderagent.codec import from_item, item_bytes
from thunderagent.schema import INDEX_HASH, INDEX_RANGE, TABLE_KEY
from thunderagent.testing.dynamodb_expressions import Expression, Invalid, Raw, comparable, number_form

KEY_BYTES = 2048
ITEM_BYTES = 400 * 1024
INDEX_TYPES = {INDEX_HASH: "S", INDEX_RANGE: "N"}


@dataclass(frozen=True)
class Change:
    """What becomes of one item. `refused`: its condition did not hold, and `new` is `old`."""

    item_id: str
    old: Raw | None
    new: Raw | None
    touched: frozenset[str] = frozenset()
    refused: bool = False


def change_of(
    operation: str, arguments: Mapping[str, Any], old: Raw | None, *, keys: Sequence[str] = (TABLE_KEY,)
) -> Change:
    """What one write would do to the item it names. Raises Invalid."""
    item_id = id_of(arguments, keys)
    if not 1 <= len(item_id.encode()) <= KEY_BYTES:
        raise Invalid(f"the key has 1 to {KEY_BYTES} bytes")
    names, values = arguments.get("ExpressionAttributeNames", {}), arguments.get("ExpressionAttributeValues", {})
    used: set[str] = set()
    refused = False
    if (condition := arguments.get("ConditionExpression")) is not None:
        expression = Expression(condition, names, values)
        refused = not expression.holds(old or {})
        used |= expression.used
    new, touched = _outcome(operation, arguments, old, used, keys)
    for placeholder in {*names, *values} - used:
        raise Invalid(f"{placeholder} is defined but not used in expressions")
    if new is not None and not refused:
        new = normal(new)
        if tuple(keys) == (TABLE_KEY,):
            _check_index_keys(new)
        if size_of(new) > ITEM_BYTES:
            raise Invalid("Item size has exceeded the maximum allowed size")
    return Change(item_id, old, old if refused else new, frozenset(touched), refused)


def _outcome(
    operation: str, arguments: Mapping[str, Any], old: Raw | None, used: set[str], keys: Sequence[str]
) -> tuple[Raw | None, set[str]]:
    if operation == "PutItem":
        return deepcopy(dict(arguments["Item"])), set(arguments["Item"])
    if operation == "DeleteItem":
        return None, set()
    if operation == "ConditionCheck":
        return old, set()
    start: Raw = old if old is not None else dict(arguments["Key"])
    if "UpdateExpression" not in arguments:
        return start, set()
    names, values = arguments.get("ExpressionAttributeNames", {}), arguments.get("ExpressionAttributeValues", {})
    expression = Expression(arguments["UpdateExpression"], names, values)
    new, touched = expression.update(start)
    used |= expression.used
    for key in set(keys) & touched:
        raise Invalid(f"cannot update attribute {key}: it is part of the key")
    return new, touched


def returned(arguments: Mapping[str, Any], change: Change) -> dict[str, Any]:
    wanted = arguments.get("ReturnValues", "NONE")
    source = {"ALL_OLD": change.old, "UPDATED_OLD": change.old}.get(wanted, change.new)
    if wanted == "NONE" or not source:
        return {}
    if wanted.startswith("UPDATED"):
        source = {name: value for name, value in source.items() if name in change.touched}
    return {"Attributes": deepcopy(source)}


def reason_of(change: Change, arguments: Mapping[str, Any]) -> tuple[str, Raw | None]:
    if not change.refused:
        return "None", None
    asked = arguments.get("ReturnValuesOnConditionCheckFailure") == "ALL_OLD"
    return "ConditionalCheckFailed", deepcopy(change.old) if asked else None


# ---- items, keys, units ---------------------------------------------------------------------------------------------


def id_of(arguments: Mapping[str, Any], keys: Sequence[str] = (TABLE_KEY,)) -> str:
    """How the item a request names is told from others of its table: a task table's by its id."""
    key = arguments["Key"] if "Key" in arguments else arguments["Item"]
    if not set(keys) <= set(key) or ("Key" in arguments and len(key) != len(keys)):
        raise Invalid("the provided key element does not match the schema")
    if tuple(keys) != (TABLE_KEY,):
        return json.dumps([key[name] for name in keys])
    if set(key[TABLE_KEY]) != {"S"}:
        raise Invalid("the provided key element does not match the schema")
    return str(key[TABLE_KEY]["S"])


def normal(raw: Mapping[str, Any]) -> Raw:
    return {name: _normal_value(attribute) for name, attribute in raw.items()}


def _normal_value(attribute: Mapping[str, Any]) -> dict[str, Any]:
    ((tag, value),) = attribute.items()
    match tag:
        case "N":
            return {"N": _normal_number(value)}
        case "SS" | "NS" | "BS":
            if not value or len(set(value)) < len(value):
                raise Invalid("a set is not empty and has no duplicates")
            return {tag: sorted(_normal_number(entry) for entry in value) if tag == "NS" else sorted(value)}
        case "L":
            return {"L": [_normal_value(entry) for entry in value]}
        case "M":
            return {"M": normal(value)}
        case "S":
            value.encode()
    return {tag: value}


def _normal_number(text: str) -> str:
    try:
        return number_form(Decimal(text))
    except InvalidOperation as error:
        raise Invalid(f"{text!r} is not a number") from error


def _check_index_keys(raw: Raw) -> None:
    for name, tag in INDEX_TYPES.items():
        if name in raw and (tag not in raw[name] or raw[name][tag] == ""):
            raise Invalid(f"type mismatch for index key {name}: {tag} expected, and not empty")


def in_index(raw: Raw | None) -> bool:
    return raw is not None and all(name in raw for name in INDEX_TYPES)


def index_entry(raw: Raw) -> Raw:
    return {name: raw[name] for name in (TABLE_KEY, *INDEX_TYPES)}


def index_order(row: Mapping[str, Any]) -> tuple[Decimal, str]:
    return Decimal(row[INDEX_RANGE]["N"]), row[TABLE_KEY]["S"]


def table_order(row: Mapping[str, Any]) -> str:
    return str(row[TABLE_KEY]["S"])


def size_of(raw: Raw | None) -> int:
    if raw is None:
        return 0
    plain = {name: value for name, value in raw.items() if "B" not in value}
    binary = sum(len(name) + len(base64.b64decode(raw[name]["B"])) for name in raw if "B" in raw[name])
    return item_bytes(from_item(plain)) + binary


def write_units(old: Raw | None, new: Raw | None) -> int:
    """Table: the larger of the two, 1 KiB a unit. Index: one for each entry that goes, one for each that comes."""
    units = max(1, ceil(max(size_of(old), size_of(new)) / 1024))
    entries = [index_entry(raw) if raw is not None and in_index(raw) else None for raw in (old, new)]
    if _comparable(entries[0]) != _comparable(entries[1]):
        units += sum(ceil(size_of(entry) / 1024) for entry in entries if entry is not None)
    return units


def _comparable(entry: Raw | None) -> Any:
    return None if entry is None else {name: comparable(value) for name, value in entry.items()}
