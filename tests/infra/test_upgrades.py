"""TA-08: an upgrade replaces the table, or adds two indexes at once. Today's templates against every release's."""

from __future__ import annotations

import copy
import json
from pathlib import Path
from typing import Any

import pytest

from tests.infra.templates import Synthesised
from tests.support.releases import RELEASED, breaks, ordered, reduced
from thunderagent.version import VERSION

RELEASES = ordered([path.name for path in RELEASED.iterdir() if path.is_dir()])


def released(version: str, environment: str) -> dict[str, Any]:
    found: dict[str, Any] = json.loads((RELEASED / version / "templates.json").read_text())[environment]
    return found


def now(synthesised: Synthesised) -> dict[str, Any]:
    return {**reduced(synthesised.data), **reduced(synthesised.service)}


def test_there_is_a_release_to_compare_with() -> None:
    assert RELEASES
    assert RELEASES[-1] == VERSION, "make release-snapshot, when the version changes"


@pytest.mark.parametrize("environment", ["dev", "prod"])
@pytest.mark.parametrize("version", RELEASES)
def test_nothing_a_release_holds_is_replaced_or_lost(
    version: str, environment: str, request: pytest.FixtureRequest
) -> None:
    synthesised: Synthesised = request.getfixturevalue(environment)
    assert breaks(released(version, environment), now(synthesised)) == []


def test_the_snapshot_holds_what_must_survive() -> None:
    prod = released(RELEASES[-1], "prod")
    table = prod["TaskTable"]
    assert (table["deletion"], table["replacement"]) == ("Retain", "Retain")
    assert [index["IndexName"] for index in table["GlobalSecondaryIndexes"]] == ["dispatch-index"]
    assert {"TaskBucket", "AlarmTopic"} <= prod.keys()


def _without_index(table: dict[str, Any]) -> None:
    table["GlobalSecondaryIndexes"] = []


def _two_more(table: dict[str, Any]) -> None:
    index = table["GlobalSecondaryIndexes"][0]
    table["GlobalSecondaryIndexes"] += [{**index, "IndexName": "a"}, {**index, "IndexName": "b"}]


def _one_more(table: dict[str, Any]) -> None:
    table["GlobalSecondaryIndexes"].append({**table["GlobalSecondaryIndexes"][0], "IndexName": "a"})


def _other_projection(table: dict[str, Any]) -> None:
    table["GlobalSecondaryIndexes"][0]["Projection"] = {"ProjectionType": "ALL"}


def _other_key(table: dict[str, Any]) -> None:
    table["KeySchema"] = [{"AttributeName": "id", "KeyType": "HASH"}]


def _not_retained(table: dict[str, Any]) -> None:
    table["deletion"] = "Delete"


@pytest.mark.parametrize(
    ("change", "problems"),
    [(_without_index, 0), (_one_more, 0), (_two_more, 1), (_other_projection, 1), (_other_key, 1), (_not_retained, 1)],
)
def test_what_an_upgrade_cannot_do_is_noticed(change: Any, problems: int) -> None:
    before = released(RELEASES[-1], "prod")
    after = copy.deepcopy(before)
    change(after["TaskTable"])
    assert len(breaks(before, after)) == problems


def test_a_resource_under_another_logical_id_is_noticed() -> None:
    before = released(RELEASES[-1], "prod")
    after = {("Other" if name == "TaskTable" else name): resource for name, resource in before.items()}
    assert len(breaks(before, after)) == 1


def test_a_snapshot_is_complete() -> None:
    for version in RELEASES:
        assert {path.name for path in Path(RELEASED / version).iterdir()} >= {"templates.json", "library.zip"}
