"""DynamoDB's condition, key-condition and update expressions, evaluated over raw items. For the store fake.

Covers the whole condition grammar but size() on sets of numbers, and the update grammar with SET (arithmetic,
if_not_exists, list_append), REMOVE, ADD and DELETE. Raises Invalid where DynamoDB answers ValidationException.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from copy import deepcopy
from decimal import Decimal, InvalidOperation
from functools import lru_cache
from typing import Any

Raw = dict[str, dict[str, Any]]
Path = tuple[str | int, ...]

_TOKEN = re.compile(r"\s*(<>|<=|>=|[=<>(),+\-\[\].]|[#:]?[A-Za-z0-9_]+)")
_COMPARISONS = ("=", "<>", "<", "<=", ">", ">=")
_CLAUSES = ("SET", "REMOVE", "ADD", "DELETE")
_SETS = ("SS", "NS", "BS")


class Invalid(Exception):
    """DynamoDB would answer ValidationException with this text."""


class Expression:
    """One expression with the names and values it may use. Which of them it did use is remembered."""

    def __init__(self, text: str, names: Mapping[str, str], values: Mapping[str, Mapping[str, Any]]) -> None:
        self._tokens = _tokens(text)
        self._at = 0
        self._names = names
        self._values = values
        self.used: set[str] = set()

    # ---- conditions --------------------------------------------------------------------------------------------------

    def holds(self, item: Raw) -> bool:
        """Whether the condition holds of the item (empty when there is none)."""
        result = self._or(item)
        if self._peek() is not None:
            raise Invalid(f"unexpected {self._peek()!r}")
        return result

    def _or(self, item: Raw) -> bool:
        result = self._and(item)
        while self._take_word("OR"):
            right = self._and(item)
            result = result or right
        return result

    def _and(self, item: Raw) -> bool:
        result = self._not(item)
        while self._take_word("AND"):
            right = self._not(item)
            result = result and right
        return result

    def _not(self, item: Raw) -> bool:
        if self._take_word("NOT"):
            return not self._not(item)
        if self._take("("):
            result = self._or(item)
            self._expect(")")
            return result
        return self._predicate(item)

    def _predicate(self, item: Raw) -> bool:
        function = (self._peek() or "").lower()
        if function in _PREDICATES and self._peek(1) == "(":
            self._at += 2
            return _PREDICATES[function](self, item)
        left = self._operand(item)
        if self._take_word("BETWEEN"):
            low = self._operand(item)
            if not self._take_word("AND"):
                raise Invalid("BETWEEN needs AND")
            high = self._operand(item)
            return _compare(left, ">=", low) and _compare(left, "<=", high)
        if self._take_word("IN"):
            return any(_compare(left, "=", value) for value in self._list(item))
        operator = self._next()
        if operator not in _COMPARISONS:
            raise Invalid(f"{operator!r} is not a comparison")
        return _compare(left, operator, self._operand(item))

    def _list(self, item: Raw) -> list[Any]:
        self._expect("(")
        values = [self._operand(item)]
        while self._take(","):
            values.append(self._operand(item))
        self._expect(")")
        return values

    def _exists(self, item: Raw) -> bool:
        path = self._path()
        self._expect(")")
        return lookup(item, path) is not None

    def _is_absent(self, item: Raw) -> bool:
        return not self._exists(item)

    def _begins(self, item: Raw) -> bool:
        left, right = self._pair(item)
        return bool(left and right and "S" in left and "S" in right and left["S"].startswith(right["S"]))

    def _contains(self, item: Raw) -> bool:
        left, right = self._pair(item)
        if left is None or right is None:
            return False
        ((tag, holder),) = left.items()
        ((_, member),) = right.items()
        if tag == "L":
            return any(_compare(entry, "=", right) for entry in holder)
        return member in holder if tag in ("S", *_SETS) else False

    def _has_type(self, item: Raw) -> bool:
        left, right = self._pair(item)
        return left is not None and right is not None and right.get("S") in left

    def _pair(self, item: Raw) -> tuple[Any, Any]:
        left = self._operand(item)
        self._expect(",")
        right = self._operand(item)
        self._expect(")")
        return left, right

    # ---- updates -----------------------------------------------------------------------------------------------------

    def update(self, old: Raw) -> tuple[Raw, set[str]]:
        """The new item, and the names of the top-level attributes the update names. Operands see the old item."""
        new = dict(old)
        touched: list[Path] = []
        seen: set[str] = set()
        while self._peek() is not None:
            clause = self._next().upper()
            if clause not in _CLAUSES or clause in seen:
                raise Invalid(f"clause {clause!r} is unknown or repeated")
            seen.add(clause)
            while True:
                touched.append(self._action(clause, old, new))
                if not self._take(","):
                    break
        _refuse_overlaps(touched)
        return new, {str(path[0]) for path in touched}

    def _action(self, clause: str, old: Raw, new: Raw) -> Path:
        path = self._path()
        if len(path) > 1 and path[0] in new:  # changed in place: not in the old item's own attribute
            new[str(path[0])] = deepcopy(new[str(path[0])])
        if clause == "REMOVE":
            _remove(new, path)
            return path
        if clause == "SET":
            self._expect("=")
            value = self._sum(old)
            if value is None:
                raise Invalid("the operand of a SET does not exist in the item")
            _assign(new, path, value)
            return path
        value = self._operand(old)
        combined = _combine(clause, lookup(old, path), value)
        _remove(new, path) if combined is None else _assign(new, path, combined)
        return path

    def _sum(self, item: Raw) -> Any:
        left = self._operand(item)
        if (operator := self._peek()) in ("+", "-"):
            self._next()
            right = self._operand(item)
            if left is None or right is None or "N" not in left or "N" not in right:
                raise Invalid("arithmetic needs two numbers")
            sign = 1 if operator == "+" else -1
            return {"N": number_form(Decimal(left["N"]) + sign * Decimal(right["N"]))}
        return left

    # ---- operands and tokens -----------------------------------------------------------------------------------------

    def _operand(self, item: Raw) -> Any:
        token = self._peek() or ""
        if token.startswith(":"):
            self._next()
            self.used.add(token)
            if token not in self._values:
                raise Invalid(f"value {token} is not defined")
            return self._values[token]
        if token.lower() in ("if_not_exists", "list_append", "size") and self._peek(1) == "(":
            self._at += 2
            return self._function(token.lower(), item)
        return lookup(item, self._path())

    def _function(self, name: str, item: Raw) -> Any:
        if name == "size":
            value = lookup(item, self._path())
            self._expect(")")
            return None if value is None else {"N": str(_size(value))}
        left, right = self._pair(item)
        if name == "if_not_exists":
            return right if left is None else left
        if left is None or right is None or "L" not in left or "L" not in right:
            raise Invalid("list_append needs two lists")
        return {"L": [*left["L"], *right["L"]]}

    def _path(self) -> Path:
        path: list[str | int] = [self._name()]
        while True:
            if self._take("."):
                path.append(self._name())
            elif self._take("["):
                path.append(int(self._next()))
                self._expect("]")
            else:
                return tuple(path)

    def _name(self) -> str:
        token = self._next()
        if not token.startswith("#"):
            if not re.fullmatch(r"[A-Za-z_][A-Za-z0-9_]*", token):
                raise Invalid(f"{token!r} is not an attribute name")
            return token
        self.used.add(token)
        if token not in self._names:
            raise Invalid(f"name {token} is not defined")
        return self._names[token]

    def _peek(self, ahead: int = 0) -> str | None:
        at = self._at + ahead
        return self._tokens[at] if at < len(self._tokens) else None

    def _next(self) -> str:
        token = self._peek()
        if token is None:
            raise Invalid("the expression ends early")
        self._at += 1
        return token

    def _take(self, token: str) -> bool:
        if self._peek() == token:
            self._at += 1
            return True
        return False

    def _take_word(self, word: str) -> bool:
        if (self._peek() or "").upper() == word:
            self._at += 1
            return True
        return False

    def _expect(self, token: str) -> None:
        if self._next() != token:
            raise Invalid(f"{token!r} expected")


_PREDICATES = {
    "attribute_exists": Expression._exists,
    "attribute_not_exists": Expression._is_absent,
    "begins_with": Expression._begins,
    "contains": Expression._contains,
    "attribute_type": Expression._has_type,
}


@lru_cache(maxsize=4096)
def _tokens(text: str) -> tuple[str, ...]:
    tokens, at = [], 0
    text = text.rstrip()
    while at < len(text):
        match = _TOKEN.match(text, at)
        if match is None:
            raise Invalid(f"syntax error near {text[at : at + 12]!r}")
        tokens.append(match[1])
        at = match.end()
    if not tokens:
        raise Invalid("the expression is empty")
    return tuple(tokens)


def lookup(item: Mapping[str, Any], path: Path) -> Any:
    """The raw value at a path, or None."""
    value: Any = item.get(str(path[0]))
    for step in path[1:]:
        if value is None:
            return None
        if isinstance(step, int):
            entries = value.get("L", [])
            value = entries[step] if step < len(entries) else None
        else:
            value = value.get("M", {}).get(step)
    return value


def number_form(value: Decimal) -> str:
    """A number as DynamoDB returns it: normalised, without exponent. Raises Invalid beyond 38 digits."""
    try:
        value = value.normalize()
    except InvalidOperation as error:
        raise Invalid("not a number") from error
    if not value.is_finite() or len(value.as_tuple().digits) > 38:
        raise Invalid("a number may have 38 digits")
    return "0" if value == 0 else format(value, "f")


def _compare(left: Any, operator: str, right: Any) -> bool:
    if left is None or right is None:
        return operator == "<>" and left is not right
    ((left_tag, a),) = left.items()
    ((right_tag, b),) = right.items()
    if operator in ("=", "<>"):
        return (comparable(left) == comparable(right)) is (operator == "=")
    if left_tag != right_tag or left_tag not in ("S", "N", "B"):
        return False
    if left_tag == "N":
        a, b = Decimal(a), Decimal(b)
    elif left_tag == "S":
        a, b = a.encode(), b.encode()
    return bool({"<": a < b, "<=": a <= b, ">": a > b, ">=": a >= b}[operator])


def comparable(attribute: Mapping[str, Any]) -> Any:
    """A value equal for equal attributes: numbers by value, sets without order."""
    ((tag, value),) = attribute.items()
    match tag:
        case "N":
            return (tag, Decimal(value))
        case "NS":
            return (tag, frozenset(Decimal(entry) for entry in value))
        case "SS" | "BS":
            return (tag, frozenset(value))
        case "L":
            return (tag, [comparable(entry) for entry in value])
        case "M":
            return (tag, {name: comparable(entry) for name, entry in value.items()})
    return (tag, value)


def _size(attribute: Mapping[str, Any]) -> int:
    ((tag, value),) = attribute.items()
    if tag == "S":
        return len(value.encode())
    if tag in ("B", "L", "M", *_SETS):
        return len(value)
    raise Invalid(f"size() of {tag}")


def _combine(clause: str, old: Any, value: Any) -> Any:
    """ADD and DELETE: a number or a set. None when a DELETE leaves an empty set."""
    ((tag, operand),) = value.items()
    if clause == "ADD" and tag == "N":
        if old is not None and "N" not in old:
            raise Invalid("ADD of a number to something else")
        return {"N": number_form(Decimal(old["N"] if old else 0) + Decimal(operand))}
    if tag not in _SETS or (old is not None and tag not in old):
        raise Invalid(f"{clause} needs a number or sets of one type")
    members = set(old[tag] if old else ())
    members = members | set(operand) if clause == "ADD" else members - set(operand)
    return {tag: sorted(members)} if members else None


def _assign(item: Raw, path: Path, value: Any) -> None:
    value = deepcopy(dict(value))
    if len(path) == 1:
        item[str(path[0])] = value
        return
    holder = lookup(item, path[:-1])
    step = path[-1]
    if holder is None or ("L" if isinstance(step, int) else "M") not in holder:
        raise Invalid("the document path provided in the update expression is invalid for update")
    if isinstance(step, int):
        entries = holder["L"]
        entries[step : step + 1] = [value]
    else:
        holder["M"][step] = value


def _remove(item: Raw, path: Path) -> None:
    if len(path) == 1:
        item.pop(str(path[0]), None)
        return
    holder = lookup(item, path[:-1])
    if holder is None:
        raise Invalid("the document path provided in the update expression is invalid for update")
    step = path[-1]
    if isinstance(step, int):
        del holder["L"][step : step + 1]
    else:
        holder["M"].pop(step, None)


def _refuse_overlaps(paths: list[Path]) -> None:
    for index, path in enumerate(paths):
        for other in paths[index + 1 :]:
            shorter = min(len(path), len(other))
            if path[:shorter] == other[:shorter]:
                raise Invalid(f"two document paths overlap with each other: {path}, {other}")
