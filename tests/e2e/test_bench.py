"""The benches that compare, in small: they run, and what they meter is what the design says."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from bench import cost_per_task, throughput
from bench.arena import Arena, arena


@pytest.fixture(scope="module")
def place(deployed: Path) -> Iterator[Arena]:
    with arena(deployed) as up:
        yield up


def test_a_backlog_is_worked_off_by_ours_and_by_the_queue(place: Arena) -> None:
    ours = throughput.drain_ours(place, 10).figures()
    queue = throughput.drain_queue(place, place.queue, 10).figures()
    assert (ours["tasks"], queue["tasks"]) == (10, 10)
    assert queue["callsPerTask"] == {"UpdateItem": 2}
    assert ours["callsPerTask"]["UpdateItem"] >= 2
    assert ours["writeUnitsPerTask"] > queue["writeUnitsPerTask"]


def test_tasks_cost_what_they_are_said_to(place: Arena) -> None:
    """Listed ends: 6 write units, and 6 for the batch of ten; the queue's three rows; the index of all attributes."""
    cost_per_task.prepare(place)
    found = cost_per_task.side_by_side(place, cost_per_task.Case("small", 200, 10), 10)
    assert {name: each["writeUnits"] for name, each in found.items()} == {
        "ours": 6.6,
        "sqsLambda": 3,
        "seedAgent": 8,
    }
    assert found["sqsLambda"]["queueRequests"] == 1.2
    assert (found["sqsLambda"]["databaseCalls"], found["seedAgent"]["databaseCalls"]) == (3, 3.2)
