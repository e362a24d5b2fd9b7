"""Rows that others have damaged stop neither sweep nor reaper; they are parked with a reason, mended, or wait."""

from __future__ import annotations

from typing import Any

import pytest

from tests.support.memory_dynamodb import Fault
from tests.support.protocol import new_task, stored_task
from tests.support.world import World
from thunderagent.codec import Foreign, Item
from thunderagent.listing import Selection
from thunderagent.operations import Operator
from thunderagent.schema import lease_key
from thunderagent.service import Service
from thunderagent.states import Status
from thunderagent.why import Whys

BAD = "bad"
NULL = Foreign("NULL", True)


def row(**changes: Any) -> Item:
    return {**new_task(BAD, type="echo", lost=None, dispatchKey="OPEN#default#normal#0"), **changes}


def without(name: str) -> Item:
    return {key: value for key, value in row().items() if key != name}


PARKED: dict[str, Item] = {
    "no payload": without("payload"),
    "payload is a number": row(payload=5),
    "payload is binary": row(payload=Foreign("B", "e30=")),
    "no type": without("type"),
    "no queue": without("queue"),
    "queue is a list": row(queue=["default"]),
    "no status": without("status"),
    "unknown status": row(status="WAITING"),
    "status in lower case": row(status="pending"),
    "status is null": row(status=NULL),
    "status is a list": row(status=["PENDING"]),
    "retryCount is text": row(retryCount="1"),
    "retryCount is negative": row(retryCount=-1),
    "retryCount is no whole number": row(retryCount=1.5),
    "no maxRetryNumber": without("maxRetryNumber"),
    "budget overspent": row(retryCount=4),
    "no createdAt": without("createdAt"),
    "priority is a number": row(priority=0),
    "unknown priority": row(priority="urgent"),
    "timeoutSeconds is text": row(timeoutSeconds="60"),
    "deadline is null": row(deadline=NULL),
    "homeRegion is null": row(homeRegion=NULL),
    "blockedCount is null": row(blockedCount=NULL),
    "fence is text": row(fence="4"),
    "fence is null": row(fence=NULL),
    "updatedAt is binary": row(updatedAt=Foreign("B", "bm93"), payload=5),
    "updatedAt is a set of numbers": row(updatedAt=Foreign("NS", ["1", "2"]), payload=5),
    "updatedAt is a long number": row(updatedAt=1, retryCount="x"),
    "tags is a list": row(tags=["a"]),
    "attempts is a map": row(attempts={"a": 1}),
    "cancelRequested is text": row(cancelRequested="no"),
    "a tag is a set": row(tags={"a": frozenset({"b"})}),
    "an attempt holds binary": row(attempts=[{"attempt": Foreign("B", "e30=")}]),
    "a step is a number": row(steps={"load": 1}),
}


@pytest.fixture
def world() -> World:
    return World()


def passes(world: World, count: int = 10, *, seconds: float = 1.0) -> list[str]:
    """Sweeps and reaper runs of fresh containers, `count` times; the operations that wrote to the bad row."""
    before = len(world.db.calls)
    for _ in range(count):
        world.sweep(world.process("poller"))
        world.reap(world.process("reaper"))
        world.advance(seconds)
    return [call.operation for call in world.db.calls[before:] if wrote(call)]


def wrote(call: Any) -> bool:
    return BAD in call.item_ids and call.operation in {"UpdateItem", "PutItem", "DeleteItem", "TransactWriteItems"}


@pytest.mark.parametrize("damage", PARKED)
def test_a_row_that_can_never_run_is_parked_once_with_its_reason(world: World, damage: str) -> None:
    world.db.put(PARKED[damage])
    good = world.submit()
    assert world.sweep() == 1
    assert world.events[0]["taskIds"] == [good]
    item = world.item(BAD)
    assert item["status"] == "FAILED"
    assert item["error"]["reason"] == "malformed"
    assert item["error"]["message"]
    assert item["dispatchKey"].startswith("FAILED#")
    assert isinstance(item["expiresAt"], int)
    assert world.task(BAD).status is Status.FAILED, "a dead letter can be read"
    listing = Service(world.api).listing
    assert [task.task_id for task in listing.page(Selection(Status.FAILED), limit=10).tasks] == [BAD]
    assert passes(world) == []


@pytest.mark.parametrize(
    "item",
    [
        row(dueAt=1_799_999_999),
        row(blockedCount=2),
        row(homeRegion="eu-west-1"),
    ],
    ids=["due", "blocked", "of another region"],
)
def test_what_may_not_run_here_waits_and_costs_nothing(world: World, item: Item) -> None:
    if item.get("blockedCount") is None and item["homeRegion"] == "us-east-1":
        item["type"] = "unknown"
    world.db.put(item)
    good = world.submit()
    assert world.sweep() == 1
    assert world.events[0]["taskIds"] == [good]
    assert world.status(BAD) == "PENDING"
    assert len(passes(world)) <= 1
    assert len(passes(world, 12, seconds=10)) <= 4  # a type without a handler is looked at twice a minute at most


