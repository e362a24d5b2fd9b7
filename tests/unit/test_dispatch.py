"""The sweep: order, shares, caps, pauses, and what it does with that which is in the way."""

from __future__ import annotations

import threading

import pytest

from tests.support.fakes import FakeRandomness
from tests.support.memory_dynamodb import Call
from tests.support.polling import Service
from thunderagent.errors import StoreRefused, StoreThrottled
from thunderagent.sending import BATCHES_AT_ONCE
from thunderagent.threads import PoolThreads


def test_due_tasks_of_all_queues_and_shards_are_sent_in_batches() -> None:
    service = Service()
    ids = {service.put() for _ in range(25)}

    done = service.poller("p").sweeper.run_pass()

    assert done.claimed == 25
    assert {*service.sent_tasks()} == ids
    assert sorted(map(len, service.sent)) == [5, 10, 10]
    assert all(service.status(task_id) == "RUNNING" for task_id in ids)


def test_tasks_that_are_not_due_or_of_a_paused_queue_stay() -> None:
    service = Service()
    later = service.put(dueAt=service.clock.now() + 2)
    poller = service.poller("p")
    poller.queues.put("mail", {"paused": True})
    paused = service.put(queue="mail")

    done = poller.sweeper.run_pass()

    assert (done.claimed, done.next_due) == (0, service.task(later)["dueAt"])
    assert service.status(paused) == "PENDING"
    poller.queues.put("mail", {"paused": None})
    assert poller.sweeper.run_pass().claimed == 1


def test_a_type_without_a_handler_waits_and_costs_no_retry() -> None:
    service = Service()
    task_id = service.put(type="unknown")
    service.poller("p").sweeper.run_pass()
    task = service.task(task_id)

    assert (task["status"], task["deferredFor"], task["retryCount"]) == ("PENDING", "no_handler", 0)
    assert service.clock.now() < task["dueAt"] <= service.clock.now() + 60


def test_a_task_that_lost_a_worker_travels_alone() -> None:
    service = Service()
    suspect = service.put(lost=1)
    for _ in range(4):
        service.put()
    service.poller("p").sweeper.run_pass()

    assert [suspect] in service.sent
    assert sorted(map(len, service.sent)) == [1, 4]


def test_a_batch_is_cut_where_its_timeouts_would_not_fit_into_the_executor() -> None:
    service = Service(threads=1)
    for _ in range(4):
        service.put(timeoutSeconds=400)
    service.poller("p").sweeper.run_pass()

    assert sorted(map(len, service.sent)) == [2, 2]


# ---- the cap -------------------------------------------------------------------------------------------------------


def test_no_more_batches_are_in_flight_than_the_cap() -> None:
    service = Service(max_in_flight=2, batch=3)
    for _ in range(20):
        service.put()
    poller = service.poller("p")

    assert poller.sweeper.run_pass().claimed == 6
    assert poller.sweeper.run_pass().executors_full
    service.finish()
    assert poller.sweeper.run_pass().claimed == 6


def test_ta27_the_cap_holds_across_pollers_that_looked_at_the_same_time() -> None:
    service = Service(max_in_flight=3, batch=2)
    for _ in range(40):
        service.put()
    others = [service.poller(f"other-{n}", randomness=FakeRandomness(n / 5, prefix=f"o{n}-")) for n in range(3)]

    def all_at_once() -> None:
        for other in others:
            other.sweeper.run_pass()

    service.memory.before(lambda call: call.operation == "PutItem" and "lease#" in call.item_ids[0], all_at_once)
    service.poller("p").sweeper.run_pass()

    assert len(service.memory.items("lease#")) <= 3
    assert len(service.running()) <= 6
    assert len({*service.sent_tasks()}) == len(service.sent_tasks())


def test_ta27_a_lease_above_the_cap_yields_and_its_tasks_stay_pending() -> None:
    service = Service(max_in_flight=1, batch=1)
    first, second = service.poller("a"), service.poller("b")
    service.put()
    service.put()
    service.memory.before(
        lambda call: call.operation == "PutItem" and "lease#" in call.item_ids[0],
        lambda: (service.clock.advance(0.01), second.sweeper.run_pass(), None)[-1],
        skip=0,
    )
    first.sweeper.run_pass()

    assert len(service.memory.items("lease#")) == 1
    assert len(service.running()) == 1


