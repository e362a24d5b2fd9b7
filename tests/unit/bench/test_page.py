"""The page of figures: a section is replaced, the others stay as they are."""

from __future__ import annotations

from bench.page import INTRODUCTION, merged, sections
from bench.report import body, grid

PAGE = "# Old\n\nwords\n\n## One\n\n1\n\n## Two\n\n2\n\n## Gone\n\n3\n"


def test_sections_are_found_by_their_headings() -> None:
    assert sections(PAGE) == {"One": "## One\n\n1", "Two": "## Two\n\n2", "Gone": "## Gone\n\n3"}
    assert sections("") == {}


def test_one_section_is_replaced_and_the_order_is_given() -> None:
    page = merged(PAGE, {"One": "## One\n\nfresh"}, ["Two", "One", "Never measured"])
    assert page == f"{INTRODUCTION}\n\n## Two\n\n2\n\n## One\n\nfresh\n"
    assert merged(page, {}, ["Two", "One"]) == page
    ended = merged(page, {}, ["Two", "One"], last="## Before and after\n")
    assert ended == f"{page}\n## Before and after\n"
    assert merged(ended, {}, ["Two", "One"], last="## Before and after\n") == ended


def test_a_grid_has_its_columns_and_formats_its_figures() -> None:
    text = grid({"title": "T", "columns": ["case", "units"], "rows": [["a", 1234.5], ["b", ""]]})
    assert text.splitlines() == ["**T**", "", "| case | units |", "|---|---:|", "| a | 1,234.5 |", "| b |  |"]


def test_words_and_grids_come_before_the_other_figures() -> None:
    parts = body({"rate": 3, "text": ["Words."], "tables": [{"title": "T", "columns": ["c"], "rows": []}]})
    assert [part.splitlines()[0] for part in parts] == ["Words.", "**T**", "| figure |      value |"]
