"""docs/performance.md as sections, one for each bench: a run replaces those it measured and leaves the others alone."""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping
from itertools import pairwise

INTRODUCTION = """# Performance, as measured

Written by `make bench`; `make bench BENCH=<name>` replaces the section of one bench. Every figure was measured on the
embedded AWS: one Python process on one machine, which says how much else it had to do by its load. The figures tell
what a change of the code does to them, and how the parts compare; not what AWS would do."""

_HEADING = re.compile(r"^## (?P<heading>.+)$", re.MULTILINE)


def sections(page: str) -> dict[str, str]:
    """The sections of a page by their headings, each with its heading and without the space around it."""
    found = list(_HEADING.finditer(page))
    begins = [each.start() for each in found]
    parts = zip(found, pairwise([*begins, len(page)]), strict=True)
    return {each["heading"]: page[begin:end].strip() for each, (begin, end) in parts}


def merged(page: str, fresh: Mapping[str, str], order: Iterable[str], *, last: str = "") -> str:
    """The page with fresh sections in the place of old ones, in that order, and a `last` one that is not measured. What
    is in no order any more is dropped."""
    known = {**sections(page), **fresh}
    parts = [INTRODUCTION, *(known[heading] for heading in order if heading in known), last.strip()]
    return "\n\n".join(part for part in parts if part) + "\n"
