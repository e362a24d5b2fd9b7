"""Text from tasks, shown inert: nothing a task says can move the cursor, change colours, or pass for another line."""

from __future__ import annotations

import re

# C0 and C1 controls, marks that change direction or are invisible, line separators, halves of surrogate pairs, tags.
_UNSAFE_CLASS = (
    "\x7f-\x9f\u00ad\u061c\u180e\u200b-\u200f\u2028-\u202e\u2060-\u206f\ufeff\ufff9-\ufffb\ud800-\udfff"
    "\U000e0000-\U000e007f"
)
_UNSAFE = re.compile(f"[\x00-\x1f{_UNSAFE_CLASS}]")
_UNSAFE_IN_JSON = re.compile(f"[{_UNSAFE_CLASS}]")
_SHORT = {"\n": r"\n", "\r": r"\r", "\t": r"\t"}


def inert(text: str) -> str:
    """One line: newlines, control codes and marks that cannot be seen become visible escapes. Not reversible."""
    return _UNSAFE.sub(lambda found: _SHORT.get(found[0]) or _escape(found[0]), text)


def inert_lines(text: str) -> str:
    """The same, with its line breaks kept: for text that has a place of its own."""
    return "\n".join(inert(line) for line in text.split("\n"))


def inert_json(text: str) -> str:
    """JSON text of the standard library's writer that reads as the same value. The writer has escaped the C0 controls;
    what else is unsafe stands in strings only, where JSON has an escape for it."""
    return _UNSAFE_IN_JSON.sub(lambda found: _json_escape(ord(found[0])), text)


def _escape(character: str) -> str:
    code = ord(character)
    return f"\\x{code:02x}" if code < 0x100 else f"\\u{code:04x}" if code < 0x10000 else f"\\U{code:08x}"


def _json_escape(code: int) -> str:
    if code < 0x10000:
        return f"\\u{code:04x}"
    code -= 0x10000
    return f"\\u{0xD800 + (code >> 10):04x}\\u{0xDC00 + (code & 0x3FF):04x}"
