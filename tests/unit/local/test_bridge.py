"""The bridge over a CloudWatch under the test's hand: each line once, few words, and it outlives the embedded AWS."""

from __future__ import annotations

import json
from collections import defaultdict
from datetime import UTC, datetime
from typing import Any

from botocore.exceptions import ClientError, EndpointConnectionError

from thunder.local.bridge import GIVE_UP_ROUNDS, OVERLAP_MS, Bridge, Tail, run
from thunder.local.emf import values_of

START = 1_800_000_000


def emf(value: float = 1, *, second: int = START) -> str:
    directive = {"Namespace": "N", "Dimensions": [["S"]], "Metrics": [{"Name": "M"}]}
    about = {"Timestamp": second * 1000, "CloudWatchMetrics": [directive]}
    return json.dumps({"_aws": about, "S": "s", "M": value})


class Pages:
    def __init__(self, page: dict[str, Any]) -> None:
        self._page = page

    def paginate(self, **_: Any) -> list[dict[str, Any]]:
        return [self._page]


class ResourceNotFound(ClientError):
    def __init__(self) -> None:
        super().__init__({"Error": {"Code": "ResourceNotFoundException"}}, "FilterLogEvents")


class Aws:
    """Logs and CloudWatch in one: what was written, put and set."""

    class exceptions:
        ResourceNotFoundException = ResourceNotFound

    def __init__(self) -> None:
        self.groups: dict[str, list[dict[str, Any]]] = defaultdict(list)
        self.alarms: list[dict[str, Any]] = []
        self.values: list[float] = []
        self.states: list[tuple[str, str]] = []
        self.points: dict[int, float] = {}
        self.away = False

    def write(self, message: str, *, at_ms: int, group: str = "g", stream: str = "s") -> None:
        self.groups[group].append({"logStreamName": stream, "timestamp": at_ms, "message": message})

    def get_paginator(self, operation: str) -> Pages:
        self._answer()
        if operation == "describe_log_groups":
            return Pages({"logGroups": [{"logGroupName": name} for name in self.groups]})
        return Pages({"MetricAlarms": self.alarms})

    def filter_log_events(self, *, logGroupName: str, startTime: int, limit: int, **_: Any) -> dict[str, Any]:
        self._answer()
        if logGroupName not in self.groups:
            raise ResourceNotFound
        found = [event for event in self.groups[logGroupName] if event["timestamp"] >= startTime]
        return {"events": sorted(found, key=lambda event: event["timestamp"])[:limit]}

    def put_metric_data(self, *, Namespace: str, MetricData: list[dict[str, Any]]) -> None:
        for datum in MetricData:
            for value, count in zip(datum["Values"], datum["Counts"], strict=True):
                self.values += [value] * int(count)

    def describe_alarms(self, *, StateValue: str, **_: Any) -> dict[str, Any]:
        return {"MetricAlarms": [alarm for alarm in self.alarms if alarm["StateValue"] == StateValue]}

    def get_metric_data(self, *, MetricDataQueries: list[dict[str, Any]], **_: Any) -> dict[str, Any]:
        times = [datetime.fromtimestamp(second, UTC) for second in self.points]
        result = {"Timestamps": times, "Values": list(self.points.values())}
        return {"MetricDataResults": [{"Id": query["Id"], **result} for query in MetricDataQueries]}

    def set_alarm_state(self, *, AlarmName: str, StateValue: str, StateReason: str) -> None:
        self.states.append((AlarmName, StateValue))
        for alarm in self.alarms:
            if alarm["AlarmName"] == AlarmName:
                alarm["StateValue"] = StateValue

    def _answer(self) -> None:
        if self.away:
            raise EndpointConnectionError(endpoint_url="http://127.0.0.1:1")


