"""DynamoDB attribute values to and from plain Python, and the size an item is charged for.

boto3's serializer is not used: it refuses floats and returns Decimal. Here numbers are int or float; what must come
back exactly (payloads, results) is stored as JSON text and never passes through a DynamoDB number.

Whatever was read can be written, and named in a condition "as seen", exactly: rows that others have touched included.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass
from decimal import Decimal
from functools import lru_cache
from typing import Any

Item = dict[str, Any]
RawItem = Mapping[str, Mapping[str, Any]]


FLOAT_DIGITS = 15  # so many decimal digits always survive a double
SMALLEST = 1e-130  # of DynamoDB's numbers; it refuses what is nearer to zero (Amazon DynamoDB, "Data types")


@dataclass(frozen=True)
class Foreign:
    """A value of a kind this library never writes (binary, a set of numbers, a null in place of an attribute)."""

    tag: str
    value: Any


class LongNumber(float):
    """A stored number of more digits than a double holds. It computes as a float and is written as it was read."""

    text: str

    def __new__(cls, text: str) -> LongNumber:
        number = super().__new__(cls, text)
        number.text = text
        return number


def to_attribute(value: Any) -> dict[str, Any]:
    """One value as DynamoDB's tagged form. A frozenset or set of strings becomes a string set (never empty)."""
    kind = type(value)
    if kind is str:  # nearly all values are of these three; `match` asks for the rarest first
        return {"S": value}
    if kind is int or kind is float:
        return {"N": number_text(value)}
    match value:
        case Foreign():
            return {value.tag: value.value}
        case bool():
            return {"BOOL": value}
        case str():
            return {"S": str(value)}
        case int() | float():
            return {"N": number_text(value)}
        case None:
            return {"NULL": True}
        case Mapping():
            return {"M": {key: to_attribute(entry) for key, entry in value.items()}}
        case list() | tuple():
            return {"L": [to_attribute(entry) for entry in value]}
        case set() | frozenset():
            return {"SS": sorted(value)}
    raise TypeError(f"{type(value).__name__} cannot be stored")


def number_text(value: float) -> str:
    """A number as DynamoDB keeps it: at most 38 digits, no exponent surprises for whole floats, nothing between zero
    and its smallest number."""
    if isinstance(value, LongNumber):
        return value.text
    if isinstance(value, float):
        if not math.isfinite(value):
            raise ValueError(f"{value} is not a DynamoDB number")
        if abs(value) < SMALLEST or (value.is_integer() and abs(value) < 1e15):
            return str(int(value))
        return repr(value)
    return str(value)


def from_attribute(attribute: Mapping[str, Any]) -> Any:
    """The plain value of a tagged one; whole numbers are int, others float; string sets are frozensets."""
    ((tag, value),) = attribute.items()
    match tag:  # the frequent ones first: every attribute that is read comes by here
        case "S" | "BOOL":
            return value
        case "N":
            return _number(value)
        case "M":
            return {key: from_attribute(entry) for key, entry in value.items()}
        case "L":
            return [from_attribute(entry) for entry in value]
        case "SS":
            return frozenset(value)
        case "NULL":
            return None
    return Foreign(tag, value)


@lru_cache(maxsize=2048)  # one instant stands in many rows
def _number(text: str) -> int | float:
    if "." not in text:  # times have fractions, and an exception costs more than the number
        try:
            return int(text)
        except ValueError:
            pass
    value = float(text)
    if len(text) > FLOAT_DIGITS and Decimal(text) != Decimal(repr(value)):
        return LongNumber(text)
    return int(value) if value.is_integer() and abs(value) < 1e15 else value


def to_item(plain: Mapping[str, Any]) -> dict[str, dict[str, Any]]:
    """A whole item, attributes that are None left out (an absent attribute is how 'not set' is stored)."""
    return {name: to_attribute(value) for name, value in plain.items() if value is not None}


def from_item(raw: RawItem) -> Item:
    """A stored item as plain values. None is never among them: an attribute that holds a null is Foreign."""
    item = {name: from_attribute(attribute) for name, attribute in raw.items()}
    if None in item.values():
        return {name: Foreign("NULL", True) if value is None else value for name, value in item.items()}
    return item


def item_bytes(plain: Mapping[str, Any]) -> int:
    """What DynamoDB charges for (its documented size rules): names and values in UTF-8 bytes, numbers by digits,
    3 bytes per list or map and 1 per entry in it."""
    return sum(len(name.encode()) + _value_bytes(value) for name, value in plain.items() if value is not None)


def _value_bytes(value: Any) -> int:
    match value:
        case None | bool():
            return 1
        case str():
            return len(value.encode())
        case int() | float():
            digits = number_text(value).lstrip("-0.").replace(".", "")
            return min(21, (len(digits) + 1) // 2 + 1 + (value < 0))
        case Foreign():
            return _foreign_bytes(value)
        case Mapping():
            return 3 + sum(len(key.encode()) + _value_bytes(entry) + 1 for key, entry in value.items())
        case list() | tuple():
            return 3 + sum(_value_bytes(entry) + 1 for entry in value)
        case set() | frozenset():
            return sum(len(entry.encode()) for entry in value)
    raise TypeError(f"{type(value).__name__} cannot be stored")


def _foreign_bytes(value: Foreign) -> int:
    match value.tag:
        case "B":
            return len(value.value)
        case "BS":
            return sum(len(entry) for entry in value.value)
        case "NS":
            return sum(_value_bytes(_number(entry)) for entry in value.value)
    return 1
