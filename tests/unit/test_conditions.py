"""Clauses and the arguments made of them: every name and every value by a placeholder."""

from __future__ import annotations

from typing import Any

import pytest

from thunderagent.codec import LongNumber
from thunderagent.conditions import (
    Placeholders,
    absent,
    as_seen,
    check,
    delete,
    either,
    equals,
    exists,
    less,
    more,
    none_of,
    put,
    update,
)


@pytest.mark.parametrize(
    ("clause", "text", "values"),
    [
        (exists(), "attribute_exists(#taskId)", {}),
        (absent("closed"), "attribute_not_exists(#closed)", {}),
        (equals("status", "PENDING"), "#status = :v0", {":v0": {"S": "PENDING"}}),
        (as_seen("fence", None), "attribute_not_exists(#fence)", {}),
        (as_seen("fence", 0), "#fence = :v0", {":v0": {"N": "0"}}),
        (as_seen("dueAt", LongNumber("1.12345678901234567")), "#dueAt = :v0", {":v0": {"N": "1.12345678901234567"}}),
        (less("deadline", 5.5), "#deadline < :v0", {":v0": {"N": "5.5"}}),
        (more("deadline", 5), "#deadline > :v0", {":v0": {"N": "5"}}),
        (none_of("status", ["A", "B"]), "NOT #status IN (:v0, :v1)", {":v0": {"S": "A"}, ":v1": {"S": "B"}}),
        (either(absent("a"), equals("a", True)), "(attribute_not_exists(#a) OR #a = :v0)", {":v0": {"BOOL": True}}),
    ],
)
def test_clauses(clause: Any, text: str, values: dict[str, Any]) -> None:
    placeholders = Placeholders()
    assert clause(placeholders) == text
    assert placeholders.values == values


def test_an_update_joins_what_it_is_given() -> None:
    write = update(
        "x",
        "t",
        require=[equals("status", "RUNNING")],
        sets={"a": 1},
        removes=["b"],
        adds={"c": frozenset({"d"})},
        applied=lambda old: False,
    )
    assert write.arguments["UpdateExpression"] == "SET #a = :v0 REMOVE #b ADD #c :v1"
    assert write.arguments["ConditionExpression"] == "attribute_exists(#taskId) AND #status = :v2"
    assert write.arguments["ExpressionAttributeValues"][":v1"] == {"SS": ["d"]}
    assert write.arguments["Key"] == {"taskId": {"S": "t"}}


def test_what_is_none_is_not_stored_and_what_is_not_used_is_not_sent() -> None:
    write = put("x", {"taskId": "t", "a": None, "b": 0}, require=[absent()], applied=lambda old: False)
    assert write.arguments["Item"] == {"taskId": {"S": "t"}, "b": {"N": "0"}}
    assert "ExpressionAttributeValues" not in write.arguments
    assert delete("x", "t", require=[]).arguments["ConditionExpression"] == "attribute_exists(#taskId)"
    assert check("t", require=[absent()]).operation == "ConditionCheck"
