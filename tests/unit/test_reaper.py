"""The reaper: what it takes back, what it leaves, what it reports, and that nothing hides from it."""

from __future__ import annotations

import random
from contextlib import suppress
from typing import Any

import pytest

from tests.support.memory_dynamodb import Fault
from tests.support.protocol import stored_task
from tests.support.world import GRACE_SECONDS, LEASE_SECONDS, Died, World, die, on_lease, to_status
from thunderagent import task
from thunderagent.held_lease import HeldLease
from thunderagent.model import LeaseToken, Task
from thunderagent.states import Status

ran: list[str] = []


@task("note")
def note(payload: Any, ctx: Any) -> str:
    ran.append(ctx.task_id)
    return "done"


@pytest.fixture(autouse=True)
def _nothing_ran() -> None:
    ran.clear()


@pytest.fixture
def world() -> World:
    return World(note)


def begin(world: World, event: dict[str, Any]) -> HeldLease:
    store = world.process("executor").store
    token = LeaseToken(event["leaseToken"])
    lease = HeldLease.begin(store, token, lock_time=event["lockTime"], seconds=LEASE_SECONDS)
    assert isinstance(lease, HeldLease)
    return lease


def lose_worker(world: World) -> None:
    """The next event's executor dies while its tasks run."""
    world.db.before(to_status("SUCCESS"), die)
    with suppress(Died):
        world.deliver()
    world.db.calm()


def test_nothing_is_taken_while_leases_live(world: World) -> None:
    ids = [world.submit("note") for _ in range(3)]
    world.sweep()
    world.advance(LEASE_SECONDS + GRACE_SECONDS)
    before = {each: world.db.raw(each) for each in ids}
    taken = world.reap()
    assert (taken.leases, taken.charged, taken.returned) == (0, 0, 0)
    assert {each: world.db.raw(each) for each in ids} == before


def test_a_charged_task_waits_for_its_backoff_and_keeps_its_history(world: World) -> None:
    task_id = world.submit("note")
    world.sweep()
    lose_worker(world)
    world.lapse()
    taken = world.reap()
    item = world.item(task_id)
    now = world.clock.now()
    assert (taken.leases, taken.charged, taken.returned, taken.failed) == (1, 1, 0, 0)
    assert item["dueAt"] == now + 0.5  # half of a base of 1 s, by the fake's draw
    assert item["error"] == {
        "type": "WorkerLost",
        "message": "the worker stopped without a word",
        "reason": "worker_lost",
        "at": now,
    }
    assert item["attempts"][-1]["outcome"] == "worker_lost"
    assert not {"leaseToken", "lockTime", "owner"} & item.keys()
    assert world.notes.count("Retried") == 1
    assert world.notes.count("LeasesExpired") == 1


def test_a_retry_that_could_only_start_at_the_deadline_is_the_dead_letter(world: World) -> None:
    task_id = world.submit("note", start_within_seconds=1000)
    world.sweep()
    lose_worker(world)
    world.lapse()
    item = world.item(task_id)
    world.db.put(item | {"deadline": world.clock.now() + 0.5})
    world.reap()
    item = world.item(task_id)
    assert (item["status"], item["error"]["reason"]) == ("FAILED", "worker_lost")
    assert "deadline" in item["error"]["message"]
    assert (item["retryCount"], item["lost"]) == (0, 1)


def test_a_returned_task_past_its_deadline_expires_instead_of_running(world: World) -> None:
    task_id = world.submit("note", start_within_seconds=30)
    world.sweep()
    world.events.clear()
    world.lapse()
    world.db.calls.clear()
    world.reap()
    (returned,) = [call for call in world.db.calls if to_status("PENDING")(call)]
    assert returned.sets["dueAt"] == world.task(task_id).deadline
    world.run()
    assert (world.status(task_id), world.item(task_id)["outcome"]) == ("DONE", "expired")
    assert ran == []


def test_a_deadline_passes_in_a_paused_queue_too(world: World) -> None:
    parent = world.submit(start_within_seconds=10)
    child = world.submit(depends_on=(parent,))
    world.api.queues.put("default", {"paused": True})
    world.advance(11)
    assert world.sweep(world.process("poller")) == 0
    assert world.status(parent) == "PENDING"
    taken = world.reap(world.process("reaper"))
    assert taken.expired == 1
    assert (world.status(parent), world.item(parent)["outcome"]) == ("DONE", "expired")
    assert world.status(child) == "FAILED"


def test_tasks_of_a_paused_queue_are_taken_back(world: World) -> None:
    task_id = world.submit("note")
    world.sweep()
    world.events.clear()
    world.api.queues.put("default", {"paused": True})
    world.lapse()
    world.reap(world.process("reaper"))
    assert world.status(task_id) == "PENDING"