def test_ta12_an_executor_that_refuses_gets_its_tasks_back_unharmed_and_rests() -> None:
    service = Service(max_in_flight=3, batch=1)
    ids = [service.put(maxRetryNumber=2) for _ in range(3)]
    service.refuse = lambda: True
    poller = service.poller("p")

    for _ in range(5):
        poller.sweeper.run_pass()
        service.clock.advance(6)
    assert [(service.status(each), service.task(each)["retryCount"]) for each in ids] == [("PENDING", 0)] * 3
    assert service.memory.items("lease#") == {}
    assert service.notes.count("DispatchFailures") == BATCHES_AT_ONCE + 4, "then one try each time it has rested"

    service.refuse = lambda: False
    for _ in range(3):
        poller.sweeper.run_pass()
        service.clock.advance(6)
    assert sorted(service.sent_tasks()) == sorted(ids)


# ---- priorities ----------------------------------------------------------------------------------------------------


def flood(service: Service, priority: str, count: int = 400) -> None:
    for _ in range(count):
        service.put(priority=priority)


def test_priorities_are_strict_but_for_a_tenth_of_the_pass() -> None:
    service = Service(max_in_flight=4)
    flood(service, "low", 50)
    flood(service, "high", 50)
    service.poller("p").sweeper.run_pass()
    taken = [service.task(each)["priority"] for each in service.running()]

    assert (taken.count("high"), taken.count("low")) == (36, 4)


def test_what_is_kept_for_lower_priorities_in_vain_goes_to_the_higher() -> None:
    service = Service(max_in_flight=2)
    flood(service, "high", 50)

    assert service.poller("p").sweeper.run_pass().claimed == 20


@pytest.mark.parametrize(
    ("max_in_flight", "batch", "passes"), [(20, 10, 1), (2, 1, 1), (1, 10, 1), (1, 2, 1), (1, 1, 10)]
)
def test_r7_one_low_task_under_endless_high_load_runs_within_its_bound(
    max_in_flight: int, batch: int, passes: int
) -> None:
    for first_turn in (0, 0.39, 0.99) if batch == 1 else (0.5,):
        service = Service(max_in_flight=max_in_flight, batch=batch)
        poller = service.poller("p", randomness=FakeRandomness(first_turn, prefix="p"))
        low = service.put(priority="low")
        waited = 0
        while service.status(low) == "PENDING":
            flood(service, "high", max_in_flight * batch + 5)
            poller.sweeper.run_pass()
            service.finish()
            service.clock.advance(1)
            waited += 1
            assert waited <= passes


@pytest.mark.parametrize(("max_in_flight", "batch", "passes"), [(2, 10, 20), (1, 10, 20), (1, 1, 100)])
def test_r7_low_and_normal_both_run_under_endless_load_of_everything(
    max_in_flight: int, batch: int, passes: int
) -> None:
    service = Service(max_in_flight=max_in_flight, batch=batch, shards=1)
    poller = service.poller("p")
    counts = {"high": 0, "normal": 0, "low": 0}
    size = max_in_flight * batch
    for _ in range(passes):
        for priority in counts:
            flood(service, priority, size + 3)
        poller.sweeper.run_pass()
        for task_id in service.running():
            counts[service.task(task_id)["priority"]] += 1
        for item_id in service.memory.items("t"):
            service.memory.remove(item_id)
        for item_id in service.memory.items("lease#"):
            service.memory.remove(item_id)
        service.clock.advance(1)

    assert sum(counts.values()) == passes * size
    assert counts["low"] >= 1
    assert counts["normal"] >= passes * size // 20 - 1
    assert counts["high"] >= 0.8 * passes * size


def test_r7_tasks_too_long_to_share_a_batch_do_not_keep_lower_ones_out() -> None:
    service = Service(max_in_flight=1, threads=1)
    poller = service.poller("p")
    low = service.put(priority="low", timeoutSeconds=870)
    for _ in range(10):
        for _ in range(3):
            service.put(priority="high", timeoutSeconds=870)
        poller.sweeper.run_pass()
        service.finish()
        service.clock.advance(1)
    assert service.status(low) == "SUCCESS"


