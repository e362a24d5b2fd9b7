"""Who comes between whom: the protocol's rules, each by the order of events that breaks without it (ARCHITECTURE §12).

`World` holds back events and lets another process act just before or after one request of the table. Every rule that
the model check found necessary has a test here or in tests/contract that fails when the rule is dropped.
"""

from __future__ import annotations

from contextlib import suppress
from typing import Any

import pytest

from tests.support.fakes import ScriptedThreads
from tests.support.memory_dynamodb import Call, Fault
from tests.support.world import GRACE_SECONDS, LEASE_SECONDS, Died, World, die, on_lease, to_status
from thunderagent import expressions, task
from thunderagent.held_lease import HeldLease
from thunderagent.model import LeaseToken
from thunderagent.operations import Operations, Operator
from thunderagent.runner import Batch
from thunderagent.store import ATTEMPTS, Refused

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


def operations(world: World) -> Operations:
    return Operations(world.api.store, world.api.bodies, world.api.dependencies)


def claim_of(task_id: str) -> Any:
    return lambda call: call.sets.get("status") == "RUNNING" and task_id in call.item_ids


# ---- begin ----------------------------------------------------------------------------------------------------------


def test_an_event_that_comes_twice_at_once_runs_its_tasks_once(world: World) -> None:
    task_id = world.submit("note")
    world.sweep()
    event = world.events[0]
    world.db.after(on_lease("UpdateItem", setting="begun"), lambda: world.deliver(event))
    world.deliver()
    assert ran == [task_id]


def test_an_event_that_comes_again_while_its_tasks_run_starts_none_of_them(world: World) -> None:
    task_id = world.submit("note")
    world.sweep()
    event = world.events[0]
    world.db.before(to_status("SUCCESS"), lambda: world.deliver(event))
    world.deliver()
    assert ran == [task_id]
    assert world.status(task_id) == "SUCCESS"


def test_an_event_that_comes_after_success_runs_nothing(world: World) -> None:
    task_id = world.submit("note")
    world.sweep()
    event = world.events[0]
    world.deliver()
    before = world.db.raw(task_id)
    assert not world.deliver(event).begun
    assert ran == [task_id]
    assert world.db.raw(task_id) == before


def test_an_event_that_comes_after_the_lease_was_taken_and_the_task_claimed_again_runs_nothing(world: World) -> None:
    task_id = world.submit("note")
    world.sweep()
    late = world.events.pop()
    world.lapse()
    world.reap()
    world.sweep()
    assert not world.deliver(late).begun
    assert ran == []
    world.deliver()
    assert ran == [task_id]
    assert world.task(task_id).fence == 2


def test_an_event_that_comes_after_the_lock_has_passed_runs_nothing_even_before_the_reaper(world: World) -> None:
    world.submit("note")
    world.sweep()
    world.advance(LEASE_SECONDS)
    assert not world.deliver().begun
    assert ran == []


def test_a_closed_lease_cannot_be_begun(world: World) -> None:
    task_id = world.submit("note")
    world.sweep()
    world.lapse()
    slow = world.process("executor", clock_offset=-2 * LEASE_SECONDS)  # for it the lease has not passed
    world.db.before(to_status("PENDING"), lambda: world.deliver(process=slow))
    world.reap()
    assert ran == []
    assert (world.status(task_id), world.task(task_id).retry_count) == ("PENDING", 0)


def test_a_task_whose_claim_never_happened_travels_and_is_not_run(world: World) -> None:
    """A claim of unknown outcome: the read at begin decides."""
    first, second = world.submit("note"), world.submit("note")
    world.db.inject(Fault.LOST_REQUEST, where=claim_of(second), times=ATTEMPTS)
    world.sweep()
    assert world.events[0]["taskIds"] == [first, second]
    world.deliver()
    assert ran == [first]
    assert world.status(second) == "PENDING"
    world.run()
    assert ran == [first, second]


def test_a_task_claimed_by_another_meanwhile_is_not_run_by_the_first(world: World) -> None:
    world.submit("note")
    world.sweep()
    first = world.events.pop()
    world.lapse()
    world.db.before(on_lease("UpdateItem", setting="begun"), lambda: None)
    stalled = world.process("executor", clock_offset=-2 * LEASE_SECONDS)

    def taken_and_claimed_again() -> None:
        world.reap()
        world.sweep()

    world.db.after(on_lease("UpdateItem", setting="begun"), taken_and_claimed_again)
    world.deliver(first, process=stalled)
    assert len(ran) <= 1
    world.deliver_all()
    assert len(ran) == 1


