"""The conditions and updates the library writes, compiled once for each text: what `item_rules.change_of` says, sooner.

Only the forms that are frequent are compiled. All else, and whatever looks wrong, is `change_of`'s to judge. A test
compares both on every write of some runs.
"""

from __future__ import annotations

import re
from collections import deque
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from functools import lru_cache
from typing import Any

from thunderagent.schema import INDEX_HASH, INDEX_RANGE, TABLE_KEY
from thunderagent.testing.dynamodb_expressions import Invalid, Raw, _combine, _compare, _refuse_overlaps, _tokens
from thunderagent.testing.item_rules import ITEM_BYTES, Change, _normal_value, change_of, size_of

SHORT_CHARACTERS = 500  # an id of so many fits into a key, whatever they are
BYTES_OF_CHARACTER, NUMBER_BYTES = 4, 21  # at most
_PLAIN_NUMBER = re.compile(r"(0|[1-9][0-9]{0,14})(\.[0-9]{0,14}[1-9])?")  # in its normal form
Condition = Callable[[Raw, Mapping[str, str], Mapping[str, Any]], bool]
Action = tuple[str, str, str]  # clause, name, value


@dataclass(frozen=True)
class Update:
    actions: tuple[Action, ...]
    placeholders: frozenset[str]


class Changes:
    """Of one table. Remembers how large its items may be at most, to measure only what is written."""

    def __init__(self) -> None:
        self._most_bytes: dict[str, int] = {}

    def change_of(self, operation: str, arguments: Mapping[str, Any], old: Raw | None) -> Change:
        """As `item_rules.change_of` has it; `touched` is left empty, nobody here asks."""
        try:
            if operation == "UpdateItem":
                found = self._update(arguments, old)
            elif operation == "PutItem":
                found = self._put(arguments, old)
            else:
                found = self._bare(operation, arguments, old)
        except Invalid:
            found = None
        return found or change_of(operation, arguments, old)

    def _update(self, arguments: Mapping[str, Any], old: Raw | None) -> Change | None:
        update = _update_of(arguments.get("UpdateExpression", ""))
        item_id = _id_in(arguments.get("Key"))
        if item_id is None or update is None:
            return None
        refused = _is_refused(arguments, old, update.placeholders)
        if refused is None:
            return None
        if refused:
            return Change(item_id, old, old, refused=True)
        names, values = arguments.get("ExpressionAttributeNames", {}), arguments.get("ExpressionAttributeValues", {})
        new: Raw = dict(old) if old is not None else dict(arguments["Key"])
        touched = {}
        for clause, name, value in update.actions:
            attribute = names.get(name, name)
            if attribute == TABLE_KEY:
                return None
            if clause == "REMOVE":
                new.pop(attribute, None)
                continue
            written = values[value]
            if clause == "ADD":
                written = _combine("ADD", None if old is None else old.get(attribute), written)
                if written is None:
                    return None
            new[attribute] = touched[attribute] = _normal(written)
        _refuse_overlaps([(names.get(name, name),) for _, name, _ in update.actions])
        return self._changed(item_id, old, new, touched)

    def _put(self, arguments: Mapping[str, Any], old: Raw | None) -> Change | None:
        item_id = _id_in(arguments["Item"])
        refused = None if item_id is None else _is_refused(arguments, old, frozenset())
        if item_id is None or refused is None:
            return None
        if refused:
            return Change(item_id, old, old, refused=True)
        new = {name: _normal(value) for name, value in arguments["Item"].items()}
        return self._changed(item_id, old, new, new)

    def _bare(self, operation: str, arguments: Mapping[str, Any], old: Raw | None) -> Change | None:
        item_id = _id_in(arguments["Key"])
        refused = None if item_id is None else _is_refused(arguments, old, frozenset())
        if item_id is None or refused is None:
            return None
        deleted = operation == "DeleteItem" and not refused
        return Change(item_id, old, None if deleted else old, refused=refused)

    def _changed(self, item_id: str, old: Raw | None, new: Raw, touched: Raw) -> Change | None:
        if (INDEX_HASH in touched or INDEX_RANGE in touched) and not _fits_the_index(new):
            return None
        most = self._most_bytes.get(item_id, 0)
        for name, attribute in touched.items():
            most += BYTES_OF_CHARACTER * len(name) + _most_bytes_of(attribute)
        if most > ITEM_BYTES:
            most = max(size_of(new), size_of(old))
            if most > ITEM_BYTES:
                return None
        self._most_bytes[item_id] = most
        return Change(item_id, old, new)


def _id_in(holder: Mapping[str, Any] | None) -> str | None:
    """The id, if it is beyond doubt."""
    if holder is None or TABLE_KEY not in holder:
        return None
    item_id = holder[TABLE_KEY].get("S", "")
    return item_id if 0 < len(item_id) <= SHORT_CHARACTERS else None


def _is_refused(arguments: Mapping[str, Any], old: Raw | None, others: frozenset[str]) -> bool | None:
    """Whether the condition does not hold. None: not beyond doubt. `others` are the placeholders of the update."""
    text = arguments.get("ConditionExpression")
    names, values = arguments.get("ExpressionAttributeNames", {}), arguments.get("ExpressionAttributeValues", {})
    compiled = _condition_of(text) if text is not None else _NO_CONDITION
    if compiled is None or names.keys() | values.keys() != compiled[1] | others:
        return None
    return not compiled[0](old if old is not None else {}, names, values)