def test_a_full_profile_does_not_stand_in_the_way_of_another() -> None:
    service = Service(max_in_flight=1, batch=2, types={"echo": "default", "count": "cpu"})
    for _ in range(60):
        service.put(type="count")
    echo = service.put()
    service.poller("p").sweeper.run_pass()

    assert service.status(echo) == "RUNNING"
    assert len(service.running(type="count")) == 2


# ---- turns ---------------------------------------------------------------------------------------------------------


def test_partitions_give_in_turn_so_that_a_flooded_one_holds_up_no_other() -> None:
    service = Service(max_in_flight=1, batch=8)
    for _ in range(300):
        service.put(shard=0)
    few = [service.put(shard=shard) for shard in (1, 2, 3) for _ in range(2)]
    service.poller("p").sweeper.run_pass()

    assert all(service.status(each) == "RUNNING" for each in few)
    assert len(service.running()) == 8


def test_fair_sharing_one_tenant_that_floods_a_keyed_queue_waits_by_itself() -> None:
    service = Service(max_in_flight=1, batch=10, shards=8)
    service.poller("p").queues.put("default", {"perKey": {"tag": "tenant"}})
    for _ in range(500):
        service.put(tags={"tenant": "flood"})
    small = [service.put(tags={"tenant": "small"}) for _ in range(3)]
    assert service.task(small[0])["dispatchKey"] != service.task("t00001")["dispatchKey"]
    service.poller("p").sweeper.run_pass()

    assert all(service.status(each) == "RUNNING" for each in small)


def test_tasks_in_flight_at_the_head_are_paged_past_and_remembered() -> None:
    service = Service(max_in_flight=100, shards=1)
    for _ in range(230):
        service.put()
    poller = service.poller("p")
    assert poller.sweeper.run_pass().claimed == 230
    last = service.put()
    service.memory.calls.clear()

    assert poller.sweeper.run_pass().claimed == 1
    looked_up = [item for call in service.memory.calls if call.operation == "BatchGetItem" for item in call.item_ids]
    assert [each for each in looked_up if each.startswith("t")] == [last]
    assert service.poller("another").sweeper.run_pass().claimed == 0


# ---- together ------------------------------------------------------------------------------------------------------


class Together:
    """Notes how many invokes there are at once: each waits for as many as there may be, or for a moment."""

    def __init__(self, most: int) -> None:
        self.barrier = threading.Barrier(most)
        self.met = 0
        self.alone = 0

    def wait(self) -> bool:
        try:
            if self.barrier.wait(timeout=5) == 0:
                self.met += 1
        except threading.BrokenBarrierError:
            self.alone += 1
        return False


def test_several_batches_are_on_their_way_together() -> None:
    service = Service()
    together = Together(BATCHES_AT_ONCE)
    service.refuse = together.wait
    ids = {service.put() for _ in range(10 * 2 * BATCHES_AT_ONCE)}
    done = service.poller("p", threads=PoolThreads(2 * BATCHES_AT_ONCE)).sweeper.run_pass()

    assert (done.claimed, done.conflicts) == (len(ids), 0)
    assert {*service.sent_tasks()} == ids
    assert (together.met, together.alone) == (2, 0)


def test_what_is_packed_is_sent_though_a_later_look_fails() -> None:
    service = Service()
    for _ in range(11):
        service.put(priority="high")
    throttled = StoreThrottled("Query", "ThrottlingException")
    service.memory.inject(throttled, where=lambda call: "#normal#" in str(call.arguments), times=99)
    done = service.poller("p").sweeper.run_pass()

    assert done.failed
    assert done.claimed == 10


def test_after_a_refusal_one_batch_goes_ahead_of_the_others() -> None:
    service = Service(batch=1)
    for _ in range(9):
        service.put()
    service.refuse = lambda: True
    poller = service.poller("p")
    poller.sweeper.run_pass()
    service.clock.advance(6)
    tried = service.notes.count("DispatchFailures")
    assert tried == BATCHES_AT_ONCE, "the others are kept once it refuses"

    poller.sweeper.run_pass()
    assert service.notes.count("DispatchFailures") == tried + 1
    service.refuse = lambda: False
    for _ in range(3):
        service.clock.advance(6)
        poller.sweeper.run_pass()
    assert len(service.running()) == 9


