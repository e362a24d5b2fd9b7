"""The census: right on short queues, bounded on long ones, kept in one item that everybody reads."""

from __future__ import annotations

from typing import Any

import pytest

from tests.support.fakes import START
from tests.support.memory_dynamodb import Fault
from tests.support.protocol import new_task, stored_task
from tests.support.upkeep import Minute
from thunderagent import census, deep_counts
from thunderagent.backpressure import Backpressure
from thunderagent.census import CENSUS_ID, Census
from thunderagent.errors import Backlogged
from thunderagent.queues import QueueSettings, Shards
from thunderagent.schema import blocked_key, lease_id, lease_key, open_key, queue_control_id
from thunderagent.states import Status


@pytest.fixture
def minute() -> Minute:
    return Minute()


def put_pending(minute: Minute, count: int, *, shard: int = 0, queue: str = "default", due_at: float = START) -> None:
    for number in range(count):
        key = open_key(queue, "normal", shard)
        minute.table.put(
            new_task(f"{queue}-{shard}-{number:05d}", queue=queue, dispatchKey=key, dueAt=due_at + number / 1000)
        )


def put_running(minute: Minute, *task_ids: str) -> None:
    """In flight for less than a minute: at the head of their open partition, and named by a lease."""
    key = open_key("default", "normal", 0)
    for task_id in task_ids:
        minute.table.put(stored_task(task_id, Status.RUNNING, leaseToken="t", dispatchKey=key, lockTime=START + 300))
    minute.table.put(
        {
            "taskId": lease_id("t"),
            "profile": "default",
            "taskIds": list(task_ids),
            "lockTime": START + 300,
            "dueAt": START + 300,
            "dispatchKey": lease_key("default", 0),
        }
    )


def settings(name: str = "default", **changes: Any) -> QueueSettings:
    return QueueSettings(name, shards=Shards(2, 2), **changes)


def test_what_waits_runs_is_blocked_and_has_failed(minute: Minute) -> None:
    put_pending(minute, 3, due_at=START - 40)
    put_pending(minute, 2, shard=1)
    put_running(minute, "r1", "r2")
    minute.table.put(new_task("b", blockedCount=1, dispatchKey=blocked_key("default", 1), dueAt=START + 60))
    minute.table.put(stored_task("f", Status.FAILED, dispatchKey="FAILED#default#0"))
    assert minute.run()["well"]
    assert minute.measured("Backlog", "default") == 5
    assert minute.measured("Running", "default") == 2
    assert minute.measured("Blocked", "default") == 1
    assert minute.measured("OldestDueAge", "default") == 40
    figures = minute.upkeep.census.take([settings()])["default"]
    assert (figures.backlog, figures.running, figures.blocked, figures.failed) == (5, 2, 1, 1)
    assert figures.finished_per_second == round(1 / 60, 3)
    assert figures.as_of == START


def test_gauges_are_emitted_when_idle_for_every_declared_queue(minute: Minute) -> None:
    minute.run()
    for queue in ("default", "reports"):
        for gauge in ("Backlog", "Running", "Blocked", "OldestDueAge"):
            assert minute.measured(gauge, queue) == 0, (gauge, queue)


def test_tasks_in_flight_before_it_do_not_hide_how_long_one_waits(minute: Minute) -> None:
    put_running(minute, *(f"r{number:03d}" for number in range(120)))
    key = open_key("default", "normal", 0)
    minute.table.put(new_task("waits", dispatchKey=key, dueAt=START - 7))
    for item in minute.table.items("r").values():
        minute.table.put(item | {"dueAt": START - 300})
    minute.run()
    assert minute.measured("OldestDueAge", "default") == 7


# ---- one item for everybody ------------------------------------------------------------------------------------------


def test_readers_read_one_item_and_count_nothing(minute: Minute) -> None:
    put_pending(minute, 5)
    minute.run()
    before = len(minute.table.calls)
    assert minute.upkeep.census.take([settings()])["default"].backlog == 5
    (call,) = minute.table.calls[before:]
    assert (call.operation, call.item_ids) == ("GetItem", [CENSUS_ID])


def test_the_figures_say_when_they_were_taken(minute: Minute) -> None:
    minute.run()
    minute.clock.advance(30)
    answer = minute.upkeep.census.take([settings()])["default"].as_answer()
    assert answer["backlog"] == {"value": 0, "asOf": START}