# ---- start and crash accounting -------------------------------------------------------------------------------------


def test_a_worker_that_ends_during_a_task_costs_it_a_retry_and_its_waiting_neighbour_nothing() -> None:
    world = World(note, concurrency=1)
    ids = [world.submit("note"), world.submit("note")]
    world.sweep()
    world.db.before(to_status("SUCCESS"), die)
    with pytest.raises(Died):
        world.deliver()
    (started,) = ran
    (waiting,) = set(ids) - {started}
    world.lapse()
    world.reap()
    charged, free = world.task(started), world.task(waiting)
    assert (charged.retry_count, charged.lost, charged.status) == (1, 1, "PENDING")
    assert (free.retry_count, free.lost, free.status) == (0, 0, "PENDING")
    assert free.due_at == world.clock.now()
    assert world.leases() == []


def test_a_start_is_recorded_before_it_happens(world: World) -> None:
    """The worker ends right after the record: charged, though in the end the handler never ran (at most once too
    many); the other way round a task that kills its worker would never be charged."""
    task_id = world.submit("note")
    world.sweep()
    world.db.after(on_lease("UpdateItem"), die, skip=1)  # after begin comes the start record
    with pytest.raises(Died):
        world.deliver()
    assert ran == []
    world.lapse()
    world.reap()
    assert world.task(task_id).retry_count == 1


def test_nothing_starts_when_the_record_is_refused(world: World) -> None:
    task_id = world.submit("note")
    world.sweep()
    world.db.before(on_lease("UpdateItem"), lambda: (world.lapse(), world.reap()), skip=1)
    world.deliver()
    assert ran == []
    assert (world.status(task_id), world.task(task_id).retry_count) == ("PENDING", 0)


def test_ta05_a_task_that_ends_its_worker_each_time_starts_max_retry_number_plus_one_times(world: World) -> None:
    task_id = world.submit("note", max_retry_number=2)
    neighbours = {world.submit("note") for _ in range(3)}
    for _ in range(12):
        world.db.calm()
        world.db.before(lambda call: to_status("SUCCESS")(call) and task_id in call.item_ids, die)
        world.sweep()
        while world.events:
            with suppress(Died):
                world.deliver()
        world.lapse()
        world.reap()
        world.advance(300)
    item = world.item(task_id)
    assert ran.count(task_id) == 3
    assert (item["status"], item["error"]["reason"], item["retryCount"]) == ("FAILED", "worker_lost", 2)
    assert [fields["taskId"] for fields in world.log("task.failed")] == [task_id]
    assert world.notes.count("Failed") == 1
    assert {world.status(each) for each in neighbours} == {"SUCCESS"}
    assert all(ran.count(each) <= 2 for each in neighbours), "after one lost lease the suspect travels alone"


def test_tasks_that_wait_for_a_thread_are_kept_by_the_heartbeat_of_the_batch() -> None:
    """Four tasks of 100 s each, one thread, a lease of 60 s: the reaper looks in all the time and takes none."""
    world = World(note, concurrency=1)
    ids = [world.submit("note", timeout_seconds=150) for _ in range(4)]
    world.sweep()
    process = world.process("executor")
    runner = world.executor(process)
    runner.threads = ScriptedThreads(world.clock, [100.0])
    world.clock.on_sleep = lambda seconds: (world.reap(), None)[-1]
    summary = runner.run(Batch.from_event(world.events.pop()), lambda: 900.0)
    world.clock.on_sleep = None
    assert sorted(ran) == sorted(ids)
    assert summary.settled
    assert {(world.status(each), world.task(each).fence) for each in ids} == {("SUCCESS", 1)}


# ---- renewal, close, reap -------------------------------------------------------------------------------------------


def test_a_renewal_between_the_reapers_look_and_its_close_wins(world: World) -> None:
    task_id = world.submit("note")
    world.sweep()
    lease = begun(world)
    world.advance(LEASE_SECONDS + GRACE_SECONDS + 1)
    world.db.before(on_lease("UpdateItem", setting="closed"), lambda: lease.renew())
    before = world.db.raw(task_id)
    world.reap()
    assert world.db.raw(task_id) == before
    assert not lease.lost
    assert not world.leases()[0].closed


