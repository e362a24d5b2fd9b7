"""The page that says where in the library what is."""

from __future__ import annotations

import re
from collections import Counter
from pathlib import Path

import thunderagent

PACKAGE = Path(str(thunderagent.__file__)).parent
PAGE = Path(__file__).resolve().parents[3] / "docs" / "library.md"
BESIDE = {"testing", "cdk", "__init__"}


def named_in_rooms() -> Counter[str]:
    rows = [line for line in PAGE.read_text().splitlines() if line.startswith("| ") and "`" in line]
    return Counter(name for row in rows for name in re.findall(r"`([a-z0-9_]+)/?`", row.rpartition(" | ")[2]))


def test_every_module_of_the_library_has_one_room() -> None:
    modules = {each.stem for each in PACKAGE.glob("*.py")}
    modules |= {each.parent.name for each in PACKAGE.glob("*/__init__.py")}
    named = named_in_rooms()
    assert {*named} == modules - BESIDE
    assert {name for name, times in named.items() if times > 1} == set()
