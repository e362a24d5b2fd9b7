"""What a page was asked: its query or its form, as text; and fields read as what they should be."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from urllib.parse import parse_qs

FORM_BYTES = 2 * 1024 * 1024 + 64 * 1024  # a payload of the API's size, and the rest of the form
FIELDS = 600


class FieldError(Exception):
    """A field does not hold what it should. `field` names it, the message says it to a person."""

    def __init__(self, field: str, message: str) -> None:
        super().__init__(message)
        self.field = field
        self.message = message


@dataclass(frozen=True)
class Fields:
    """The fields of a query or a form, each with all its values."""

    values: Mapping[str, Sequence[str]] = field(default_factory=dict)

    @staticmethod
    def parse(text: str) -> Fields:
        """Of an urlencoded form. Raises FieldError for one that is not."""
        try:
            return Fields(parse_qs(text, keep_blank_values=True, max_num_fields=FIELDS, errors="strict"))
        except ValueError as error:
            raise FieldError("form", f"the form cannot be read: {error}") from None

    def text(self, name: str, default: str = "") -> str:
        """The field without the space around it; the default when it is missing or empty."""
        found = self.values.get(name) or [""]
        return found[0].strip() or default

    def raw(self, name: str) -> str:
        """The field as it was typed, with a browser's line ends made newlines."""
        found = self.values.get(name) or [""]
        return found[0].replace("\r\n", "\n")

    def all(self, name: str) -> list[str]:
        """The values of a repeated field, each once, without the empty ones."""
        return list(dict.fromkeys(value for value in self.values.get(name, ()) if value))

    def is_set(self, name: str) -> bool:
        return bool(self.text(name))

    def whole(self, name: str, *, what: str) -> int | None:
        """A whole number from zero on, or None when the field is empty."""
        text = self.text(name)
        if not text:
            return None
        if not text.isascii() or not text.isdigit() or len(text) > 12:
            raise FieldError(name, f"{what} must be a whole number")
        return int(text)

    def decimal(self, name: str, *, what: str) -> float | None:
        text = self.text(name)
        if not text:
            return None
        try:
            number = float(text)
        except ValueError:
            raise FieldError(name, f"{what} must be a number") from None
        if not 0 <= number < 1e12:
            raise FieldError(name, f"{what} must be a number from zero on")
        return number
