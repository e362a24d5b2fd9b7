"""Every step of a lease against every state of it, over every store (ARCHITECTURE §3)."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace

import pytest

from tests.support.leases import MINE, STATES, stored_lease
from tests.support.protocol import NOW
from tests.support.stores import Backend
from thunderagent import expressions
from thunderagent.codec import Item
from thunderagent.conditions import Write
from thunderagent.model import Lease, LeaseToken, TaskId
from thunderagent.store import Refusal, Refused, Written

NewId = Callable[[], str]
LATER = NOW + 300


@dataclass(frozen=True)
class Step:
    """`allowed` in these states; it sets `sets`, or deletes the lease."""

    write: Callable[[Item], Write]
    allowed: frozenset[str]
    sets: frozenset[str] = frozenset()
    deletes: bool = False


def token_of(item: Item) -> LeaseToken:
    return LeaseToken(item["taskId"].removeprefix("lease#"))


OPENED = {"open", "past"}
MINE_OPEN = {"begun by me", "begun by me, past"}
NOT_CLOSED = OPENED | MINE_OPEN | {"begun by another"}

STEPS: dict[str, Step] = {
    "open": Step(
        lambda item: expressions.open_lease(
            token_of(item), profile="default", task_ids=[TaskId("a")], lock_time=LATER, now=NOW
        ),
        frozenset(),
    ),
    "begin": Step(
        lambda item: expressions.begin(token_of(item), nonce=MINE, lock_time=LATER, now=NOW),
        frozenset({"open", "begun by me"}),
        frozenset({"begun", "lockTime"}),
    ),
    "heartbeat": Step(
        lambda item: expressions.heartbeat(token_of(item), nonce=MINE, lock_time=LATER),
        frozenset(MINE_OPEN),
        frozenset({"lockTime"}),
    ),
    "start": Step(
        lambda item: expressions.heartbeat(token_of(item), nonce=MINE, lock_time=LATER, starting=[TaskId("a")]),
        frozenset(MINE_OPEN),
        frozenset({"lockTime", "started"}),
    ),
    "settle": Step(lambda item: expressions.settle(token_of(item), nonce=MINE), frozenset(MINE_OPEN), deletes=True),
    "void": Step(lambda item: expressions.void(token_of(item)), frozenset(OPENED), deletes=True),
    "close": Step(
        lambda item: expressions.close(Lease.salvaged(item), now=NOW),
        frozenset(NOT_CLOSED),
        frozenset({"closed"}),
    ),
    "move": Step(
        lambda item: expressions.move_lease(Lease.salvaged(item)), frozenset(NOT_CLOSED), frozenset({"dueAt"})
    ),
    "repair": Step(
        lambda item: expressions.repair_lease(item, lock_time=LATER),
        frozenset(NOT_CLOSED),
        frozenset({"lockTime", "dueAt"}),
    ),
    "bury": Step(
        lambda item: expressions.bury_lease(token_of(item)),
        frozenset({"closed", "closed by a clock ahead", "begun by me, closed"}),
        deletes=True,
    ),
    "tell": Step(
        lambda item: expressions.tell_lease(token_of(item), TaskId("a")),
        frozenset(STATES),
        frozenset({"cancelled"}),
    ),
}
REPEATS_QUIETLY = {  # what it wants is so already
    ("close", "closed"),
    ("close", "closed by a clock ahead"),
    ("close", "begun by me, closed"),
    ("begin", "begun by me, past"),
}


@pytest.mark.parametrize("state", STATES)
@pytest.mark.parametrize("name", STEPS)
def test_a_step_happens_in_its_states_and_nowhere_else(name: str, state: str, backend: Backend, new_id: NewId) -> None:
    step, item = STEPS[name], stored_lease(new_id(), **STATES[state])
    backend.put(item)
    before = backend.raw(item["taskId"]) or {}
    answer = backend.store().apply(step.write(item))
    after = backend.raw(item["taskId"])
    if state not in step.allowed:
        assert after == before
        assert isinstance(answer, Written if (name, state) in REPEATS_QUIETLY else Refused)
        return
    assert isinstance(answer, Written)
    if step.deletes:
        assert after is None
        return
    assert after is not None
    assert {key for key in before.keys() | after.keys() if before.get(key) != after.get(key)} | {"begun"} == {
        *step.sets,
        "begun",
    }


@pytest.mark.parametrize("name", sorted(STEPS.keys() - {"open"}))
def test_no_step_recreates_a_lease_that_is_gone(name: str, backend: Backend, new_id: NewId) -> None:
    item = stored_lease(new_id(), **STATES["begun by me"])
    assert backend.store().apply(STEPS[name].write(item)) == Refused(Refusal.GONE)
    assert backend.raw(item["taskId"]) is None


def test_open_writes_a_lease_whose_end_is_the_reapers(backend: Backend, new_id: NewId) -> None:
    token = LeaseToken(new_id())
    write = expressions.open_lease(
        token, profile="default", task_ids=[TaskId("a"), TaskId("b")], lock_time=LATER, now=NOW
    )
    assert isinstance(backend.store().apply(write, once=True), Written)
    item = backend.item(f"lease#{token}") or {}
    assert "expiresAt" not in item
    lease = Lease.from_item(item)
    assert (lease.task_ids, lease.lock_time, lease.due_at) == (("a", "b"), LATER, LATER)
    assert (lease.begun, lease.closed, lease.started) == (None, False, frozenset())


@pytest.mark.parametrize("name", ["close", "move"])
def test_a_renewal_in_between_wins(name: str, backend: Backend, new_id: NewId) -> None:
    """The lockTime as seen: an old page of the reaper's cannot take a lease that was renewed since."""
    item = stored_lease(new_id(), begun=MINE, lockTime=NOW + 90)
    backend.put(item)
    before = backend.raw(item["taskId"])
    seen = replace(Lease.salvaged(item), lock_time=NOW - 10)
    write = expressions.close(seen, now=NOW) if name == "close" else expressions.move_lease(seen)
    assert isinstance(backend.store().apply(write), Refused)
    assert backend.raw(item["taskId"]) == before