def test_a_renewed_lease_is_put_where_its_end_is_and_met_again_then(world: World) -> None:
    world.submit("note")
    world.sweep()
    lease = begin(world, world.events.pop())
    for _ in range(3):
        world.advance(LEASE_SECONDS * 0.7)
        assert lease.renew()
        world.reap()
    (stored,) = world.leases()
    assert stored.due_at >= world.clock.now() - LEASE_SECONDS
    assert stored.lock_time == lease.lock_time
    world.lapse()
    assert world.reap().leases == 1


def test_a_lease_that_is_not_due_yet_is_not_written(world: World) -> None:
    world.submit("note")
    world.sweep()
    lease = begin(world, world.events.pop())
    world.advance(LEASE_SECONDS / 2)
    assert lease.renew()
    before = len(world.db.writes())
    world.reap()
    touched = [call.item_ids for call in world.db.writes()[before:] if on_lease("UpdateItem")(call)]
    assert touched == []


def test_two_reapers_at_once_count_each_task_once(world: World) -> None:
    for _ in range(5):
        world.submit("note", max_retry_number=0)
    world.sweep()
    lose_worker(world)
    world.lapse()
    other = world.process("reaper")

    def tick() -> None:
        world.advance(0.01)

    world.db.before(to_status("FAILED"), lambda: (tick(), world.reap(other), tick()), skip=2)
    world.reap()
    assert world.notes.count("Failed") == 5
    assert len(world.log("task.failed")) == 5


@pytest.mark.parametrize("fault", [Fault.LOST_REPLY, None])
def test_a_lost_reply_to_the_dead_letter_is_counted_once(world: World, fault: Fault | None) -> None:
    task_id = world.submit("note", max_retry_number=0)
    world.sweep()
    lose_worker(world)
    world.lapse()
    if fault is not None:
        world.db.inject(fault, where=to_status("FAILED"))
    world.reap()
    assert world.status(task_id) == "FAILED"
    assert world.notes.count("Failed") == 1
    assert world.leases() == []


@pytest.mark.parametrize(
    "lost", [on_lease("UpdateItem", setting="closed"), to_status("PENDING"), on_lease("DeleteItem")]
)
def test_a_lost_reply_at_any_step_leaves_nothing_undone(world: World, lost: Any) -> None:
    task_id = world.submit("note")
    world.sweep()
    lose_worker(world)
    world.lapse()
    world.db.inject(Fault.LOST_REPLY, where=lost)
    world.reap()
    assert (world.status(task_id), world.task(task_id).retry_count) == ("PENDING", 1)
    assert world.leases() == []


# ---- nothing hides --------------------------------------------------------------------------------------------------


def in_flight(world: World, number: int, **changes: Any) -> None:
    """RUNNING rows at the head of the open partition, ahead of anything submitted now."""
    now = world.clock.now()
    for each in range(number):
        world.db.put(
            stored_task(
                f"flying{each:04d}",
                Status.RUNNING,
                dueAt=now - 1000 + each / 1000,
                dispatchKey="OPEN#default#normal#0",
                lockTime=now + 10_000,
                **changes,
            )
        )


def test_three_hundred_in_flight_hide_no_due_task_from_the_sweep(world: World) -> None:
    in_flight(world, 300)
    task_id = world.submit("note")
    world.run()
    assert ran == [task_id]


def test_three_hundred_not_yet_due_hide_no_due_task(world: World) -> None:
    for _ in range(300):
        world.submit("note", delay_seconds=500)
    task_id = world.submit("note")
    world.run()
    assert ran == [task_id]


def test_three_hundred_that_wait_for_something_hide_no_due_task(world: World) -> None:
    now = world.clock.now()
    for each in range(300):
        world.db.put(
            stored_task(
                f"waiting{each:04d}", Status.PENDING, dueAt=now - 1000 + each / 1000, blockedCount=1, deferredFor=None
            )
            | {"dispatchKey": "OPEN#default#normal#0"}
        )
    task_id = world.submit("note")
    world.run()
    assert ran == [task_id]


def test_a_stray_behind_three_hundred_in_flight_is_found_in_the_same_run(world: World) -> None:
    in_flight(world, 300)
    stray = world.submit("note")
    world.sweep()
    world.events.clear()
    world.db.remove(f"lease#{world.task(stray).lease_token}")
    world.lapse()
    world.reap()
    assert world.status(stray) == "PENDING"


def test_a_stray_behind_thousands_of_waiting_tasks_is_found_in_time() -> None:
    """Behind the heads the reaper goes on from where it stopped, within its budget."""
    world = World(note)
    now = world.clock.now()
    for each in range(1200):
        world.db.put(
            stored_task(f"waiting{each:05d}", Status.PENDING, dueAt=now - 9000 + each / 1000, type="note")
            | {"dispatchKey": "OPEN#default#low#0", "priority": "low"}
        )
    world.db.put(
        stored_task("stray", Status.RUNNING, dueAt=now - 1000, lockTime=now - 900, type="note")
        | {"dispatchKey": "OPEN#default#low#0", "priority": "low"}
    )
    reads_before = len(world.db.calls)
    runs = 0
    while world.status("stray") == "RUNNING":
        world.reap()
        runs += 1
        assert runs <= 4
    assert len(world.db.calls) - reads_before < 400


