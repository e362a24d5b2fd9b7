"""TA-29: backoff never overflows, its cap is a cap, and its jitter is alive there."""

from __future__ import annotations

import statistics

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests.support.fakes import FakeRandomness
from thunderagent.clock import SystemRandomness
from thunderagent.errors import ConfigurationError
from thunderagent.retry import Backoff, delay_seconds

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