class Rig:
    def __init__(self) -> None:
        self.aws = Aws()
        self.time = float(START)
        self.said: list[str] = []
        self.bridge = Bridge(self.aws, self.aws, now=lambda: self.time, say=self.said.append)

    def beating(self) -> None:
        """An alarm on a heartbeat, two minutes of silence are too much."""
        self.aws.alarms.append(
            {
                "AlarmName": "PollerStopped",
                "StateValue": "INSUFFICIENT_DATA",
                "Namespace": "N",
                "MetricName": "M",
                "Statistic": "Sum",
                "Period": 60,
                "EvaluationPeriods": 2,
                "Threshold": 1,
                "ComparisonOperator": "LessThanThreshold",
                "TreatMissingData": "breaching",
            }
        )

    def watch(self, seconds: int) -> None:
        for _ in range(seconds // 5):
            self.time += 5
            self.bridge.round()


def test_each_line_is_taken_over_once_also_those_that_come_late() -> None:
    rig = Rig()
    rig.aws.write(emf(1), at_ms=START * 1000)
    rig.aws.write("no metric", at_ms=START * 1000)
    rig.watch(5)
    rig.aws.write(emf(2), at_ms=START * 1000 + 2, stream="late")
    rig.aws.write(emf(1), at_ms=START * 1000, stream="equal, of another")
    rig.aws.write(emf(1), at_ms=START * 1000)  # and one quite the same
    rig.watch(30)
    assert sorted(rig.aws.values) == [1, 1, 1, 2]


def test_what_was_logged_before_the_bridge_came_is_not_its_business() -> None:
    rig = Rig()
    rig.aws.write(emf(1), at_ms=START * 1000 - 60_000)
    rig.watch(10)
    assert rig.aws.values == []


def test_a_log_group_that_comes_later_is_found_and_one_that_goes_is_forgotten() -> None:
    rig = Rig()
    rig.aws.groups["g"] = []
    rig.watch(5)
    rig.aws.write(emf(7), at_ms=int(rig.time * 1000), group="new")
    del rig.aws.groups["g"]
    rig.watch(40)
    assert rig.aws.values == [7]


def test_memory_holds_a_few_seconds_only() -> None:
    aws = Aws()
    tail = Tail(aws, "g", since_ms=START * 1000)
    for second in range(0, 600, 5):
        for _ in range(10):
            aws.write(emf(1), at_ms=(START + second) * 1000)
        assert len(list(tail.read())) == 10
    assert sum(tail._seen.values()) <= 10 * (OVERLAP_MS // 5000 + 1)


def test_more_lines_than_a_page_holds_do_not_bring_it_to_a_halt(monkeypatch: Any) -> None:
    monkeypatch.setattr("thunder.local.bridge.EVENTS_A_PAGE", 50)
    aws = Aws()
    tail = Tail(aws, "g", since_ms=START * 1000)
    for number in range(200):
        aws.write(emf(number), at_ms=START * 1000 + number)
    values = [value for _ in range(6) for line in tail.read() for _, _, value in values_of(line)]
    assert sorted(values) == list(range(200))


def test_a_new_alarm_has_its_state_after_one_round_and_idle_is_ok() -> None:
    rig = Rig()
    rig.aws.groups["g"] = []
    rig.beating()
    rig.watch(5)
    assert rig.aws.states == [("PollerStopped", "OK")]


def test_a_stopped_heartbeat_is_an_alarm_within_three_periods_and_told_once() -> None:
    rig = Rig()
    rig.beating()
    rig.watch(175)
    assert rig.aws.states == [("PollerStopped", "OK")]
    rig.watch(20)
    assert rig.aws.states == [("PollerStopped", "OK"), ("PollerStopped", "ALARM")]
    assert len(rig.said) == 2
    rig.aws.points = {int(rig.time) // 60 * 60 - 60: 1.0}
    rig.watch(10)
    assert rig.aws.states[-1] == ("PollerStopped", "OK")


def test_a_laptop_that_slept_is_no_stopped_poller() -> None:
    rig = Rig()
    rig.beating()
    rig.watch(10)
    rig.time += 3600
    rig.watch(60)
    assert rig.aws.states == [("PollerStopped", "OK")]


def test_the_embedded_aws_may_go_and_come_back() -> None:
    rig = Rig()
    slept: list[float] = []

    def sleep(seconds: float) -> None:
        slept.append(seconds)
        rig.time += seconds
        rig.aws.away = 3 <= len(slept) < 20 or len(slept) > 30
        if len(slept) == 25:
            rig.aws.write(emf(9), at_ms=int(rig.time * 1000))

    run(rig.bridge, sleep=sleep)
    assert rig.aws.values == [9]
    assert GIVE_UP_ROUNDS <= len(slept) - 30 <= GIVE_UP_ROUNDS + 1, "and ends when it stays away"
    assert min(slept) >= 2, "it is never busy"
