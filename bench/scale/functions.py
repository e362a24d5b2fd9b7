"""Lambda as it is documented: how fast concurrency grows, where it ends, and what an asynchronous invoke takes.

- Each function may grow by 1,000 concurrent executions every 10 s, refilled continuously and not saved up.
  https://docs.aws.amazon.com/lambda/latest/dg/scaling-behavior.html
- An account has 1,000 concurrent executions in all, until more are asked for.
  https://docs.aws.amazon.com/lambda/latest/dg/gettingstarted-limits.html
- An asynchronous invoke is queued, and runs later; when it may not run now, it is tried again for as long as its event
  may live. https://docs.aws.amazon.com/lambda/latest/dg/invocation-async.html

How long an invoke waits in that queue is not documented; `INVOKE_SECONDS` is an assumption, for warm functions.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final

RAMP: Final = 1_000
RAMP_SECONDS: Final = 10.0
ACCOUNT: Final = 1_000
INVOKE_SECONDS: Final = (0.02, 0.12)


@dataclass
class Concurrency:
    """Concurrent executions of one function. `account` is what the account has left for it."""

    account: float = ACCOUNT
    warm: float = 0.0
    _ramp: float = RAMP

    def available(self) -> float:
        """How many may run in the second that begins: those that did, and as many new ones as the ramp allows."""
        return min(self.account, self.warm + self._ramp)

    def pass_second(self, running: float) -> None:
        """A second in which so many ran at once is over."""
        if running > self.available() + 1e-6:
            raise ValueError(f"{running:g} executions of {self.available():g} ran")
        started = max(0.0, running - self.warm)
        self.warm = max(self.warm, running)
        self._ramp = min(float(RAMP), self._ramp - started + RAMP / RAMP_SECONDS)
