"""JSON text that comes back equal: a strict reader and a strict writer.

`json.loads` keeps the last of two equal keys, reads `1e400` as infinity, accepts `NaN` and half a surrogate pair, and
recurses as deep as its input tells it to. Each of these would be stored as something other than what was sent, or
break a later step, so each is refused here, with the path of the value. What is accepted obeys `loads(dumps(v)) == v`,
types included: `1` stays an integer and `1.0` a float, `-0.0` keeps its sign, integers are exact.

The C scanner of the standard library does the reading. Its hooks leave a mark where something is wrong, and only then
is the tree walked (without recursion) to name the place.
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any, Final

from thunderagent.errors import InvalidInput

MAX_DEPTH: Final = 200
"""Containers inside one another in a payload or result; the outermost counts as one."""

MAX_BODY_DEPTH: Final = MAX_DEPTH + 8
"""For a request or answer that carries such values some levels down."""

MAX_INTEGER_DIGITS: Final = 4300
"""CPython refuses to convert longer ones (CVE-2020-10735), and so would a client that reads the answer."""

_STRING = re.compile(r'"[^"\\]*(?:\\.[^"\\]*)*"', re.DOTALL)
_TOKEN = re.compile(_STRING.pattern + r"|[\[\]{},:]", re.DOTALL)
_NOT_A_BRACKET = re.compile(r"[^\[\]{}]+")
_HALF_A_PAIR = re.compile("[\ud800-\udfff]")
_ESCAPED_HALF_A_PAIR = re.compile(r"\\u[dD][89a-fA-F]")
_PLAIN_NAME = re.compile(r"[A-Za-z_][A-Za-z0-9_-]*")


_UNPAIRED = "unpaired surrogate"
_TOO_LONG = f"integer of more than {MAX_INTEGER_DIGITS} digits"
_CUT = "\udc00too deep"
_NAME_SHOWN = 64  # characters of a key or number in a message
_STEPS_SHOWN = 3  # of a path that is too long to read

Steps = tuple[str | int, ...]
"""The way from a value to one below it: names and places."""


class _Defect:
    """Stands in the tree where the text held something JSON cannot say, until the walk finds it and names its path."""

    __slots__ = ("reason", "step")

    def __init__(self, reason: str, step: str | None = None) -> None:
        self.reason = reason
        self.step = step


# ---- reading --------------------------------------------------------------------------------------------------------


def loads(data: bytes | str, *, root: str = "", max_depth: int = MAX_DEPTH) -> Any:
    """The value of one JSON text.

    `root` names the value in paths and messages: `payload` gives `payload.items[3].price`; empty for a request body.
    Raises InvalidInput with the path of the first offending value; never RecursionError, whatever the input.
    """
    text = _decoded(data, root)
    if text.count("[") + text.count("{") > max_depth and _is_deeper(text, max_depth):
        raise _refusal(path_of(root, _way_down(text, max_depth)), _too_deep(max_depth))
    reader = _Reader()
    value = reader.read(text, root)
    if reader.found_defect or _may_hold_half_a_pair(text):
        refuse_first_defect(value, root, max_depth)
    return value


@dataclass(frozen=True)
class Draft:
    """A value whose parts may still hold what JSON cannot say, so that each part can be judged on its own."""

    value: Any
    is_suspect: bool

    def check(self, part: Any, *, root: str, max_depth: int = MAX_DEPTH) -> None:
        """Raise InvalidInput when `part` of the value has a defect."""
        if self.is_suspect:
            refuse_first_defect(part, root, max_depth)


def loads_draft(data: bytes | str, *, max_depth: int) -> Draft:
    """Read a text as far as it can be read: one bad entry of a list must not refuse the others.

    Raises InvalidInput for what is no JSON text at all. Whatever is used of the value must pass `check` first.
    """
    text = _decoded(data, "")
    if text.count("[") + text.count("{") > max_depth and _is_deeper(text, max_depth):
        text = _without_the_too_deep(text, max_depth)
    reader = _Reader()
    value = reader.read(text, "")
    return Draft(value, is_suspect=reader.found_defect or _may_hold_half_a_pair(text))


def _without_the_too_deep(text: str, max_depth: int) -> str:
    """The text with each container below the deepest level replaced by a string that no accepted text can hold."""
    pieces: list[str] = []
    depth = kept_to = 0
    for match in _TOKEN.finditer(text):
        token = match[0]
        if token in "[{":
            depth += 1
            if depth == max_depth + 1:
                pieces.append(text[kept_to : match.start()] + f'"{_CUT}"')
        elif token in "]}":
            depth -= 1
            if depth == max_depth:
                kept_to = match.end()
    pieces.append(text[kept_to:] if depth <= max_depth else "")
    return "".join(pieces)


def _may_hold_half_a_pair(text: str) -> bool:
    return bool(_ESCAPED_HALF_A_PAIR.search(text)) or holds_half_a_pair(text)


def holds_half_a_pair(text: str) -> bool:
    return not text.isascii() and bool(_HALF_A_PAIR.search(text))


def _decoded(data: bytes | str, root: str) -> str:
    if isinstance(data, str):
        return data.removeprefix("\ufeff")
    try:
        return data.decode("utf-8").removeprefix("\ufeff")
    except UnicodeDecodeError as error:
        raise _refusal(root, f"not UTF-8 at byte {error.start}") from None


def _is_deeper(text: str, max_depth: int) -> bool:
    depth = 0
    for bracket in _NOT_A_BRACKET.sub("", _STRING.sub("", text)):
        depth += 1 if bracket in "[{" else -1
        if depth > max_depth:
            return True
    return False


def _way_down(text: str, max_depth: int) -> Steps:
    """The first steps towards the place that is too deep. The text may be malformed: no reader has seen it yet."""
    steps: list[str | int] = []
    name = ""
    for match in _TOKEN.finditer(text):
        token = match[0]
        if token in "[{":
            if len(steps) == max_depth:
                break
            steps.append(0 if token == "[" else "")
        elif token in "]}":
            del steps[-1:]
        elif token == ",":
            steps[-1:] = [step + 1 if isinstance(step, int) else step for step in steps[-1:]]
        elif token == ":":
            steps[-1:] = [name for _ in steps[-1:]]
        else:
            name = token[1:-1]
    return tuple(steps[:_STEPS_SHOWN])


class _Reader:
    def __init__(self) -> None:
        self.found_defect = False

    def read(self, text: str, root: str) -> Any:
        try:
            return self._scan(text, integer=None)
        except json.JSONDecodeError as error:
            where = f"line {error.lineno} column {error.colno}"
            raise _refusal(root, f"not JSON: {error.msg} at {where}") from None
        except ValueError:  # an integer past the interpreter's limit: read again, slower, to name its path
            return self._scan(text, integer=self._integer)

    def _scan(self, text: str, *, integer: Any) -> Any:
        return json.loads(
            text,
            object_pairs_hook=self._object,
            parse_float=self._float,
            parse_constant=self._constant,
            parse_int=integer,
        )

    def _object(self, pairs: list[tuple[str, Any]]) -> Any:
        value = dict(pairs)
        return value if len(value) == len(pairs) else self._repeated(pairs)

    def _repeated(self, pairs: list[tuple[str, Any]]) -> _Defect:
        seen: set[str] = set()
        name = next(key for key, _ in pairs if key in seen or seen.add(key))  # type: ignore[func-returns-value]
        return self._defect("key appears twice", name)

    def _float(self, text: str) -> Any:
        value = float(text)
        if value in (float("inf"), float("-inf")) or (value == 0 and _has_nonzero_digit(text)):
            return self._defect(f"{_shortened(text)} does not fit a double-precision number")
        return value

    def _integer(self, text: str) -> Any:
        try:
            return int(text)
        except ValueError:
            return self._defect(_TOO_LONG)

    def _constant(self, text: str) -> _Defect:
        return self._defect(f"{text} is not JSON")

    def _defect(self, reason: str, step: str | None = None) -> _Defect:
        self.found_defect = True
        return _Defect(reason, step)


def _has_nonzero_digit(text: str) -> bool:
    return bool(text.lower().partition("e")[0].strip("-0."))


def _shortened(text: str) -> str:
    return text if len(text) <= _NAME_SHOWN else text[: _NAME_SHOWN - 3] + "..."


# ---- writing --------------------------------------------------------------------------------------------------------


def dumps(value: Any, *, root: str = "", max_depth: int = MAX_DEPTH) -> str:
    """The stored form: compact, non-ASCII characters as they are. `root` as in `loads`.

    Accepts `None`, booleans, integers, floats, strings, lists, tuples (as lists) and dictionaries with string keys.
    Raises InvalidInput with the path for anything else: it never writes something that reads back as another value.
    """
    try:
        text = _STORED.encode(value)
    except (TypeError, ValueError, RecursionError) as error:
        refuse_first_defect(value, root, max_depth)
        raise _refusal(root, f"not a JSON value: {error}") from error
    if holds_half_a_pair(text) or not _is_fit(value, max_depth):
        refuse_first_defect(value, root, max_depth)
    return text


_STORED = json.JSONEncoder(ensure_ascii=False, allow_nan=False, separators=(",", ":"))


def _is_fit(value: Any, max_depth: int) -> bool:
    """What the encoder lets pass: it writes `{1: …}` as `{"1": …}` and minds only the interpreter's own stack.

    Level by level, so that it ends: the value was encoded before and therefore holds no cycle.
    """
    level = [value]
    for _ in range(max_depth):
        below: list[Any] = []
        for item in level:
            if isinstance(item, dict):
                if not all(isinstance(key, str) for key in item):
                    return False
                below.extend(item.values())
            elif isinstance(item, (list, tuple)):
                below.extend(item)
        if not below:
            return True
        level = below
    return not any(isinstance(item, (dict, list, tuple)) for item in level)


# ---- naming the place -----------------------------------------------------------------------------------------------


def path_of(root: str, steps: Steps) -> str:
    """`payload.items[3]["two words"]`: how messages name a value."""
    path = root
    for step in steps:
        if isinstance(step, int):
            path += f"[{step}]"
        elif _PLAIN_NAME.fullmatch(step) and len(step) <= _NAME_SHOWN:
            path += f".{step}" if path else step
        else:
            path += f"[{_quoted(_shortened(step))}]"
    return path


def _quoted(key: str) -> str:
    return json.dumps(key, ensure_ascii=bool(_HALF_A_PAIR.search(key)))


def _too_deep(max_depth: int) -> str:
    # The few levels around a payload are nobody's concern: the limit users know is the payload's.
    return f"nested deeper than {min(max_depth, MAX_DEPTH)} levels"


def _refusal(path: str, reason: str) -> InvalidInput:
    return InvalidInput(f"{path}: {reason}" if path else reason, path=path)


def refuse_first_defect(value: Any, root: str, max_depth: int) -> None:
    for steps, defect in _defects(value, max_depth):
        raise _refusal(path_of(root, steps), defect)


def _defects(value: Any, max_depth: int) -> Iterator[tuple[Steps, str]]:
    """Depth first in document order, with a stack of its own: what it looks for may be depth itself."""
    stack: list[tuple[Steps, Any]] = [((), value)]
    while stack:
        steps, item = stack.pop()
        if isinstance(item, (dict, list, tuple)) and len(steps) >= max_depth:
            yield steps[:_STEPS_SHOWN], _too_deep(max_depth)
            continue
        problem, extra = _problem_with(item)
        if problem:
            yield (*steps, *extra), problem
        elif isinstance(item, dict):
            stack.extend(((*steps, key), below) for key, below in reversed(item.items()))
        elif isinstance(item, (list, tuple)):
            stack.extend(((*steps, index), item[index]) for index in range(len(item) - 1, -1, -1))


def _problem_with(item: Any) -> tuple[str, Steps]:
    if isinstance(item, _Defect):
        return item.reason, () if item.step is None else (item.step,)
    if isinstance(item, str):
        reason = "nested too deep" if item == _CUT else f"{_UNPAIRED} in a string"
        return (reason if _HALF_A_PAIR.search(item) else ""), ()
    if isinstance(item, float):
        return ("" if item - item == 0 else f"{_constant_name(item)} is not JSON"), ()
    if isinstance(item, int) or item is None:
        return (_TOO_LONG if _too_many_digits(item) else ""), ()
    if not isinstance(item, (dict, list, tuple)):
        return f"{type(item).__name__} is not a JSON value", ()
    return _problem_with_keys(item) if isinstance(item, dict) else ("", ())


def _problem_with_keys(item: dict[Any, Any]) -> tuple[str, Steps]:
    for key in item:
        if not isinstance(key, str):
            return f"key {_shortened(repr(key))} is not a string", ()
        if _HALF_A_PAIR.search(key):
            return f"{_UNPAIRED} in a key", (key,)
    return "", ()


def _constant_name(value: float) -> str:
    return "NaN" if value != value else ("Infinity" if value > 0 else "-Infinity")


def _too_many_digits(value: int | None) -> bool:
    return value is not None and value.bit_length() > 14_280 and abs(value) >= 10**MAX_INTEGER_DIGITS
