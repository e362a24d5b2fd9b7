"""Counters that only rise, from sums per minute that come late and are read again and again."""

from __future__ import annotations

import urllib.request
from collections import defaultdict
from datetime import UTC, datetime
from typing import Any

from botocore.exceptions import EndpointConnectionError
from prometheus_client import CollectorRegistry, generate_latest, start_http_server
from prometheus_client.parser import text_string_to_metric_families

from thunder.exporter import LATE_SECONDS, MINUTE, Exporter, Totals

START = 1_800_000_000  # the beginning of a minute
SERVICE = "ThunderAgent-test"


class CloudWatch:
    """Sums by minute of (metric, queue); other services have values as well."""

    def __init__(self) -> None:
        self.values: dict[tuple[str, str], dict[int, float]] = defaultdict(dict)
        self.asked = 0
        self.away = False

    def get_paginator(self, operation: str) -> Any:
        return type("Paginator", (), {"paginate": lambda _, **arguments: [getattr(self, operation)(**arguments)]})()

    def list_metrics(self, **_: Any) -> dict[str, Any]:
        found = [(SERVICE, queue) for _, queue in self.values]
        return {
            "Metrics": [
                {"Dimensions": [{"Name": "Service", "Value": service}, {"Name": "Queue", "Value": queue}]}
                for service, queue in [*found, ("ThunderAgent-other", "foreign")]
            ]
        }

    def get_metric_data(
        self, *, MetricDataQueries: list[dict[str, Any]], StartTime: int, EndTime: int
    ) -> dict[str, Any]:
        if self.away:
            raise EndpointConnectionError(endpoint_url="http://x")
        self.asked += len(MetricDataQueries)
        results = []
        for query in MetricDataQueries:
            metric = query["MetricStat"]["Metric"]
            dimensions = {each["Name"]: each["Value"] for each in metric["Dimensions"]}
            assert dimensions["Service"] == SERVICE
            points = self.values.get((metric["MetricName"], dimensions["Queue"]), {})
            chosen = {second: value for second, value in points.items() if StartTime <= second < EndTime}
            times = [datetime.fromtimestamp(second, UTC) for second in chosen]
            results.append({"Id": query["Id"], "Timestamps": times, "Values": list(chosen.values())})
        return {"MetricDataResults": results}


class Rig:
    def __init__(self, *, at: float = START + 30) -> None:
        self.cloudwatch = CloudWatch()
        self.cloudwatch.values["Backlog", "default"][START] = 4
        self.time = at
        self.said: list[str] = []
        self.begin()

    def begin(self) -> None:
        totals = Totals(self.cloudwatch, SERVICE, now=lambda: self.time)
        self.registry = CollectorRegistry(auto_describe=False)
        self.registry.register(Exporter(totals, interval_seconds=60, say=self.said.append))

    def scrape(self, *, after: float = 60) -> dict[str, float]:
        """The samples of queue `default`."""
        self.time += after
        families = text_string_to_metric_families(generate_latest(self.registry).decode())
        return {
            sample.name: sample.value
            for family in families
            for sample in family.samples
            if sample.labels.get("queue", "default") == "default"
        }

    def ends(self, minute: int, *, succeeded: float = 0, failed: float = 0) -> None:
        for metric, count in (("Succeeded", succeeded), ("Failed", failed)):
            sums = self.cloudwatch.values[metric, "default"]
            sums[START + minute * MINUTE] = sums.get(START + minute * MINUTE, 0) + count


def test_the_three_names_and_what_they_count() -> None:
    rig = Rig()
    rig.ends(0, succeeded=5, failed=2)
    samples = rig.scrape(after=0)
    assert samples["tasks_processed_total"] == 7
    assert samples["tasks_failed_total"] == 2
    assert samples["task_queue_length"] == 4
    assert samples["thunder_cloudwatch_up"] == 1


