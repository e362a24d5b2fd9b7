"""What DynamoDB's answers mean: pages followed to their end, retries bounded, refusals classified."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import pytest

from tests.support.fakes import FakeClock, FakeRandomness
from tests.support.memory_dynamodb import Fault, MemoryDynamoDB
from tests.support.protocol import NOW, stored_task, write_of
from thunderagent import expressions
from thunderagent.conditions import put_body
from thunderagent.errors import MalformedItem, OutcomeUnknown, StoreRefused, StoreThrottled, TransactionCancelled
from thunderagent.model import Task
from thunderagent.schema import Layout
from thunderagent.states import Event, Status
from thunderagent.store import ATTEMPTS, BACKOFF_CAP_SECONDS, Refusal, Refused, Send, Store, Written, readable

KEY = "OPEN#default#normal#0"


@pytest.fixture
def db() -> MemoryDynamoDB:
    return MemoryDynamoDB()


def store_over(send: Send, *, clock: FakeClock | None = None, fraction: float = 1.0) -> Store:
    return Store(
        table="tasks",
        send=send,
        clock=clock or FakeClock(),
        randomness=FakeRandomness(fraction),
        layout=Layout(),
    )


def fill(db: MemoryDynamoDB, number: int) -> list[str]:
    for each in range(number):
        db.put({"taskId": f"t{each:04d}", "dispatchKey": KEY, "dueAt": NOW + each})
    return [f"t{each:04d}" for each in range(number)]


# ---- reads ----------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("ascending", [True, False])
def test_a_walk_follows_every_page_in_order(db: MemoryDynamoDB, ascending: bool) -> None:
    ids = fill(db, 250)
    found = [key.task_id for key in store_over(db).walk(KEY, page=100, ascending=ascending)]
    assert found == (ids if ascending else ids[::-1])


def test_a_walk_goes_on_after_an_empty_page(db: MemoryDynamoDB) -> None:
    fill(db, 1)

    def first_page_empty(operation: str, arguments: Mapping[str, Any]) -> Mapping[str, Any]:
        if "ExclusiveStartKey" in arguments:
            return db(operation, {name: value for name, value in arguments.items() if name != "ExclusiveStartKey"})
        key = {"taskId": {"S": "t"}, "dispatchKey": {"S": KEY}, "dueAt": {"N": "1"}}
        return {"Items": [], "Count": 0, "LastEvaluatedKey": key}

    assert [key.task_id for key in store_over(first_page_empty).walk(KEY)] == ["t0000"]


def test_a_query_ends_at_an_instant_inclusively(db: MemoryDynamoDB) -> None:
    ids = fill(db, 10)
    page = store_over(db).query(KEY, limit=50, until=NOW + 4)
    assert [key.task_id for key in page.keys] == ids[:5]
    assert page.next_key is None


@pytest.mark.parametrize(("at_least", "count"), [(None, 250), (1000, 250), (100, 100), (1, 1)])
def test_a_count_stops_where_it_is_told_to(db: MemoryDynamoDB, at_least: int | None, count: int) -> None:
    fill(db, 250)
    assert store_over(db).count(KEY, at_least=at_least) == count


def test_items_are_asked_for_a_hundred_at_a_time_and_once_each(db: MemoryDynamoDB) -> None:
    ids = fill(db, 230)
    found = store_over(db).get_items([*ids, *ids, "gone"])
    assert sorted(found) == ids
    assert [len(call.item_ids) for call in db.calls] == [100, 100, 31]


def test_nothing_is_asked_for_when_nothing_is_wanted(db: MemoryDynamoDB) -> None:
    assert store_over(db).get_items([]) == {}
    assert db.calls == []


class LeavesSome:
    """Answers half of a batch read and leaves the rest unprocessed, `rounds` times."""

    def __init__(self, db: MemoryDynamoDB, rounds: int) -> None:
        self._db = db
        self._rounds = rounds

    def __call__(self, operation: str, arguments: Mapping[str, Any]) -> Mapping[str, Any]:
        if operation != "BatchGetItem" or not self._rounds:
            return self._db(operation, arguments)
        self._rounds -= 1
        ((table, request),) = arguments["RequestItems"].items()
        keys = request["Keys"]
        half = len(keys) // 2
        answer = self._db(operation, {"RequestItems": {table: {**request, "Keys": keys[: half or 1]}}})
        rest = keys[half or 1 :]
        return {**answer, "UnprocessedKeys": {table: {**request, "Keys": rest}} if rest else {}}


def test_unprocessed_keys_are_asked_for_again(db: MemoryDynamoDB) -> None:
    ids = fill(db, 60)
    assert sorted(store_over(LeavesSome(db, 3)).get_items(ids)) == ids


def test_keys_that_stay_unprocessed_are_an_error_and_not_an_absence(db: MemoryDynamoDB) -> None:
    ids = fill(db, 100)

    def never(operation: str, arguments: Mapping[str, Any]) -> Mapping[str, Any]:
        return {"Responses": {"tasks": []}, "UnprocessedKeys": arguments["RequestItems"]}

    with pytest.raises(StoreThrottled):
        store_over(never).get_items(ids)


def test_a_row_that_is_no_task_says_so_and_hides_no_other(db: MemoryDynamoDB) -> None:
    db.put({"taskId": "bad", "status": "PENDING"})
    db.put(stored_task("good", Status.PENDING))
    store = store_over(db)
    with pytest.raises(MalformedItem):
        store.get_task("bad")
    tasks, problems = readable(store.get_items(["bad", "good", "gone"]))
    assert list(tasks) == ["good"]
    assert [problem.item_id for problem in problems] == ["bad"]


# ---- retries --------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("fault", [Fault.THROTTLED, Fault.LOST_REQUEST, Fault.CONFLICT])
def test_what_may_pass_is_retried_with_bounded_waits(db: MemoryDynamoDB, fault: Fault) -> None:
    clock = FakeClock()
    db.inject(fault, times=ATTEMPTS - 1)
    store_over(db, clock=clock).apply(put_body({"taskId": "payload#t#x", "body": "1"}))
    assert len(clock.slept) == ATTEMPTS - 1
    assert max(clock.slept) <= BACKOFF_CAP_SECONDS
    assert sum(clock.slept) < 5


@pytest.mark.parametrize(
    ("fault", "error", "applied"),
    [
        (Fault.THROTTLED, StoreThrottled, False),
        (Fault.CONFLICT, StoreThrottled, False),
        (Fault.LOST_REQUEST, OutcomeUnknown, None),
        (Fault.REFUSED, StoreRefused, False),
    ],
)
def test_what_does_not_pass_says_whether_it_was_applied(
    db: MemoryDynamoDB, fault: Fault, error: type[StoreThrottled], applied: bool | None
) -> None:
    db.inject(fault, times=None)
    with pytest.raises(error) as caught:
        store_over(db).apply(put_body({"taskId": "payload#t#x", "body": "1"}))
    assert caught.value.applied is applied
    assert len(db.calls) == (1 if fault is Fault.REFUSED else ATTEMPTS)


def test_reads_are_retried_too(db: MemoryDynamoDB) -> None:
    db.put(stored_task("t", Status.PENDING))
    db.inject(Fault.THROTTLED, times=2)
    assert store_over(db).get_task("t") is not None


# ---- answers --------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("stored", "reason"),
    [
        (None, Refusal.GONE),
        (stored_task("t", Status.SUCCESS, leaseToken="other"), Refusal.TERMINAL),
        (stored_task("t", Status.RUNNING, cancelRequested=True), Refusal.CANCELLED),
        (stored_task("t", Status.RUNNING, leaseToken="other"), Refusal.OTHER),
        (stored_task("t", Status.PENDING), Refusal.OTHER),
    ],
    ids=lambda value: getattr(value, "value", ""),
)
def test_a_refusal_says_what_stands_there(db: MemoryDynamoDB, stored: Any, reason: Refusal) -> None:
    if stored is not None:
        db.put(stored)
    commit = write_of(Event.COMMIT, Task.from_item(stored_task("t", Status.RUNNING)))
    assert store_over(db).apply(commit) == Refused(reason, stored)


def test_a_transaction_names_each_obstacle(db: MemoryDynamoDB) -> None:
    db.put(stored_task("a", Status.RUNNING))
    db.put(stored_task("b", Status.RUNNING, leaseToken="other"))
    writes = [write_of(Event.COMMIT, Task.from_item(stored_task(each, Status.RUNNING))) for each in ("a", "b")]
    answer = store_over(db).transact(writes, request_token="x")
    assert answer == (None, Refused(Refusal.OTHER, db.item("b")))
    assert (db.item("a") or {})["status"] == "RUNNING"


def test_a_transaction_whose_first_write_is_there_has_happened(db: MemoryDynamoDB) -> None:
    """By its first write a transaction knows its own, when its token is no longer remembered."""
    db.put(stored_task("a", Status.RUNNING))
    commit = write_of(Event.COMMIT, Task.from_item(stored_task("a", Status.RUNNING)))
    store = store_over(db)
    user = expressions.put_edge("p", "a", now=NOW)
    assert store.transact([commit, user], request_token="x") == Written()
    again = store.transact([commit, user], request_token="y")
    assert isinstance(again, Written)
    assert again.replayed


def test_a_transaction_cancelled_for_another_reason_is_refused(db: MemoryDynamoDB) -> None:
    db.inject(TransactionCancelled("TransactWriteItems", [("ValidationError", None)]))
    with pytest.raises(StoreRefused, match="ValidationError"):
        store_over(db).transact([expressions.put_edge("p", "c", now=NOW)], request_token="x")