def test_a_due_time_of_more_digits_than_a_double_can_be_claimed(world: World) -> None:
    raw = world.db.raw
    world.db.put(row())
    stored = raw(BAD) or {}
    world.db("PutItem", {"TableName": "tasks", "Item": {**stored, "dueAt": {"N": "1799999990.1234567890123456789"}}})
    assert world.sweep() == 1
    assert world.status(BAD) == "RUNNING"


@pytest.mark.parametrize(
    "item",
    [
        {"taskId": "lease#bad", "profile": "default", "lockTime": 1},
        {"taskId": "edge#a#bad", "createdAt": 1},
        {"taskId": "unique#bad", "holder": "t"},
        {**row(), "taskId": "payload#bad#1"},
    ],
    ids=["lease", "edge", "unique", "a task in all but its id"],
)
def test_a_side_item_under_an_open_key_leaves_the_index_and_is_else_untouched(world: World, item: Item) -> None:
    stray = {**item, "dispatchKey": "OPEN#default#normal#0", "dueAt": 1_799_999_999}
    world.db.put(stray)
    good = world.submit()
    assert world.sweep() == 1
    assert world.events[0]["taskIds"] == [good]
    assert world.item(item["taskId"]) == {key: value for key, value in stray.items() if key != "dispatchKey"}


@pytest.mark.parametrize("damage", [{}, {"tags": ["a"]}, {"priority": "urgent"}], ids=["sound", "tags", "priority"])
def test_a_terminal_row_under_an_open_key_is_put_in_place_and_keeps_its_end(
    world: World, damage: dict[str, Any]
) -> None:
    ended = stored_task(BAD, Status.SUCCESS, dispatchKey="OPEN#default#normal#0", **damage)
    world.db.put(ended)
    good = world.submit()
    assert world.sweep() == 1
    assert world.events[0]["taskIds"] == [good]
    item = world.item(BAD)
    assert {**item, "dispatchKey": None, "dueAt": None} == {**ended, "dispatchKey": None, "dueAt": None}
    assert not str(item.get("dispatchKey", "")).startswith("OPEN#")
    assert passes(world) == []


# ---- RUNNING --------------------------------------------------------------------------------------------------------


def running(world: World, **changes: Any) -> Item:
    """A claimed task with a live lease, damaged afterwards."""
    task_id = world.submit(task_id=BAD)
    world.sweep()
    world.events.clear()
    item = {**world.item(task_id), **changes}
    item = {name: value for name, value in item.items() if value is not None}
    world.db.put(item)
    return item


DAMAGED = [{"type": None}, {"retryCount": "0"}, {"tags": ["x"]}, {"lockTime": "soon"}, {"fence": NULL}]


@pytest.mark.parametrize("damage", DAMAGED, ids=str)
def test_a_damaged_running_row_is_left_to_its_holder_while_the_lease_lives(world: World, damage: Item) -> None:
    running(world, **damage)
    before = world.db.raw(BAD)
    assert passes(world, 5) == []
    assert world.db.raw(BAD) == before


@pytest.mark.parametrize("damage", DAMAGED, ids=str)
@pytest.mark.parametrize("lease", ["lapsed", "gone"])
def test_a_damaged_running_row_is_parked_once_nobody_can_hold_it(world: World, damage: Item, lease: str) -> None:
    running(world, **damage)
    if lease == "gone":
        world.db.remove(f"lease#{world.leases()[0].token}")
    world.lapse()
    good = world.submit()
    world.reap()
    item = world.item(BAD)
    assert (item["status"], item["error"]["reason"]) == ("FAILED", "malformed")
    assert world.leases() == []
    world.sweep()
    assert world.events[0]["taskIds"] == [good]
    assert passes(world) == []


@pytest.mark.parametrize("by", ["reaper", "holder"])
def test_a_damaged_row_that_was_cancelled_ends_cancelled(world: World, by: str) -> None:
    """The answer to a cancel stays true, whatever has become of the row."""
    task_id = world.submit(task_id=BAD)
    world.sweep()
    event = world.events.pop()
    damaged = {**world.item(task_id), "tags": ["x"], "cancelRequested": True}
    world.db.put(damaged)
    if by == "holder":
        world.deliver(event)
    else:
        world.lapse()
        world.reap()
    item = world.item(BAD)
    assert (item["status"], item["outcome"]) == ("DONE", "cancelled")
    assert "lockTime" not in item
    assert passes(world, 3) == []


@pytest.mark.parametrize("by", ["sweep", "reap"])
def test_a_missing_lock_time_is_repaired_from_the_lease(world: World, by: str) -> None:
    before = running(world)
    world.db.put({name: value for name, value in before.items() if name != "lockTime"})
    if by == "sweep":
        world.sweep(world.process("poller"))
    else:
        world.reap()
    assert world.item(BAD) == before
    assert passes(world, 5) == []


@pytest.mark.parametrize("token", [None, NULL, 5], ids=["missing", "null", "a number"])
def test_a_running_row_without_a_token_goes_back_or_is_parked(world: World, token: Any) -> None:
    item = stored_task(BAD, Status.RUNNING, lockTime=1_799_999_000, dispatchKey="OPEN#default#normal#0")
    world.db.put({name: value for name, value in (item | {"leaseToken": token}).items() if value is not None})
    world.reap()
    item = world.item(BAD)
    if token is None:
        assert (item["status"], item["retryCount"]) == ("PENDING", 1)
        assert "leaseToken" not in item
    else:
        assert (item["status"], item["error"]["reason"]) == ("FAILED", "malformed")
    assert passes(world, 3) == [] or token is None


