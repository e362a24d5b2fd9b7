"""What a handler may say besides returning a value. Each may be returned or raised; both mean the same."""

from __future__ import annotations

import math

LONGEST_WAIT_SECONDS = 31_536_000.0  # a year: as far ahead as a task may be submitted


class HandlerOutcome(Exception):
    """Root of the outcomes: exceptions, so that they can end a handler from any depth."""


class Done(HandlerOutcome):
    """There is nothing to keep: the task is DONE (skipped), with the reason if one is given."""

    def __init__(self, reason: str | None = None) -> None:
        super().__init__(*(() if reason is None else (reason,)))
        self.reason = reason


class Fail(HandlerOutcome):
    """No retry would mend it: the task is FAILED now. `reason` is a stable word for machines."""

    def __init__(self, message: object = "", *, reason: str = "permanent") -> None:
        super().__init__(message)
        self.reason = reason


class RetryLater(HandlerOutcome):
    """Again in that many seconds (0 to a year), with no retry spent. Raises ValueError for anything else."""

    def __init__(self, seconds: float) -> None:
        if isinstance(seconds, bool) or not isinstance(seconds, int | float) or not math.isfinite(seconds):
            raise ValueError(f"RetryLater({seconds!r}): a number of seconds is needed")
        if not 0 <= seconds <= LONGEST_WAIT_SECONDS:
            raise ValueError(f"RetryLater({seconds!r}): from 0 to {LONGEST_WAIT_SECONDS:.0f} seconds are possible")
        super().__init__(seconds)
        self.seconds = float(seconds)


class ReplayMismatch(Fail):
    """A retry asks for other steps or children than the attempt before it did: its code or its order changed.

    Skipping or repeating one silently could lose work or do it twice, so the task fails and says where they part.
    """

    def __init__(self, message: str) -> None:
        super().__init__(message, reason="replay_mismatch")


class StepRefused(Fail):
    """A step cannot be remembered: its result is not JSON or too big, or there are too many. It is not repeated."""

    def __init__(self, message: str) -> None:
        super().__init__(message, reason="step_refused")


class BadPayload(Fail):
    """The payload does not fit the type the handler declares."""

    def __init__(self, message: str) -> None:
        super().__init__(message, reason="bad_payload")
