"""How long a retry waits: full jitter under an exponential ceiling, for any attempt number and any setting."""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from thunderagent.clock import Randomness
from thunderagent.errors import ConfigurationError

SHORTEST_BASE_SECONDS = 0.001
LARGEST = 1e15
LONGEST_CAP_SECONDS = 31_536_000.0  # a year: as far ahead as a task may be submitted


@dataclass(frozen=True)
class Backoff:
    """A retry waits a random time between 0 and min(cap, base·factor^n) seconds; n is the retries spent before it.

    `base` is 0 or at least a millisecond (0 retries at once), `factor` at least 1, `cap` at most a year. Raises
    ConfigurationError.
    """

    base: float = 1
    factor: float = 2
    cap: float = 300

    def __post_init__(self) -> None:
        for name in ("base", "factor", "cap"):
            value = getattr(self, name)
            if isinstance(value, bool) or not isinstance(value, int | float) or not abs(value) < LARGEST:
                raise ConfigurationError(f"backoff {name}={value!r}: a number below {LARGEST:g} is needed")
        if self.base != 0 and self.base < SHORTEST_BASE_SECONDS:
            raise ConfigurationError(f"backoff base={self.base!r}: 0 or at least {SHORTEST_BASE_SECONDS:g} s is needed")
        if self.factor < 1:
            raise ConfigurationError(f"backoff factor={self.factor!r}: at least 1 is needed")
        if not 0 <= self.cap <= LONGEST_CAP_SECONDS:
            raise ConfigurationError(f"backoff cap={self.cap!r}: from 0 to {LONGEST_CAP_SECONDS:.0f} s is needed")

    @staticmethod
    def from_map(stored: Mapping[str, Any]) -> Backoff:
        """A backoff as the registry or a task item keeps it. Raises ConfigurationError."""
        return Backoff(**{name: stored[name] for name in ("base", "factor", "cap") if name in stored})

    def as_map(self) -> dict[str, float]:
        return {"base": self.base, "factor": self.factor, "cap": self.cap}

    def ceiling(self, retries: int) -> float:
        """min(cap, base·factor^retries) in seconds. The power is taken only where it stays below the cap."""
        if self.base == 0 or self.base >= self.cap:
            return float(min(self.base, self.cap))
        if self.factor == 1:
            return float(self.base)
        # Python compares an int of any size with a float exactly, so a huge count cannot overflow here either.
        if retries >= math.log(self.cap / self.base) / math.log(self.factor):
            return float(self.cap)
        return float(min(self.cap, self.base * self.factor**retries))


DEFAULT_BACKOFF = Backoff()


def delay_seconds(backoff: Backoff, retries: int, randomness: Randomness) -> float:
    """The wait before the next attempt, `retries` having been spent before: full jitter, at the cap as well."""
    return randomness.uniform(0, backoff.ceiling(max(0, retries)))


def can_start(due_at: float, deadline: float | None) -> bool:
    """Whether a retry that is due then can ever be claimed: a claim needs a deadline that is still ahead of it
    (`expressions.before_deadline`), so one due at its deadline cannot."""
    return deadline is None or due_at < deadline
