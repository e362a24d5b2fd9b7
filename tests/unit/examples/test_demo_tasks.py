"""The demonstration tasks do what their page says."""

import math
from collections.abc import Callable, Iterator
from decimal import Decimal
from pathlib import Path
from typing import Any

import boto3
import pytest
from moto import mock_aws

from examples.demo import counters, tasks
from tests.unit.examples.fakes import FakeContext
from thunderagent import Fail
from thunderagent.registry import handlers_in

TABLE = "tasks"


class ProcessEnded(BaseException):
    """What `os._exit` is here: it cannot be caught as an Exception."""


@pytest.fixture
def ended(monkeypatch: pytest.MonkeyPatch) -> list[int]:
    codes: list[int] = []

    def end(code: int) -> None:
        codes.append(code)
        raise ProcessEnded

    monkeypatch.setattr(tasks.os, "_exit", end)
    return codes


@pytest.fixture
def table(monkeypatch: pytest.MonkeyPatch) -> Iterator[Callable[[str], dict[str, int]]]:
    """Reads the numbers of a counter item."""
    monkeypatch.setenv("TABLE_NAME", TABLE)
    counters._client.cache_clear()
    with mock_aws():
        dynamodb = boto3.client("dynamodb")
        dynamodb.create_table(
            TableName=TABLE,
            KeySchema=[{"AttributeName": "taskId", "KeyType": "HASH"}],
            AttributeDefinitions=[{"AttributeName": "taskId", "AttributeType": "S"}],
            BillingMode="PAY_PER_REQUEST",
        )

        def read(key: str) -> dict[str, int]:
            item = dynamodb.get_item(TableName=TABLE, Key={"taskId": {"S": f"counter#{key}"}})["Item"]
            return {name: int(value["N"]) for name, value in item.items() if "N" in value}

        yield read
    counters._client.cache_clear()


@pytest.mark.parametrize("payload", [None, 0, False, "", {}, [1, {"a": None}], 2**70])
def test_echo_returns_its_payload(payload: Any) -> None:
    assert tasks.echo(payload, FakeContext()) is payload


def test_sleep_takes_its_time_and_ends_early_when_cancelled(monkeypatch: pytest.MonkeyPatch) -> None:
    now = [0.0]

    def sleep(seconds: float) -> None:
        now[0] += seconds

    monkeypatch.setattr(tasks.time, "monotonic", lambda: now[0])
    monkeypatch.setattr(tasks.time, "sleep", sleep)
    assert tasks.sleep({"seconds": 2.1}, FakeContext()) == {"seconds": 2.1}
    assert tasks.sleep({"seconds": 3600}, FakeContext(cancelled=True)) == {"seconds": 0}
    assert tasks.sleep({"seconds": 0}, FakeContext()) == {"seconds": 0}


def test_flaky_fails_as_often_as_it_should() -> None:
    for attempt in (1, 2):
        with pytest.raises(RuntimeError, match=f"attempt {attempt} fails"):
            tasks.flaky({"failures": 2}, FakeContext(attempt=attempt))
    assert tasks.flaky({"failures": 2}, FakeContext(attempt=3)) == {"attempt": 3}
    assert tasks.flaky({"failures": 0}, FakeContext()) == {"attempt": 1}


def test_fail_raises_what_is_retried_and_permanent_what_is_not() -> None:
    with pytest.raises(RuntimeError) as raised:
        tasks.fail({}, FakeContext())
    assert not isinstance(raised.value, Fail)
    with pytest.raises(Fail):
        tasks.permanent({}, FakeContext())


def test_crash_ends_its_process(ended: list[int]) -> None:
    with pytest.raises(ProcessEnded):
        tasks.crash({}, FakeContext())
    assert ended == [137]


def test_big_and_raise_are_as_long_as_asked() -> None:
    assert len(tasks.big({"bytes": 300_000}, FakeContext())) == 300_000
    assert tasks.big({"bytes": 0}, FakeContext()) == ""
    with pytest.raises(RuntimeError) as raised:
        tasks.raise_long({"bytes": 300_000}, FakeContext())
    assert len(str(raised.value)) == 300_000


def test_return_returns_what_json_cannot_hold_and_what_is_often_lost() -> None:
    returned = {kind: tasks.return_unusual({"kind": kind}, FakeContext()) for kind in tasks.UNUSUAL}
    assert math.isnan(returned.pop("nan"))
    assert returned == {"set": {1, 2, 3}, "decimal": Decimal("1.5"), "bytes": b"thunder", "none": None, "zero": 0}
    assert returned["zero"] is not False


def test_count_adds_one_each_time_it_runs(table: Callable[[str], dict[str, int]]) -> None:
    assert tasks.count({"key": "a"}, FakeContext()) == {"count": 1}
    assert tasks.count({"key": "a"}, FakeContext(attempt=2)) == {"count": 2}
    assert tasks.count({"key": "b"}, FakeContext()) == {"count": 1}
    assert table("a")["count"] == 2