def test_between_close_and_reap_the_holder_can_neither_renew_nor_start(world: World) -> None:
    task_id = world.submit("note")
    world.sweep()
    lease = begun(world)
    world.lapse()
    renewals: list[bool] = []
    world.db.before(to_status("PENDING"), lambda: renewals.append(lease.renew([world.task(task_id).task_id])))
    world.reap()
    assert renewals == [False]
    assert world.task(task_id).retry_count == 0


def test_starts_recorded_between_the_reapers_look_and_its_close_are_charged(world: World) -> None:
    """`started` counts as it is at the close, not as the reaper read it before."""
    task_id = world.submit("note")
    world.sweep()
    lease = begun(world)
    stored = world.leases()[0]
    world.lapse()

    def start_without_raising_the_lock() -> None:
        write = expressions.heartbeat(
            lease.token, nonce=lease._nonce, lock_time=stored.lock_time, starting=[world.task(task_id).task_id]
        )
        assert not isinstance(world.api.store.apply(write), Refused)

    world.db.before(on_lease("UpdateItem", setting="closed"), start_without_raising_the_lock)
    world.reap()
    assert world.task(task_id).retry_count == 1


def test_a_lease_whose_reaper_died_after_the_close_is_finished_by_the_next(world: World) -> None:
    task_id = world.submit("note")
    world.sweep()
    world.lapse()
    world.db.after(on_lease("UpdateItem", setting="closed"), die)
    with pytest.raises(Died):
        world.reap()
    assert world.leases()[0].closed
    world.reap(world.process("reaper"))
    assert world.status(task_id) == "PENDING"
    assert world.leases() == []
    world.run()
    assert ran == [task_id]


@pytest.mark.parametrize("fault", [Fault.LOST_REQUEST, Fault.THROTTLED])
def test_a_lease_stays_closed_until_every_reset_was_answered(world: World, fault: Fault) -> None:
    """Deleted earlier, the record of starts would be gone: the backstop would hand the task back for free."""
    task_id = world.submit("note")
    world.sweep()
    world.db.before(to_status("SUCCESS"), die)
    with pytest.raises(Died):
        world.deliver()
    world.lapse()
    world.db.inject(fault, where=to_status("PENDING"), times=None)
    world.reap()
    assert world.status(task_id) == "RUNNING"
    assert world.leases()[0].closed
    world.db.calm()
    world.reap()
    assert (world.status(task_id), world.task(task_id).retry_count) == ("PENDING", 1)
    assert world.leases() == []


def test_an_old_page_of_the_reapers_touches_nothing_that_moved_on(world: World) -> None:
    """Read by one reaper, reset by another, claimed again: the token as seen is another one by then."""
    task_id = world.submit("note")
    world.sweep()
    world.events.clear()
    world.lapse()
    other = world.process("reaper")
    claimed: list[Any] = []

    def reset_and_claim_again() -> None:
        world.reap(other)
        world.sweep()
        claimed.append(world.db.raw(task_id))

    world.db.before(lambda call: to_status("PENDING")(call) and task_id in call.item_ids, reset_and_claim_again)
    world.reap()
    assert world.db.raw(task_id) == claimed[0]
    assert world.status(task_id) == "RUNNING"


def test_an_old_page_cannot_end_a_cancelled_task_under_its_next_holder(world: World) -> None:
    task_id = world.submit("note")
    world.sweep()
    world.events.clear()
    world.lapse()
    other = world.process("reaper")
    claimed: list[Any] = []

    def reset_claim_and_cancel() -> None:
        world.reap(other)
        world.sweep()
        operations(world).cancel(task_id, Operator("me"))
        claimed.append(world.db.raw(task_id))

    world.db.before(lambda call: to_status("PENDING")(call) and task_id in call.item_ids, reset_claim_and_cancel)
    world.reap()
    assert world.db.raw(task_id) == claimed[0]
    world.deliver_all()
    assert (world.status(task_id), world.item(task_id)["outcome"], ran) == ("DONE", "cancelled", [])


def test_reaper_and_settle_at_once_leave_one_end(world: World) -> None:
    task_id = world.submit("note")
    world.sweep()
    world.db.before(on_lease("DeleteItem"), lambda: (world.lapse(), world.reap()))
    summary = world.deliver()
    assert not summary.settled
    assert (world.status(task_id), ran) == ("SUCCESS", [task_id])
    assert world.leases() == []