def _most_bytes_of(attribute: Mapping[str, Any]) -> int:
    """An upper bound."""
    if "S" in attribute:
        return BYTES_OF_CHARACTER * len(attribute["S"])
    return NUMBER_BYTES if "N" in attribute else size_of({"": dict(attribute)})


def _fits_the_index(new: Raw) -> bool:
    key, due = new.get(INDEX_HASH), new.get(INDEX_RANGE)
    return (key is None or bool(key.get("S"))) and (due is None or "N" in due)


def _normal(attribute: Mapping[str, Any]) -> dict[str, Any]:
    """Stored values are never changed in place, so what is normal already can be stored as it is."""
    if len(attribute) == 1:
        number = attribute.get("N")
        if number is not None and _PLAIN_NUMBER.fullmatch(number):
            return {"N": number}
    return _normal_value(attribute)


# ---- compiling ------------------------------------------------------------------------------------------------------


class _Unknown(Exception):
    """A form that is not compiled."""


@lru_cache(maxsize=4096)
def _condition_of(text: str) -> tuple[Condition, frozenset[str]] | None:
    """A function and the placeholders it uses, or None for a form that is not compiled."""
    try:
        tokens = deque(_tokens(text))
        condition = _any_of(tokens)
    except (_Unknown, Invalid, IndexError):
        return None
    return None if tokens else (condition, _placeholders(_tokens(text)))


def _any_of(tokens: deque[str]) -> Condition:
    parts = [_all_of(tokens)]
    while tokens and tokens[0] == "OR":
        tokens.popleft()
        parts.append(_all_of(tokens))
    return parts[0] if len(parts) == 1 else lambda item, names, values: any(p(item, names, values) for p in parts)


def _all_of(tokens: deque[str]) -> Condition:
    parts = [_single(tokens)]
    while tokens and tokens[0] == "AND":
        tokens.popleft()
        parts.append(_single(tokens))
    if len(parts) == 1:
        return parts[0]

    def all_hold(item: Raw, names: Mapping[str, str], values: Mapping[str, Any]) -> bool:
        for part in parts:  # noqa: SIM110  most conditions come by here, and a generator takes its time
            if not part(item, names, values):
                return False
        return True

    return all_hold


def _single(tokens: deque[str]) -> Condition:
    first = tokens.popleft()
    if first == "NOT":
        denied = _single(tokens)
        return lambda item, names, values: not denied(item, names, values)
    if first == "(":
        inner = _any_of(tokens)
        _expect(tokens, ")")
        return inner
    if first in ("attribute_exists", "attribute_not_exists"):
        _expect(tokens, "(")
        name = _placeholder(tokens.popleft(), "#")
        _expect(tokens, ")")
        if first == "attribute_exists":
            return lambda item, names, values: names[name] in item
        return lambda item, names, values: names[name] not in item
    return _comparison(_placeholder(first, "#"), tokens.popleft(), _placeholder(tokens.popleft(), ":"))


def _comparison(name: str, operator: str, value: str) -> Condition:
    if operator == "=":
        return lambda item, names, values: _equal(item.get(names[name]), values[value])
    if operator not in ("<>", "<", "<=", ">", ">="):
        raise _Unknown
    return lambda item, names, values: _compare(item.get(names[name]), operator, values[value])


def _expect(tokens: deque[str], token: str) -> None:
    if tokens.popleft() != token:
        raise _Unknown


def _placeholder(token: str, mark: str) -> str:
    if not token.startswith(mark):
        raise _Unknown
    return token


def _equal(left: Any, right: Any) -> bool:
    if left is None or left == right:
        return left is not None
    return "S" not in left and _compare(left, "=", right)


@lru_cache(maxsize=4096)
def _update_of(text: str) -> Update | None:
    """The actions of an update of whole attributes, or None for a form that is not compiled."""
    try:
        tokens = _tokens(text)
    except Invalid:
        return None
    actions: list[Action] = []
    at, clause, seen = 0, "", set()
    while at < len(tokens):
        if tokens[at] in {"SET", "REMOVE", "ADD"} and tokens[at] not in seen:
            clause = tokens[at]
            seen.add(clause)
        elif tokens[at] != "," or not actions:
            return None
        length = _LENGTHS.get(clause, 0)
        name, *rest = tokens[at + 1 : at + 1 + length]
        wanted = ["="] if clause == "SET" else []
        if not name.startswith("#") or len(rest) != length - 1 or rest[:-1] != wanted:
            return None
        if rest and not rest[-1].startswith(":"):
            return None
        actions.append((clause, name, rest[-1] if rest else ""))
        at += 1 + length
    return Update(tuple(actions), _placeholders(tokens))


def _placeholders(tokens: Sequence[str]) -> frozenset[str]:
    return frozenset(token for token in tokens if token[0] in "#:")


_LENGTHS = {"SET": 3, "REMOVE": 1, "ADD": 2}
_NO_CONDITION: tuple[Condition, frozenset[str]] = (lambda item, names, values: True, frozenset())
