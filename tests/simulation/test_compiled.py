"""Compiled conditions and updates say what the library's own evaluator says, of everything the simulator meets."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import pytest

from tests.simulation import compiled
from tests.simulation.compiled import Changes
from tests.simulation.simulation import run
from thunderagent.testing.dynamodb_expressions import Invalid, Raw
from thunderagent.testing.item_rules import ITEM_BYTES, Change, change_of


def test_every_write_of_some_runs_is_judged_alike(monkeypatch: pytest.MonkeyPatch) -> None:
    judged = {"compiled": 0, "left": 0, "refused": 0}
    compare = Changes.change_of

    def left(operation: str, arguments: Mapping[str, Any], old: Raw | None) -> Change:
        judged["left"] += 1
        return change_of(operation, arguments, old)

    def both(self: Changes, operation: str, arguments: Mapping[str, Any], old: Raw | None) -> Change:
        before = repr(old)
        mine, its = compare(self, operation, arguments, old), change_of(operation, arguments, old)
        assert (mine.item_id, mine.old, mine.new, mine.refused) == (its.item_id, its.old, its.new, its.refused)
        assert repr(old) == before, "a stored item was changed in place"
        judged["compiled"] += 1
        judged["refused"] += mine.refused
        return mine

    monkeypatch.setattr(compiled, "change_of", left)
    monkeypatch.setattr(Changes, "change_of", both)
    assert [run(seed, lives=30).violation for seed in (2, 9, 14)] == [None, None, None]
    assert judged["compiled"] > 1000
    assert judged["refused"] > 20
    assert judged["left"] < judged["compiled"] / 20, "hardly anything is compiled"


@pytest.mark.parametrize(
    "condition",
    [
        "#a = :v",
        "#a <> :v",
        "#a < :v",
        "NOT #a = :v AND attribute_exists(#a)",
        "#a = :v OR attribute_not_exists(#a) AND #a > :v",
        "(#a = :v OR attribute_not_exists(#a)) AND #a > :v",
        "NOT (#a <= :v)",
        "#a = :v AND",
        "#a = :v )",
        "size(#a) > :v",
        "#a",
    ],
)
@pytest.mark.parametrize("value", [{"S": "1"}, {"N": "1"}, {"N": "1.0"}, {"N": "02"}, {"SS": ["b", "a"]}])
@pytest.mark.parametrize("stored", [None, {"S": "1"}, {"N": "1"}, {"N": "2"}, {"SS": ["a", "b"]}, {"BOOL": True}])
def test_conditions_mean_the_same(condition: str, value: Raw, stored: Raw | None) -> None:
    key = {"taskId": {"S": "t"}}
    old: Raw | None = None if stored is None else {**key, "a": stored}
    arguments = {
        "Key": key,
        "ConditionExpression": condition,
        "ExpressionAttributeNames": {"#a": "a"},
        "ExpressionAttributeValues": {":v": value},
    }
    assert _told(Changes().change_of, "DeleteItem", arguments, old) == _told(change_of, "DeleteItem", arguments, old)


@pytest.mark.parametrize(
    "text",
    [
        "SET #a = :v",
        "SET #a = :v REMOVE #b",
        "ADD #a :v",
        "SET #b = :v ADD #a :v",
        "REMOVE #a, #b",
        "SET #a = :v, #a = :v",
        "SET #a = #b",
        "SET #a = :v SET #b = :v",
        "SET #a.#b = :v",
        "DELETE #a :v",
        "REMOVE #a #b",
        "SET #id = :v",
    ],
)
@pytest.mark.parametrize(
    "value", [{"N": "1.50"}, {"SS": ["b", "a"]}, {"SS": []}, {"M": {"x": {"N": "1e2"}}}, {"S": ""}]
)
@pytest.mark.parametrize("stored", [None, {"N": "2"}, {"SS": ["c"]}])
def test_updates_mean_the_same(text: str, value: Raw, stored: Raw | None) -> None:
    key = {"taskId": {"S": "t"}}
    old: Raw | None = None if stored is None else {**key, "a": stored, "b": {"N": "7"}}
    names = {name: attribute for name, attribute in (("#a", "a"), ("#b", "b"), ("#id", "taskId")) if name in text}
    arguments = {"Key": key, "UpdateExpression": text, "ExpressionAttributeNames": names}
    if ":v" in text:
        arguments["ExpressionAttributeValues"] = {":v": value}
    assert _told(Changes().change_of, "UpdateItem", arguments, old) == _told(change_of, "UpdateItem", arguments, old)


def test_an_item_that_grows_too_large_is_refused_alike() -> None:
    changes, old = Changes(), None
    for number in range(9):
        arguments = {
            "Key": {"taskId": {"S": "t"}},
            "UpdateExpression": "SET #a = :v",
            "ExpressionAttributeNames": {"#a": f"a{number}"},
            "ExpressionAttributeValues": {":v": {"S": "x" * (ITEM_BYTES // 8)}},
        }
        mine = _told(changes.change_of, "UpdateItem", arguments, old)
        assert mine == _told(change_of, "UpdateItem", arguments, old)
        if isinstance(mine, tuple):
            old = mine[1]
    assert mine == "Item size has exceeded the maximum allowed size"


def _told(judge: Any, operation: str, arguments: Mapping[str, Any], old: Raw | None) -> Any:
    try:
        change: Change = judge(operation, arguments, old)
    except Invalid as error:
        return str(error)
    return (change.old, change.new, change.refused)
