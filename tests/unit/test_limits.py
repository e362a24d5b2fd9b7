"""Limits: what is free and what is not, across pollers that meet, die and lose answers."""

from __future__ import annotations

import threading
from typing import Any

import pytest

from tests.support.fakes import FakeRandomness
from tests.support.memory_dynamodb import Call, Fault
from tests.support.polling import Poller, Service
from thunderagent.buckets import FAR_AHEAD_SECONDS, Bucket, Level
from thunderagent.clock import SystemRandomness
from thunderagent.codec import Item
from thunderagent.errors import OutcomeUnknown
from thunderagent.limits import CONCURRENCY, RATE, Obstacle, obstacle_now
from thunderagent.model import Task
from thunderagent.slots import REQUEST_SECONDS, is_free
from thunderagent.threads import PoolThreads

TENANT = {"tag": "tenant", "maxConcurrency": 2}


def limited(service: Service, **changes: Any) -> Poller:
    poller = service.poller("p")
    poller.queues.put("default", changes)
    return poller


# ---- when a slot is free -------------------------------------------------------------------------------------------

SLOT: Item = {"taskId": "slot#q##0", "holder": "t", "leaseToken": "mine", "fence": 4, "claimBy": 100.0}


@pytest.mark.parametrize(
    ("holder", "now", "free"),
    [
        (None, 0, True),
        ({"status": "PENDING", "fence": 4}, 100, False),
        ({"status": "PENDING", "fence": 4}, 100 + REQUEST_SECONDS, False),
        ({"status": "PENDING", "fence": 4}, 101 + REQUEST_SECONDS, True),
        ({"status": "RUNNING", "fence": 5, "leaseToken": "mine"}, 1e6, False),
        ({"status": "RUNNING", "fence": 5, "leaseToken": "another"}, 0, True),
        ({"status": "PENDING", "fence": 5}, 0, True),
        ({"status": "RUNNING", "fence": 6, "leaseToken": "later"}, 0, True),
        ({"status": "SUCCESS", "fence": 5, "leaseToken": "mine"}, 0, True),
        ({"status": "DONE", "fence": 4}, 0, True),
        ({"status": "PENDING", "fence": 0}, 0, True),
    ],
    ids=[
        "its holder is gone",
        "the claim may still be made",
        "the claim may still be on its way",
        "the claim was never made",
        "it runs under it",
        "another's claim won",
        "it came back",
        "it came back and runs again",
        "it ended",
        "it was cancelled before the claim",
        "another life of the same id",
    ],
)
def test_a_slot_is_free_by_what_became_of_its_holder(holder: Item | None, now: float, free: bool) -> None:
    assert is_free(SLOT, holder, now=now) is free


# ---- concurrency ---------------------------------------------------------------------------------------------------


def test_a_queue_runs_no_more_than_its_limit_and_goes_on_without_a_release() -> None:
    service = Service()
    poller = limited(service, maxConcurrency=3)
    for _ in range(8):
        service.put()
    seen = []
    for _ in range(4):
        poller.sweeper.run_pass()
        seen.append(len(service.running()))
        service.finish()
        service.clock.advance(1)

    assert seen == [3, 3, 2, 0]


def test_a_limit_of_zero_stops_the_queue() -> None:
    service = Service()
    poller = limited(service, maxConcurrency=0)
    service.put()
    assert poller.sweeper.run_pass().claimed == 0
    assert service.memory.items("slot#") == {}


def test_a_whole_queue_limit_stops_its_queue_only_and_writes_nothing() -> None:
    service = Service()
    poller = limited(service, maxConcurrency=1)
    poller.queues.put("other", {})
    for _ in range(5):
        service.put()
    others = [service.put(queue="other") for _ in range(3)]
    poller.sweeper.run_pass()

    assert len(service.running(queue="default")) == 1
    assert all(service.status(each) == "RUNNING" for each in others)
    assert not any("deferredFor" in item for item in service.memory.items("t").values())


