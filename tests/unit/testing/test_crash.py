"""`crash_test`: whatever a handler does twice is found, and nothing that the library does once is blamed."""

from __future__ import annotations

from collections import Counter
from typing import Any

import pytest

from thunderagent import RetryLater, task
from thunderagent.errors import ConfigurationError
from thunderagent.testing import CrashReport, crash_test

ORDERS = {"orders": ("orderId",)}
ADD_ONE = {
    "Update": {
        "TableName": "orders",
        "Key": {"orderId": {"S": "1"}},
        "UpdateExpression": "ADD n :one",
        "ExpressionAttributeValues": {":one": {"N": "1"}},
    }
}


def where(report: CrashReport, effect: str) -> list[str]:
    return [str(each.kill) for each in report.repeated if each.effect == effect]


def test_a_handler_without_effects_is_clean_wherever_it_is_killed() -> None:
    @task("demo")
    def handler(payload: Any, ctx: Any) -> Any:
        return payload

    report = crash_test(handler, {"n": 1})
    report.check()
    # taking up the lease, its start, its commit, giving the lease up: before and after each
    assert len(report.kills) == 8


def test_children_and_items_of_the_commit_are_never_doubled() -> None:
    @task("demo")
    def handler(payload: Any, ctx: Any) -> None:
        for number in range(3):
            ctx.submit("child", number)
        ctx.commit_with([ADD_ONE])

    report = crash_test(handler, tables=ORDERS)
    report.check()
    assert report.effects == {
        "child child 0": 1,
        "child child 1": 1,
        "child child 2": 1,
        'item orders/{"orderId": {"S": "1"}}': 1,
    }


def test_a_step_repeats_only_when_killed_before_its_record() -> None:
    @task("demo")
    def handler(payload: Any, ctx: Any) -> None:
        ctx.step("one", lambda: 1)
        ctx.step("two", lambda: 2)

    report = crash_test(handler)
    assert where(report, "step one") == ["killed before remembering step one (write 3)"]
    assert where(report, "step two") == ["killed before remembering step two (write 4)"]
    with pytest.raises(AssertionError, match="step one: 2 times instead of 1"):
        report.check(may_repeat={"step two"})
    report.check(may_repeat={"step one", "step two"})


def test_an_effect_outside_of_steps_repeats_after_every_later_write() -> None:
    sent: Counter[str] = Counter()

    @task("demo")
    def handler(payload: Any, ctx: Any) -> None:
        sent["mail"] += 1
        ctx.progress(0.5)

    report = crash_test(handler, effects=lambda: sent)
    assert where(report, "mail") == [
        "killed before its progress (write 3)",
        "killed after its progress (write 3)",
        "killed before its commit (write 4)",
    ]


def test_a_child_made_by_chance_is_doubled_and_found() -> None:
    """Named by something that changes with the attempt, a child is another one each time."""
    runs: Counter[str] = Counter()

    @task("demo")
    def handler(payload: Any, ctx: Any) -> None:
        runs["n"] += 1
        ctx.submit("child", "x", name=f"run {runs['n']}")

    report = crash_test(handler)
    assert where(report, 'child child "x"') == [
        "killed after submitting a child (write 3)",
        "killed before its commit (write 4)",
    ]


def test_an_effect_that_a_retry_skips_is_lost_and_found() -> None:
    done: set[str] = set()
    sent: Counter[str] = Counter()

    @task("demo")
    def handler(payload: Any, ctx: Any) -> None:
        if "flag" not in done:
            done.add("flag")
            ctx.progress(0.1)
            sent["mail"] += 1

    report = crash_test(handler, effects=lambda: sent, reset=done.clear)
    assert [str(each.kill) for each in report.lost] == [
        "killed before its progress (write 3)",
        "killed after its progress (write 3)",
    ]
    with pytest.raises(AssertionError, match="lost: mail: 0 times instead of 1"):
        report.check()


def test_another_end_after_a_crash_is_found() -> None:
    @task("demo")
    def handler(payload: Any, ctx: Any) -> Any:
        return ctx.attempt

    report = crash_test(handler)
    assert {end for _, end in report.different} == {"SUCCESS with 2"}
    with pytest.raises(AssertionError, match="ended SUCCESS with 2, killed after recording its start"):
        report.check()


def test_a_task_without_retries_ends_failed_after_a_crash() -> None:
    @task("demo")
    def handler(payload: Any, ctx: Any) -> None: ...

    report = crash_test(handler, retries=0)
    assert {end for _, end in report.different} == {"FAILED with None"}


def test_a_handler_that_never_ends_is_told() -> None:
    @task("demo")
    def handler(payload: Any, ctx: Any) -> None:
        raise RetryLater(1)

    with pytest.raises(ConfigurationError, match="has not ended after 20 attempts"):
        crash_test(handler)