def test_count_can_count_its_commits_in_the_transaction_of_the_commit(table: Callable[[str], dict[str, int]]) -> None:
    context = FakeContext()
    committed: list[tuple[Any, Any]] = []
    context.commit_with = lambda items, result: committed.append((items, result))  # type: ignore[attr-defined]

    tasks.count({"key": "a", "commits": True}, context)

    ((items, result),) = committed
    counters._dynamodb().transact_write_items(TransactItems=items)
    assert result == {"count": 1}
    assert (table("a")["count"], table("a")["commits"]) == (1, 1)


def test_needs_fails_until_somebody_has_counted(table: Callable[[str], dict[str, int]]) -> None:
    with pytest.raises(ConnectionError, match="provider is down"):
        tasks.needs({"key": "provider"}, FakeContext())
    tasks.count({"key": "provider"}, FakeContext())
    assert tasks.needs({"key": "provider"}, FakeContext()) == {"count": 1}


def test_a_counter_has_a_life(table: Callable[[str], dict[str, int]], monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(counters.time, "time", lambda: 1000.7)
    tasks.count({"key": "a"}, FakeContext())
    monkeypatch.setattr(counters.time, "time", lambda: 2000.0)
    tasks.count({"key": "a"}, FakeContext())
    assert table("a")["expiresAt"] == 1000 + counters.LIFE_SECONDS


@pytest.mark.parametrize("crash_after", [1, 2, 3])
def test_steps_crash_once_and_are_not_repeated(
    table: Callable[[str], dict[str, int]], ended: list[int], crash_after: int
) -> None:
    payload, first = {"key": "s", "crashAfter": crash_after}, FakeContext()
    with pytest.raises(ProcessEnded):
        tasks.steps(payload, first)
    assert table("s")["count"] == crash_after
    tasks.steps(payload, FakeContext(attempt=2, steps=first.steps))
    assert {name: table("s")[name] for name in ("count", "step1", "step2", "step3")} == {
        "count": 3,
        "step1": 1,
        "step2": 1,
        "step3": 1,
    }


def test_steps_without_a_crash_run_through(table: Callable[[str], dict[str, int]], ended: list[int]) -> None:
    assert tasks.steps({"key": "s"}, FakeContext()) == {"counts": [1, 2, 3]}
    assert ended == []


def test_progress_says_how_far_it_is(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(tasks.time, "sleep", lambda _: None)
    context = FakeContext()
    assert tasks.progress({"parts": 4, "seconds": 2}, context) == {"parts": 4}
    assert context.told == [(0.25, "part 1 of 4"), (0.5, "part 2 of 4"), (0.75, "part 3 of 4"), (1.0, "part 4 of 4")]
    assert tasks.progress({"parts": 0}, FakeContext()) == {"parts": 0}


def test_children_are_submitted_in_order_and_named_in_the_result() -> None:
    context = FakeContext()
    assert tasks.children({"n": 3}, context) == {"children": ["child-1", "child-2", "child-3"]}
    assert [(child.type, child.payload) for child in context.children] == [
        ("demo.echo", {"child": number}) for number in range(3)
    ]


def test_every_demonstration_task_is_declared_and_described() -> None:
    declared = {handler.declaration.name: handler for handler in handlers_in(tasks)}
    names = "echo sleep flaky fail permanent crash big raise return count needs steps progress children"
    assert set(declared) == {f"demo.{name}" for name in names.split()}
    page = (Path(tasks.__file__).parents[1] / "README.md").read_text(encoding="utf-8")
    assert [name for name in declared if f"| `{name}` |" not in page] == []


@pytest.mark.parametrize(
    ("handler", "payload", "field"),
    [
        (tasks.sleep, {"seconds": -1}, "seconds"),
        (tasks.sleep, {"seconds": True}, "seconds"),
        (tasks.sleep, {"seconds": "1"}, "seconds"),
        (tasks.sleep, {"seconds": float("inf")}, "seconds"),
        (tasks.flaky, {"failures": 1.0}, "failures"),
        (tasks.big, {"bytes": 10**12}, "bytes"),
        (tasks.raise_long, {"bytes": False}, "bytes"),
        (tasks.return_unusual, {"kind": "tuple"}, "kind"),
        (tasks.return_unusual, None, "kind"),
        (tasks.count, {}, "key"),
        (tasks.count, {"key": ""}, "key"),
        (tasks.steps, {"key": "a", "crashAfter": 4}, "crashAfter"),
        (tasks.progress, {"parts": None}, "parts"),
        (tasks.children, {"n": "three"}, "n"),
        (tasks.count, ["key"], "an object is needed"),
    ],
)
def test_a_payload_that_does_not_fit_fails_for_good_and_names_its_field(
    handler: Callable[[Any, Any], Any], payload: Any, field: str
) -> None:
    with pytest.raises(Fail) as raised:
        handler(payload, FakeContext())
    assert field in str(raised.value)
