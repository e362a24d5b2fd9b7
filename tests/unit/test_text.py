"""Text for people is cut by the bytes it will have, never inside a character."""

from __future__ import annotations

import pytest

from thunderagent.text import cut, storable


@pytest.mark.parametrize("letter", ["x", "é", "中", "🜁"])
@pytest.mark.parametrize("limit", [256, 2048])
@pytest.mark.parametrize("over", [-1, 0, 1, 100_000])
def test_at_most_the_limit_in_bytes_and_whole_characters(letter: str, limit: int, over: int) -> None:
    text = letter * ((limit + over) // len(letter.encode()))
    shown = cut(text, limit)
    assert len(shown.encode()) <= limit
    if len(text.encode()) <= limit:
        assert shown == text
    else:
        kept, mark, _ = shown.partition("… [")
        assert mark
        assert text.startswith(kept)
        assert shown.endswith(f"[{len(text.encode()) - len(kept.encode())} of {len(text.encode())} bytes cut]")
        assert len(shown.encode()) > limit - 20  # little more than the mark is given away


def test_half_a_surrogate_pair_is_written_out() -> None:
    assert storable("a\ud800b") == "a\\ud800b"
    assert len(cut("\udfff" * 5000, 2048).encode()) <= 2048