def test_started_only_grows(backend: Backend, new_id: NewId) -> None:
    token = LeaseToken(new_id())
    backend.put(stored_lease(token, begun=MINE))
    store = backend.store()
    for starting in (["a"], [], ["b", "a"]):
        ids = [TaskId(task_id) for task_id in starting]
        store.apply(expressions.heartbeat(token, nonce=MINE, lock_time=LATER, starting=ids))
    lease = store.get_lease(token)
    assert lease is not None
    assert lease.started == {"a", "b"}


@pytest.mark.parametrize("starting", [[], ["b"]], ids=["renewal", "start"])
def test_a_late_copy_of_an_earlier_renewal_cannot_shorten_the_lease(
    starting: list[str], backend: Backend, new_id: NewId
) -> None:
    token = LeaseToken(new_id())
    backend.put(stored_lease(token, begun=MINE, lockTime=LATER, started=frozenset({"a"})))
    before = backend.raw(f"lease#{token}")
    ids = [TaskId(task_id) for task_id in starting]
    backend.store().apply(expressions.heartbeat(token, nonce=MINE, lock_time=LATER - 60, starting=ids))
    backend.store().apply(expressions.begin(token, nonce=MINE, lock_time=LATER - 90, now=NOW))
    assert backend.raw(f"lease#{token}") == before


def test_a_renewal_gives_a_damaged_lease_its_lock_back(backend: Backend, new_id: NewId) -> None:
    token = LeaseToken(new_id())
    backend.put(stored_lease(token, begun=MINE, lockTime=None))
    assert isinstance(backend.store().apply(expressions.heartbeat(token, nonce=MINE, lock_time=LATER)), Written)
    lease = backend.store().get_lease(token)
    assert lease is not None
    assert lease.lock_time == LATER


def test_a_heartbeat_brings_cancel_requests(backend: Backend, new_id: NewId) -> None:
    token = LeaseToken(new_id())
    backend.put(stored_lease(token, begun=MINE))
    store = backend.store()
    store.apply(expressions.tell_lease(token, TaskId("a")))
    store.apply(expressions.tell_lease(token, TaskId("b")))
    answer = store.apply(expressions.heartbeat(token, nonce=MINE, lock_time=LATER))
    assert isinstance(answer, Written)
    assert Lease.from_item(answer.item or {}).cancelled == {"a", "b"}
