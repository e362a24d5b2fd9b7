"""What the demonstration run submits, and what has to become of it."""

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

from examples.reports.periods import periods_within
from examples.reports.weather import stations

RETRIES_OF_FAIL = 1
COUNTERS = 5


@dataclass(frozen=True)
class Work:
    """One task to submit. It must end in `status`, having spent from `least_retries` to `most_retries` retries."""

    type: str
    payload: dict[str, Any]
    status: str = "SUCCESS"
    least_retries: int = 0
    most_retries: int = 3
    max_retry_number: int | None = None

    @classmethod
    def report(cls, station: str, period: str) -> "Work":
        return cls("report.generate", {"station": station, "period": period}, most_retries=5)

    @classmethod
    def flaky(cls, failures: int) -> "Work":
        """Fails that often, then succeeds: it cannot succeed with fewer retries."""
        return cls("demo.flaky", {"failures": failures}, least_retries=failures)

    @classmethod
    def counted(cls, key: str) -> "Work":
        return cls("demo.count", {"key": key}, most_retries=0, max_retry_number=0)

    @classmethod
    def failing(cls) -> "Work":
        """Uses its retries up and becomes a dead letter."""
        spent = RETRIES_OF_FAIL
        return cls("demo.fail", {}, "FAILED", least_retries=spent, most_retries=spent, max_retry_number=spent)

    @classmethod
    def permanent(cls) -> "Work":
        """Becomes a dead letter at once, whatever retries it has."""
        return cls("demo.permanent", {}, "FAILED", most_retries=0)


@dataclass(frozen=True)
class Workload:
    """All work of one run. `run` makes its counters its own, so that a run on a used stack counts from zero."""

    run: str
    reports: int
    flaky: int
    counted: int

    def works(self) -> list[Work]:
        """What takes several attempts comes first, so that its waits are spent on the reports."""
        return [
            Work.failing(),
            Work.permanent(),
            *(Work.flaky(failures=1) for _ in range(self.flaky)),
            *(Work.counted(self.counters[index % COUNTERS]) for index in range(self.counted)),
            *_reports(self.reports),
        ]

    @property
    def counters(self) -> list[str]:
        return [f"demo-{self.run}-{index}" for index in range(COUNTERS)]


MOST_REPORTS = sum(len(list(periods_within(station.first, station.last))) for station in stations().values())


def _reports(count: int) -> list[Work]:
    return list(_every_report())[:count]


def _every_report() -> Iterator[Work]:
    """The longest periods first, one station after the other in each."""
    first = min(station.first for station in stations().values())
    last = max(station.last for station in stations().values())
    for period in periods_within(first, last):
        for station in stations().values():
            if period.within(station.first, station.last):
                yield Work.report(station.slug, period.label)
