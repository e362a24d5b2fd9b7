"""Reading one object of the CDK's context: typed, and every wrong key is told, not only the first one."""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping
from typing import Any, TypeVar

T = TypeVar("T")


class ConfigError(ValueError):
    """Context values are missing or not allowed; the text names each key and what it may be, one on a line."""


class Section:
    """Typed reads of an object. A value that is not allowed is noted in `complaints`, with its key and what it may be,
    and read as its default; `raise_complaints` ends the reading of the whole document."""

    def __init__(self, value: object, path: str, complaints: list[str] | None = None) -> None:
        self.path = path
        self.complaints: list[str] = [] if complaints is None else complaints
        self._values = self._mapping(value)
        self._read: set[str] = set()

    @property
    def keys(self) -> tuple[str, ...]:
        return tuple(self._values)

    def section(self, key: str) -> Section:
        return Section(self._get(key, {}), self._at(key), self.complaints)

    def optional_section(self, key: str) -> Section | None:
        return None if self._get(key, None) is None else self.section(key)

    def required_text(self, key: str, pattern: re.Pattern[str]) -> str:
        value = self._get(key, None)
        if isinstance(value, str) and pattern.fullmatch(value):
            return value
        return self._refused(key, value, f"a text matching {pattern.pattern}", "")

    def text(self, key: str, default: str) -> str:
        value = self._get(key, default)
        if isinstance(value, str) and value:
            return value
        return self._refused(key, value, "a non-empty text", default)

    def optional_text(self, key: str, pattern: re.Pattern[str]) -> str | None:
        value = self._get(key, None)
        if value is None or (isinstance(value, str) and pattern.fullmatch(value)):
            return value
        return self._refused(key, value, f"a text matching {pattern.pattern}, or null", None)

    def texts(
        self,
        key: str,
        default: tuple[str, ...],
        pattern: re.Pattern[str] = re.compile(".+"),
        *,
        may_be_empty: bool = False,
    ) -> tuple[str, ...]:
        value = self._get(key, list(default))
        if not isinstance(value, list) or not (value or may_be_empty) or len(set(map(str, value))) < len(value):
            return self._refused(key, value, "a list of different texts, at least one", default)
        for text in value:
            if not isinstance(text, str) or not pattern.fullmatch(text):
                return self._refused(key, text, f"texts matching {pattern.pattern}", default)
        return tuple(value)

    def text_map(self, key: str, names: re.Pattern[str], values: re.Pattern[str]) -> dict[str, str]:
        """An object of texts; both sides of each entry match their pattern."""
        section = self.section(key)
        found = {}
        for name in section.keys:
            if not names.fullmatch(name):
                section.complain(f"{name!r} is no key there: it must match {names.pattern}")
            else:
                found[name] = section.required_text(name, values)
        return found

    def flag(self, key: str, default: bool) -> bool:
        value = self._get(key, default)
        return value if isinstance(value, bool) else self._refused(key, value, "true or false", default)

    def number(self, key: str, default: float, *, at_least: float, at_most: float) -> float:
        value = self._get(key, default)
        if isinstance(value, bool) or not isinstance(value, int | float) or not at_least <= value <= at_most:
            return self._refused(key, value, f"a number from {at_least:g} to {at_most:g}", default)
        return value

    def optional_number(self, key: str, *, at_least: float, at_most: float) -> float | None:
        if self._get(key, None) is None:
            return None
        return self.number(key, at_least, at_least=at_least, at_most=at_most)

    def integer(self, key: str, default: int, *, at_least: int, at_most: int) -> int:
        value = self._get(key, default)
        if type(value) is not int or not at_least <= value <= at_most:
            return self._refused(key, value, f"an integer from {at_least} to {at_most}", default)
        return value

    def optional_integer(self, key: str, *, at_least: int, at_most: int) -> int | None:
        if self._get(key, None) is None:
            return None
        return self.integer(key, at_least, at_least=at_least, at_most=at_most)

    def choice(self, key: str, default: T, allowed: tuple[T, ...]) -> T:
        value = self._get(key, default)
        for candidate in allowed:
            if type(value) is type(candidate) and value == candidate:
                return candidate
        return self._refused(key, value, f"one of {listed(allowed)}", default)

    def refuse_unknown(self) -> None:
        """Call after the last read: a key nobody read is a misspelling."""
        for key in self._values:
            if key not in self._read:
                self.complaints.append(f"{self._at(key)} is not a known key; known: {listed(sorted(self._read))}")

    def complain(self, complaint: str) -> None:
        """Note what is wrong with this section as a whole."""
        self.complaints.append(f"{self.path}: {complaint}")

    def raise_complaints(self) -> None:
        """Raises ConfigError when anything read from this document so far was refused."""
        if self.complaints:
            raise ConfigError("\n".join(self.complaints))

    def _get(self, key: str, default: Any) -> Any:
        self._read.add(key)
        return self._values.get(key, default)

    def _at(self, key: str) -> str:
        return f"{self.path}.{key}"

    def _refused(self, key: str, value: object, allowed: str, default: T) -> T:
        self.complaints.append(f"{self._at(key)} is {value!r}: it must be {allowed}")
        return default

    def _mapping(self, value: object) -> Mapping[str, Any]:
        if isinstance(value, Mapping):
            return value
        self.complaints.append(f"{self.path} is {value!r}: it must be an object")
        return {}


def listed(values: Iterable[object]) -> str:
    return ", ".join(str(value) for value in values) or "none"
