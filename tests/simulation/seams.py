"""The library's seams in simulated time: clock, randomness, threads, locks and interrupts of one process."""

from __future__ import annotations

import math
import threading
from collections import deque
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from functools import partial
from types import SimpleNamespace
from typing import Any
from unittest.mock import patch

from tests.simulation.kernel import Actor, Kernel, Process
from thunderagent import held_lease, threads


class SimClock:
    """The process's own idea of the time: off by its offset. Sleeping and spans are true."""

    def __init__(self, process: Process) -> None:
        self._process = process
        self._kernel = process.kernel
        self._last = (-math.inf, -math.inf)  # it is asked often between two steps

    def now(self) -> float:
        true = self._kernel.now + self._process.offset
        if true != self._last[0]:
            self._last = (true, round(true, 3))
        return self._last[1]

    def monotonic(self) -> float:
        return self._kernel.now

    def sleep(self, seconds: float) -> None:
        if seconds > 0:
            self._kernel.pause(seconds)


class SimRandomness:
    """Tokens are unique in the run, the rest is the process's chance."""

    def __init__(self, process: Process) -> None:
        self._process = process

    def token(self) -> str:
        self._process.tokens += 1
        return f"{self._process.name}.{self._process.tokens:04d}"

    def uniform(self, low: float, high: float) -> float:
        return low + (high - low) * self._process.random.random()

    def below(self, bound: int) -> int:
        return int(self._process.random.random() * bound)


class _Job:
    def __init__(self) -> None:
        self.done = False


class SimThreads:
    """Threads of one process as actors. `start` and `wait` belong to one caller at a time, as the seam says."""

    def __init__(self, process: Process) -> None:
        self._process = process
        self._kernel = process.kernel
        self._stirred = False
        self._waiter: Actor | None = None

    def map(self, function: Callable[[Any], Any], items: Sequence[Any]) -> list[Any]:
        if len(items) < 2:
            return [function(item) for item in items]
        answers: list[Any] = [None] * len(items)
        errors: list[tuple[int, BaseException]] = []
        waiting = _Countdown(self._kernel, len(items))

        def run(place: int, item: Any) -> None:
            try:
                answers[place] = function(item)
            except Exception as error:  # noqa: BLE001  raised again in the caller, as the seam says
                errors.append((place, error))

        parent = self._kernel.current
        for place, item in enumerate(items):
            child = self._kernel.spawn(self._process, f"{parent.name}/{place}", partial(run, place, item))
            child.when_done.append(waiting.one_is_done)
        waiting.wait()
        if errors:
            raise min(errors, key=lambda entry: entry[0])[1]
        return answers

    def start(self, function: Callable[[], None]) -> _Job:
        job = _Job()
        actor = self._kernel.spawn(self._process, f"{self._kernel.current.name}/job", function)

        def ended() -> None:
            job.done = True
            self.wake()

        actor.when_done.append(ended)
        return job

    def wait(self, seconds: float) -> None:
        if not self._stirred:
            self._waiter = self._kernel.current
            self._kernel.wait(seconds)
            self._waiter = None
        self._stirred = False

    def wake(self) -> None:
        self._stirred = True
        if self._waiter is not None:
            self._kernel.wake(self._waiter)


class _Countdown:
    def __init__(self, kernel: Kernel, count: int) -> None:
        self._kernel = kernel
        self._count = count
        self._waiter = kernel.current

    def one_is_done(self) -> None:
        self._count -= 1
        if self._count == 0:
            self._kernel.wake(self._waiter)

    def wait(self) -> None:
        while self._count:
            self._kernel.wait()


class SimLock:
    """A lock whose waiters give the floor up: the library holds one across a request."""

    def __init__(self, kernel: Kernel) -> None:
        self._kernel = kernel
        self._is_held = False
        self._waiters: deque[Actor] = deque()

    def acquire(self, blocking: bool = True) -> bool:
        while self._is_held:
            if not blocking:
                return False
            self._waiters.append(self._kernel.current)
            self._kernel.wait(math.inf)
        self._is_held = True
        return True

    def release(self) -> None:
        self._is_held = False
        if self._waiters:
            self._kernel.wake(self._waiters.popleft())

    def __enter__(self) -> SimLock:
        self.acquire()
        return self

    def __exit__(self, *error: object) -> None:
        self.release()


@contextmanager
def simulated_threading(kernel: Kernel) -> Iterator[None]:
    """While it lasts, the library's locks that are held across requests, and its interrupts, are the kernel's.

    An interrupt meets its actor when it comes back from a pause: a thread that waits in C behaves so."""

    def interrupt(number: int, error: type[BaseException] | None) -> None:
        actor = kernel.actor_of(number)
        if actor is not None:
            actor.interrupt = error

    locks = SimpleNamespace(Lock=lambda: SimLock(kernel))
    idents = SimpleNamespace(Lock=threading.Lock, get_ident=lambda: kernel.current.number)
    with (
        patch.object(held_lease, "threading", locks),
        patch.object(threads, "threading", idents),
        patch.object(threads, "_set_async_exception", interrupt),
    ):
        yield
