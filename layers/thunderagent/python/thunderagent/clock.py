"""Time and chance, injectable. Nothing else in the library reads a clock, sleeps or draws a number."""

from __future__ import annotations

import random
import time
import uuid
from typing import Protocol


class Clock(Protocol):
    """Epoch seconds and sleeping. `monotonic` measures spans and never goes back."""

    def now(self) -> float: ...
    def monotonic(self) -> float: ...
    def sleep(self, seconds: float) -> None: ...


class SystemClock:
    """The machine's clock. Times are rounded to the millisecond: stored as text, shorter is cheaper."""

    def now(self) -> float:
        return round(time.time(), 3)

    def monotonic(self) -> float:
        return time.monotonic()

    def sleep(self, seconds: float) -> None:
        if seconds > 0:
            time.sleep(seconds)


class Randomness(Protocol):
    """What the protocol draws: tokens and nonces (unguessable), jitter and windows (uniform)."""

    def token(self) -> str: ...
    def uniform(self, low: float, high: float) -> float: ...
    def below(self, bound: int) -> int: ...


class SystemRandomness:
    """Tokens from the operating system (UUID 4, 122 random bits), the rest from a private generator."""

    def __init__(self) -> None:
        self._random = random.Random(uuid.uuid4().int)

    def token(self) -> str:
        return uuid.uuid4().hex

    def uniform(self, low: float, high: float) -> float:
        return self._random.uniform(low, high)

    def below(self, bound: int) -> int:
        return self._random.randrange(bound)
