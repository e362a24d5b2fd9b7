"""`run_task`: one attempt as an executor makes it, and all that came of it."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import pytest

from thunderagent import Backoff, Done, Fail, RetryLater, task
from thunderagent.errors import ConfigurationError
from thunderagent.testing import FakeClock, run_task


def returning(value: Any) -> Any:
    @task("demo", backoff=Backoff(base=8))
    def handler(payload: Any, ctx: Any) -> Any:
        if isinstance(value, BaseException):
            raise value
        return value

    return handler


@pytest.mark.parametrize(
    ("value", "ended", "status"),
    [
        ({"a": [1.0, 2**70, None]}, "succeeded", "SUCCESS"),
        (Done("nothing to do"), "skipped", "DONE"),
        (Fail("never"), "failed", "FAILED"),
        (RetryLater(60), "snoozed", "PENDING"),
        (ValueError("once more"), "retried", "PENDING"),
        ({1, 2}, "failed", "FAILED"),
    ],
)
def test_what_a_handler_says_is_what_becomes_of_its_task(value: Any, ended: str, status: str) -> None:
    run = run_task(returning(value))
    assert (run.ended, run.status) == (ended, status)
    assert run.result == (value if ended == "succeeded" else None)


def test_a_retry_is_told_with_its_error_and_when_it_is_due() -> None:
    run = run_task(returning(ValueError("once more")), attempt=2)
    assert (run.retry_count, run.due_in) == (2, 8.0)  # half of what the backoff allows: chance stands in the middle
    assert run.error is not None
    assert (run.error["type"], run.error["message"]) == ("ValueError", "once more")


def test_the_last_attempt_that_fails_is_the_dead_letter() -> None:
    assert run_task(returning(ValueError("no")), attempt=4).status == "FAILED"


def test_an_attempt_knows_which_it_is_and_what_earlier_ones_completed() -> None:
    ran: list[str] = []

    @task("demo")
    def handler(payload: Any, ctx: Any) -> Any:
        first = ctx.step("load", lambda: ran.append("load"))
        second = ctx.step("store", lambda: ran.append("store") or "stored")
        ctx.progress(0.5, "half")
        ctx.logger.info("attempt %d", ctx.attempt)
        return [ctx.attempt, first, second, dict(ctx.tags)]

    run = run_task(handler, attempt=3, steps={"load": "loaded"}, tags={"tenant": "a"})
    assert run.result == [3, "loaded", "stored", {"tenant": "a"}]
    assert ran == ["store"]
    assert run.steps == {"load": "loaded", "store": "stored"}
    assert run.progress is not None
    assert run.progress["message"] == "half"
    assert [line["message"] for line in run.log] == ["attempt 3"]


def test_payload_types_are_read_as_in_the_executor() -> None:
    @dataclass
    class Order:
        amount: int

    @task("demo")
    def handler(payload: Order, ctx: Any) -> int:
        return payload.amount

    handler.__annotations__["payload"] = Order
    assert run_task(handler, {"amount": 3}).result == 3
    assert run_task(handler, {"amount": "three"}).status == "FAILED"


def test_a_child_gets_the_results_of_its_parents() -> None:
    @task("demo")
    def handler(payload: Any, ctx: Any) -> Any:
        return ctx.dependency_results

    assert run_task(handler, parents={"a": {"rows": 1}, "b": None}).result == {"a": {"rows": 1}, "b": None}


def test_a_cancelled_task_cannot_write_and_ends_cancelled() -> None:
    reached: list[str] = []

    @task("demo")
    def handler(payload: Any, ctx: Any) -> None:
        reached.append("start")
        ctx.step("send", lambda: "sent")
        reached.append("end")

    run = run_task(handler, cancel=True)
    assert (run.ended, run.status) == ("cancelled", "DONE")
    assert reached == ["start"]


def test_items_of_a_commit_meet_the_conditions_of_the_users_table() -> None:
    @task("demo")
    def handler(payload: Any, ctx: Any) -> None:
        ctx.commit_with(
            [
                {
                    "Put": {
                        "TableName": "stock",
                        "Item": {"shop": {"S": "a"}, "article": {"N": "7"}, "left": {"N": "1"}},
                        "ConditionExpression": "attribute_not_exists(#s)",
                        "ExpressionAttributeNames": {"#s": "shop"},
                    }
                }
            ]
        )

    tables = {"stock": ("shop", "article")}
    assert run_task(handler, tables=tables).rows == {"stock": [{"shop": "a", "article": 7, "left": 1}]}
    there = run_task(handler, tables=tables, rows={"stock": [{"shop": "a", "article": 7}]})
    assert there.status == "PENDING"
    assert there.error is not None
    assert there.error["type"] == "CommitRefused"
    assert there.rows == {"stock": [{"shop": "a", "article": 7}]}


def test_a_table_nobody_declared_is_refused_with_its_name() -> None:
    @task("demo")
    def handler(payload: Any, ctx: Any) -> None:
        ctx.commit_with([{"Delete": {"TableName": "nowhere", "Key": {"id": {"S": "1"}}}}])

    run = run_task(handler)
    assert run.error is not None
    assert "nowhere" in run.error["message"]


def test_time_stands_still_until_it_is_moved() -> None:
    clock = FakeClock()

    @task("demo", timeout=100)
    def handler(payload: Any, ctx: Any) -> list[float]:
        before = ctx.remaining_seconds
        clock.advance(40)
        return [before, ctx.remaining_seconds]

    assert run_task(handler, clock=clock).result == [100, 60]


def test_children_go_to_their_queues() -> None:
    @task("demo", queue="orders")
    def handler(payload: Any, ctx: Any) -> None:
        ctx.submit("mail", {"n": 1}, queue="mail")

    (child,) = run_task(handler, queues=("mail",)).children
    assert (child.type, child.payload, child.queue) == ("mail", {"n": 1}, "mail")


def test_what_is_no_handler_is_told() -> None:
    def plain(payload: Any, ctx: Any) -> None: ...

    with pytest.raises(ConfigurationError, match="@task is missing"):
        run_task(plain)
