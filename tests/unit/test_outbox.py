"""transact_submit: the user's row and its task are written together or not at all."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import pytest

from tests.support.api import REGISTRY, TABLE, Api
from tests.support.fakes import FakeClock, FakeRandomness
from thunderagent import transact_submit
from thunderagent.client import NewTask
from thunderagent.errors import InvalidInput, TooLarge, TransactionCancelled
from thunderagent.registry import Registry


@pytest.fixture
def api(monkeypatch: pytest.MonkeyPatch) -> Api:
    from functions.api import handler

    made = Api()
    monkeypatch.setattr(handler, "service", lambda: made.service)
    return made


def items_of(*tasks: Any, **options: Any) -> Any:
    return transact_submit(TABLE, *tasks, clock=FakeClock(), randomness=FakeRandomness(prefix="x"), **options)


def write(api: Api, entries: Sequence[dict[str, Any]]) -> None:
    api.table("TransactWriteItems", {"TransactItems": list(entries)})


def order(number: int) -> dict[str, Any]:
    item = {"taskId": {"S": f"order#{number}"}}
    return {"Put": {"TableName": TABLE, "Item": item, "ConditionExpression": "attribute_not_exists(taskId)"}}


def test_a_task_is_the_one_the_api_would_have_made(api: Api) -> None:
    entries = items_of(NewTask("demo.echo", {"n": 1.0}, {"delay_seconds": 60}), shards=4, region="us-east-1")
    write(api, [order(7), *entries])
    (task_id,) = entries.task_ids
    theirs = api.call("GET", f"/tasks/{task_id}").json
    ours = api.call("POST", "/tasks", {"type": "demo.echo", "payload": {"n": 1.0}, "delaySeconds": 60}).json
    assert theirs == ours | {"taskId": task_id}
    stored, made = api.table.item(task_id) or {}, api.table.item(ours["taskId"]) or {}
    assert stored | {"dispatchKey": "", "taskId": ""} == made | {"dispatchKey": "", "taskId": ""}
    assert api.table.item("order#7") is not None


def test_both_or_none(api: Api) -> None:
    write(api, [order(7)])
    with pytest.raises(TransactionCancelled):
        write(api, [order(7), *items_of(NewTask("demo.echo", "x" * 5000))])
    assert api.rows() == ["order#7"]


def test_a_larger_payload_has_an_item_of_its_own(api: Api) -> None:
    entries = items_of({"type": "demo.echo", "payload": "x" * 100_000, "taskId": "mine"})
    assert len(entries) == 2
    write(api, entries)
    assert api.call("GET", "/tasks/mine").json["payload"] == "x" * 100_000


def test_unique_work_is_written_once(api: Api) -> None:
    write(api, items_of(NewTask("demo.echo", 1, {"unique_window_seconds": 60})))
    with pytest.raises(TransactionCancelled):
        write(api, items_of(NewTask("demo.echo", 1, {"unique_window_seconds": 60, "task_id": "other"})))
    again = api.call("POST", "/tasks", {"type": "demo.echo", "payload": 1, "unique": {"windowSeconds": 60}})
    assert (again.status, again.json["duplicate"]) == (200, True)


def test_the_declaration_counts_when_its_registry_is_given(api: Api) -> None:
    entries = items_of(NewTask("report.generate"), registry=Registry.from_dict(REGISTRY))
    write(api, entries)
    task = api.call("GET", f"/tasks/{entries.task_ids[0]}").json
    assert (task["queue"], task["maxRetryNumber"]) == ("reports", 5)


def test_without_a_region_any_poller_may_claim_it() -> None:
    (entry,) = items_of(NewTask("demo.echo"))
    assert "homeRegion" not in entry["Put"]["Item"]
    assert entry["Put"]["Item"]["dispatchKey"] == {"S": "OPEN#default#normal#0"}


def test_a_table_resource_names_its_table() -> None:
    class Table:
        name = "orders"

    assert transact_submit(Table(), NewTask("demo.echo"))[0]["Put"]["TableName"] == "orders"


@pytest.mark.parametrize(
    ("task", "error", "path"),
    [
        ({"type": "demo.echo", "dependsOn": ["p"]}, InvalidInput, "dependsOn"),
        ({"type": "Bad"}, InvalidInput, "type"),
        ({"type": "demo.echo", "payload": float("nan")}, InvalidInput, "payload"),
        ({"type": "demo.echo", "payload": "x" * 400_000}, TooLarge, None),
    ],
)
def test_what_cannot_be_written_so(task: dict[str, Any], error: type[InvalidInput], path: str | None) -> None:
    with pytest.raises(error) as caught:
        items_of(task)
    assert caught.value.path == path


def test_more_than_a_transaction_holds() -> None:
    with pytest.raises(InvalidInput, match="101 entries"):
        items_of(*[NewTask("demo.echo")] * 101)
