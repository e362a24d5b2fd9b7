"""The thread pool seam: nothing else in the library starts a thread, waits for one or interrupts one."""

from __future__ import annotations

import ctypes
import os
import threading
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from functools import partial
from typing import Protocol, TypeVar

Argument = TypeVar("Argument")
Value = TypeVar("Value")

STUCK_EXIT_CODE = 70  # EX_SOFTWARE of sysexits.h


class Job(Protocol):
    """A function that was started. `done` turns True when it has returned."""

    @property
    def done(self) -> bool: ...


class Threads(Protocol):
    """Where work runs beside its caller. A simulator runs it in one thread, in an order it chooses. `start` and `wait`
    belong to one caller at a time."""

    def map(self, function: Callable[[Argument], Value], items: Sequence[Argument]) -> list[Value]:
        """Run over items at once, answer in their order. The first error is raised after all have ended. The function
        may call `map` again."""
        ...

    def start(self, function: Callable[[], None]) -> Job:
        """Begin to run a function that never raises."""
        ...

    def wait(self, seconds: float) -> None:
        """Return once a started function has ended since the last wait, or after that time."""
        ...

    def wake(self) -> None:
        """End the wait under way, or else the next one, now. Any thread may call it."""
        ...


class _ThreadJob:
    def __init__(self) -> None:
        self.done = False


class PoolThreads:
    """Real threads. `map` runs at most `size` at a time in threads that are kept, and as many more for what is mapped
    within: a pool whose threads wait for itself would stand still. `start` makes one for each job, a daemon: one that
    is stuck in foreign code must not keep the process from ending."""

    def __init__(self, size: int) -> None:
        self._size = size
        self._pools: list[ThreadPoolExecutor] = []
        self._growing = threading.Lock()
        self._here = threading.local()  # `depth`: of the pool this thread belongs to, missing outside
        self._ended = threading.Condition()
        self._stirred = False

    def map(self, function: Callable[[Argument], Value], items: Sequence[Argument]) -> list[Value]:
        depth = getattr(self._here, "depth", -1) + 1
        return list(self._pool(depth).map(function, items))

    def _pool(self, depth: int) -> ThreadPoolExecutor:
        with self._growing:
            if depth == len(self._pools):
                name = f"thunder-{depth}"
                enter = partial(setattr, self._here, "depth", depth)
                self._pools.append(ThreadPoolExecutor(self._size, thread_name_prefix=name, initializer=enter))
            return self._pools[depth]

    def start(self, function: Callable[[], None]) -> Job:
        job = _ThreadJob()
        threading.Thread(target=self._run, args=(job, function), name="thunder-task", daemon=True).start()
        return job

    def _run(self, job: _ThreadJob, function: Callable[[], None]) -> None:
        try:
            function()
        finally:
            with self._ended:
                job.done = self._stirred = True
                self._ended.notify_all()

    def wait(self, seconds: float) -> None:
        with self._ended:
            if not self._stirred:
                self._ended.wait(seconds)
            self._stirred = False

    def wake(self) -> None:
        with self._ended:
            self._stirred = True
            self._ended.notify_all()


def exit_process() -> None:
    """End this process now, whatever its threads do: Python cannot end a thread that is stuck in foreign code."""
    os._exit(STUCK_EXIT_CODE)


# ---- interrupting ---------------------------------------------------------------------------------------------------


class HandlerInterrupted(BaseException):
    """Raised inside a handler whose time is over. Not an Exception, so that `except Exception` does not swallow it."""


class Interruption:
    """Lets one thread be interrupted between `enter` and `leave`, but not inside `shielded`.

    CPython delivers an asynchronous exception at some later bytecode of that thread. It is sent and revoked under one
    lock, and only while the thread is inside, so it can never surface in code that must not be torn apart. It reaches
    Python code only: a thread that waits in C (sleep, a socket) meets it when it comes back.
    """

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._thread = 0
        self._inside = False
        self._sent = False

    def enter(self) -> None:
        """This thread may be interrupted from here on. Raises HandlerInterrupted when that was asked for already."""
        with self._lock:
            self._thread = threading.get_ident()
            if self._sent:
                raise HandlerInterrupted
            self._inside = True

    def leave(self) -> bool:
        """No interrupt surfaces after this returns. (While it runs, one may.) Whether one had been asked for by now."""
        with self._lock:
            self._inside = False
            if self._sent:
                _set_async_exception(self._thread, None)
            return self._sent

    def interrupt(self) -> None:
        """Ask for it, once; a thread that is shielded or has not entered meets it when it (re-)enters."""
        with self._lock:
            if self._inside and not self._sent:
                _set_async_exception(self._thread, HandlerInterrupted)
            self._sent = True

    @contextmanager
    def shielded(self) -> Iterator[None]:
        """A stretch that is never torn apart. Raises HandlerInterrupted at its end if that was asked for meanwhile.

        Called by another thread than the one that entered (a handler's own), it shields nothing, as nothing threatens.
        """
        if threading.get_ident() != self._thread:
            yield
            return
        self.leave()
        try:
            yield
        finally:
            self.enter()


def _set_async_exception(thread: int, exception: type[BaseException] | None) -> None:
    reference = None if exception is None else ctypes.py_object(exception)
    ctypes.pythonapi.PyThreadState_SetAsyncExc(ctypes.c_ulong(thread), reference)
