"""The doorbell: what rings it, what it leaves to the sweep, and that no record can stop it."""

from __future__ import annotations

from typing import Any

import pytest

from tests.support.fakes import FakeRandomness
from tests.support.polling import Service, stream_record
from thunderagent.doorbell import OLDER_SECONDS
from thunderagent.errors import StoreThrottled
from thunderagent.schema import LEASE_SHARDS


def fresh(service: Service, task_id: str | None = None, **attributes: Any) -> str:
    """A task that became due this very moment."""
    return service.put(task_id, dueAt=service.clock.now(), **attributes)


def inserted(service: Service, *task_ids: str) -> list[dict[str, Any]]:
    return [stream_record(service.task(each)) for each in task_ids]


# ---- what rings ----------------------------------------------------------------------------------------------------


def test_a_task_is_claimed_from_its_image_and_the_executor_sent_for() -> None:
    service = Service()
    task_id = fresh(service)
    rung = service.poller("p").doorbell.ring(inserted(service, task_id))

    assert (rung.claimed, rung.left) == (1, 0)
    assert service.sent == [[task_id]]
    assert service.status(task_id) == "RUNNING"


@pytest.mark.parametrize(
    ("old", "rings"),
    [
        ({"status": "RUNNING"}, True),
        ({"status": "FAILED"}, True),
        ({"dispatchKey": "BLOCKED#default#0", "blockedCount": 1}, True),
        ({"dueAt": 1.0}, False),
        ({"deferredFor": "rate_limit"}, False),
    ],
    ids=["handed back", "redriven", "unblocked", "deferred", "claimable before"],
)
def test_a_change_rings_only_when_it_opened_the_task(old: dict[str, Any], rings: bool) -> None:
    service = Service()
    task_id = fresh(service)
    record = stream_record(service.task(task_id), {**service.task(task_id), **old})
    assert service.poller("p").doorbell.ring([record]).claimed == rings


@pytest.mark.parametrize(
    "attributes",
    [
        {"status": "RUNNING"},
        {"status": "SUCCESS"},
        {"dispatchKey": "BLOCKED#default#0"},
        {"blockedCount": 1},
        {"type": "unknown"},
        {"queue": "undeclared"},
        {"homeRegion": "eu-west-1"},
        {"deadline": 1.0},
        {"retryCount": 4},
        {"payload": None},
    ],
)
def test_what_is_not_claimable_is_dropped_without_a_write(attributes: dict[str, Any]) -> None:
    service = Service()
    task_id = fresh(service, **{key: value for key, value in attributes.items() if value is not None})
    if attributes == {"payload": None}:
        service.memory.put({key: value for key, value in service.task(task_id).items() if key != "payload"})
    rung = service.poller("p").doorbell.ring(inserted(service, task_id))
    assert rung.claimed == 0
    assert service.memory.writes() == []


def test_removals_and_side_items_are_no_news() -> None:
    service = Service()
    gone = stream_record(None, {"taskId": "t", "status": "PENDING"})
    lease = stream_record({"taskId": "lease#x", "dispatchKey": "LEASE#default#0", "dueAt": 1})
    rung = service.poller("p").doorbell.ring([gone, lease])
    assert (rung.claimed, rung.left, rung.unreadable) == (0, 0, 0)


def test_a_paused_queue_is_not_rung_for() -> None:
    service = Service()
    poller = service.poller("p")
    poller.queues.put("default", {"paused": True})
    task_id = fresh(service)
    assert poller.doorbell.ring(inserted(service, task_id)).claimed == 0


def test_a_task_due_in_a_moment_is_waited_for_and_a_later_one_is_not() -> None:
    service = Service()
    soon, later = service.put(dueAt=service.clock.now() + 0.3), service.put(dueAt=service.clock.now() + 0.7)
    rung = service.poller("p").doorbell.ring(inserted(service, soon, later))

    assert rung.claimed == 1
    assert sum(service.clock.slept) == pytest.approx(0.3)
    assert (service.status(soon), service.status(later)) == ("RUNNING", "PENDING")


