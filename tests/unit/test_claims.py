"""The poller's side of a lease: the order of its writes, what a lost answer means, and how everything is taken back."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from typing import cast

import pytest

from tests.support.memory_dynamodb import Call, Fault
from tests.support.stores import LosesReplies, SendsTwice
from tests.support.world import LEASE_SECONDS, World, on_lease, to_status
from thunderagent.claims import TAKE_BACK_SECONDS, lease_seconds
from thunderagent.context import Context
from thunderagent.model import Task
from thunderagent.operations import Operations, Operator
from thunderagent.registry import TaskType, task
from thunderagent.settings import Executor
from thunderagent.store import ATTEMPTS


@pytest.fixture
def world() -> World:
    return World()


def is_claim(operation: str, arguments: object) -> bool:
    return operation == "UpdateItem" and "deferredFor" in str(arguments) and "leaseToken" in str(arguments)


def test_the_lease_exists_before_the_claims_and_the_claims_before_the_invoke(world: World) -> None:
    task_id = world.submit()
    world.db.calls.clear()
    world.sweep()
    opened, claimed = world.db.writes()
    assert on_lease("PutItem")(opened)
    assert claimed.item_ids == [task_id]
    (event,) = world.events
    (lease,) = world.leases()
    task = world.task(task_id)
    assert event == {
        "formatVersion": 1,
        "leaseToken": lease.token,
        "profile": "default",
        "lockTime": lease.lock_time,
        "leaseSeconds": LEASE_SECONDS,
        "taskIds": [task_id],
    }
    assert (task.lease_token, task.lock_time, task.fence) == (lease.token, lease.lock_time, 1)
    assert lease.lock_time == world.clock.now() + LEASE_SECONDS
    assert lease.task_ids == (task_id,)


def test_every_batch_has_a_token_of_its_own() -> None:
    world = World(batch=2)
    for _ in range(6):
        world.submit()
    world.sweep()
    assert len({event["leaseToken"] for event in world.events}) == 3
    world.answers = [False]
    assert len({lease.token for lease in world.leases()}) == 3


@pytest.mark.parametrize("loss", [LosesReplies, SendsTwice])
def test_a_claim_whose_reply_was_lost_is_dispatched_in_the_same_pass(world: World, loss: type) -> None:
    ids = [world.submit() for _ in range(3)]
    world.send = loss(world.db, where=is_claim)
    assert world.sweep(world.process("poller")) == 3
    assert sorted(world.events[0]["taskIds"]) == sorted(ids)
    assert {world.task(each).fence for each in ids} == {1}


def test_a_claim_that_stays_unknown_travels_and_one_that_surely_failed_does_not(world: World) -> None:
    ids = [world.submit() for _ in range(3)]
    for task_id, fault in zip(ids, (Fault.LOST_REPLY, Fault.LOST_REQUEST, Fault.THROTTLED), strict=True):
        world.db.inject(
            fault,
            where=lambda call, own=task_id: to_status("RUNNING")(call) and own in call.item_ids,
            times=ATTEMPTS,
        )
    world.sweep()
    assert sorted(world.events[0]["taskIds"]) == sorted(ids[:2])
    assert [world.status(each) for each in ids] == ["RUNNING", "PENDING", "PENDING"]
    assert {world.task(each).retry_count for each in ids} == {0}


def test_when_no_claim_was_won_the_lease_goes_and_nobody_is_invoked(world: World) -> None:
    task_id = world.submit()
    other = world.process("poller")
    world.db.before(on_lease("PutItem"), lambda: world.sweep(other))
    assert world.sweep() == 0
    assert len(world.leases()) == 1
    assert len(world.events) == 1
    assert world.notes.count("ClaimConflicts") == 1
    assert world.task(task_id).fence == 1


@pytest.mark.parametrize("fault", [Fault.LOST_REPLY, Fault.LOST_REQUEST, Fault.THROTTLED, Fault.REFUSED])
def test_a_lease_that_did_not_surely_open_is_abandoned(world: World, fault: Fault) -> None:
    task_id = world.submit()
    world.db.inject(fault, where=on_lease("PutItem"))
    assert world.sweep() == 0
    assert (world.status(task_id), world.events) == ("PENDING", [])
    assert [call for call in world.db.calls if to_status("RUNNING")(call)] == []


def test_the_answer_to_the_void_being_lost_changes_nothing(world: World) -> None:
    """Gone is gone: the release follows, at once."""
    task_id = world.submit()
    world.answers = [False]
    world.db.inject(Fault.LOST_REPLY, where=on_lease("DeleteItem"))
    world.sweep()
    assert world.status(task_id) == "PENDING"
    assert world.leases() == []


def test_the_answer_to_a_release_being_lost_changes_nothing(world: World) -> None:
    task_id = world.submit()
    world.answers = [False]
    world.db.inject(Fault.LOST_REPLY, where=to_status("PENDING"))
    world.sweep()
    assert (world.status(task_id), world.task(task_id).retry_count) == ("PENDING", 0)
    assert world.log("task.release_failed") == []


@pytest.mark.parametrize("write", [on_lease("DeleteItem"), to_status("PENDING")], ids=["void", "release"])
def test_what_could_not_be_sent_is_taken_back_although_the_table_is_throttled_for_a_while(
    world: World, write: Callable[[Call], bool]
) -> None:
    """Not left to the end of the lease, which would keep its place among the profile's until then."""
    task_id = world.submit()
    world.answers = [False]
    began = world.clock.now()
    world.db.inject(Fault.THROTTLED, where=lambda call: write(call) and world.clock.now() < began + 5, times=None)
    world.sweep()
    assert (world.status(task_id), world.leases()) == ("PENDING", [])
    assert world.log("lease.void_failed") == []
    assert world.log("task.release_failed") == []