def test_a_key_limit_holds_for_each_value_and_sends_the_rest_out_of_the_way() -> None:
    service = Service()
    poller = limited(service, perKey=TENANT)
    flood = [service.put(tags={"tenant": "a"}) for _ in range(6)]
    other = [service.put(tags={"tenant": "b"}) for _ in range(2)]
    free = [service.put() for _ in range(3)]
    poller.sweeper.run_pass()

    running = service.running()
    assert len([each for each in running if each in flood]) == 2
    assert {*other, *free} <= {*running}
    deferred = [service.task(each) for each in flood if each not in running]
    now = service.clock.now()
    assert all(task["deferredFor"] == CONCURRENCY and now < task["dueAt"] <= now + 60 for task in deferred)
    assert len({task["dueAt"] for task in deferred}) > 1, "they do not all come back at once"


def test_tasks_kept_out_by_a_key_limit_run_in_time_while_slots_turn_over() -> None:
    service = Service()
    poller = limited(service, perKey=TENANT)
    ids = [service.put(tags={"tenant": "a"}) for _ in range(30)]
    for _ in range(120):
        poller.sweeper.run_pass()
        assert len(service.running()) <= 2
        service.clock.advance(0.5)
        service.finish()
        service.clock.advance(0.5)
    assert {service.status(each) for each in ids} == {"SUCCESS"}


def test_keys_cannot_be_mistaken_for_one_another() -> None:
    service = Service()
    poller = limited(service, perKey={"tag": "tenant", "maxConcurrency": 1}, maxConcurrency=100)
    values = ["", "#", "a", "a#0", "=", "=a", "0"]
    ids = [service.put(tags={"tenant": value}) for value in values]
    poller.sweeper.run_pass()
    assert all(service.status(each) == "RUNNING" for each in ids)
    assert len(service.memory.items("slot#default#=")) == len(values)


def test_limits_of_the_queue_and_the_key_both_hold() -> None:
    service = Service()
    poller = limited(service, maxConcurrency=3, perKey=TENANT)
    for tenant in "abc":
        for _ in range(4):
            service.put(tags={"tenant": tenant})
    poller.sweeper.run_pass()
    running = [service.task(each)["tags"]["tenant"] for each in service.running()]

    assert len(running) == 3
    assert max(running.count(tenant) for tenant in "abc") <= 2


def test_of_many_slots_a_random_part_is_looked_at() -> None:
    service = Service(max_in_flight=100)
    poller = service.poller("p", randomness=SystemRandomness())
    poller.queues.put("default", {"maxConcurrency": 2_000})
    for _ in range(150):
        service.put()
    service.memory.calls.clear()
    assert poller.sweeper.run_pass().claimed == 100
    looked_at = [i for call in service.memory.calls if call.operation == "BatchGetItem" for i in call.item_ids]
    assert len([each for each in looked_at if each.startswith("slot#")]) == 100
    assert poller.sweeper.run_pass().claimed == 50


def test_a_retried_task_gives_its_slot_to_others_while_it_waits() -> None:
    service = Service()
    poller = limited(service, maxConcurrency=1)
    first = service.put(shard=0)
    poller.sweeper.run_pass()
    waiting = {**service.task(first), "status": "PENDING", "dueAt": service.clock.now() + 30}
    for name in ("leaseToken", "lockTime", "owner"):
        del waiting[name]
    service.memory.put(waiting)
    second = service.put()
    poller.sweeper.run_pass()
    assert service.status(second) == "RUNNING"


# ---- pollers that fail, meet, and lose answers -----------------------------------------------------------------------


def claims(call: Call) -> bool:
    return call.sets.get("status") == "RUNNING"


def takes_slot(call: Call) -> bool:
    return call.operation == "PutItem" and call.item_ids[0].startswith("slot#")


def opens_lease(call: Call) -> bool:
    return call.operation == "PutItem" and call.item_ids[0].startswith("lease#")


