"""Counters and gauges for Prometheus, from the metrics of one stack in CloudWatch.

CloudWatch has sums per minute, Prometheus wants counters that only rise. Each minute's sum is remembered while it may
still grow, and what it grew by is added: nothing is counted twice, and lines that come late are not lost.
"""

from __future__ import annotations

import threading
import time
from collections import defaultdict
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from thunderagent.metrics import NAMESPACE

MINUTE = 60
LATE_SECONDS = (
    15 * MINUTE
)  # a minute's sum may grow for so long: an executor tells of its tasks at its end at the latest
QUEUES_SECONDS = 5 * MINUTE
QUERIES_A_CALL = 500  # GetMetricData's limit
LEVEL_SECONDS = 5 * MINUTE  # an older figure is no figure

Counted = tuple[str, str]  # metric, queue


@dataclass
class Totals:
    """One stack's counts since `begun`, and its latest levels."""

    cloudwatch: Any
    service: str
    now: Callable[[], float] = time.time
    counts: dict[Counted, float] = field(default_factory=lambda: defaultdict(float))
    levels: dict[str, float] = field(default_factory=dict)
    _sums: dict[Counted, dict[int, float]] = field(default_factory=lambda: defaultdict(dict))
    _queues: Sequence[str] = ()
    _queues_at: float = 0
    _read_until: float = 0
    begun: int = 0

    def __post_init__(self) -> None:
        self.begun = int(self.now()) // MINUTE * MINUTE

    def refresh(self) -> None:
        """Take over what CloudWatch has by now. Raises botocore's errors; what was counted before stays."""
        now = self.now()
        if not self._queues or now - self._queues_at > QUEUES_SECONDS:
            self._queues = sorted(set(self._measured_queues()))
            self._queues_at = now
        start = max(self.begun, int(min(now, self._read_until or now) - LATE_SECONDS) // MINUTE * MINUTE)
        for (metric, queue), sums in self._read(start, now):
            if metric == "Backlog":
                self._note_level(queue, sums, now)
            else:
                self._count((metric, queue), sums, start)
        self._read_until = now

    def _note_level(self, queue: str, levels: Mapping[int, float], now: float) -> None:
        recent = [second for second in levels if now - second <= LEVEL_SECONDS]
        if recent:
            self.levels[queue] = levels[max(recent)]
        else:
            self.levels.pop(queue, None)

    def _count(self, counted: Counted, sums: Mapping[int, float], start: int) -> None:
        known = self._sums[counted]
        for minute, total in sums.items():
            self.counts[counted] += max(0.0, total - known.get(minute, 0.0))
            known[minute] = max(total, known.get(minute, 0.0))
        for minute in [minute for minute in known if minute < start]:
            del known[minute]

    def _measured_queues(self) -> Iterator[str]:
        """Every queue that something was measured of, also those declared while the stack runs."""
        wanted = [{"Name": "Service", "Value": self.service}, {"Name": "Queue"}]
        pages = self.cloudwatch.get_paginator("list_metrics").paginate(Namespace=NAMESPACE, Dimensions=wanted)
        for metric in (each for page in pages for each in page["Metrics"]):
            dimensions = {each["Name"]: each["Value"] for each in metric["Dimensions"]}
            if dimensions.get("Service") == self.service and "Queue" in dimensions:
                yield dimensions["Queue"]

    def _read(self, start: int, now: float) -> Iterator[tuple[Counted, dict[int, float]]]:
        """The minutes of every metric of every queue from `start` on. Levels are read from a little before."""
        asked = [
            (metric, queue, statistic)
            for queue in self._queues
            for metric, statistic in (("Succeeded", "Sum"), ("Failed", "Sum"), ("Backlog", "Maximum"))
        ]
        for first in range(0, len(asked), QUERIES_A_CALL):
            part = asked[first : first + QUERIES_A_CALL]
            queries = [self._query(number, *each) for number, each in enumerate(part)]
            found: dict[str, dict[int, float]] = defaultdict(dict)
            pages = self.cloudwatch.get_paginator("get_metric_data").paginate(
                MetricDataQueries=queries, StartTime=min(start, int(now) - LEVEL_SECONDS), EndTime=int(now) + MINUTE
            )
            for result in (each for page in pages for each in page["MetricDataResults"]):
                found[result["Id"]] |= {
                    int(at.timestamp()): value for at, value in zip(result["Timestamps"], result["Values"], strict=True)
                }
            for number, (metric, queue, _) in enumerate(part):
                minutes = found[f"q{number}"]
                if metric != "Backlog":
                    minutes = {minute: total for minute, total in minutes.items() if minute >= start}
                yield (metric, queue), minutes

    def _query(self, number: int, metric: str, queue: str, statistic: str) -> dict[str, Any]:
        dimensions = [{"Name": "Service", "Value": self.service}, {"Name": "Queue", "Value": queue}]
        described = {"Namespace": NAMESPACE, "MetricName": metric, "Dimensions": dimensions}
        return {"Id": f"q{number}", "MetricStat": {"Metric": described, "Period": MINUTE, "Stat": statistic}}

    @property
    def queues(self) -> Sequence[str]:
        return self._queues


class Exporter:
    """A collector of prometheus_client over one stack. CloudWatch is asked at most every `interval_seconds`, however
    often Prometheus comes: each figure asked for is paid for."""

    def __init__(self, totals: Totals, *, interval_seconds: float, say: Callable[[str], None]) -> None:
        self._totals = totals
        self._interval = interval_seconds
        self._say = say
        self._asked_at: float | None = None
        self._is_answered = False
        self._lock = threading.Lock()  # two Prometheus may come at once

    def describe(self) -> Iterable[Any]:
        """Nothing, so that registering it asks nobody."""
        return ()

    def collect(self) -> list[Any]:
        with self._lock:
            self._refresh()
            return list(self._families())

    def _families(self) -> Iterator[Any]:
        from prometheus_client.core import CounterMetricFamily, GaugeMetricFamily

        totals, labels = self._totals, ("service", "queue")
        processed = CounterMetricFamily("tasks_processed", "Tasks that ended, SUCCESS or FAILED.", labels=labels)
        failed = CounterMetricFamily("tasks_failed", "Tasks that ended FAILED (dead letters).", labels=labels)
        length = GaugeMetricFamily("task_queue_length", "Tasks that wait to start (the backlog).", labels=labels)
        for queue in totals.queues:
            of, dead = (totals.service, queue), totals.counts[("Failed", queue)]
            processed.add_metric(of, totals.counts[("Succeeded", queue)] + dead, created=totals.begun)
            failed.add_metric(of, dead, created=totals.begun)
            if queue in totals.levels:
                length.add_metric(of, totals.levels[queue])
        yield from (processed, failed, length)
        answered = GaugeMetricFamily("thunder_cloudwatch_up", "Whether CloudWatch answered the last time.")
        answered.add_metric((), float(self._is_answered))
        yield answered

    def _refresh(self) -> None:
        from botocore.exceptions import BotoCoreError, ClientError

        now = self._totals.now()
        if self._asked_at is not None and now - self._asked_at < self._interval:
            return
        self._asked_at = now
        try:
            self._totals.refresh()
            self._is_answered = True
        except (BotoCoreError, ClientError) as error:
            self._is_answered = False
            self._say(f"CloudWatch does not answer: {error}")
