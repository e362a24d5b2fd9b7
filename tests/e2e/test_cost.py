"""The bill of the running stack: what tasks consumed is stored by queue and type, and has a price."""

from __future__ import annotations

import time

from tests.support.local_stack import UpStack
from tests.support.stack_store import store_of
from thunderagent.cost import CostLine, CostReport, cost_report

PATIENCE_SECONDS = 60


def line_of(report: CostReport, type_name: str) -> CostLine | None:
    return next((line for line in report.lines if line.type == type_name), None)


def test_a_tasks_units_and_milliseconds_are_on_its_types_bill(own_stack: UpStack) -> None:
    tasks = [{"type": "demo.sleep", "payload": {"seconds": 0.2}} for _ in range(10)]
    assert own_stack.call("POST", "tasks/batch", {"tasks": tasks}).json["accepted"] == 10
    store, until = store_of(own_stack), time.monotonic() + PATIENCE_SECONDS
    while not ((line := line_of(report := cost_report(store, days=1), "demo.sleep")) and line.usage.tasks):
        assert time.monotonic() < until, "nothing was put on the bill"
        time.sleep(0.5)
    assert line.queue == "default"
    assert line.usage.write_units > line.usage.tasks, "more than one write each"
    assert line.usage.milliseconds >= 200
    assert line.dollars_per_million is not None
    assert report.prices.region == "us-east-1"