def test_a_poller_that_dies_before_its_claim_blocks_a_slot_only_until_its_claim_could_not_come_any_more() -> None:
    service = Service()
    poller = limited(service, maxConcurrency=1)
    service.put()

    def die() -> None:
        raise SystemExit

    service.memory.before(claims, die)
    with pytest.raises(SystemExit):
        poller.sweeper.run_pass()

    another = service.poller("another")
    assert another.sweeper.run_pass().claimed == 0
    service.clock.advance(150 + REQUEST_SECONDS + 1)
    assert another.sweeper.run_pass().claimed == 1


def test_slots_of_claims_that_were_not_made_are_given_back_at_once() -> None:
    service = Service()
    poller = limited(service, maxConcurrency=1)
    service.put()
    service.memory.inject(Fault.REFUSED, where=opens_lease)
    assert poller.sweeper.run_pass().claimed == 0
    assert service.memory.items("slot#") == {}
    assert poller.sweeper.run_pass().claimed == 1


def test_a_slot_whose_answer_was_lost_is_recognised() -> None:
    service = Service()
    poller = limited(service, maxConcurrency=1)
    service.put()
    service.memory.inject(Fault.LOST_REPLY, where=takes_slot)
    assert poller.sweeper.run_pass().claimed == 1


def test_the_limit_holds_when_another_poller_takes_the_slot_between_look_and_write() -> None:
    service = Service(shards=1)
    first = limited(service, maxConcurrency=1)
    second = service.poller("second", randomness=FakeRandomness(0, "s"))  # it picks another task than the first
    service.put()
    service.put()

    def another_pass() -> None:
        second.sweeper.run_pass()

    service.memory.before(takes_slot, another_pass)
    first.sweeper.run_pass()

    assert len(service.running()) == 1
    assert len(service.sent_tasks()) == 1


def test_limits_hold_across_pollers_at_full_speed() -> None:
    """Four pollers in threads of their own while tasks end: never more than the limit RUNNING, and every task ends."""
    service = Service(batch=3, shards=2)
    service.poller("operator").queues.put("default", {"maxConcurrency": 4, "perKey": TENANT})
    ids = [service.put(tags={"tenant": "ab"[n % 2]}) for n in range(40)]
    too_many: list[list[str]] = []
    over = threading.Event()

    def watch() -> None:
        while not over.is_set():
            with service.memory._lock:  # one instant
                running = service.running()
                tenants = [service.task(each)["tags"]["tenant"] for each in running]
            if len(running) > 4 or max(tenants.count("a"), tenants.count("b")) > 2:
                too_many.append(running)
            service.finish(*running[:2])

    def poll(poller: Poller) -> None:
        while not over.is_set():
            poller.sweeper.run_pass()

    def poller(number: int) -> Poller:
        return Poller(service, f"p{number}", randomness=SystemRandomness(), threads=PoolThreads(3))

    workers = [threading.Thread(target=poll, args=(poller(number),)) for number in range(4)]
    for worker in (*workers, judge := threading.Thread(target=watch)):
        worker.start()
    for _ in range(400):
        judge.join(0.02)
        service.clock.advance(0.5)
        if {service.status(each) for each in ids} == {"SUCCESS"}:
            break
    over.set()
    for worker in (*workers, judge):
        worker.join(10)

    assert too_many == []
    assert {service.status(each) for each in ids} == {"SUCCESS"}


# ---- rate ----------------------------------------------------------------------------------------------------------


def test_a_rate_allows_its_burst_and_then_its_rate() -> None:
    service = Service()
    poller = limited(service, ratePerSecond=2, burst=5)
    for _ in range(40):
        service.put()
    started = []
    for _ in range(6):
        started.append(poller.sweeper.run_pass().claimed)
        service.clock.advance(1)
    assert started == [5, 2, 2, 2, 2, 2]


