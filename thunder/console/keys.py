"""The secrets of one run: who may look, and that a POST comes from one of our own pages."""

from __future__ import annotations

import hmac
import secrets
import time
from collections.abc import Callable
from dataclasses import dataclass, field
from threading import Lock

OPENING_SECONDS = 60.0


@dataclass
class Keys:
    """`token` signs in by its address, `session` is the cookie's value, `csrf` stands in every form.

    Drawn anew for each run; none of them is written anywhere but to the terminal that started it.
    """

    token: str = field(default_factory=lambda: secrets.token_urlsafe(32))
    session: str = field(default_factory=lambda: secrets.token_urlsafe(32))
    csrf: str = field(default_factory=lambda: secrets.token_urlsafe(32))
    monotonic: Callable[[], float] = time.monotonic
    _opening: dict[str, float] = field(default_factory=dict)
    _lock: Lock = field(default_factory=Lock)

    def opening_code(self) -> str:
        """A token for one use within a minute: a browser's command line can be read by other users of the machine."""
        code = secrets.token_urlsafe(32)
        with self._lock:
            self._opening[code] = self.monotonic() + OPENING_SECONDS
        return code

    def signs_in(self, given: str) -> bool:
        """Whether this is the run's token, or a code that has not been used."""
        if same(given, self.token):
            return True
        with self._lock:
            until = self._opening.pop(given, None)
        return until is not None and self.monotonic() <= until

    def is_session(self, given: str | None) -> bool:
        return given is not None and same(given, self.session)

    def is_csrf(self, given: str | None) -> bool:
        return given is not None and same(given, self.csrf)


def same(given: str, secret: str) -> bool:
    """In a time that does not tell how much of it was right."""
    return hmac.compare_digest(given.encode("utf-8", "surrogateescape"), secret.encode())