def test_a_queue_that_was_not_met_yet_is_counted(minute: Minute) -> None:
    minute.run()
    put_pending(minute, 3, queue="new")
    figures = minute.upkeep.census.take([settings(), settings("new")])
    assert figures["new"].backlog == 3
    assert figures["new"].as_of > figures["default"].as_of


def test_figures_of_a_stopped_reaper_are_not_used(minute: Minute) -> None:
    minute.run()
    put_pending(minute, 4)
    minute.clock.advance(census.FRESH_SECONDS + 1)
    assert minute.upkeep.census.take([settings()])["default"].backlog == 4


def test_backpressure_counts_small_bounds_and_compares_large_ones_with_the_census(minute: Minute) -> None:
    put_pending(minute, 10)
    minute.table.put({"taskId": queue_control_id("default"), "maxBacklog": 10})
    pressure = backpressure(minute)
    with pytest.raises(Backlogged):
        pressure.check("default")
    minute.table.put({"taskId": queue_control_id("default"), "maxBacklog": census.COUNT_LIMIT + 1})
    minute.run()
    stored = minute.table.item(CENSUS_ID)
    assert stored is not None
    stored["queues"]["default"]["backlog"] = census.COUNT_LIMIT + 1
    minute.table.put(stored)
    with pytest.raises(Backlogged):
        backpressure(minute).check("default")


def backpressure(minute: Minute) -> Backpressure:
    own = minute.upkeep.parts
    own.queues.all(fresh=True)
    return Backpressure(own.queues, minute.upkeep.census, minute.clock)


# ---- a million pending tasks -----------------------------------------------------------------------------------------


@pytest.fixture
def small_bounds(monkeypatch: pytest.MonkeyPatch) -> None:
    """The bounds of a census at a hundredth, so that a hundredth of the tasks shows what a million would."""
    monkeypatch.setattr(census, "COUNT_LIMIT", 10)
    monkeypatch.setattr(deep_counts, "KEYS_A_RUN", 60)
    monkeypatch.setattr(deep_counts, "KEYS_A_PAGE", 20)


def reads_of_a_census(minute: Minute) -> float:
    own = minute.upkeep.parts
    queues = list(own.queues.all(fresh=True).values())
    before = minute.table.read_units
    minute.upkeep.census.publish(queues, observer=own.telemetry)
    return minute.table.read_units - before


@pytest.mark.usefixtures("small_bounds")
def test_its_cost_does_not_grow_with_the_backlog() -> None:
    few, many = Minute(shards=1), Minute(shards=1)
    put_pending(few, 120)
    put_pending(many, 1200)
    costs = [(reads_of_a_census(few), reads_of_a_census(many)) for _ in range(4)]
    for few_units, many_units in costs:
        assert many_units <= few_units + 1


@pytest.mark.usefixtures("small_bounds")
def test_a_long_queue_is_counted_piece_by_piece_and_says_at_least_until_it_was_counted_whole() -> None:
    minute = Minute(shards=1)
    put_pending(minute, 130)
    seen = []
    for _ in range(4):
        minute.run()
        figures = minute.upkeep.census.take([QueueSettings("default", shards=Shards(1, 1))])["default"]
        seen.append((figures.backlog, "backlog" in figures.at_least))
    assert seen[:2] == [(60, True), (120, True)]
    assert seen[2] == (130, False)
    assert seen[3] == (130, False), "while it is counted again, the last whole count holds"


@pytest.mark.usefixtures("small_bounds")
def test_several_long_partitions_are_counted_in_turn() -> None:
    minute = Minute(shards=2)
    put_pending(minute, 100)
    put_pending(minute, 70, shard=1)
    for _ in range(4):
        minute.run()
    figures = minute.upkeep.census.take([settings()])["default"]
    assert figures.backlog == 170
    assert not figures.at_least


@pytest.mark.usefixtures("small_bounds")
def test_a_queue_that_became_short_is_exact_at_once() -> None:
    minute = Minute(shards=1)
    put_pending(minute, 130)
    for _ in range(3):
        minute.run()
    for task_id in list(minute.table.items("default-"))[4:]:
        minute.table.remove(task_id)
    minute.run()
    assert minute.measured("Backlog", "default") == 4
    stored = minute.table.item(CENSUS_ID)
    assert stored is not None
    assert stored["deep"]["partitions"] == {}


