"""Data on stdout, in the form asked for. Progress and complaints are not data: they go to stderr."""

from __future__ import annotations

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
NARROWEST = 8  # a column that may be cut is never cut to less


@dataclass(frozen=True)
class Column:
    """One column of a list. `shown` is what people read in a table, `raw` (default: the same) what programs read in
    text. Only columns that `may_be_cut` give way when the terminal is narrow: ids and figures stay whole."""

    title: str
    shown: Callable[[Row], Any]
    raw: Callable[[Row], Any] | None = None
    colour: Callable[[Row], str | None] | None = None
    may_be_cut: bool = False
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
    click.echo(inert_json(json.dumps(value, indent=2, ensure_ascii=False)))


def styled(text: str, colour: str | None = None, **styles: Any) -> str:
    """In colour, unless NO_COLOR is set (https://no-color.org). `click.echo` takes it off again in a pipe."""
    return text if os.environ.get("NO_COLOR") else click.style(text, fg=colour, **styles)


def terminal_width() -> int | None:
    """The columns there are; None when stdout is no terminal, so that nothing has to be cut."""
    return shutil.get_terminal_size().columns if sys.stdout.isatty() else None


def table_lines(rows: Sequence[Row], columns: Sequence[Column], *, width: int | None) -> list[str]:
    """A table of one line a row. A row wider than the terminal even when all is cut that may be runs on: an id that
    the terminal wraps can be copied, one that is cut cannot."""
    cells = [[_cell(column.shown(row)) for column in columns] for row in rows]
    widths = _fit([_widest(column, index, cells) for index, column in enumerate(columns)], columns, width)
    header = [_padded(column.title.upper(), size, column.right) for column, size in zip(columns, widths, strict=True)]
    lines = [styled(GAP.join(header).rstrip(), bold=True)]
    for row, texts in zip(rows, cells, strict=True):
        shown = [
            _padded(cut(text, size), size, column.right, column.colour and column.colour(row))
            for text, size, column in zip(texts, widths, columns, strict=True)
        ]
        lines.append(GAP.join(shown).rstrip())
    return lines


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


def _widest(column: Column, index: int, cells: Sequence[Sequence[str]]) -> int:
    return max(len(column.title), *(_width(row[index]) for row in cells)) if cells else len(column.title)


def _fit(natural: Sequence[int], columns: Sequence[Column], width: int | None) -> list[int]:
    """The widest of those that may be cut give way first."""
    widths = list(natural)
    over = sum(widths) + len(GAP) * (len(widths) - 1) - width if width is not None else 0
    while over > 0:
        index = max(range(len(widths)), key=lambda each: widths[each] if columns[each].may_be_cut else 0)
        if not columns[index].may_be_cut or widths[index] <= NARROWEST:
            break
        widths[index] -= 1
        over -= 1
    return widths


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