# ---- bad records ---------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    "record",
    [
        None,
        {},
        {"eventName": "INSERT", "dynamodb": None},
        {"eventName": "INSERT", "dynamodb": {"NewImage": {"status": "PENDING"}}},
        {"eventName": "INSERT", "dynamodb": {"NewImage": {"status": {"S": "PENDING"}, "dispatchKey": {"S": "OPEN#q"}}}},
        {"eventName": "MODIFY", "dynamodb": {"NewImage": {"status": {"S": "PENDING"}, "dispatchKey": {"S": "OPEN#q"}}}},
        {"eventName": "INSERT", "dynamodb": {"NewImage": {"status": {"S": "PENDING"}, "dueAt": {"N": "soon"}}}},
    ],
)  # fmt: skip
def test_a_bad_record_neither_raises_nor_keeps_the_others_from_ringing(record: Any) -> None:
    service = Service()
    task_id = fresh(service)
    rung = service.poller("p").doorbell.ring([record, *inserted(service, task_id)])

    assert (rung.claimed, rung.unreadable) == (1, 1)
    assert "doorbell.unreadable" in service.notes.names()


def test_a_record_delivered_twice_starts_a_task_once() -> None:
    service = Service()
    records = inserted(service, fresh(service))
    poller = service.poller("p")
    poller.doorbell.ring([*records, *records])
    poller.doorbell.ring(records)
    service.poller("another").doorbell.ring(records)
    assert len(service.sent_tasks()) == 1


def test_a_store_that_fails_leaves_the_records_to_the_sweep() -> None:
    service = Service()
    task_id = fresh(service)
    service.memory.inject(StoreThrottled("Query", "ThrottlingException"), times=None)
    poller = service.poller("p")
    rung = poller.doorbell.ring(inserted(service, task_id))
    assert (rung.claimed, rung.left) == (0, 1)

    service.memory.calm()
    assert service.poller("sweep").sweeper.run_pass().claimed == 1


def test_an_executor_that_refuses_gets_its_tasks_back_unharmed() -> None:
    service = Service()
    task_id = fresh(service)
    service.refuse = lambda: True
    rung = service.poller("p").doorbell.ring(inserted(service, task_id))
    assert (rung.claimed, rung.left, service.status(task_id)) == (0, 1, "PENDING")
    assert service.task(task_id)["retryCount"] == 0


# ---- the same admission as the sweep -------------------------------------------------------------------------------


def test_a_burst_is_sent_in_batches_high_first() -> None:
    service = Service(max_in_flight=2, batch=3)
    low = [fresh(service, priority="low") for _ in range(5)]
    high = [fresh(service, priority="high") for _ in range(5)]
    rung = service.poller("p").doorbell.ring(inserted(service, *low, *high))

    assert (rung.claimed, rung.left) == (6, 4)
    assert {*high} <= {*service.sent_tasks()}
    assert [len(batch) for batch in service.sent] == [3, 3]


def test_executors_that_are_full_leave_it_to_the_sweep() -> None:
    service = Service(max_in_flight=1, batch=1)
    poller = service.poller("p")
    poller.doorbell.ring(inserted(service, fresh(service)))
    rung = poller.doorbell.ring(inserted(service, fresh(service)))
    assert (rung.claimed, rung.left) == (0, 1)


def test_ta27_the_cap_holds_across_doorbells_that_count_at_the_same_time() -> None:
    service = Service(max_in_flight=2, batch=1)
    records = [inserted(service, fresh(service)) for _ in range(6)]
    others = [service.poller(f"p{n}", randomness=FakeRandomness(prefix=f"p{n}-")) for n in range(5)]

    def all_at_once() -> None:
        for other, own in zip(others, records[1:], strict=True):
            other.doorbell.ring(own)

    service.memory.before(lambda call: call.operation == "PutItem" and "lease#" in call.item_ids[0], all_at_once)
    service.poller("first").doorbell.ring(records[0])
    assert len(service.memory.items("lease#")) == 2
    assert len(service.running()) == 2


def test_the_cap_holds_for_doorbells_that_all_remember_free_places() -> None:
    service = Service(max_in_flight=16, batch=1)
    pollers = [service.poller(f"p{n}", randomness=FakeRandomness(prefix=f"p{n}-")) for n in range(6)]
    for poller in pollers:
        poller.doorbell._dispatcher.capacity.free()  # all of them saw nothing in flight, a moment ago
    for poller in pollers:
        poller.doorbell.ring(inserted(service, *[fresh(service) for _ in range(6)]))
    assert len(service.memory.items("lease#")) == 16


