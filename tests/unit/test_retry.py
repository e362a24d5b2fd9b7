"""TA-29: backoff never overflows, its cap is a cap, and its jitter is alive there."""

from __future__ import annotations

import statistics
from dataclasses import replace
from typing import cast

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests.support.fakes import FakeRandomness
from tests.support.world import GRACE_SECONDS, LEASE_SECONDS, Died, World, die, on_lease
from thunderagent.clock import SystemRandomness
from thunderagent.errors import ConfigurationError
from thunderagent.registry import TaskType, task
from thunderagent.retry import Backoff, can_start, delay_seconds

MOST = FakeRandomness(fraction=1)


@pytest.mark.parametrize(
    ("retries", "ceiling"), [(0, 1), (1, 2), (3, 8), (8, 256), (9, 300), (64, 300), (1_100, 300), (100_000, 300)]
)
def test_ta29_the_ceiling_doubles_up_to_the_cap(retries: int, ceiling: float) -> None:
    assert Backoff(base=1, factor=2, cap=300).ceiling(retries) == ceiling


@pytest.mark.parametrize("retries", [0, 1, 10, 64, 1_100, 100_000, 10**400])
@pytest.mark.parametrize("backoff", [Backoff(), Backoff(1, 1e9, 300), Backoff(0, 2, 300), Backoff(5, 1, 300)])
def test_ta29_no_attempt_number_and_no_setting_raises(backoff: Backoff, retries: int) -> None:
    assert 0 <= delay_seconds(backoff, retries, MOST) <= backoff.cap


@given(
    base=st.one_of(st.just(0), st.floats(0.001, 1e14)),
    factor=st.floats(1, 1e14),
    cap=st.floats(0, 31_536_000),
    retries=st.integers(0, 10**6),
)
def test_ta29_a_delay_stays_within_its_bounds(base: float, factor: float, cap: float, retries: int) -> None:
    backoff = Backoff(base, factor, cap)
    delay = delay_seconds(backoff, retries, MOST)
    assert 0 <= delay <= cap
    if retries == 0:
        assert delay == min(base, cap)


def test_ta29_jitter_is_alive_at_the_cap() -> None:
    randomness = SystemRandomness()
    samples = [delay_seconds(Backoff(), 100, randomness) for _ in range(1000)]
    assert all(0 <= sample <= 300 for sample in samples)
    assert statistics.pstdev(samples) > 50  # of a uniform draw from 0 to 300: 86.6
    assert min(samples) < 60
    assert max(samples) > 240


def test_a_base_of_zero_retries_at_once() -> None:
    assert delay_seconds(Backoff(base=0), 1_000, MOST) == 0


@pytest.mark.parametrize(
    "values",
    [
        {"base": -1},
        {"base": 1e-9},
        {"factor": 0.5},
        {"cap": -1},
        {"cap": 1e9},
        {"base": float("nan")},
        {"cap": float("inf")},
        {"factor": 10**400},
        {"base": True},
        {"cap": "300"},
    ],
)
def test_ta29_invalid_settings_are_refused(values: dict[str, float]) -> None:
    with pytest.raises(ConfigurationError, match=f"backoff {next(iter(values))}"):
        Backoff(**values)


def test_it_comes_back_from_its_map() -> None:
    assert Backoff.from_map(Backoff(2, 3, 4).as_map()) == Backoff(2, 3, 4)
    assert Backoff.from_map({}) == Backoff()


# ---- deadlines ------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(("deadline", "status"), [(0.0, "FAILED"), (0.001, "PENDING")])
@pytest.mark.parametrize("lost", [False, True], ids=["raised", "worker lost"])
def test_a_retry_due_at_its_deadline_is_failed_by_executor_and_reaper_alike(
    lost: bool, deadline: float, status: str
) -> None:
    """No claim would take it: a claim needs the deadline ahead. `deadline` counts from the retry's due time."""

    @task("flaky", backoff=Backoff(base=8))
    def flaky(payload: object, ctx: object) -> None:
        raise Died if lost else ValueError("no")

    world = World(flaky)
    cast(dict[str, TaskType], world.registry.types)["flaky"] = replace(
        world.registry.types["flaky"], backoff=Backoff(base=8)
    )
    task_id = world.submit("flaky")
    world.sweep()
    if lost:
        world.db.after(on_lease("UpdateItem", setting="started"), die)
    end = world.clock.now() + (LEASE_SECONDS + GRACE_SECONDS + 1 if lost else 0)
    world.db.put({**world.item(task_id), "deadline": round(end + 4 + deadline, 3)})
    world.deliver_all()
    if lost:
        world.lapse()
        world.reap()
    assert world.status(task_id) == status


@pytest.mark.parametrize(("deadline", "may"), [(None, True), (9.999, False), (10.0, False), (10.001, True)])
def test_what_is_due_at_its_deadline_can_never_start(deadline: float | None, may: bool) -> None:
    assert can_start(10.0, deadline) is may
