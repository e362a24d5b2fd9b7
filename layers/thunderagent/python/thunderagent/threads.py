"""The thread pool seam: nothing else in the library starts a thread."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from typing import Protocol, TypeVar

Argument = TypeVar("Argument")
Value = TypeVar("Value")


class Threads(Protocol):
    """Runs a function over items at once and answers in their order. The first error is raised after all have ended."""

    def map(self, function: Callable[[Argument], Value], items: Sequence[Argument]) -> list[Value]: ...


class PoolThreads:
    """At most `size` at a time; threads are kept between calls."""

    def __init__(self, size: int) -> None:
        self._pool = ThreadPoolExecutor(max_workers=size, thread_name_prefix="thunder")

    def map(self, function: Callable[[Argument], Value], items: Sequence[Argument]) -> list[Value]:
        return list(self._pool.map(function, items))
