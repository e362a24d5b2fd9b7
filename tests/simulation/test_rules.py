"""What the rules make of a handler that starts again."""

from __future__ import annotations

from collections.abc import Callable

import pytest

from tests.simulation.kernel import Actor, Kernel, Process
from tests.simulation.premise_rules import PremiseRules
from tests.simulation.rules import Rules
from tests.simulation.table import SimulatedTable
from tests.simulation.weather import LEASE_SECONDS, Weather

TASK = {"maxRetryNumber": 3, "dependsOn": []}


@pytest.fixture
def kernel() -> Kernel:
    return Kernel(1)


def _start(kernel: Kernel, rules: Rules, process: Process, token: str, fence: int) -> None:
    kernel.current = Actor(kernel, process, "executor", lambda: None)
    rules.recorded_at["t", token] = kernel.now
    rules.handler_starts("t", token, fence, TASK)


def _started_again(kernel: Kernel, fault: Callable[[Process], None], *, weather: Weather) -> Rules:
    """By another process, after something has happened to the first (which met a fault long ago, too)."""
    rules = Rules(kernel, SimulatedTable(kernel, weather), lambda: weather)
    first, second = Process(kernel, "executor1"), Process(kernel, "executor2")
    first.touch()
    kernel.now += 10 * LEASE_SECONDS
    _start(kernel, rules, first, "one", 1)
    kernel.now += 1
    fault(first)
    kernel.now += 2 * LEASE_SECONDS
    _start(kernel, rules, second, "two", 2)
    return rules


def test_a_start_that_no_fault_explains_breaks_a_rule(kernel: Kernel) -> None:
    rules = _started_again(kernel, lambda process: None, weather=Weather())
    assert (rules.repeats, rules.unexplained) == (1, 1)
    assert str(kernel.broken) == "t: started again, and no fault made it necessary"


@pytest.mark.parametrize(
    "fault",
    [
        lambda process: process.touch(),
        lambda process: process.kernel.kill(process, "struck"),
        lambda process: process.kernel.freeze(process, 5),
    ],
    ids=["touched", "killed", "frozen"],
)
def test_a_fault_of_the_holder_before_explains_it(kernel: Kernel, fault: Callable[[Process], None]) -> None:
    rules = _started_again(kernel, fault, weather=Weather(crash=0.1))
    assert (rules.repeats, rules.unexplained, kernel.broken) == (1, 0, None)


def test_with_wild_clocks_anything_may_happen_again(kernel: Kernel) -> None:
    rules = _started_again(kernel, lambda process: None, weather=Weather(skew_seconds=60, skew_is_wild=True))
    assert (rules.repeats, rules.unexplained, kernel.broken) == (1, 0, None)


@pytest.mark.parametrize("late", [True, False])
def test_a_start_counts_for_the_life_it_was_recorded_in(kernel: Kernel, late: bool) -> None:
    """Its holder froze after the record, the task was buried and redriven: the new budget is whole all the same."""
    weather = Weather()
    rules = Rules(kernel, SimulatedTable(kernel, weather), lambda: weather)
    frozen, other = Process(kernel, "executor1"), Process(kernel, "executor2")
    frozen.touch()
    task = {"maxRetryNumber": 0, "dependsOn": []}
    if late:
        rules._recorded("t", "one", {})
        kernel.broken = None
    rules.life["t"] += 1
    for process, token, fence in ((frozen, "one", 1), (other, "two", 3)):
        kernel.current = Actor(kernel, process, "executor", lambda: None)
        rules.recorded_at["t", token] = kernel.now
        rules.handler_starts("t", token, fence, task)
    assert (str(kernel.broken) == "t: 2 starts, 0 retries allowed") is not late


@pytest.mark.parametrize("was_fast", [True, False])
def test_a_lease_is_closed_by_the_clock_that_was_read(kernel: Kernel, was_fast: bool) -> None:
    """The reaper's clock is set right while its write is on the way."""
    weather = Weather(skew_is_wild=True)
    rules = Rules(kernel, SimulatedTable(kernel, weather), lambda: weather)
    reaper = Process(kernel, "reaper", offset=20 if was_fast else 0)
    rules.doer = reaper
    reaper.set_clock(0)
    rules._lease_closed("one", {"lockTime": kernel.now + 10, "closed": kernel.now + 20, "taskIds": []})
    assert (kernel.broken is None) is was_fast


@pytest.mark.parametrize("late", [True, False])
def test_no_slot_waits_for_a_claim_that_was_under_way_for_very_long(kernel: Kernel, late: bool) -> None:
    told: list[str] = []
    running = {"status": "RUNNING", "leaseToken": "one"}
    rules = PremiseRules(item=lambda task_id: running, violate=told.append)
    rules.on_slot("slot#q##0", {"holder": "t", "leaseToken": "one"}, came_late=late)
    assert told == ([] if late else ["slot#q##0: given away, and t runs in it"])


def test_a_cancel_is_of_the_task_that_was_there(kernel: Kernel) -> None:
    """Cancelled, erased, and a late repetition of its submit makes another one of that id."""
    weather = Weather()
    rules = Rules(kernel, SimulatedTable(kernel, weather), lambda: weather)
    rules.cancelled_at["t"] = kernel.now
    rules._check_cancel("t", None, {"status": "PENDING"})
    assert str(kernel.broken) == "t: PENDING after a cancel"

    kernel.broken = None
    rules._task_changed("t", {"status": "DONE", "outcome": "cancelled"}, None)
    rules._check_cancel("t", None, {"status": "PENDING"})
    assert kernel.broken is None