# ---- leases ---------------------------------------------------------------------------------------------------------

BROKEN_LEASES: dict[str, dict[str, Any]] = {
    "no lockTime": {"lockTime": None},
    "lockTime is text": {"lockTime": "soon"},
    "no taskIds": {"taskIds": None},
    "taskIds is text": {"taskIds": "bad"},
    "taskIds are numbers": {"taskIds": [1]},
    "no dueAt": {"dueAt": None},
    "begun is a number": {"begun": 1},
    "started is a list": {"started": ["bad"]},
    "profile is a number": {"profile": 5},
}


@pytest.mark.parametrize("damage", BROKEN_LEASES)
@pytest.mark.parametrize("first", ["sweep", "reap"])
def test_a_malformed_lease_stops_nobody_and_its_task_comes_back(world: World, damage: str, first: str) -> None:
    running(world)
    (lease,) = world.db.items("lease#").values()
    broken = {name: value for name, value in (lease | BROKEN_LEASES[damage]).items() if value is not None}
    world.db.put(broken)
    others = [world.submit() for _ in range(3)]
    world.lapse()
    if first == "sweep":
        assert world.sweep(world.process("poller")) == 3
        assert set(world.events[0]["taskIds"]) == set(others)
        world.deliver_all()
    for _ in range(4):
        world.reap(world.process("reaper"))
        world.lapse()
    item = world.item(BAD)
    assert (item["status"], item["retryCount"]) == ("PENDING", 0)
    assert world.db.items("lease#") == {}


@pytest.mark.parametrize("damage", BROKEN_LEASES)
def test_a_malformed_lease_stops_no_list_no_count_and_no_answer(world: World, damage: str) -> None:
    running(world)
    (lease,) = world.db.items("lease#").values()
    world.db.put({name: value for name, value in (lease | BROKEN_LEASES[damage]).items() if value is not None})
    other = world.submit()
    world.sweep()
    service = Service(world.api)
    page = service.listing.page(Selection(Status.RUNNING), limit=10)
    assert other in [task.task_id for task in page.tasks]
    assert service.census.take(list(world.api.queues.all().values()))["default"].running >= 1
    why = Whys(world.api.store, world.api.queues, world.api.registry, world.api.settings)
    assert why.why(world.task(BAD), []).reason in {"running", "lease_expired"}


@pytest.mark.parametrize("damage", ["no type", "unknown priority", "tags is a list"])
def test_a_damaged_row_stops_no_list(world: World, damage: str) -> None:
    world.db.put(PARKED[damage])
    good = world.submit()
    listing = Service(world.api).listing
    assert [task.task_id for task in listing.page(Selection(Status.PENDING), limit=10).tasks] == [good]


def test_a_parked_row_can_be_erased_and_a_redrive_parks_it_again(world: World) -> None:
    world.db.put(PARKED["no payload"])
    world.sweep()
    operations = Service(world.api).operations
    operations.redrive(BAD, Operator("me"), key="k")
    world.sweep()
    assert world.item(BAD)["error"]["reason"] == "malformed"
    operations.erase(BAD)
    assert world.db.item(BAD) is None


def test_one_lease_the_store_will_not_answer_for_keeps_the_reaper_from_no_other(world: World) -> None:
    ids = []
    for _ in range(3):
        ids.append(world.submit())
        world.sweep()
    worst = sorted(world.leases(), key=lambda lease: lease.token)[0]
    world.lapse()
    world.db.inject(Fault.REFUSED, where=lambda call: f"lease#{worst.token}" in call.item_ids, times=None)
    world.reap()
    states = sorted(world.status(task_id) for task_id in ids)
    assert states == ["PENDING", "PENDING", "RUNNING"]
    world.db.calm()
    world.reap()
    assert {world.status(task_id) for task_id in ids} == {"PENDING"}


def test_a_cursor_of_a_partition_that_is_gone_starts_over(world: World) -> None:
    world.db.put({"taskId": "control#reaper", "partition": "OPEN#other#high#9", "start": {"taskId": "x"}})
    world.reap()
    assert world.log("reaper.part_failed") == []
    for start in ({"taskId": "x"}, "text", ["a"]):
        world.db.put({"taskId": "control#reaper", "partition": "OPEN#default#high#0", "start": start})
        world.reap()
    assert world.log("reaper.part_failed") == []


def test_a_lease_key_of_a_task_is_no_lease(world: World) -> None:
    stray = row(dispatchKey=lease_key("default", 0))
    world.db.put(stray)
    task_id = world.submit()
    world.sweep()
    world.lapse()
    world.reap()
    assert world.status(task_id) == "PENDING"
    assert world.leases() == []
    assert world.item(BAD) == {name: value for name, value in stray.items() if name != "dispatchKey"}
    assert passes(world) == []
