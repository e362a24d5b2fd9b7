"""What may go wrong in a run, and how often: drawn from the seed, each kind of fault present in about half of the runs.

One kind at a time shows little and all at once drown one another, so every seed has its own mixture.
"""

from __future__ import annotations

import random
from dataclasses import dataclass, fields, replace

LEASE_SECONDS = 20.0  # short, so that a run of some minutes sees leases end and their tasks claimed again
GRACE_SECONDS = 2.0
REAPER_SECONDS = 20.0  # between two runs of the reaper


@dataclass(frozen=True)
class Weather:
    """Chances are per request, event or record, unless the name says otherwise. See `Cloud.weight`: writes meet faults
    more often than the many looks of pollers."""

    throttled: float = 0
    conflict: float = 0
    lost_request: float = 0
    lost_reply: float = 0
    late_request: float = 0  # answered by a time-out, and applied later
    slow: float = 0  # a journey of seconds
    unprocessed: float = 0  # of the keys of a BatchGetItem
    storms_per_hour: float = 0  # the table is throttled for some seconds
    stale_reads: float = 0
    lag: float = 0.05  # mean seconds of the index
    long_lag: float = 0  # chance of some seconds instead
    crash: float = 0  # before or after a request
    freeze: float = 0
    outage: float = 0  # the process is cut off from the table for some seconds
    crashes_per_hour: float = 0  # of executors, between requests
    invoke_refused: float = 0
    invoke_unknown: float = 0
    event_dropped: float = 0
    event_repeated: float = 0
    event_late: float = 0
    record_dropped: float = 0  # doorbell batches only
    record_repeated: float = 0
    record_late: float = 0
    skew_seconds: float = 0  # each clock is off by up to so much, either way
    skew_is_wild: bool = False  # beyond the grace
    redeploys_per_hour: float = 0
    ttl_is_prompt: bool = False
    cancels: float = 0.18  # of the lives: clients that change their mind

    def index_lag(self, chance: random.Random) -> float:
        if self.long_lag and chance.random() < self.long_lag:
            return chance.random() * 8
        return chance.random() * 2 * self.lag

    def faults(self) -> str:
        default = Weather()
        told = {each.name: getattr(self, each.name) for each in fields(self)}
        changed = {name: value for name, value in told.items() if value != getattr(default, name)}
        return " ".join(f"{name}={value:.3g}" for name, value in changed.items()) or "fair"

    @property
    def is_fair(self) -> bool:
        """No fault at all: then nothing may ever run twice."""
        return self == replace(Weather(), lag=self.lag)

    def for_the_recorder(self) -> Weather:
        """What may still go wrong when tasks are archived."""
        return Weather(
            throttled=self.throttled,
            lost_request=self.lost_request,
            lost_reply=self.lost_reply,
            crash=self.crash,
            unprocessed=self.unprocessed,
            record_repeated=self.record_repeated,
            record_late=self.record_late,
        )

    def after(self) -> Weather:
        """The weather once faults stop."""
        return Weather()


_CHANCES = {
    "throttled": (0.002, 0.05),
    "conflict": (0.002, 0.05),
    "lost_request": (0.002, 0.04),
    "lost_reply": (0.002, 0.06),
    "late_request": (0.001, 0.02),
    "slow": (0.002, 0.02),
    "unprocessed": (0.02, 0.3),
    "storms_per_hour": (5, 40),
    "stale_reads": (0.05, 0.5),
    "long_lag": (0.02, 0.4),
    "crash": (0.001, 0.012),
    "freeze": (0.001, 0.008),
    "outage": (0.001, 0.008),
    "crashes_per_hour": (10, 120),
    "invoke_refused": (0.02, 0.25),
    "invoke_unknown": (0.02, 0.25),
    "event_dropped": (0.02, 0.2),
    "event_repeated": (0.02, 0.4),
    "event_late": (0.02, 0.3),
    "record_dropped": (0.02, 0.4),
    "record_repeated": (0.02, 0.4),
    "record_late": (0.02, 0.3),
    "redeploys_per_hour": (4, 30),
}


def draw(chance: random.Random) -> Weather:
    """The weather of one run. One in twelve is fair."""
    lag = chance.choice([0.02, 0.05, 0.2, 1.0])
    if chance.random() < 1 / 12:
        return Weather(lag=lag)
    share = chance.choice([0.15, 0.35, 0.5])
    drawn: dict[str, float] = {}
    for name, (low, high) in _CHANCES.items():
        if chance.random() < share:
            drawn[name] = low * (high / low) ** chance.random()
    skew, wild = 0.0, False
    if chance.random() < share:
        skew = GRACE_SECONDS / 2 * chance.random()
        if chance.random() < 0.25:
            skew, wild = LEASE_SECONDS * 2 * chance.random(), True
    return Weather(lag=lag, skew_seconds=skew, skew_is_wild=wild, ttl_is_prompt=chance.random() < 0.5, **drawn)