def test_a_commit_after_the_lock_has_passed_counts_while_nobody_closed_the_lease(world: World) -> None:
    task_id = world.submit("note")
    world.sweep()
    world.db.before(to_status("SUCCESS"), lambda: world.advance(10 * LEASE_SECONDS))
    world.deliver()
    assert world.status(task_id) == "SUCCESS"


def test_a_commit_after_the_task_was_taken_and_claimed_again_changes_nothing(world: World) -> None:
    task_id = world.submit("note")
    world.sweep()

    def taken_and_claimed_again() -> None:
        world.lapse()
        world.reap()
        world.advance(300)
        world.sweep()

    world.db.before(to_status("SUCCESS"), taken_and_claimed_again)
    world.deliver()
    assert world.status(task_id) == "RUNNING"
    assert world.task(task_id).retry_count == 1
    world.deliver()
    assert (world.status(task_id), ran) == ("SUCCESS", [task_id, task_id])
    assert len(world.db.items("result#")) == 0


def test_a_row_deleted_while_it_runs_is_not_recreated_by_anyone(world: World) -> None:
    task_id = world.submit("note")
    world.sweep()
    world.db.before(to_status("SUCCESS"), lambda: world.db.remove(task_id))
    world.deliver()
    world.lapse()
    world.reap()
    world.sweep()
    assert world.db.items() == {name: item for name, item in world.db.items().items() if name.startswith("control#")}


# ---- dispatch -------------------------------------------------------------------------------------------------------


def test_a_refused_invoke_gives_its_tasks_back_at_once_and_unharmed(world: World) -> None:
    task_id = world.submit("note")
    world.answers = [False]
    assert world.sweep() == 0
    item = world.task(task_id)
    assert (item.status, item.retry_count, item.lost) == ("PENDING", 0, 0)
    assert world.clock.now() + 1 <= item.due_at <= world.clock.now() + 5
    assert world.leases() == []
    assert world.notes.count("DispatchFailures") == 1


def test_an_invoke_whose_answer_is_lost_and_whose_event_comes_late_runs_nothing(world: World) -> None:
    task_id = world.submit("note")
    world.answers = [None]
    world.sweep()
    assert world.status(task_id) == "PENDING"
    assert not world.deliver().begun
    assert ran == []
    world.advance(10)
    world.run()
    assert ran == [task_id]


def test_an_invoke_whose_answer_is_lost_after_the_executor_began_releases_nothing(world: World) -> None:
    """The lease goes before its claims do: begun, it does not go, and nothing is released under a live executor."""
    task_id = world.submit("note")
    world.answers = [None]
    holders: list[HeldLease] = []
    world.db.before(on_lease("DeleteItem"), lambda: holders.append(begun(world)))
    world.sweep()
    assert world.status(task_id) == "RUNNING"
    assert world.leases()[0].begun
    assert holders[0].renew()


def test_tasks_are_not_released_while_it_is_unknown_whether_their_lease_is_gone(world: World) -> None:
    task_id = world.submit("note")
    world.answers = [None]
    world.db.inject(Fault.LOST_REQUEST, where=on_lease("DeleteItem"), times=None)
    world.sweep()
    world.db.calm()
    assert world.status(task_id) == "RUNNING"
    assert len(world.leases()) == 1
    world.deliver()
    assert (world.status(task_id), ran) == ("SUCCESS", [task_id])


def test_an_accepted_event_that_is_never_delivered_costs_nothing(world: World) -> None:
    task_id = world.submit("note", max_retry_number=0)
    for _ in range(3):
        world.sweep()
        world.events.clear()
        world.lapse()
        world.reap()
    assert (world.status(task_id), world.task(task_id).retry_count) == ("PENDING", 0)
    world.run()
    assert ran == [task_id]


def test_ta12_five_polls_of_refused_invokes_eat_no_attempt(world: World) -> None:
    ids = [world.submit("note", max_retry_number=2) for _ in range(10)]
    for _ in range(5):
        world.answers = [False]
        world.sweep()
        world.advance(10)
    assert {(world.status(each), world.task(each).retry_count) for each in ids} == {("PENDING", 0)}
    assert world.notes.count("DispatchFailures") == 5
    world.answers = []
    world.run()
    assert sorted(ran) == sorted(ids)


def test_an_open_of_unknown_outcome_abandons_its_token(world: World) -> None:
    """Sent once: a copy that arrives late must not find tasks claimed under it."""
    task_id = world.submit("note")
    world.db.inject(Fault.LOST_REPLY, where=on_lease("PutItem"))
    assert world.sweep() == 0
    assert world.status(task_id) == "PENDING"
    assert len([call for call in world.db.calls if on_lease("PutItem")(call)]) == 1
    assert world.events == []
    world.run()
    assert ran == [task_id]
    world.lapse()
    world.reap()
    assert world.leases() == []


