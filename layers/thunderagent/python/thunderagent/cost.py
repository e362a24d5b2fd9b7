"""What tasks cost, from what was measured: dollars per million tasks by queue and type, at list prices.

The prices stand in `prices.json` with their date and source. Left out: storage, logs, metrics, S3, data transfer, free
tiers and discounts. Start-up of functions is billed too and not measured here.
"""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from importlib.resources import files
from typing import Any

from thunderagent.charges import (
    API_REQUESTS,
    EVENTS,
    ID_PREFIX,
    INVOCATIONS,
    MIB_MILLISECONDS,
    MILLISECONDS,
    OVERHEAD,
    READ_UNITS,
    TASKS,
    WRITES,
    Account,
    day_key,
    day_of,
)
from thunderagent.codec import Item
from thunderagent.schema import DAY_SECONDS
from thunderagent.store import Store

MILLION = 1_000_000
MIB_MS_OF_A_GIB_SECOND = 1024 * 1000


@dataclass(frozen=True)
class Prices:
    """List prices in dollars: of a million units, requests or events, and of one GiB-second of Lambda (arm64)."""

    date: str
    region: str
    sources: tuple[str, ...]
    write_units: float
    read_units: float
    gib_seconds: float
    invocations: float
    api_requests: float
    events: float


def load_prices(text: str | None = None) -> Prices:
    """The prices of `prices.json`, or of a text of its form (of another region, or negotiated)."""
    document = json.loads(files("thunderagent").joinpath("prices.json").read_text("utf-8") if text is None else text)
    prices = document["prices"]
    return Prices(
        date=document["date"],
        region=document["region"],
        sources=tuple(document["sources"]),
        write_units=prices["writeUnitsPerMillion"],
        read_units=prices["readUnitsPerMillion"],
        gib_seconds=prices["gibSeconds"],
        invocations=prices["invocationsPerMillion"],
        api_requests=prices["apiRequestsPerMillion"],
        events=prices["eventsPerMillion"],
    )


@dataclass(frozen=True)
class Usage:
    """What was consumed for `tasks` ended tasks."""

    tasks: float = 0
    write_units: float = 0
    read_units: float = 0
    milliseconds: float = 0
    mib_milliseconds: float = 0
    invocations: float = 0
    api_requests: float = 0
    events: float = 0

    @staticmethod
    def of(numbers: Mapping[str, Any]) -> Usage:
        return Usage(
            tasks=numbers.get(TASKS, 0),
            write_units=numbers.get(WRITES, 0),
            read_units=numbers.get(READ_UNITS, 0),
            milliseconds=numbers.get(MILLISECONDS, 0),
            mib_milliseconds=numbers.get(MIB_MILLISECONDS, 0),
            invocations=numbers.get(INVOCATIONS, 0),
            api_requests=numbers.get(API_REQUESTS, 0),
            events=numbers.get(EVENTS, 0),
        )

    def dollars(self, prices: Prices) -> dict[str, float]:
        """By what it was spent on."""
        return {
            "writes": self.write_units * prices.write_units / MILLION,
            "reads": self.read_units * prices.read_units / MILLION,
            "compute": self.mib_milliseconds / MIB_MS_OF_A_GIB_SECOND * prices.gib_seconds,
            "invocations": self.invocations * prices.invocations / MILLION,
            "api": self.api_requests * prices.api_requests / MILLION,
            "events": self.events * prices.events / MILLION,
        }

    def total(self, prices: Prices) -> float:
        return sum(self.dollars(prices).values())

    def per_task(self, number: float) -> float | None:
        """A figure divided by the tasks; None when none ended."""
        return number / self.tasks if self.tasks else None


@dataclass(frozen=True)
class CostLine:
    """One queue and type. Figures are per task, dollars per million tasks; None while no task has ended."""

    queue: str
    type: str
    usage: Usage
    dollars_per_million: float | None
    spent_on: Mapping[str, float]

    def as_dict(self) -> dict[str, Any]:
        usage = self.usage
        return {
            "queue": self.queue,
            "type": self.type,
            "tasks": round(usage.tasks),
            "writeUnitsPerTask": _rounded(usage.per_task(usage.write_units), 2),
            "readUnitsPerTask": _rounded(usage.per_task(usage.read_units), 2),
            "billedMillisecondsPerTask": _rounded(usage.per_task(usage.milliseconds), 1),
            "dollarsPerMillionTasks": _rounded(self.dollars_per_million, 2),
            "spentOn": {name: _rounded(value, 2) for name, value in self.spent_on.items() if value},
        }


@dataclass(frozen=True)
class CostReport:
    """Lines by queue and type, and what belongs to no task: sweeps, reaper, recorder, reading. `days` it covers."""

    lines: tuple[CostLine, ...]
    overhead: Usage
    days: tuple[str, ...]
    prices: Prices

    @property
    def overhead_dollars_per_day(self) -> float:
        return self.overhead.total(self.prices) / max(1, len(self.days))

    def as_dict(self) -> dict[str, Any]:
        """For JSON output."""
        return {
            "from": self.days[0],
            "to": self.days[-1],
            "prices": {"date": self.prices.date, "region": self.prices.region, "sources": list(self.prices.sources)},
            "types": [line.as_dict() for line in self.lines],
            "overhead": {
                "dollarsPerDay": round(self.overhead_dollars_per_day, 4),
                "spentOn": {name: round(value, 4) for name, value in self.overhead.dollars(self.prices).items()},
            },
        }


def cost_report(store: Store, *, days: int = 7, prices: Prices | None = None) -> CostReport:
    """What the last days' tasks cost, today included. Reads the stored counters only; raises a StoreError."""
    now = store.clock.now()
    names = tuple(day_of(now - back * DAY_SECONDS) for back in reversed(range(days)))
    totals: dict[Account, Counter[str]] = {}
    for item in _counters(store, names):
        account = _account_of(str(item["taskId"]))
        numbers = {name: value for name, value in item.items() if isinstance(value, int | float)}
        totals.setdefault(account, Counter()).update(numbers)
    at = prices or load_prices()
    lines = [_line(account, Usage.of(numbers), at) for account, numbers in totals.items() if account != OVERHEAD]
    lines.sort(key=lambda line: (line.queue, line.type))
    return CostReport(tuple(lines), Usage.of(totals.get(OVERHEAD, {})), names, at)


def _counters(store: Store, days: Sequence[str]) -> list[Item]:
    ids = [key.task_id for day in days for key in store.walk(day_key(day))]
    return list(store.get_items(ids).values())


def _account_of(item_id: str) -> Account:
    _, queue, type_name = item_id.removeprefix(ID_PREFIX).split("#", 2)
    return Account(queue, type_name)


def _line(account: Account, usage: Usage, prices: Prices) -> CostLine:
    factor = MILLION / usage.tasks if usage.tasks else 0
    spent_on = {name: value * factor for name, value in usage.dollars(prices).items()}
    total = sum(spent_on.values()) if usage.tasks else None
    return CostLine(account.queue, account.type, usage, total, spent_on)


def _rounded(value: float | None, digits: int) -> float | None:
    return None if value is None else round(value, digits)
