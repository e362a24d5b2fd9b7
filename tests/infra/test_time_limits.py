"""Inequalities between the timeouts: each one is what keeps one part from outliving its right to act."""

from __future__ import annotations

import pytest

from infra.config import ExecutorProfile, PollSettings, load_config, read_context
from infra.constructs.executor import event_age_seconds
from infra.constructs.poller import poller_timeout_seconds
from tests.infra.templates import Synthesised, functions, of_type, properties
from thunderagent import schema

SCHEDULE_SECONDS = 60
API_GATEWAY_SECONDS = 30
LAMBDA_SECONDS = 900


def variables(synthesised: Synthesised, name: str) -> dict[str, str]:
    result: dict[str, str] = functions(synthesised.service)[name]["Environment"]["Variables"]
    return result


def timeout(synthesised: Synthesised, name: str) -> int:
    seconds: int = functions(synthesised.service)[name]["Timeout"]
    return seconds


def test_the_poller_outlives_its_window_and_not_the_minute_after(synthesised: Synthesised) -> None:
    poller = variables(synthesised, "poller")
    looping = float(poller["POLL_START_JITTER_SECONDS"]) + float(poller["POLL_WINDOW_SECONDS"])
    assert looping <= SCHEDULE_SECONDS
    assert looping + 10 <= timeout(synthesised, "poller") < 2 * SCHEDULE_SECONDS


@pytest.mark.parametrize(("window", "jitter"), [(0, 0), (0, 3), (50, 3), (59.5, 0.5), (30, 30)])
def test_the_pollers_timeout_follows_its_window(window: float, jitter: float) -> None:
    poll = PollSettings(window_seconds=window, start_jitter_seconds=jitter)
    assert window + jitter < poller_timeout_seconds(poll) < 2 * SCHEDULE_SECONDS


def test_the_poller_pauses_within_its_window(synthesised: Synthesised) -> None:
    poller = variables(synthesised, "poller")
    assert float(poller["POLL_BUSY_SECONDS"]) <= float(poller["POLL_IDLE_SECONDS"])
    assert float(poller["POLL_IDLE_SECONDS"]) < float(poller["POLL_WINDOW_SECONDS"])


def test_a_poller_ends_before_a_lease_it_opened_last_could_be_closed(synthesised: Synthesised) -> None:
    """It claims while the lease is well ahead of its clock, and at its timeout it is gone."""
    lease = float(variables(synthesised, "executor")["LEASE_SECONDS"])
    assert timeout(synthesised, "poller") < lease


def test_the_api_answers_before_the_gateway_gives_up(synthesised: Synthesised) -> None:
    (integration,) = properties(synthesised.service, "AWS::ApiGatewayV2::Integration")
    gateway_seconds = integration["TimeoutInMillis"] / 1000
    assert timeout(synthesised, "api") < gateway_seconds < API_GATEWAY_SECONDS


def test_reapers_overlap_at_most_once(synthesised: Synthesised) -> None:
    assert timeout(synthesised, "reaper") <= SCHEDULE_SECONDS


def test_an_executor_has_time_for_a_task_of_the_longest_default(synthesised: Synthesised) -> None:
    seconds = timeout(synthesised, "executor")
    assert schema.DEFAULT_TIMEOUT_SECONDS + schema.EXECUTOR_MARGIN_SECONDS <= seconds <= LAMBDA_SECONDS


@pytest.mark.parametrize("environment", ["local", "dev", "prod"])
def test_a_lease_is_longer_than_grace_and_two_heartbeats(environment: str) -> None:
    config = load_config(read_context(), environment)
    for profile in config.executors:
        heartbeat = profile.lease_seconds / 5
        assert config.lease_grace_seconds + 2 * heartbeat < profile.lease_seconds


@pytest.mark.parametrize(
    ("lease", "of_types", "age"), [(300, [], 300), (300, [120, 600], 120), (300, [20], 60), (60, [], 60)]
)
def test_an_event_never_outlives_its_lease(lease: int, of_types: list[int], age: int) -> None:
    """Below 60 s Lambda has no maximum age: such an event is refused at begin."""
    assert event_age_seconds(ExecutorProfile(name="default", lease_seconds=lease), of_types) == age


def test_what_was_not_delivered_is_kept_longer_than_a_long_weekend(synthesised: Synthesised) -> None:
    for queue in of_type(synthesised.service, "AWS::SQS::Queue").values():
        assert queue["Properties"]["MessageRetentionPeriod"] >= 4 * schema.DAY_SECONDS