def test_a_poller_that_froze_after_opening_claims_no_more(world: World) -> None:
    task_id = world.submit("note")
    world.db.after(on_lease("PutItem"), lambda: world.advance(LEASE_SECONDS * 0.6))
    world.sweep()
    assert world.status(task_id) == "PENDING"
    assert world.leases() == []


def test_a_poller_that_froze_in_its_claim_leaves_a_task_the_backstop_finds(world: World) -> None:
    """The lease is gone when the claim lands: only the task's own lock tells, and only once that has passed too."""
    task_id = world.submit("note")
    world.db.before(claim_of(task_id), lambda: (world.lapse(), world.reap()))
    world.answers = [False]
    world.db.before(to_status("PENDING"), die)  # it dies before it releases
    with pytest.raises(Died):
        world.sweep()
    assert world.status(task_id) == "RUNNING"
    assert world.leases() == []
    world.sweep(world.process("poller"))
    assert (world.status(task_id), world.task(task_id).retry_count) == ("PENDING", 0)
    world.run()
    assert ran == [task_id]


def test_the_backstop_waits_for_the_tasks_own_lock(world: World) -> None:
    task_id = world.submit("note")
    world.sweep()
    (lease,) = world.leases()
    world.db.remove(f"lease#{lease.token}")
    world.advance(LEASE_SECONDS)
    before = world.db.raw(task_id)
    world.sweep(world.process("poller"))
    world.reap()
    assert world.db.raw(task_id) == before
    world.advance(GRACE_SECONDS + 1)
    world.reap()
    assert world.status(task_id) == "PENDING"


@pytest.mark.parametrize("who", ["sweep", "reap"])
def test_the_backstop_leaves_a_task_whose_lease_is_alive(world: World, who: str) -> None:
    """A long task is past the lock of its claim; its lease is not."""
    task_id = world.submit("note")
    world.sweep()
    lease = begun(world)
    for _ in range(4):
        world.advance(LEASE_SECONDS * 0.75)
        assert lease.renew()
        before = world.db.raw(task_id)
        if who == "sweep":
            world.sweep(world.process("poller"))
        else:
            world.reap()
        assert world.db.raw(task_id) == before
    assert not lease.lost


def test_the_backstop_takes_a_closed_lease_by_what_it_records(world: World) -> None:
    """Of a profile that is not deployed any more: no reaper looks for its leases, but the task is met."""
    task_id = world.submit("note")
    world.sweep()
    lease = begun(world)
    assert lease.renew([world.task(task_id).task_id])
    stored = dict(world.db.items("lease#").popitem()[1])
    world.db.put(stored | {"profile": "gone", "dispatchKey": "LEASE#gone#0"})
    world.lapse()
    world.reap()
    assert (world.status(task_id), world.task(task_id).retry_count) == ("PENDING", 1)
    assert world.leases() == []


# ---- cancel and redrive ---------------------------------------------------------------------------------------------


@pytest.mark.parametrize("moment", ["before the commit", "after the commit"])
def test_ta22_cancel_and_commit_at_once_agree_on_one_end(world: World, moment: str) -> None:
    task_id = world.submit("note")
    world.sweep()
    hook = world.db.before if moment == "before the commit" else world.db.after
    answers: list[str] = []

    def cancel() -> None:
        try:
            operations(world).cancel(task_id, Operator("me"))
            answers.append("200")
        except Exception as error:  # noqa: BLE001
            answers.append(type(error).__name__)

    hook(to_status("SUCCESS"), cancel)
    world.deliver()
    item = world.item(task_id)
    if moment == "before the commit":
        assert (answers, item["status"], item["outcome"]) == (["200"], "DONE", "cancelled")
        assert "result" not in item
    else:
        assert (answers, item["status"]) == (["Conflict"], "SUCCESS")


def test_a_cancel_of_a_task_being_claimed_reaches_its_holder(world: World) -> None:
    task_id = world.submit("note")
    world.db.before(
        lambda call: call.sets.get("outcome") == "cancelled" and task_id in call.item_ids, lambda: world.sweep()
    )
    operations(world).cancel(task_id, Operator("me"))
    assert world.status(task_id) == "RUNNING"
    world.deliver()
    assert (world.status(task_id), world.item(task_id)["outcome"], ran) == ("DONE", "cancelled", [])