def test_limits_hold_for_the_doorbell_too() -> None:
    service = Service()
    poller = service.poller("p")
    poller.queues.put("default", {"maxConcurrency": 3, "perKey": {"tag": "tenant", "maxConcurrency": 1}})
    ids = [fresh(service, tags={"tenant": tenant}) for tenant in ("a", "a", "b", "c", "d")]
    rung = poller.doorbell.ring(inserted(service, *ids))

    assert rung.claimed == 3
    assert sorted(service.task(each)["tags"]["tenant"] for each in service.running()) == ["a", "b", "c"]


# ---- older work ----------------------------------------------------------------------------------------------------


def test_due_work_that_waits_longer_goes_first_and_the_records_are_left_to_the_sweep() -> None:
    service = Service()
    service.put(shard=1, dueAt=service.clock.now() - OLDER_SECONDS - 1)
    behind, elsewhere = fresh(service, shard=1), fresh(service, shard=2)
    rung = service.poller("p").doorbell.ring(inserted(service, behind, elsewhere))

    assert (rung.claimed, rung.left) == (1, 1)
    assert service.status(elsewhere) == "RUNNING"


def test_what_runs_at_the_head_is_no_backlog_and_is_looked_up_once() -> None:
    service = Service()
    poller = service.poller("p")
    for _ in range(15):
        service.put(shard=0, dueAt=service.clock.now() - 10)
    service.poller("sweep").sweeper.run_pass()

    assert poller.doorbell.ring(inserted(service, fresh(service, shard=0))).claimed == 1
    service.memory.calls.clear()
    assert poller.doorbell.ring(inserted(service, fresh(service, shard=0))).claimed == 1
    looked_up = [each for call in service.memory.calls if call.operation == "BatchGetItem" for each in call.item_ids]
    assert [each for each in looked_up if each.startswith("t")] == []


def test_work_that_arrived_together_is_no_backlog() -> None:
    service = Service()
    ids = [fresh(service, shard=0) for _ in range(6)]
    assert service.poller("a").doorbell.ring(inserted(service, *ids[3:])).claimed == 3
    assert service.poller("b").doorbell.ring(inserted(service, *ids[:3])).claimed == 3


def test_a_row_that_cannot_be_read_holds_nobody_up() -> None:
    service = Service()
    service.put(shard=0, dueAt=1, retryCount="many")
    task_id = fresh(service, shard=0)
    assert service.poller("p").doorbell.ring(inserted(service, task_id)).claimed == 1


def test_without_any_record_the_sweep_delivers_everything() -> None:
    service = Service()
    ids = [fresh(service) for _ in range(30)]
    service.poller("p").sweeper.run_pass()
    assert {*service.sent_tasks()} == {*ids}


def test_a_ring_costs_few_requests_and_the_next_one_fewer() -> None:
    """Where the time to start goes. Shards are counted at once, in threads; looks are good for a second."""
    service = Service()
    poller = service.poller("p")
    records = [inserted(service, fresh(service, shard=0)) for _ in range(4)]
    poller.queues.all()
    operations = []
    for record in records:
        service.memory.calls.clear()
        poller.doorbell.ring(record)
        operations.append([call.operation for call in service.memory.calls])

    counts, sent = ["Query"] * LEASE_SHARDS, ["PutItem", "Query", "UpdateItem"]  # a lease, its shard's count, a claim
    assert operations[0] == ["Query", *counts, *sent], "older work first, and what is free"
    assert operations[1:] == [sent] * 3


def test_backlog_and_its_absence_are_remembered_for_a_second() -> None:
    service = Service()
    poller = service.poller("p")
    old = service.put(shard=0, dueAt=service.clock.now() - OLDER_SECONDS - 1)
    assert poller.doorbell.ring(inserted(service, fresh(service, shard=0))).left == 1
    service.poller("sweep").sweeper.run_pass()
    assert service.status(old) == "RUNNING"

    late = fresh(service, shard=0)
    assert poller.doorbell.ring(inserted(service, late)).left == 1
    service.clock.advance(1)
    assert poller.doorbell.ring(inserted(service, late)).claimed == 1