def test_a_poller_does_not_wait_for_ever_to_take_something_back(world: World) -> None:
    world.submit()
    world.answers = [False]
    began = world.clock.now()
    world.db.inject(Fault.THROTTLED, where=on_lease("DeleteItem"), times=None)
    world.sweep()
    assert began + TAKE_BACK_SECONDS / 2 < world.clock.now() < began + TAKE_BACK_SECONDS + 2
    assert len(world.leases()) == 1
    assert len(world.log("lease.void_failed")) == 1


def test_a_release_that_never_gets_through_is_left_to_the_backstop(world: World) -> None:
    task_id = world.submit()
    world.answers = [False]
    world.db.inject(Fault.LOST_REQUEST, where=to_status("PENDING"), times=None)
    world.sweep()
    assert world.status(task_id) == "RUNNING"
    world.db.calm()
    world.lapse()
    world.reap()
    assert (world.status(task_id), world.task(task_id).retry_count) == ("PENDING", 0)


def test_a_release_comes_back_no_later_than_the_deadline(world: World) -> None:
    task_id = world.submit(start_within_seconds=1)
    world.answers = [False]
    world.sweep()
    task = world.task(task_id)
    assert task.due_at == task.deadline


def test_a_task_cancelled_before_its_release_ends_cancelled_and_its_dependents_hear_of_it(world: World) -> None:
    parent = world.submit()
    child = world.submit(depends_on=(parent,))
    operations = Operations(world.api.store, world.api.bodies, world.api.dependencies)
    world.answers = [False]
    world.db.before(on_lease("DeleteItem"), lambda: operations.cancel(parent, Operator("me")))
    world.sweep()
    assert (world.status(parent), world.item(parent)["outcome"]) == ("DONE", "cancelled")
    assert world.item(child)["error"]["reason"] == "dependency_failed"


def test_a_lease_is_as_long_as_the_shortest_its_tasks_ask_for(world: World) -> None:
    executor = Executor("default", "f", lease_seconds=300)
    plain = world.task(world.submit())
    short = Task.from_item(plain.item | {"leaseSeconds": 90})
    long = Task.from_item(plain.item | {"leaseSeconds": 900})
    assert lease_seconds([plain], executor) == 300
    assert lease_seconds([plain, short, long], executor) == 90
    assert lease_seconds([long, long], executor) == 900
    assert lease_seconds([plain, long], executor) == 300


@pytest.mark.parametrize("asked", [90, 600])
def test_the_lease_a_type_asks_for_holds_from_claim_to_end(asked: float) -> None:
    """Under a profile of 60 s: opened with it, begun with it, and renewed by it, whatever the executor's own is."""
    seen: list[float] = []

    @task("patient", lease=asked)
    def patient(payload: object, ctx: Context) -> None:
        seen.append(world.leases()[0].lock_time - world.clock.now())
        world.advance(asked * 0.5)
        ctx.heartbeat()
        seen.append(world.leases()[0].lock_time - world.clock.now())

    world = World(patient)
    declared = world.registry.types["patient"]
    cast(dict[str, TaskType], world.registry.types)["patient"] = replace(declared, lease_seconds=asked)
    world.submit("patient")
    world.sweep()
    assert world.leases()[0].lock_time - world.clock.now() == asked
    world.advance(10)
    world.deliver_all()
    assert seen == [asked, asked]