@pytest.mark.usefixtures("small_bounds")
def test_many_ends_in_a_minute_are_a_rate_although_not_all_are_read(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(census, "RATE_KEYS", 20)
    minute = Minute(shards=1)
    for number in range(120):  # two a second, for a minute
        ended = START - 60 + number / 2
        minute.table.put(
            stored_task(
                f"s{number:03d}", Status.SUCCESS, dispatchKey="SUCCESS#default#0", dueAt=ended, finishedAt=ended
            )
        )
    minute.run()
    rate = minute.upkeep.census.take([QueueSettings("default", shards=Shards(1, 1))])["default"].finished_per_second
    assert rate == pytest.approx(2, rel=0.1)


# ---- signs of life ---------------------------------------------------------------------------------------------------


def test_a_good_run_is_a_sign_of_life(minute: Minute) -> None:
    assert minute.run()["well"]
    assert minute.measured("ReaperHeartbeat") == 1


@pytest.mark.parametrize("operation", ["GetItem", "Query", "BatchGetItem", "PutItem", "Scan"])
def test_a_reaper_without_a_permission_gives_none(minute: Minute, operation: str) -> None:
    put_pending(minute, 1)
    minute.table.inject(Fault.REFUSED, where=lambda call: call.operation == operation, times=None)
    assert not minute.run()["well"]
    assert minute.measured("ReaperHeartbeat") is None
    assert minute.logged("reaper.part_failed")
    minute.table.calm()
    assert minute.run()["well"], "it is well again when the permission is there"


def test_a_reaper_that_may_not_update_gives_none_as_soon_as_there_is_something_to_take_back(minute: Minute) -> None:
    put_running(minute, "r1")
    minute.clock.advance(400)
    minute.table.inject(Fault.REFUSED, where=lambda call: call.operation == "UpdateItem", times=None)
    assert not minute.run()["well"]
    assert minute.measured("ReaperHeartbeat") is None


def test_a_part_that_fails_does_not_stop_the_others(minute: Minute, monkeypatch: pytest.MonkeyPatch) -> None:
    def broken(*arguments: Any, **options: Any) -> None:
        raise ZeroDivisionError

    monkeypatch.setattr(Census, "publish", broken)
    minute.queue.put({"requestContext": {"condition": "EventAgeExceeded"}, "requestPayload": {}})
    with pytest.raises(ZeroDivisionError):
        minute.run()
    assert minute.measured("ReaperHeartbeat") is None
    assert minute.measured("EventsTooOld") == 1
    assert minute.measured("AuditViolations") == 0


# ---- what was not delivered ------------------------------------------------------------------------------------------


def undelivered(condition: str) -> dict[str, Any]:
    return {
        "version": "1.0",
        "requestContext": {"condition": condition, "functionArn": "arn:executor", "approximateInvokeCount": 1},
        "requestPayload": {"leaseToken": "secret-token", "profile": "default", "taskIds": ["a", "b"]},
    }


def test_only_events_that_grew_too_old_are_news(minute: Minute) -> None:
    for condition in ("RetriesExhausted", "EventAgeExceeded", "RetriesExhausted"):
        minute.queue.put(undelivered(condition))
    minute.run()
    assert minute.measured("EventsTooOld") == 1
    (line,) = minute.logged("batch.too_old")
    assert (line["profile"], line["tasks"]) == ("default", 2)
    assert "secret-token" not in minute.log.getvalue()
    assert len(minute.queue.deleted) == 3


def test_messages_that_are_none_of_lambdas_stay_and_hide_nothing(minute: Minute) -> None:
    for body in ("text", "[]", "{}", {"requestContext": 5}):
        minute.queue.put(body)
    minute.queue.put(undelivered("EventAgeExceeded"))
    minute.run()
    assert minute.measured("EventsTooOld") == 1
    assert len(minute.queue.deleted) == 1
    assert len(minute.logged("undelivered.unknown")) == 4


def test_an_empty_queue_is_a_zero_and_a_full_one_is_read_in_bounds(minute: Minute) -> None:
    minute.run()
    assert minute.measured("EventsTooOld") == 0
    for _ in range(250):
        minute.queue.put(undelivered("RetriesExhausted"))
    minute.run()
    assert len(minute.queue.deleted) == 200


def test_a_queue_that_may_not_be_read_is_no_sign_of_life(minute: Minute) -> None:
    minute.queue.refused = True
    assert not minute.run()["well"]