# ---- a store that fails --------------------------------------------------------------------------------------------


def test_ta08_an_index_that_is_being_built_ends_the_run_cleanly_and_harms_no_task() -> None:
    service = Service()
    ids = [service.put() for _ in range(3)]
    building = StoreRefused("Query", "ValidationException", "Cannot read from backfilling global secondary index")
    for _ in range(3):
        service.memory.inject(building, where=lambda call: call.operation == "Query")
        before = {each: service.memory.raw(each) for each in ids}
        total = service.poller("p").sweeper.run(window_seconds=50)

        assert total.failed
        assert total.claimed == 0
        assert {each: service.memory.raw(each) for each in ids} == before
        service.memory.calm()
    assert service.clock.slept == [], "the run ends at once: the next minute's may do better"
    assert service.notes.count("SweepsFailed") == 3
    assert "sweep.failed" in service.notes.names()

    assert service.poller("p").sweeper.run(window_seconds=0).claimed == 3


def test_a_throttled_pass_is_followed_by_another() -> None:
    service = Service()
    service.put()
    service.memory.inject(
        StoreThrottled("Query", "ThrottlingException"), where=lambda call: call.operation == "Query", times=6
    )
    assert service.poller("p").sweeper.run(window_seconds=30).claimed == 1


def test_ta30_every_shard_is_read_in_each_pass() -> None:
    service = Service(shards=4)
    ids = [service.put(shard=shard) for shard in range(4)]
    service.poller("p").sweeper.run_pass()
    assert all(service.status(each) == "RUNNING" for each in ids)


def test_ta30_a_throttled_claim_is_skipped_and_costs_no_attempt() -> None:
    service = Service()
    task_id = service.put()

    def claims(call: Call) -> bool:
        return call.sets.get("status") == "RUNNING"

    service.memory.inject(StoreThrottled("UpdateItem", "ThrottlingException"), where=claims, times=6)
    poller = service.poller("p")
    poller.sweeper.run_pass()
    assert (service.status(task_id), service.task(task_id)["retryCount"]) == ("PENDING", 0)
    poller.sweeper.run_pass()
    assert service.status(task_id) == "RUNNING"


# ---- shards --------------------------------------------------------------------------------------------------------


def test_tasks_in_shards_that_were_lowered_away_are_still_found() -> None:
    service = Service(shards=4)
    poller = service.poller("p")
    poller.queues.put("default", {"shards": 16})
    service.clock.advance(60)
    poller.queues.put("default", {"shards": 2})
    task_id = service.put(shard=15)
    poller.sweeper.run_pass()
    assert service.status(task_id) == "RUNNING"


# ---- the loop ------------------------------------------------------------------------------------------------------


def test_the_loop_sleeps_until_the_next_task_is_due_between_busy_and_idle() -> None:
    service = Service()
    poller = service.poller("p")
    service.put(dueAt=service.clock.now() + 3)
    poller.sweeper.run(window_seconds=4)
    assert service.clock.slept[0] == pytest.approx(3)
    assert len(service.running()) == 1


def test_while_there_is_a_backlog_the_loop_goes_on_beyond_its_window() -> None:
    """So that the next run takes over without a gap."""
    service = Service(max_in_flight=1, batch=1)
    for _ in range(100):
        service.put()
    began = service.clock.monotonic()
    service.poller("p").sweeper.run(window_seconds=5, backlog_seconds=15)
    assert service.clock.monotonic() - began == pytest.approx(14, abs=1)


def test_without_a_backlog_the_loop_ends_with_its_window() -> None:
    service = Service()
    service.put()
    began = service.clock.monotonic()
    assert service.poller("p").sweeper.run(window_seconds=5, backlog_seconds=15).claimed == 1
    assert service.clock.monotonic() - began <= 5


def test_a_window_of_zero_is_one_pass() -> None:
    service = Service()
    service.put()
    assert service.poller("p").sweeper.run(window_seconds=0).claimed == 1
    assert service.clock.slept == []
