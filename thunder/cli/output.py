"""Data on stdout, in the form asked for. Progress and complaints are not data: they go to stderr."""

from __future__ import annotations

import codecs
import json
import os
import shutil
import sys
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import click

from thunder.cli.inert import inert, inert_json

Row = Mapping[str, Any]
GAP = "  "
NARROWEST = 16  # a column that may be cut is never cut to less


@dataclass(frozen=True)
class Column:
    """One column of a list. `shown` is what people read in a table, `raw` (default: the same) what programs read in
    text.

    In a terminal too narrow for all, columns with a `brief` form take it; then those that `may_be_cut` are; then those
    that can be `spared` go, the highest number first. The others, ids above all, stay whole whatever the width.
    """

    title: str
    shown: Callable[[Row], Any]
    raw: Callable[[Row], Any] | None = None
    colour: Callable[[Row], str | None] | None = None
    brief: Callable[[Row], Any] | None = None
    may_be_cut: bool = False
    spared: int = 0
    right: bool = False

    @staticmethod
    def of(name: str) -> Column:
        """A field as it is."""
        return Column(name, lambda row: row.get(name))


def print_object(value: Mapping[str, Any], output: str) -> None:
    """One object: JSON, aligned `name  value` lines, or `name<TAB>value` lines. Values are never broken: they are
    copied from here."""
    if output == "json":
        print_json(value)
        return
    width = max((len(name) for name in value), default=0)
    for name, cell in value.items():
        click.echo(f"{name}\t{_cell(cell)}" if output == "text" else f"{name:<{width}}{GAP}{_cell(cell)}".rstrip())


def print_list(rows: Sequence[Row], columns: Sequence[str | Column], output: str, *, answer: Any = None) -> None:
    """Many objects of one kind. JSON is `answer` (default: the rows) whole; table and text have the columns named."""
    if output == "json":
        print_json(rows if answer is None else answer)
        return
    chosen = [Column.of(column) if isinstance(column, str) else column for column in columns]
    if output == "text":
        for row in rows:
            click.echo("\t".join(_cell((column.raw or column.shown)(row)) for column in chosen))
    else:
        for line in table_lines(rows, chosen, width=terminal_width()):
            click.echo(line)


def print_json(value: Any) -> None:
    click.echo(inert_json(json.dumps(value, indent=2, ensure_ascii=not speaks_unicode())))


def speaks_unicode() -> bool:
    """Whether stdout can carry every character; in an ASCII or Latin-1 locale it cannot."""
    return codecs.lookup(sys.stdout.encoding or "ascii").name.startswith("utf")


def styled(text: str, colour: str | None = None, **styles: Any) -> str:
    """In colour, unless NO_COLOR is set (https://no-color.org). `click.echo` takes it off again in a pipe."""
    return text if os.environ.get("NO_COLOR") else click.style(text, fg=colour, **styles)


def terminal_width() -> int | None:
    """The columns there are; None when stdout is no terminal, so that nothing has to be cut."""
    return shutil.get_terminal_size().columns if sys.stdout.isatty() else None


def table_lines(rows: Sequence[Row], columns: Sequence[Column], *, width: int | None) -> list[str]:
    """A table of one line a row. A row that is too wide for the terminal all the same runs on: an id that the terminal
    wraps can be copied, one that is cut cannot."""
    drawn = _drawn(rows, columns, width)
    lines = [styled(GAP.join(_padded(each.title, each.width, each.column.right) for each in drawn).rstrip(), bold=True)]
    for index, row in enumerate(rows):
        cells = [
            _padded(cut(each.cells[index], each.width), each.width, each.column.right, each.colour_of(row))
            for each in drawn
        ]
        lines.append(GAP.join(cells).rstrip())
    return lines


@dataclass
class _Drawn:
    """A column with its cells, as wide as it is to be."""

    column: Column
    cells: list[str]
    width: int

    @staticmethod
    def of(column: Column, rows: Sequence[Row], *, briefly: bool = False) -> _Drawn:
        show = column.brief if briefly and column.brief is not None else column.shown
        cells = [_cell(show(row)) for row in rows]
        return _Drawn(column, cells, max([len(column.title), *map(_width, cells)]))

    @property
    def title(self) -> str:
        return self.column.title.upper()

    @property
    def least(self) -> int:
        return min(self.width, max(NARROWEST, len(self.title))) if self.column.may_be_cut else self.width

    def colour_of(self, row: Row) -> str | None:
        return self.column.colour(row) if self.column.colour is not None else None


def _drawn(rows: Sequence[Row], columns: Sequence[Column], width: int | None) -> list[_Drawn]:
    """The columns there is room for, fitted."""
    drawn = [_Drawn.of(column, rows) for column in columns]
    if width is None or _total([each.width for each in drawn]) <= width:
        return drawn
    drawn = [_Drawn.of(column, rows, briefly=True) for column in columns]
    while _total([each.least for each in drawn]) > width and (spare := max(each.column.spared for each in drawn)):
        drawn = [each for each in drawn if each.column.spared != spare]
    while _total([each.width for each in drawn]) > width:
        widest = max(drawn, key=lambda each: each.width - each.least)
        if widest.width == widest.least:
            break
        widest.width -= 1
    return drawn


def _total(widths: Sequence[int]) -> int:
    return sum(widths) + len(GAP) * (len(widths) - 1)


def cut(text: str, width: int) -> str:
    """At most so many columns wide, with an ellipsis where something is missing."""
    if _width(text) <= width:
        return text
    kept, used = "", 0
    for character in text:
        used += _width(character)
        if used > width - 1:
            break
        kept += character
    return kept + "…"


def _cell(value: Any) -> str:
    if value is None:
        return ""
    return inert(value if isinstance(value, str) else json.dumps(value, ensure_ascii=False))


def _padded(text: str, width: int, right: bool, colour: str | None = None) -> str:
    space = " " * max(0, width - _width(text))
    inked = styled(text, colour) if colour and text else text
    return space + inked if right else inked + space


def _width(text: str) -> int:
    """Terminal columns: East Asian characters take two. rich knows them; ASCII, the usual case, does without it."""
    if text.isascii():
        return len(text)
    from rich.cells import cell_len

    return cell_len(text)