def test_three_hundred_leases_are_taken_in_one_run() -> None:
    world = World(note, batch=1, max_in_flight=400)
    ids = [world.submit("note") for _ in range(300)]
    world.sweep()
    assert len(world.leases()) == 300
    world.events.clear()
    world.lapse()
    assert world.reap().returned == 300
    assert {world.status(each) for each in ids} == {"PENDING"}
    assert world.leases() == []


# ---- clocks (TA-26) -------------------------------------------------------------------------------------------------


def test_ta26_within_the_grace_no_live_lease_is_taken(world: World) -> None:
    world.submit("note")
    world.sweep()
    lease = begin(world, world.events.pop())
    ahead = world.process("reaper", clock_offset=GRACE_SECONDS)
    for _ in range(5):
        world.advance(LEASE_SECONDS - 0.001)
        world.reap(ahead)
        assert lease.renew()


@pytest.mark.parametrize("offset", [20.0, 90.0])
def test_ta26_beyond_it_work_may_be_done_twice_but_is_recorded_once(world: World, offset: float) -> None:
    task_id = world.submit("note")
    world.sweep()
    ahead = world.process("reaper", clock_offset=offset)

    def taken_and_claimed_again() -> None:
        world.advance(LEASE_SECONDS - 10)
        world.reap(ahead)
        world.advance(2)
        world.sweep()

    world.db.before(to_status("SUCCESS"), taken_and_claimed_again)
    behind = world.process("executor", clock_offset=-20)
    world.deliver(process=behind)
    for _ in range(5):
        world.advance(60)
        world.run()
    commits = [call for call in world.db.calls if to_status("SUCCESS")(call) and call.outcome == "done"]
    assert world.status(task_id) == "SUCCESS"
    assert len(commits) == 1
    assert len(ran) <= 2


def test_ta26_a_delay_counts_by_the_servers_clock_and_nothing_runs_early(world: World) -> None:
    task_id = world.submit("note", delay_seconds=30)
    assert world.task(task_id).due_at == world.clock.now() + 30
    world.advance(29.999)
    world.run()
    assert ran == []
    world.advance(0.001)
    world.run()
    assert ran == [task_id]


# ---- overlap (TA-27) ------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("seed", range(6))
def test_ta27_three_pollers_and_two_reapers_interleaved_start_each_of_a_hundred_tasks_once(seed: int) -> None:
    """Between any two requests of one, another may do a whole pass: drawn by a seed."""
    world = World(note, batch=5, shards=4, max_in_flight=8)
    ids = {world.submit("note") for _ in range(100)}
    chance = random.Random(seed)
    pollers = [world.process("poller", fraction=n / 3) for n in range(3)]
    reapers = [world.process("reaper") for _ in range(2)]
    busy: set[int] = set()

    def somebody_else() -> None:
        number = chance.randrange(5)
        if number in busy or len(busy) > 3:
            return
        busy.add(number)
        world.advance(0.3)
        try:
            world.sweep(pollers[number]) if number < 3 else world.reap(reapers[number - 3])
        finally:
            busy.discard(number)

    world.db.before(lambda call: chance.random() < 0.02, somebody_else, times=None)
    for _ in range(60):
        busy.clear()
        world.sweep(pollers[chance.randrange(3)])
        assert len(world.leases()) <= 8 + 3  # a poller may open an eighth of the cap between two counts
        assert all(len(event["taskIds"]) <= 5 for event in world.events)
        world.deliver_all()
        world.reap(reapers[0])
        world.advance(1)
        if len(ran) >= 100:
            break
    assert sorted(ran) == sorted(ids)
    claims = [call for call in world.db.calls if to_status("RUNNING")(call) and call.outcome == "done"]
    assert len(claims) == 100


def test_ta27_what_a_poller_claimed_before_it_died_returns_within_the_lease(world: World) -> None:
    ids = [world.submit("note") for _ in range(5)]
    world.db.before(to_status("RUNNING"), die, skip=4)
    with pytest.raises(Died):
        world.sweep()
    assert sum(world.status(each) == "RUNNING" for each in ids) == 4
    world.lapse()
    world.reap()
    assert {world.status(each) for each in ids} == {"PENDING"}
    world.run()
    assert sorted(ran) == sorted(ids)
    assert {Task.from_item(world.item(each)).retry_count for each in ids} == {0}


@pytest.mark.parametrize("step", range(12))
def test_ta27_a_reaper_that_dies_at_any_request_locks_out_no_other(world: World, step: int) -> None:
    ids = [world.submit("note") for _ in range(3)]
    world.sweep()
    lose_worker(world)
    world.lapse()
    world.db.before(lambda call: call.operation != "Query", die, skip=step)
    with suppress(Died):
        world.reap()
    world.db.calm()
    world.reap()
    assert {world.status(each) for each in ids} == {"PENDING"}
    assert {world.task(each).retry_count for each in ids} == {1}
    assert world.leases() == []
