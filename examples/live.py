"""Progress while the demonstration runs: bars on a terminal, a plain line now and then elsewhere. On stderr."""

import time
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Protocol

from rich.console import Console
from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeElapsedColumn

PLAIN_EVERY_SECONDS = 2.0


class Live(Protocol):
    """Shown how far the run is."""

    def show(self, *, submitted: int, ended: int, of: int, note: str = "") -> None: ...


@contextmanager
def live(console: Console) -> Iterator[Live]:
    """Bars if the console is a terminal, lines if not."""
    if not console.is_terminal:
        yield PlainLines(console)
        return
    columns = (TextColumn("{task.description:<9}"), BarColumn(), MofNCompleteColumn(), TimeElapsedColumn())
    with Progress(*columns, TextColumn("{task.fields[note]}", style="dim"), console=console) as progress:
        yield Bars(progress)


class Bars:
    def __init__(self, progress: Progress) -> None:
        self._progress = progress
        self._submitted = progress.add_task("submitted", total=None, note="")
        self._ended = progress.add_task("ended", total=None, note="")

    def show(self, *, submitted: int, ended: int, of: int, note: str = "") -> None:
        self._progress.update(self._submitted, completed=submitted, total=of)
        self._progress.update(self._ended, completed=ended, total=of, note=note)


class PlainLines:
    """A line when something changed, at most every two seconds, and one for the end."""

    def __init__(self, console: Console) -> None:
        self._console = console
        self._shown_at = 0.0
        self._shown = ""

    def show(self, *, submitted: int, ended: int, of: int, note: str = "") -> None:
        text = f"submitted {submitted} of {of}, ended {ended}{f' ({note})' if note else ''}"
        over = submitted == ended == of
        if text != self._shown and (over or time.monotonic() - self._shown_at >= PLAIN_EVERY_SECONDS):
            self._console.print(text, highlight=False)
            self._shown, self._shown_at = text, time.monotonic()
