"""The executor's side of a lease: begun once, renewed for the whole batch, settled at the end.

`started` is written before anything starts, so that an attempt that began is known of, whatever happens to its worker.
"""

from __future__ import annotations

import math
import threading
from collections.abc import Callable, Iterable
from typing import TypeVar

from thunderagent import expressions
from thunderagent.errors import MalformedItem, StoreError
from thunderagent.model import Lease, LeaseToken, TaskId
from thunderagent.persist import persist
from thunderagent.store import Answer, Refused, Store, Written

Value = TypeVar("Value")

RENEW_BELOW = 0.8  # of the lease: it is renewed whenever less than this is left
WRITE_MARGIN_SECONDS = 2.0  # before the end of the lease or of the process: what is unanswered is sent no more


class HeldLease:
    """A begun lease. Thread-safe. `lost` is final: from then on nothing may start."""

    def __init__(self, store: Store, token: LeaseToken, nonce: str, *, lock_time: float, seconds: float) -> None:
        self.token = token
        self.seconds = seconds
        self.lock_time = lock_time
        self.lost = False
        self.cancelled: frozenset[str] = frozenset()
        self._nonce = nonce
        self._store = store
        self._lock = threading.Lock()

    @staticmethod
    def begin(
        store: Store,
        token: LeaseToken,
        *,
        lock_time: float,
        seconds: float,
        remaining_seconds: Callable[[], float] = lambda: math.inf,
        on_failure: Callable[[StoreError], None] = lambda error: None,
    ) -> HeldLease | Refused:
        """Begin under a fresh nonce: the first delivery of a batch's event may, any other is refused, and so is one
        that comes after the lease's end.

        Throttled or unanswered it is sent again, `on_failure` told each time, until the lease or this process is about
        to end; then, or when the request itself is refused, raises StoreError (and nothing may start).
        """
        nonce = store.randomness.token()  # of all tries: one that was applied, its answer lost, is known by it as ours

        def send() -> HeldLease | Refused:
            now = store.clock.now()
            raised = round(max(lock_time, now + seconds), 3)
            answer = store.apply(expressions.begin(token, nonce=nonce, lock_time=raised, now=now))
            if isinstance(answer, Refused):
                return answer
            known = lock_time if answer.replayed else raised  # what an earlier try has raised it to, the answer says
            lease = HeldLease(store, token, nonce, lock_time=known, seconds=seconds)
            lease._note(answer)
            return lease

        return persist(
            send,
            clock=store.clock,
            randomness=store.randomness,
            seconds_left=lambda: min(lock_time - store.clock.now(), remaining_seconds()) - WRITE_MARGIN_SECONDS,
            on_failure=on_failure,
        )

    def persist(self, send: Callable[[], Value], remaining_seconds: Callable[[], float]) -> Value:
        """Repeat what is safe to repeat until it is answered, or until the lease or this process is about to end; then
        raises StoreError."""
        return persist(
            send,
            clock=self._store.clock,
            randomness=self._store.randomness,
            seconds_left=lambda: (
                min(self.lock_time - self._store.clock.now(), remaining_seconds()) - WRITE_MARGIN_SECONDS
            ),
        )

    def needs_renewal(self) -> bool:
        return self.lock_time - self._store.clock.now() < RENEW_BELOW * self.seconds

    def renewal_in(self) -> float:
        """Seconds until it needs renewal; negative when it already does."""
        return self.lock_time - RENEW_BELOW * self.seconds - self._store.clock.now()

    def renew(self, starting: Iterable[TaskId] = ()) -> bool:
        """One write for the whole batch; `starting` are recorded as started. False: refused, the lease is lost.

        Never shortens the lease. Raises StoreError when it was not answered: then `starting` must not start.
        """
        with self._lock:
            return self._renew(starting)

    def renew_if_needed(self) -> bool:
        """For handlers that check in: False when the lease is lost. Leaves it alone while another thread renews it."""
        if self.lost or not self.needs_renewal() or not self._lock.acquire(blocking=False):
            return not self.lost
        try:
            return self._renew(())
        finally:
            self._lock.release()

    def _renew(self, starting: Iterable[TaskId]) -> bool:
        if self.lost:
            return False
        started = tuple(starting)
        answer = self._send(started)
        if isinstance(answer, Refused) and self._is_merely_behind(answer):
            answer = self._send(started)
        if isinstance(answer, Refused):
            self.lost = True
            return False
        self._note(answer)
        return True

    def _send(self, starting: tuple[TaskId, ...]) -> Answer:
        wanted = round(max(self.lock_time, self._store.clock.now() + self.seconds), 3)
        answer = self._store.apply(
            expressions.heartbeat(self.token, nonce=self._nonce, lock_time=wanted, starting=starting)
        )
        if isinstance(answer, Written):
            self.lock_time = wanted
        return answer

    def _is_merely_behind(self, refused: Refused) -> bool:
        """The lease is ours and lasts longer than was asked for: a renewal whose answer was lost, and then our clock
        was set back. From here on its end is known."""
        item = refused.item or {}
        if item.get("begun") != self._nonce or "closed" in item or not isinstance(item.get("lockTime"), int | float):
            return False
        self.lock_time = max(self.lock_time, item["lockTime"])
        return True

    def _note(self, answer: Written) -> None:
        """What the answer brings: cancel requests, and a lock time that is later than ours after a lost reply."""
        try:
            stored = Lease.from_item(answer.item or {})
        except MalformedItem:
            return
        self.cancelled |= stored.cancelled
        self.lock_time = max(self.lock_time, stored.lock_time)

    def settle(self, remaining_seconds: Callable[[], float]) -> Answer:
        """Delete it. Only when every task's last write was answered. Raises StoreError when that stays unanswered."""
        write = expressions.settle(self.token, nonce=self._nonce)
        return self.persist(lambda: self._store.apply(write), remaining_seconds)
