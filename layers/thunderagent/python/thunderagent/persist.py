"""Sending again what is safe to send again, for as long as that is of use."""

from __future__ import annotations

from collections.abc import Callable
from typing import TypeVar

from thunderagent.clock import Clock, Randomness
from thunderagent.errors import OutcomeUnknown, StoreError, StoreThrottled

Value = TypeVar("Value")

BASE_SECONDS, CAP_SECONDS = 0.5, 10.0  # between two tries, each of which is as many as the store makes by itself
MOST_DOUBLINGS = 10


def persist(
    send: Callable[[], Value],
    *,
    clock: Clock,
    randomness: Randomness,
    seconds_left: Callable[[], float],
    on_failure: Callable[[StoreError], None] = lambda error: None,
) -> Value:
    """Repeat `send` with jitter while it is throttled or unanswered, and until `seconds_left` are over.

    Sent once in any case. Then raises what came last, or OutcomeUnknown once an answer was missing: what was sent may
    have been applied. Any other error of `send` is raised at once.
    """
    unknown: OutcomeUnknown | None = None
    rounds = 0
    while True:
        try:
            return send()
        except (OutcomeUnknown, StoreThrottled) as error:
            latest = error
            unknown = error if isinstance(error, OutcomeUnknown) else unknown
        pause = randomness.uniform(0, min(CAP_SECONDS, BASE_SECONDS * 2**rounds))
        if pause > seconds_left():
            raise unknown or latest
        on_failure(latest)
        clock.sleep(pause)
        rounds = min(rounds + 1, MOST_DOUBLINGS)
