"""Data on stdout, in the form asked for. Progress and complaints are not data: they go to stderr."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from typing import Any

import click


def print_object(value: Mapping[str, Any], output: str) -> None:
    """One object: JSON, aligned `name  value` lines, or `name<TAB>value` lines. Values are never broken: they are
    copied from here."""
    if output == "json":
        print_json(value)
        return
    width = max((len(name) for name in value), default=0)
    for name, cell in value.items():
        click.echo(f"{name}\t{_cell(cell)}" if output == "text" else f"{name:<{width}}  {_cell(cell)}".rstrip())


def print_list(rows: Sequence[Mapping[str, Any]], columns: Sequence[str], output: str) -> None:
    """Many objects of one kind. JSON has them whole; table and text have the columns named."""
    if output == "json":
        print_json(rows)
        return
    cells = [[_cell(row.get(column)) for column in columns] for row in rows]
    if output == "text":
        for row in cells:
            click.echo("\t".join(row))
    else:
        _print_table(columns, cells)


def print_json(value: Any) -> None:
    click.echo(json.dumps(value, indent=2, ensure_ascii=False))


def _cell(value: Any) -> str:
    if value is None:
        return ""
    return value if isinstance(value, str) else json.dumps(value, ensure_ascii=False)


def _print_table(columns: Sequence[str], rows: Sequence[Sequence[str]]) -> None:
    """With rich, which is imported only here: it costs more than the rest of a command. It honours NO_COLOR."""
    from rich.box import SIMPLE
    from rich.console import Console
    from rich.table import Table
    from rich.text import Text

    table = Table(*columns, box=SIMPLE, pad_edge=False)
    for row in rows:
        table.add_row(*(Text(cell, overflow="fold") for cell in row))
    Console().print(table)
