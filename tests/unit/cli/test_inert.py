"""Nothing a task says can act on the terminal or pass for something else."""

from __future__ import annotations

import json

import pytest

from thunder.cli.inert import inert, inert_json, inert_lines

HOSTILE = [
    "\x1b[2J",
    "\x07",
    "\x9b2J",
    "a\rb",
    "a\nb",
    "a\tb",
    "\x7f",
    "\u202egnp",
    "\u200b",
    "\u2028",
    "\ud800",
    "\U000e0041",
]


@pytest.mark.parametrize("text", HOSTILE)
def test_controls_and_invisible_marks_become_visible(text: str) -> None:
    shown = inert(f"<{text}>")

    assert shown.isprintable()
    assert "\\" in shown


def test_what_is_harmless_stays() -> None:
    text = "Grüße, 世界 🚀 [bold]x[/bold] \\n"

    assert inert(text) == text


def test_lines_keep_their_breaks_and_no_other_control() -> None:
    assert inert_lines("a\nb\x1b[2J\rc\x0bd") == "a\nb\\x1b[2J\\rc\\x0bd"


@pytest.mark.parametrize("text", [*HOSTILE, "plain", "🚀"])
def test_json_reads_as_the_same_value(text: str) -> None:
    value = {text: [text]}
    shown = inert_json(json.dumps(value, indent=1, ensure_ascii=False))

    assert json.loads(shown) == value
    assert all(character.isprintable() for character in shown.replace("\n", ""))
