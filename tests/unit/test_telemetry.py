"""Log lines that cannot be forged and hold no secrets, metrics as CloudWatch takes them."""

from __future__ import annotations

import io
import json
import threading
from typing import Any

import pytest
from aws_lambda_powertools.metrics.provider.cloudwatch_emf.cloudwatch import AmazonCloudWatchEMFProvider

from thunderagent.metrics import METRICS, NAMESPACE, QUEUE, SERVICE, TYPE
from thunderagent.telemetry import EMF_VALUES, FLUSH_MS, TEXT_BYTES, Telemetry

NOW_MS = 1_800_000_000_000
LINE_BREAKS = ("\n", "\r\n", "\r", "\x0b", "\x0c", "\x1c", "\x85", "\u2028", "\u2029")


class Printed:
    """A telemetry under a clock, and what it printed."""

    def __init__(self, **options: Any) -> None:
        self.now_ms = NOW_MS
        self.stream = io.StringIO()
        options = {"service": "S", "stream": self.stream, "clock_ms": lambda: self.now_ms, **options}
        self.telemetry = Telemetry(**options)

    @property
    def lines(self) -> list[dict[str, Any]]:
        return [json.loads(line) for line in self.stream.getvalue().splitlines()]

    def flushed(self) -> list[dict[str, Any]]:
        self.telemetry.flush()
        return self.lines


def sets_of(line: dict[str, Any], metric: str) -> list[list[str]]:
    """The dimension sets a metric of an EMF line counts under."""
    return [
        names
        for directive in line["_aws"]["CloudWatchMetrics"]
        for names in directive["Dimensions"]
        if metric in {each["Name"] for each in directive["Metrics"]}
    ]


# ---- log lines ------------------------------------------------------------------------------------------------------


def test_a_log_line_is_one_json_object_with_its_event_and_ids() -> None:
    printed = Printed()
    printed.telemetry.log("task.failed", level="ERROR", taskId="t1", reason=None)
    assert printed.lines == [
        {"time": "2027-01-15T08:00:00.000Z", "level": "ERROR", "event": "task.failed", "taskId": "t1"}
    ]


@pytest.mark.parametrize("break_", [*LINE_BREAKS, "\0", "\x1b[2J"])
def test_what_a_task_says_cannot_forge_a_line(break_: str) -> None:
    printed = Printed()
    forged = f'x"{break_}{{"event":"task.succeeded","taskId":"other"}}'
    printed.telemetry.log("task.message", message=forged)
    (line,) = printed.lines
    assert (line["event"], line["message"]) == ("task.message", forged)
    assert printed.stream.getvalue().isascii()
    assert printed.stream.getvalue().isprintable() is False  # the one line feed at its end
    assert printed.stream.getvalue()[:-1].isprintable()


def test_a_log_line_cannot_become_a_metric() -> None:
    printed = Printed()
    printed.telemetry.log("task.message", _aws={"CloudWatchMetrics": []}, message="x")
    assert "_aws" not in printed.lines[0]


def test_long_texts_are_cut() -> None:
    printed = Printed()
    printed.telemetry.log("task.message", message="é" * 1_000_000)
    assert len(printed.lines[0]["message"].encode()) <= TEXT_BYTES


@pytest.mark.parametrize("value", [{("a", "b"): 1}, [[]]])
def test_a_value_json_cannot_hold_loses_the_fields_not_the_line(value: Any) -> None:
    if value == [[]]:
        value[0].append(value)  # endless
    printed = Printed()
    printed.telemetry.log("task.message", data=value)
    (line,) = printed.lines
    assert line["event"] == "task.message"
    assert "unprintable" in line


def test_lines_of_many_threads_do_not_run_into_each_other() -> None:
    class Slow(io.StringIO):
        def write(self, text: str) -> int:
            for piece in (text[:5], text[5:]):
                super().write(piece)
            return len(text)

    stream = Slow()
    telemetry = Telemetry(service="S", stream=stream)
    threads = [
        threading.Thread(target=lambda: [telemetry.log("e", n=number) for number in range(200)]) for _ in range(4)
    ]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert len([json.loads(line) for line in stream.getvalue().splitlines()]) == 800


