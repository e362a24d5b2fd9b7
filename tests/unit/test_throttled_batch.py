"""A batch whose store is throttled, or does not answer, for longer than the store itself tries: it goes on as soon as
it can, and nothing of it idles until its lease ends."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest

from tests.support.batches import START, TOKEN, Bench
from tests.support.memory_dynamodb import Call, Fault
from thunderagent import expressions
from thunderagent.context import Context
from thunderagent.errors import StoreRefused
from thunderagent.held_lease import HeldLease
from thunderagent.registry import task
from thunderagent.runner import LAST_SECONDS
from thunderagent.schema import lease_id
from thunderagent.store import ATTEMPTS, Written

LEASE_SECONDS = 60
LONGEST_TRY_SECONDS = 2  # of the store's own tries together


def begins(call: Call) -> bool:
    return "begun" in call.sets


def settles(call: Call) -> bool:
    return call.operation == "DeleteItem" and call.item_ids == [lease_id(TOKEN)]


def reads(call: Call) -> bool:
    return call.operation == "BatchGetItem"


@task("demo")
def echo(payload: Any, ctx: Context) -> Any:
    return payload


@pytest.fixture
def bench() -> Bench:
    bench = Bench(echo, lease_seconds=LEASE_SECONDS)
    bench.claim()
    return bench


def throttle(bench: Bench, which: Callable[[Call], bool], *, seconds: float) -> None:
    until = bench.clock.now() + seconds
    bench.db.inject(Fault.THROTTLED, where=lambda call: which(call) and bench.clock.now() < until, times=None)


def between_tries(bench: Bench, action: Callable[[], None]) -> None:
    """Runs it once, while the runner waits to begin again (the store's own waits are shorter)."""

    def slept(seconds: float) -> None:
        if "batch.begin_again" in bench.seen.names():
            bench.clock.on_sleep = None
            action()

    bench.clock.on_sleep = slept


def begin_elsewhere(bench: Bench) -> HeldLease:
    lease = HeldLease.begin(bench.store, TOKEN, lock_time=START + LEASE_SECONDS, seconds=LEASE_SECONDS)
    assert isinstance(lease, HeldLease)
    return lease


def begins_sent(bench: Bench) -> list[Call]:
    return [call for call in bench.db.calls if begins(call)]


# ---- begin ----------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("seconds", [3, 12, 40])
def test_a_begin_that_is_throttled_is_made_soon_after(bench: Bench, seconds: float) -> None:
    batch = bench.open_lease()
    throttle(bench, begins, seconds=seconds)
    summary = bench.run(batch)
    assert summary.ends == {"succeeded": 1}
    assert summary.settled
    assert START + seconds <= bench.clock.now() <= START + seconds + 10 + LONGEST_TRY_SECONDS
    assert "batch.begin_failed" not in bench.seen.names()
    assert dict(bench.seen.events)["batch.begin_again"] == {
        "level": "WARNING",
        "code": "ProvisionedThroughputExceededException",
        "tasks": 1,
    }


def test_all_tries_of_one_delivery_carry_one_nonce_and_two_deliveries_two(bench: Bench) -> None:
    batch = bench.open_lease()
    throttle(bench, begins, seconds=10)
    bench.run(batch)
    nonces = {call.sets["begun"] for call in begins_sent(bench)}
    assert len(begins_sent(bench)) > ATTEMPTS
    assert len(nonces) == 1
    bench.db.calls.clear()
    bench.run(batch)
    assert begins_sent(bench)[0].sets["begun"] not in nonces


def test_a_begin_that_was_applied_its_answer_lost_is_known_as_ours_when_it_is_made_again(bench: Bench) -> None:
    batch = bench.open_lease()
    bench.db.inject(Fault.LOST_REPLY, where=begins)
    bench.db.inject(Fault.THROTTLED, where=begins, times=2 * ATTEMPTS)
    summary = bench.run(batch)
    assert summary.ends == {"succeeded": 1}
    assert summary.settled
    assert len(begins_sent(bench)) == 1 + 2 * ATTEMPTS + 1


@pytest.mark.parametrize("jump", [-30, 0, 500])
def test_what_an_applied_begin_has_raised_the_lease_to_is_known_whatever_the_clock_says_since(
    bench: Bench, jump: float
) -> None:
    bench.open_lease()
    bench.db.inject(Fault.LOST_REPLY, where=begins)
    bench.db.inject(Fault.THROTTLED, where=begins, times=ATTEMPTS)

    def jumped(error: object) -> None:
        bench.clock.advance(jump)

    lease = HeldLease.begin(bench.store, TOKEN, lock_time=START + 60, seconds=60, on_failure=jumped)
    assert isinstance(lease, HeldLease)
    assert bench.lease is not None
    assert lease.lock_time == bench.lease["lockTime"] >= START + 60


def test_an_executor_that_is_beaten_between_two_tries_runs_nothing(bench: Bench) -> None:
    batch = bench.open_lease()
    throttle(bench, begins, seconds=5)
    others: list[HeldLease] = []

    def win() -> None:
        bench.db.calm()
        others.append(begin_elsewhere(bench))

    between_tries(bench, win)
    before = bench.db.raw("t1")
    summary = bench.run(batch)
    assert others
    assert not summary.begun
    assert dict(bench.seen.events)["batch.not_begun"]["reason"] == "other"
    assert bench.db.raw("t1") == before
    assert others[0].renew()


@pytest.mark.parametrize("ending", ["closed", "gone", "past"])
def test_a_lease_that_ends_between_two_tries_is_not_begun(bench: Bench, ending: str) -> None:
    batch = bench.open_lease()
    throttle(bench, begins, seconds=5)

    def end() -> None:
        bench.db.calm()
        if ending == "closed":
            bench.close_lease()
        elif ending == "gone":
            assert isinstance(bench.store.apply(expressions.void(TOKEN)), Written)
        else:
            bench.clock.advance(LEASE_SECONDS)

    between_tries(bench, end)
    assert not bench.run(batch).begun
    assert "batch.not_begun" in bench.seen.names()
    assert bench.item()["status"] == "RUNNING"
    assert "begun" not in (bench.lease or {})


def test_it_gives_up_when_the_lease_is_about_to_end_and_says_so(bench: Bench) -> None:
    batch = bench.open_lease()
    bench.db.inject(Fault.THROTTLED, where=begins, times=None)
    summary = bench.run(batch)
    assert not summary.begun
    assert START + LEASE_SECONDS / 2 < bench.clock.now() < START + LEASE_SECONDS
    assert bench.seen.names().count("batch.begin_failed") == 1
    assert bench.seen.names()[-1] == "batch.begin_failed"
    assert {tuple(call.item_ids) for call in bench.db.calls} == {(lease_id(TOKEN),)}


def test_it_gives_up_while_the_invocation_could_still_hand_its_tasks_back(bench: Bench) -> None:
    batch = bench.open_lease()
    bench.db.inject(Fault.THROTTLED, where=begins, times=None)
    bench.run(batch, remaining=30)
    assert START + 10 < bench.clock.now() <= START + 30 - LAST_SECONDS
    assert bench.seen.names()[-1] == "batch.begin_failed"


def test_tasks_for_which_it_has_become_too_late_are_handed_back(bench: Bench) -> None:
    batch = bench.open_lease()
    throttle(bench, begins, seconds=15)
    summary = bench.run(batch, remaining=50)  # a task may take 30 s
    assert summary.ends == {"released": 1}
    assert summary.settled
    assert (bench.item()["status"], bench.item()["retryCount"]) == ("PENDING", 0)


def test_a_begin_that_is_refused_as_a_request_is_not_made_again(bench: Bench) -> None:
    batch = bench.open_lease()
    bench.db.inject(StoreRefused("UpdateItem", "AccessDeniedException"), where=begins, times=None)
    assert not bench.run(batch).begun
    assert len(bench.db.calls) == 1
    assert bench.seen.names() == ["batch.begin_failed"]


# ---- what comes after it --------------------------------------------------------------------------------------------


def test_a_look_at_begin_that_is_throttled_is_made_soon_after_and_its_tasks_run(bench: Bench) -> None:
    batch = bench.open_lease()
    throttle(bench, reads, seconds=20)
    summary = bench.run(batch)
    assert summary.ends == {"succeeded": 1}
    assert summary.settled
    assert bench.clock.now() < START + 20 + 10 + LONGEST_TRY_SECONDS


def test_a_look_at_begin_that_is_never_answered_leaves_the_lease_to_the_reaper(bench: Bench) -> None:
    batch = bench.open_lease()
    bench.db.inject(Fault.THROTTLED, where=reads, times=None)
    summary = bench.run(batch)
    assert summary.begun
    assert not summary.settled
    assert not summary.ends
    assert bench.lease is not None
    assert bench.clock.now() < bench.lease["lockTime"]


def test_a_settle_that_is_throttled_does_not_leave_its_place_taken(bench: Bench) -> None:
    batch = bench.open_lease()
    throttle(bench, settles, seconds=20)
    assert bench.run(batch).settled
    assert bench.lease is None


def test_a_settle_that_is_never_answered_is_left_to_the_reaper_in_time(bench: Bench) -> None:
    batch = bench.open_lease()
    bench.db.inject(Fault.THROTTLED, where=settles, times=None)
    summary = bench.run(batch, remaining=30)
    assert not summary.settled
    assert "batch.settle_failed" in bench.seen.names()
    assert bench.clock.now() < START + 30
