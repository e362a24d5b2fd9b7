"""The executor's side of a lease: one nonce, one line of renewals, and nothing starts that was not recorded."""

from __future__ import annotations

import pytest

from tests.support.fakes import FakeClock, FakeRandomness
from tests.support.leases import stored_lease
from tests.support.memory_dynamodb import Fault, MemoryDynamoDB
from tests.support.protocol import NOW
from thunderagent.errors import OutcomeUnknown
from thunderagent.held_lease import HeldLease
from thunderagent.model import LeaseToken, TaskId
from thunderagent.schema import Layout
from thunderagent.store import ATTEMPTS, Refused, Store

TOKEN = LeaseToken("x")


@pytest.fixture
def db() -> MemoryDynamoDB:
    db = MemoryDynamoDB()
    db.put(stored_lease(TOKEN))
    return db


@pytest.fixture
def clock() -> FakeClock:
    return FakeClock(NOW)


@pytest.fixture
def store(db: MemoryDynamoDB, clock: FakeClock) -> Store:
    return Store(table="tasks", send=db, clock=clock, randomness=FakeRandomness(), layout=Layout())


def begun(store: Store) -> HeldLease:
    lease = HeldLease.begin(store, TOKEN, lock_time=NOW + 100, seconds=60)
    assert isinstance(lease, HeldLease)
    return lease


def test_every_delivery_draws_a_nonce_of_its_own(store: Store) -> None:
    assert isinstance(HeldLease.begin(store, TOKEN, lock_time=NOW + 100, seconds=60), HeldLease)
    assert isinstance(HeldLease.begin(store, TOKEN, lock_time=NOW + 100, seconds=60), Refused)


def test_an_executor_that_is_behind_never_shortens_the_lease(store: Store, clock: FakeClock) -> None:
    clock.advance(-50)
    lease = begun(store)
    assert lease.lock_time == NOW + 100
    assert lease.renew()
    assert lease.lock_time == NOW + 100
    clock.advance(100)
    assert lease.renew()
    assert lease.lock_time == NOW + 110


def test_a_clock_set_back_after_a_lost_answer_does_not_cost_the_lease(
    db: MemoryDynamoDB, store: Store, clock: FakeClock
) -> None:
    lease = begun(store)
    clock.advance(80)
    db.inject(Fault.LOST_REPLY, where=lambda call: call.operation == "UpdateItem", times=ATTEMPTS)
    with pytest.raises(OutcomeUnknown):
        lease.renew()
    clock.advance(-70)
    assert lease.renew([TaskId("a")])
    assert not lease.lost
    stored = db.item("lease#x") or {}
    assert stored["lockTime"] == lease.lock_time >= NOW + 140
    assert stored["started"] == {"a"}


def test_a_closed_lease_is_lost_for_good(db: MemoryDynamoDB, store: Store, clock: FakeClock) -> None:
    lease = begun(store)
    db.put((db.item("lease#x") or {}) | {"closed": NOW, "lockTime": NOW + 500})
    before = db.raw("lease#x")
    assert not lease.renew([TaskId("a")])
    assert lease.lost
    db.put((db.item("lease#x") or {}) | {"touched": 1})
    assert not lease.renew()
    assert {**(before or {}), "touched": {"N": "1"}} == db.raw("lease#x")