def test_debug_lines_are_for_the_level_or_the_sample() -> None:
    draws = iter([0.5, 0.01, 0.5, 0.5])
    printed = Printed(debug_share=0.1, draw=lambda: next(draws))
    for number in range(3):
        printed.telemetry.log("task.started", level="DEBUG", number=number)
        printed.telemetry.flush()
    assert [line["number"] for line in printed.lines] == [1], "one invocation of three was drawn, and it whole"


# ---- metrics --------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("name", sorted(METRICS))
def test_every_metric_counts_under_exactly_the_dimensions_it_is_listed_with(name: str) -> None:
    printed = Printed(types=["report.generate"])
    printed.telemetry.measure(name, 3, queue="q", type="report.generate")
    (line,) = printed.flushed()
    assert sorted(sets_of(line, name)) == sorted(list(names) for names in METRICS[name].dimension_sets)
    (directive,) = line["_aws"]["CloudWatchMetrics"]
    assert directive["Namespace"] == NAMESPACE
    assert directive["Metrics"] == [{"Name": name, "Unit": METRICS[name].unit}]
    assert (line[name], line["Service"], line["_aws"]["Timestamp"]) == (3, "S", NOW_MS)


def test_type_is_a_dimension_of_four_metrics_only_and_no_dimension_is_an_id() -> None:
    assert {name for name, metric in METRICS.items() if TYPE in metric.dimension_sets} == {
        "Succeeded", "Failed", "Retried", "Duration",
    }  # fmt: skip
    assert {names for metric in METRICS.values() for names in metric.dimension_sets} <= {SERVICE, QUEUE, TYPE}


def test_at_most_25_types_have_a_name_the_rest_are_other() -> None:
    types = [f"type-{number:03d}" for number in range(40)]
    printed = Printed(types=reversed(types))
    for name in [*types, "never-declared"]:
        printed.telemetry.measure("Succeeded", queue="q", type=name)
    lines = printed.flushed()
    assert {line["Type"] for line in lines} == {*types[:25], "other"}
    (other,) = [line for line in lines if line["Type"] == "other"]
    assert other["Succeeded"] == [1] * 16


def test_the_first_line_of_a_container_has_the_dimensions_of_the_hundredth() -> None:
    printed = Printed(types=["a"])
    for _ in range(100):
        printed.telemetry.measure("Failed", 1, queue="q", type="a")
        printed.telemetry.flush()
    lines = printed.lines
    assert len({json.dumps(line) for line in lines}) == 1
    assert len(lines) == 100


def test_an_array_has_at_most_a_hundred_values_and_none_is_lost() -> None:
    printed = Printed()
    for number in range(250):
        printed.telemetry.measure("QueueLatency", number, queue="q")
    printed.telemetry.measure("Claimed", 7, queue="q")
    lines = printed.flushed()
    assert [len(line["QueueLatency"]) for line in lines] == [EMF_VALUES, EMF_VALUES, 50]
    assert [value for line in lines for value in line["QueueLatency"]] == list(range(250))
    assert [line["Claimed"] for line in lines if "Claimed" in line] == [7]


def test_a_long_invocation_writes_its_metrics_out_on_the_way() -> None:
    printed = Printed()
    printed.telemetry.measure("QueueLatency", 1, queue="q")
    printed.telemetry.flush_old()
    assert printed.lines == []
    printed.now_ms += FLUSH_MS
    printed.telemetry.flush_old()
    assert [line["QueueLatency"] for line in printed.lines] == [1]


@pytest.mark.parametrize("value", [float("nan"), float("inf")])
def test_a_value_that_is_no_number_is_left_out(value: float) -> None:
    printed = Printed()
    printed.telemetry.measure("Duration", value, queue="q", type="a")
    assert printed.flushed() == []


def test_a_line_is_what_powertools_would_have_written() -> None:
    """The library everybody knows is the judge of the form. It writes every value as an array and every number as a
    float, which CloudWatch reads alike."""
    printed = Printed()
    for value in (1.5, 2.5):
        printed.telemetry.measure("Backlog", value, queue="q")
    (line,) = printed.flushed()
    judge = AmazonCloudWatchEMFProvider(namespace=NAMESPACE)
    judge.add_dimension("Service", "S")
    judge.add_dimension("Queue", "q")
    for value in (1.5, 2.5):
        judge.add_metric("Backlog", "Count", value)
    judged: dict[str, Any] = {**judge.serialize_metric_set()}
    judged["_aws"] = {**judged["_aws"], "Timestamp": NOW_MS}
    assert line == judged