def test_a_cancelled_task_whose_worker_is_lost_ends_cancelled_and_is_not_run_again(world: World) -> None:
    task_id = world.submit("note")
    world.sweep()
    world.db.before(to_status("SUCCESS"), die)
    with pytest.raises(Died):
        world.deliver()
    operations(world).cancel(task_id, Operator("me"))
    world.lapse()
    world.reap()
    assert (world.status(task_id), world.item(task_id)["outcome"]) == ("DONE", "cancelled")
    assert world.notes.count("Cancelled") == 1


def test_a_cancel_between_the_reapers_look_and_its_reset_is_kept(world: World) -> None:
    task_id = world.submit("note")
    world.sweep()
    world.lapse()
    world.db.before(to_status("PENDING"), lambda: operations(world).cancel(task_id, Operator("me")))
    world.reap()
    assert (world.status(task_id), world.item(task_id)["outcome"]) == ("DONE", "cancelled")
    assert world.leases() == []


def test_two_redrives_at_once_have_one_effect(world: World) -> None:
    task_id = failed(world)
    world.db.before(
        lambda call: "redriveIds" in call.sets, lambda: operations(world).redrive(task_id, Operator("b"), key="k2")
    )
    operations(world).redrive(task_id, Operator("a"), key="k1")
    item = world.item(task_id)
    assert (item["status"], item["fence"], len(item["redriveIds"])) == ("PENDING", 2, 1)


def test_a_redrive_repeated_after_the_task_failed_again_writes_nothing(world: World) -> None:
    task_id = failed(world)
    operations(world).redrive(task_id, Operator("a"), key="k1")
    fail_again(world)
    before = world.db.raw(task_id)
    assert operations(world).redrive(task_id, Operator("a"), key="k1").task_id == task_id
    assert world.db.raw(task_id) == before
    assert world.status(task_id) == "FAILED"


def test_a_redrive_whose_reply_is_lost_cannot_revive_the_next_failure(world: World) -> None:
    """Applied, claimed and failed again before the repeat: the fence is another one."""
    task_id = failed(world)

    def claimed_and_failed_again() -> None:
        fail_again(world)

    world.db.inject(Fault.LOST_REPLY, where=lambda call: "redriveIds" in call.sets)
    world.db.before(lambda call: "redriveIds" in call.sets, claimed_and_failed_again, skip=1)
    operations(world).redrive(task_id, Operator("a"), key="k1")
    assert world.status(task_id) == "FAILED"
    assert world.task(task_id).fence == 3


def test_a_claim_decided_before_a_redrive_is_refused(world: World) -> None:
    """The fence as seen: a look from before the failure is not a look at the task's new life."""
    task_id = world.submit("note", max_retry_number=0)
    poller = world.process("poller")
    seen = world.task(task_id)
    failed(world, task_id)
    operations(world).redrive(task_id, Operator("a"), key="k1")
    item = world.item(task_id)
    world.db.put(item | {"dueAt": seen.due_at})  # even where the due time is the same
    write = expressions.claim(
        seen, token=LeaseToken("old"), lock_time=9e9, owner="p", now=world.clock.now(), region="us-east-1"
    )
    assert isinstance(poller.store.apply(write), Refused)


# ---- help -----------------------------------------------------------------------------------------------------------


def begun(world: World) -> HeldLease:
    """An executor that began the batch of the next event, and does nothing yet."""
    (stored,) = world.leases()
    event = world.events.pop(0) if world.events else {"leaseToken": stored.token, "lockTime": stored.lock_time}
    store = world.process("executor").store
    lease = HeldLease.begin(store, LeaseToken(event["leaseToken"]), lock_time=event["lockTime"], seconds=LEASE_SECONDS)
    assert isinstance(lease, HeldLease)
    return lease


def failed(world: World, task_id: str | None = None) -> str:
    """A task that is FAILED, its one start lost."""
    task_id = task_id or world.submit("note", max_retry_number=0)
    fail_again(world)
    assert world.status(task_id) == "FAILED"
    return task_id


def fail_again(world: World) -> None:
    world.sweep()
    world.db.before(lambda call: isinstance(call, Call) and to_status("SUCCESS")(call), die)
    with pytest.raises(Died):
        world.deliver()
    world.lapse()
    world.reap()
