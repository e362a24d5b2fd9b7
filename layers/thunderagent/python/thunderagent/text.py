"""Text that is stored for people: made storable, and cut by the bytes it will have."""

from __future__ import annotations

MARK = "… [{cut} of {whole} bytes cut]"


def storable(text: str) -> str:
    r"""The text with unpaired surrogates written out (`\ud800`): UTF-8, and so DynamoDB, has no form for them."""
    return text.encode("utf-8", "backslashreplace").decode()


def cut(text: str, limit: int) -> str:
    """At most `limit` UTF-8 bytes, whole characters, with a mark saying how much was cut."""
    data = storable(text).encode()
    if len(data) <= limit:
        return data.decode()
    mark = MARK.format(cut=len(data), whole=len(data))  # never shorter than the final one
    kept = data[: max(0, limit - len(mark.encode()))].decode(errors="ignore")
    return kept + MARK.format(cut=len(data) - len(kept.encode()), whole=len(data))
