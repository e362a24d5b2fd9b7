"""Whose bill it is: what DynamoDB charged and how long functions ran, by queue and type of the tasks it was for.

DynamoDB says what each request consumed, not for whom; the code around the request does (`charged_to`), or else the
whole invocation answers: what it consumed for no one in particular is spread over the tasks that ended in it. What
remains, sweeps, reaping and reading, is overhead. Estimates: what a container gathered in its last minute is lost.
"""

from __future__ import annotations

import threading
from collections import Counter, defaultdict
from collections.abc import Iterable, Iterator, Mapping
from contextlib import contextmanager
from contextvars import ContextVar
from dataclasses import dataclass, field
from datetime import UTC, datetime
from typing import Any, Final, NamedTuple

from thunderagent.clock import Clock
from thunderagent.conditions import add_up
from thunderagent.errors import StoreError
from thunderagent.schema import DAY_SECONDS
from thunderagent.store import Store

READS: Final = frozenset({"GetItem", "BatchGetItem", "Query", "Scan"})
ENDS: Final = frozenset(f"task.{word}" for word in ("succeeded", "failed", "skipped", "cancelled", "expired"))
STORE_SECONDS: Final = 60  # a container adds up what it gathered at most this often: one write for each account
KEEP_SECONDS: Final = 90 * DAY_SECONDS
ID_PREFIX: Final = "cost#"
TASKS, WRITES, READ_UNITS, MILLISECONDS, MIB_MILLISECONDS = "tasks", "writeUnits", "readUnits", "milliseconds", "mibMs"
INVOCATIONS, API_REQUESTS, EVENTS = "invocations", "apiRequests", "events"


class Account(NamedTuple):
    """Who is charged. Overhead belongs to no queue and no type."""

    queue: str
    type: str


OVERHEAD: Final = Account("-", "-")
_CHARGED: ContextVar[tuple[Account, ...]] = ContextVar("charged", default=())


@contextmanager
def charged_to(accounts: Iterable[tuple[str, str]]) -> Iterator[None]:
    """Requests of this thread are for tasks of these queues and types meanwhile, in equal parts (one entry a task)."""
    token = _CHARGED.set(tuple(Account(*each) for each in accounts))
    try:
        yield
    finally:
        _CHARGED.reset(token)


@dataclass
class _Gathered:
    """Since the invocation began: units by account and for no one, ends and seconds of tasks."""

    by_account: dict[Account, Counter[str]] = field(default_factory=lambda: defaultdict(Counter))
    shared: Counter[str] = field(default_factory=Counter)
    seconds: Counter[Account] = field(default_factory=Counter)


class Charges:
    """Gathers a container's charges and adds them to the stored ones. Thread-safe; never raises for a failing store."""

    def __init__(self, clock: Clock, *, mib: float) -> None:
        self._clock = clock
        self._mib = mib
        self._lock = threading.Lock()
        self._now = _Gathered()
        self._unstored: dict[Account, Counter[str]] = defaultdict(Counter)
        self._began: float | None = None
        self._stored_at: float | None = None

    # ---- gathering ---------------------------------------------------------------------------------------------------

    def begin(self) -> None:
        """An invocation begins: from here on its time counts."""
        self._began = self._clock.monotonic()
        self.count(INVOCATIONS)

    def count(self, name: str, number: float = 1) -> None:
        """Something of the whole invocation: an API request, events that were sent."""
        with self._lock:
            self._now.shared[name] += number  # type: ignore[assignment]  # a Counter of floats

    def add(self, operation: str, answer: Mapping[str, Any]) -> None:
        """What one request consumed, as its answer says, is charged to whom this thread works for."""
        consumed = answer.get("ConsumedCapacity") or []
        entries = consumed if isinstance(consumed, list) else [consumed]
        units = sum(float(entry.get("CapacityUnits", 0)) for entry in entries)
        name = READ_UNITS if operation in READS else WRITES
        accounts = _CHARGED.get()
        with self._lock:
            for account in accounts:
                self._now.by_account[account][name] += units / len(accounts)  # type: ignore[assignment]
            if not accounts:
                self._now.shared[name] += units  # type: ignore[assignment]

    def hear(self, event: str, fields: Mapping[str, Any]) -> None:
        """A log line tells what a task did: it ended, or was worked on for some seconds."""
        queue, type_name = fields.get("queue"), fields.get("type")
        if not event.startswith("task.") or not isinstance(queue, str) or not isinstance(type_name, str):
            return
        account, seconds = Account(queue, type_name), fields.get("seconds")
        with self._lock:
            if event in ENDS:
                self._now.by_account[account][TASKS] += 1
            if isinstance(seconds, int | float):
                self._now.seconds[account] += seconds  # type: ignore[assignment]

    # ---- the end of an invocation ------------------------------------------------------------------------------------

    def settle(self) -> dict[str, tuple[float, float]]:
        """Close the invocation's account. Returns write and read units by queue (those of no queue under "-")."""
        with self._lock:
            gathered, self._now = self._now, _Gathered()
        began, self._began = self._began, None
        elapsed = 0.0 if began is None else max(0.0, self._clock.monotonic() - began)
        shares = _shares(gathered)
        gathered.shared[MILLISECONDS] += elapsed * 1000  # type: ignore[assignment]
        gathered.shared[MIB_MILLISECONDS] += elapsed * 1000 * self._mib  # type: ignore[assignment]
        for account, share in shares.items():
            for name, number in gathered.shared.items():
                if not number:
                    continue
                gathered.by_account[account][name] += number * share  # type: ignore[assignment]
        units: dict[str, tuple[float, float]] = {}
        with self._lock:
            for account, numbers in gathered.by_account.items():
                self._unstored[account].update(numbers)
                writes, reads = units.get(account.queue, (0, 0))
                units[account.queue] = (writes + numbers[WRITES], reads + numbers[READ_UNITS])
        return units

    def store(self, store: Store) -> None:
        """Add what was settled to the stored counters, if it was not just done. What fails is tried the next time."""
        now = self._clock.monotonic()
        if self._stored_at is not None and now - self._stored_at < STORE_SECONDS:
            return
        self._stored_at = now
        with self._lock:
            taken, self._unstored = self._unstored, defaultdict(Counter)
        at = self._clock.now()
        for account, numbers in taken.items():
            try:
                with charged_to([OVERHEAD]):
                    store.apply(_addition(account, numbers, at), once=True)
            except StoreError:
                with self._lock:
                    self._unstored[account].update(numbers)


def _shares(gathered: _Gathered) -> dict[Account, float]:
    """How the invocation's own charges are spread: by the seconds its tasks took, or their number; else overhead."""
    weights = {account: float(seconds) for account, seconds in gathered.seconds.items() if seconds > 0}
    if not weights:
        weights = {account: float(n[TASKS]) for account, n in gathered.by_account.items() if n[TASKS]}
    total = sum(weights.values())
    return {account: weight / total for account, weight in weights.items()} if total else {OVERHEAD: 1.0}


def day_of(at: float) -> str:
    return f"{datetime.fromtimestamp(at, UTC):%Y-%m-%d}"


def day_key(day: str) -> str:
    """The index partition of one day's counters."""
    return f"COST#{day}"


def _addition(account: Account, numbers: Mapping[str, float], at: float) -> Any:
    day = day_of(at)
    return add_up(
        "add_charges",
        f"{ID_PREFIX}{day}#{account.queue}#{account.type}",
        sets={"dispatchKey": day_key(day), "dueAt": 0, "expiresAt": int(at - at % DAY_SECONDS) + KEEP_SECONDS},
        adds={name: round(number, 3) for name, number in numbers.items() if number},
    )
