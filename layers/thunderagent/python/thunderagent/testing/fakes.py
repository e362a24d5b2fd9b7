"""Clock, randomness and thread pool under the test's hand."""

from __future__ import annotations

import itertools
import threading
from collections.abc import Callable, Sequence
from typing import Any

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


class _Job:
    def __init__(self) -> None:
        self.done = False


class InlineThreads:
    """No threads: what is started has ended when `start` returns."""

    def __init__(self, clock: FakeClock) -> None:
        self._clock = clock

    def map(self, function: Callable[[Any], Any], items: Sequence[Any]) -> list[Any]:
        return [function(item) for item in items]

    def start(self, function: Callable[[], None]) -> _Job:
        job = _Job()
        function()
        job.done = True
        return job

    def wait(self, seconds: float) -> None:
        self._clock.sleep(seconds)

    def wake(self) -> None:
        """Nobody ever waits while somebody else runs."""


class ScriptedThreads(InlineThreads):
    """One thread, time under the test's hand: each started function takes the next of `durations` (the last one for
    all that follow) and runs when the clock reaches its end, while its caller waits."""

    def __init__(self, clock: FakeClock, durations: Sequence[float]) -> None:
        super().__init__(clock)
        self._durations = list(durations)
        self._running: list[tuple[float, int, _Job, Callable[[], None]]] = []
        self.most_at_once = 0

    def start(self, function: Callable[[], None]) -> _Job:
        job = _Job()
        duration = self._durations.pop(0) if len(self._durations) > 1 else self._durations[0]
        self._running.append((self._clock.monotonic() + duration, len(self._running), job, function))
        self.most_at_once = max(self.most_at_once, len(self._running))
        return job

    def wait(self, seconds: float) -> None:
        until = self._clock.monotonic() + seconds
        ending = min(self._running, default=None, key=lambda entry: entry[:2])
        if ending is None or ending[0] > until:
            self._clock.sleep(seconds)
            return
        self._running.remove(ending)
        self._clock.sleep(max(0.0, ending[0] - self._clock.monotonic()))
        ending[3]()
        ending[2].done = True


class Recorder:
    """An observer that remembers. `events` are (name, fields), `values` are (metric, value, queue, type)."""

    def __init__(self) -> None:
        self.events: list[tuple[str, dict[str, Any]]] = []
        self.values: list[tuple[str, float, str | None, str | None]] = []
        self._lock = threading.Lock()

    def log(self, event: str, *, level: str = "INFO", **fields: Any) -> None:
        with self._lock:
            told = {name: value for name, value in fields.items() if value is not None}
            self.events.append((event, {"level": level, **told}))

    def measure(self, metric: str, value: float = 1, *, queue: str | None = None, type: str | None = None) -> None:
        with self._lock:
            self.values.append((metric, value, queue, type))

    def flush_old(self) -> None:
        return None

    def flush(self) -> None:
        return None

    def names(self) -> list[str]:
        return [event for event, _ in self.events]

    def count(self, metric: str) -> float:
        return sum(value for name, value, _, _ in self.values if name == metric)