def test_a_minute_that_grows_is_counted_by_what_it_grew() -> None:
    rig = Rig()
    seen = []
    for _ in range(5):
        rig.ends(0, succeeded=1)
        seen.append(rig.scrape()["tasks_processed_total"])
    assert seen == [1, 2, 3, 4, 5]
    assert rig.scrape()["tasks_processed_total"] == 5, "and not again"


def test_what_comes_late_is_not_lost_and_memory_holds_the_late_minutes_only() -> None:
    rig = Rig()
    for minute in range(60):
        rig.ends(minute, succeeded=1)
        rig.ends(max(0, minute - LATE_SECONDS // MINUTE + 2), succeeded=1)
        rig.scrape()
    assert rig.scrape()["tasks_processed_total"] == 120
    (exporter,) = rig.registry._collector_to_names
    assert max(len(sums) for sums in exporter._totals._sums.values()) <= LATE_SECONDS // MINUTE + 2


def test_a_counter_never_falls_also_when_cloudwatch_says_less() -> None:
    rig = Rig()
    rig.ends(0, succeeded=5)
    assert rig.scrape()["tasks_processed_total"] == 5
    rig.cloudwatch.values["Succeeded", "default"][START] = 3
    assert rig.scrape()["tasks_processed_total"] == 5


def test_after_a_pause_of_prometheus_nothing_is_missing() -> None:
    rig = Rig()
    rig.scrape()
    for minute in range(2, 120):
        rig.ends(minute, succeeded=1)
    assert rig.scrape(after=120 * MINUTE)["tasks_processed_total"] == 118


def test_a_restart_begins_at_zero_with_the_minute_it_happens_in() -> None:
    rig = Rig()
    rig.ends(0, succeeded=5)
    rig.scrape()
    rig.time = START + 10 * MINUTE + 5
    rig.begin()
    rig.ends(10, succeeded=2)
    samples = rig.scrape(after=0)
    assert samples["tasks_processed_total"] == 2
    assert samples["tasks_processed_created"] == START + 10 * MINUTE, "by which Prometheus knows that it is a new one"


def test_cloudwatch_is_asked_once_a_minute_however_often_prometheus_comes() -> None:
    rig = Rig()
    rig.scrape(after=0)
    for _ in range(5):
        rig.scrape(after=10)
    assert rig.cloudwatch.asked == 3
    rig.scrape(after=10)
    assert rig.cloudwatch.asked == 6


def test_when_cloudwatch_is_away_the_counters_stay_and_it_is_said() -> None:
    rig = Rig()
    rig.ends(0, succeeded=5)
    rig.scrape()
    rig.cloudwatch.away = True
    samples = rig.scrape()
    assert (samples["tasks_processed_total"], samples["thunder_cloudwatch_up"]) == (5, 0)
    assert len(rig.said) == 1
    rig.cloudwatch.away = False
    rig.ends(1, succeeded=1)
    samples = rig.scrape()
    assert (samples["tasks_processed_total"], samples["thunder_cloudwatch_up"]) == (6, 1)


def test_queues_are_found_as_soon_as_something_is_measured_of_them() -> None:
    rig = Rig()
    rig.cloudwatch.values.clear()
    assert "tasks_processed_total" not in rig.scrape()
    rig.ends(1, succeeded=1)
    assert rig.scrape()["tasks_processed_total"] == 1


def test_a_level_that_is_old_is_no_level() -> None:
    rig = Rig()
    assert "task_queue_length" in rig.scrape()
    assert "task_queue_length" not in rig.scrape(after=10 * MINUTE)


def test_prometheus_reads_it_over_http() -> None:
    rig = Rig()
    rig.ends(0, succeeded=1)
    server, thread = start_http_server(0, addr="127.0.0.1", registry=rig.registry)
    try:
        with urllib.request.urlopen(f"http://127.0.0.1:{server.server_port}/metrics", timeout=10) as answer:
            text = answer.read().decode()
    finally:
        server.shutdown()
        server.server_close()
        thread.join()
    assert f'tasks_processed_total{{queue="default",service="{SERVICE}"}} 1.0' in text
