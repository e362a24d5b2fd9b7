"""Clock, randomness and thread pool under the test's hand."""

from __future__ import annotations

import itertools
import threading
from collections.abc import Callable

START = 1_800_000_000.0


class FakeClock:
    """Time stands still until it is told to move or somebody sleeps. Thread-safe."""

    def __init__(self, now: float = START) -> None:
        self._now = now
        self._lock = threading.Lock()
        self.slept: list[float] = []
        self.on_sleep: Callable[[float], None] | None = None

    def now(self) -> float:
        with self._lock:
            return round(self._now, 3)

    def monotonic(self) -> float:
        with self._lock:
            return self._now

    def sleep(self, seconds: float) -> None:
        with self._lock:
            self.slept.append(seconds)
            self._now += max(0.0, seconds)
        if self.on_sleep is not None:
            self.on_sleep(seconds)

    def advance(self, seconds: float) -> None:
        with self._lock:
            self._now += seconds


class FakeRandomness:
    """Tokens count up; `uniform` gives the given fraction of its range, `below` 0, unless told otherwise."""

    def __init__(self, fraction: float = 0.5, prefix: str = "r") -> None:
        self.fraction = fraction
        self._prefix = prefix
        self._counter = itertools.count(1)

    def token(self) -> str:
        return f"{self._prefix}{next(self._counter):06d}"

    def uniform(self, low: float, high: float) -> float:
        return low + (high - low) * self.fraction

    def below(self, bound: int) -> int:
        return min(bound - 1, int(bound * self.fraction)) if self.fraction < 1 else bound - 1
