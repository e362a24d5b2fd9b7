"""What one run of the console is about: which stack, through whose eyes, and what it remembers while it runs."""

from __future__ import annotations

import itertools
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from threading import Lock
from typing import TYPE_CHECKING, Any

from thunder.console.jobs import Jobs
from thunder.console.measures import Measures
from thunder.console.task_logs import TaskLogs
from thunderagent.client import ThunderClient

if TYPE_CHECKING:
    from thunder.console.rendering import Renderer

NOTICES_KEPT = 50


@dataclass(frozen=True)
class Place:
    """Which stack this is. Shown on every page, so that nobody takes one for another."""

    service: str
    environment: str
    account: str
    region: str
    caller: str
    is_local: bool = False


@dataclass(frozen=True)
class Notice:
    """What an action came to, for the page after it. `kind` is good, bad or note."""

    kind: str
    text: str
    details: Sequence[str] = ()


class Notices:
    """The last notices by number; in memory, so that an address can name one without carrying its text."""

    def __init__(self) -> None:
        self._kept: dict[str, Notice] = {}
        self._numbers = itertools.count(1)
        self._lock = Lock()

    def keep(self, notice: Notice) -> str:
        with self._lock:
            number = str(next(self._numbers))
            self._kept[number] = notice
            while len(self._kept) > NOTICES_KEPT:
                del self._kept[next(iter(self._kept))]
            return number

    def find(self, number: str) -> Notice | None:
        return self._kept.get(number)


@dataclass
class Console:
    """Everything a page needs. `cloudwatch` and `dashboard` are for the pages that read AWS beside the API."""

    client: ThunderClient
    place: Place
    cloudwatch: Any
    measures: Measures
    logs: TaskLogs
    read_only: bool = False
    dashboard: str | None = None
    """The name of the deployed dashboard, where the stack tells it."""
    task_types: Sequence[str] = ()
    """Known types, as suggestions only."""
    now: Callable[[], float] = time.time
    jobs: Jobs = field(default_factory=Jobs)
    notices: Notices = field(default_factory=Notices)
    renderer: Renderer = field(init=False)
