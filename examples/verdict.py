"""Judging a finished run: did every task end as it should, how often did each really run, and how fast was it."""

import math
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from examples.workload import Work
from thunderagent.client import TaskView

UNHARMED = frozenset({"released", "snoozed"})


@dataclass(frozen=True)
class Finished:
    """A piece of work and what became of it: the task as last seen, once it is terminal."""

    work: Work
    task: TaskView

    @property
    def name(self) -> str:
        return f"{self.task.task_id} ({self.work.type})"

    @property
    def retries(self) -> int:
        return self.task.retry_count

    @property
    def attempts(self) -> list[Mapping[str, Any]]:
        return list(self.task.fields.get("attempts", []))

    @property
    def runs(self) -> list[Mapping[str, Any]]:
        """The attempts in which the handler ran: those handed back before that do not count."""
        return [attempt for attempt in self.attempts if attempt.get("outcome") not in UNHARMED]

    @property
    def duplicates(self) -> int:
        """Runs beyond the first of the same attempt."""
        return len(self.runs) - len({attempt["attempt"] for attempt in self.runs})

    @property
    def queue_latency_seconds(self) -> float | None:
        """From the submit to the first start."""
        starts = [attempt["startedAt"] for attempt in self.attempts if "startedAt" in attempt]
        return min(starts) - self.task.created_at if starts and self.task.created_at is not None else None

    def difference(self) -> str | None:
        """How it ended otherwise than it should, or None."""
        status = self.task.status
        if status != self.work.status:
            reason = (self.task.error or {}).get("message", "no error recorded")
            return f"{self.name} ended {status} instead of {self.work.status}: {reason}"
        if not self.work.least_retries <= self.retries <= self.work.most_retries:
            allowed = sorted({self.work.least_retries, self.work.most_retries})
            return f"{self.name} spent {self.retries} retries instead of {' to '.join(map(str, allowed))}"
        return None


@dataclass(frozen=True)
class Verdict:
    """The whole run in figures. `differences` is empty exactly if every task ended as it should, and ran once."""

    submitted: int
    succeeded: int
    retried: int
    failed_as_intended: int
    duplicates: int
    differences: tuple[str, ...]
    latency_p50: float | None
    latency_p95: float | None
    tasks_per_second: float | None

    @classmethod
    def of(
        cls, finished: Sequence[Finished], *, counted: Mapping[str, int], missing_reports: Iterable[str]
    ) -> "Verdict":
        """`counted` is what the counters hold, `missing_reports` the keys of results that are not in the bucket."""
        differences = [text for one in finished if (text := one.difference())]
        differences += [f"{one.name} ran {one.duplicates} times too often" for one in finished if one.duplicates]
        differences += _miscounts(finished, counted)
        differences += [f"the report {key} is not in the bucket" for key in missing_reports]
        latencies = sorted(latency for one in finished if (latency := one.queue_latency_seconds) is not None)
        return cls(
            submitted=len(finished),
            succeeded=sum(one.task.status == "SUCCESS" for one in finished),
            retried=sum(one.retries > 0 for one in finished),
            failed_as_intended=sum(one.work.status == one.task.status == "FAILED" for one in finished),
            duplicates=sum(one.duplicates for one in finished) + _counted_twice(finished, counted),
            differences=tuple(differences),
            latency_p50=percentile(latencies, 50),
            latency_p95=percentile(latencies, 95),
            tasks_per_second=_throughput(finished),
        )


def percentile(ascending: Sequence[float], rank: float) -> float | None:
    """Nearest rank: the smallest value that at least `rank` per cent do not exceed. None of nothing."""
    return ascending[max(0, math.ceil(len(ascending) * rank / 100) - 1)] if ascending else None


def _counting_tasks(finished: Sequence[Finished]) -> dict[str, int]:
    """How many tasks were to add to each counter."""
    keys = [one.work.payload["key"] for one in finished if one.work.type == "demo.count"]
    return {key: keys.count(key) for key in keys}


def _miscounts(finished: Sequence[Finished], counted: Mapping[str, int]) -> list[str]:
    return [
        f"counter#{key} holds {counted.get(key, 0)} after {tasks} tasks"
        for key, tasks in _counting_tasks(finished).items()
        if counted.get(key, 0) != tasks
    ]


def _counted_twice(finished: Sequence[Finished], counted: Mapping[str, int]) -> int:
    return sum(max(0, counted.get(key, 0) - tasks) for key, tasks in _counting_tasks(finished).items())


def _throughput(finished: Sequence[Finished]) -> float | None:
    """Tasks per second from the first submit to the last end."""
    submits = [one.task.created_at for one in finished if one.task.created_at is not None]
    ends = [one.task.finished_at for one in finished if one.task.finished_at is not None]
    lasted = max(ends, default=0) - min(submits, default=0)
    return len(finished) / lasted if lasted > 0 else None
