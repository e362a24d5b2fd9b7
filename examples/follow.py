"""Submitting work through the API and following it to its end, with a few threads and within a bounded time."""

import time
from collections import Counter, deque
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field
from typing import Any, Protocol, Unpack

from examples.live import Live
from examples.verdict import Finished
from examples.workload import Work
from thunderagent.client import TaskOptions, TaskView

THREADS = 4  # each may start a worker of the API function: more of them compete with the tasks for two cores
SUBMITS_AT_ONCE = 40
LOOKS_WHILE_SUBMITTING = 8
LOOKS_AT_ONCE = 40
PAUSE_SECONDS = 0.5


class RunFailed(Exception):
    """The run could not be brought to its end; the text says how far it came and where to look."""


class Api(Protocol):
    """What is needed of the client."""

    def submit(self, type: str, payload: Any, /, **options: Unpack[TaskOptions]) -> TaskView: ...
    def get(self, task_id: str, /) -> TaskView: ...


@dataclass
class Run:
    """One run of `total` works. `ends_at` is the monotonic time at which it gives up."""

    api: Api
    shown: Live
    total: int
    ends_at: float
    clock: Callable[[], float] = time.monotonic
    pause: Callable[[float], None] = time.sleep
    open: deque[tuple[Work, TaskView]] = field(default_factory=deque)
    finished: list[Finished] = field(default_factory=list)

    def through(self, works: Sequence[Work]) -> list[Finished]:
        """Submit all and return them as they ended, in order of their end. Raises RunFailed when the time is over."""
        with ThreadPoolExecutor(THREADS) as pool:
            for some in _portions(works, SUBMITS_AT_ONCE):
                self.open.extend(zip(some, pool.map(self._submit, some), strict=True))
                self._look(pool, LOOKS_WHILE_SUBMITTING)
            while self.open:
                self._in_time()
                looked, ended = self._look(pool, LOOKS_AT_ONCE)
                if ended * 2 < looked:
                    self.pause(PAUSE_SECONDS)
        return self.finished

    def _submit(self, work: Work) -> TaskView:
        options: TaskOptions = {} if work.max_retry_number is None else {"max_retry_number": work.max_retry_number}
        return self.api.submit(work.type, work.payload, **options)

    def _look(self, pool: ThreadPoolExecutor, most: int) -> tuple[int, int]:
        """Look at those whose last look is longest ago. Returns how many were looked at, and how many had ended."""
        some = [self.open.popleft() for _ in range(min(most, len(self.open)))]
        seen = list(pool.map(lambda one: self.api.get(one[1].task_id), some))
        ended = 0
        for (work, _), task in zip(some, seen, strict=True):
            if task.is_terminal:
                self.finished.append(Finished(work, task))
                ended += 1
            else:
                self.open.append((work, task))
        self._show()
        return len(some), ended

    def _show(self) -> None:
        submitted = len(self.open) + len(self.finished)
        self.shown.show(submitted=submitted, ended=len(self.finished), of=self.total, note=self._note())

    def _note(self) -> str:
        if not self.finished and all(task.status == "PENDING" for _, task in self.open):
            return "the poller starts every minute"
        retried = sum(one.retries > 0 for one in self.finished)
        return f"{retried} after a retry" if retried else ""

    def _in_time(self) -> None:
        if self.clock() >= self.ends_at:
            still = Counter(f"{work.type} {task.status}" for work, task in self.open)
            listed = ", ".join(f"{count} × {what}" for what, count in still.most_common())
            raise RunFailed(
                f"time is over with {len(self.open)} of {self.total} tasks still open: {listed}.\n"
                "`.venv/bin/thunder local logs` shows what the functions say."
            )


def _portions(works: Sequence[Work], size: int) -> Iterator[Sequence[Work]]:
    return (works[start : start + size] for start in range(0, len(works), size))
