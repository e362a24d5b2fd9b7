"""`--watch`: the same view again and again."""

from __future__ import annotations

import sys
import time
from collections.abc import Callable
from typing import Any, TypeVar

import click

T = TypeVar("T")
CLEAR = "\x1b[H\x1b[2J"
SHORTEST_SECONDS = 0.2

F = TypeVar("F", bound=Callable[..., Any])


def watch_options(command: F) -> F:
    """Adds `--watch` and `--interval`, as parameters `watching` and `interval`. Two options, since one with a value
    that may be left out would swallow the argument behind it."""
    interval = click.option(
        "--interval",
        type=click.FloatRange(min=SHORTEST_SECONDS),
        default=2.0,
        show_default=True,
        metavar="SECONDS",
        help="How often --watch looks.",
    )
    watching = click.option("--watch", "-w", "watching", is_flag=True, help="Look again and again until interrupted.")
    return watching(interval(command))


def watch(
    fetch: Callable[[], T],
    show: Callable[[T], None],
    *,
    watching: bool,
    interval: float,
    ended: Callable[[T], bool] = lambda data: False,
) -> None:
    """Fetch and show once, or again and again until `ended`. A terminal is cleared between the looks, after the
    next one is there; in a pipe they follow one another."""
    while True:
        data = fetch()
        if watching and sys.stdout.isatty():
            click.echo(CLEAR, nl=False)
        show(data)
        if not watching or ended(data):
            return
        time.sleep(interval)