def test_the_burst_of_a_slow_rate_is_one_and_the_loop_sleeps_until_the_next_token() -> None:
    service = Service()
    poller = limited(service, ratePerSecond=0.25)
    for _ in range(3):
        service.put()
    first = poller.sweeper.run_pass()
    second = poller.sweeper.run_pass()
    assert (first.claimed, second.claimed) == (1, 0)
    assert second.next_due == service.clock.now() + 4


def test_a_key_rate_defers_in_turn_and_never_beyond_a_minute() -> None:
    service = Service()
    poller = limited(service, perKey={"tag": "tenant", "ratePerSecond": 0.5})
    for _ in range(100):
        service.put(tags={"tenant": "a"})
    poller.sweeper.run_pass()
    now = service.clock.now()
    deferred = sorted(task["dueAt"] for task in service.memory.items("t").values() if "deferredFor" in task)

    assert len(deferred) == 99
    assert deferred[:3] == [now + 2, now + 4, now + 6]
    assert deferred[-1] <= now + 60
    assert {task.get("deferredFor") for task in service.memory.items("t").values()} == {None, RATE}


def test_one_write_takes_the_tokens_of_a_batch() -> None:
    service = Service()
    poller = limited(service, ratePerSecond=100)
    for _ in range(10):
        service.put()
    poller.sweeper.run_pass()
    assert len([call for call in service.memory.writes() if "bucket#" in call.item_ids[0]]) == 1


def test_a_rate_is_shared_by_pollers_that_meet() -> None:
    service = Service()
    first, second = (
        limited(service, ratePerSecond=1, burst=3),
        service.poller("second", randomness=FakeRandomness(0.9, "s")),
    )
    for _ in range(20):
        service.put()

    def another_pass() -> None:
        second.sweeper.run_pass()

    service.memory.before(lambda call: call.operation == "PutItem" and "bucket#" in call.item_ids[0], another_pass)
    first.sweeper.run_pass()
    assert len(service.running()) == 3


def test_a_stamp_far_ahead_is_read_as_now_and_a_little_ahead_adds_nothing() -> None:
    stored = {"tokens": 0.5, "stamp": 1000.0 + FAR_AHEAD_SECONDS + 1}
    assert Level.read(stored, rate=1, burst=5, now=1000.0) == Level(0.5, 1000.0)
    stored = {"tokens": 0.5, "stamp": 1005.0}
    assert Level.read(stored, rate=1, burst=5, now=1000.0) == Level(0.5, 1005.0), "it never goes back"
    assert Level.read(stored, rate=1, burst=5, now=1007.0) == Level(2.5, 1007.0)
    assert Level.read(stored, rate=1, burst=5, now=2000.0) == Level(5.0, 2000.0)


def test_tokens_whose_write_stays_unknown_are_not_used() -> None:
    service = Service()
    store = service.poller("p").store
    service.memory.inject(Fault.LOST_REQUEST, where=lambda call: "bucket#" in call.item_ids[0], times=6)
    with pytest.raises(OutcomeUnknown):
        Bucket("q", "", 1, 1).take(store, 1, first=(Level(1, 0), None))


# ---- why -----------------------------------------------------------------------------------------------------------


def test_the_limit_in_a_tasks_way_is_named_by_a_look_that_writes_nothing() -> None:
    service = Service()
    poller = limited(service, maxConcurrency=1)
    ids = [service.put(shard=0), service.put(shard=1)]

    def obstacle(task_id: str) -> Obstacle | None:
        return obstacle_now(poller.store, poller.queues.get("default"), Task.from_item(service.task(task_id)))

    assert [obstacle(each) for each in ids] == [None, None]
    poller.sweeper.run_pass()
    (waiting,) = [each for each in ids if service.status(each) == "PENDING"]
    service.memory.calls.clear()
    found = obstacle(waiting)
    assert found is not None
    assert found.reason == CONCURRENCY
    assert service.memory.writes() == []
