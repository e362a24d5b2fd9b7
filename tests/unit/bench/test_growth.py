"""What a look costs is bounded, with any number of tasks; and the table it is measured on answers as the fake does."""

from __future__ import annotations

import random
from dataclasses import replace
from typing import Any

import pytest

from bench import growth
from bench.mixture import Mixture
from bench.ordered_table import OrderedDynamoDB
from tests.support.fakes import START
from tests.support.memory_dynamodb import MemoryDynamoDB
from tests.support.stores import Backend
from thunderagent.states import Status
from thunderagent.store import Store


@pytest.mark.parametrize("size", [0, 100, 10_000])
def test_no_look_costs_more_than_it_may_with_any_number_of_tasks(size: int) -> None:
    found = growth.looks(size)
    assert set(found) == set(growth.MOST)
    assert growth.beyond(found) == []


def test_a_look_that_costs_more_is_named_with_its_figures() -> None:
    look = growth.Look(1, 1.0, 0.0, 1, 0.5, 0.5)
    assert growth.beyond({"task": look}) == []
    for worse in (replace(look, calls=2), replace(look, write_units=1.0), replace(look, keys=2)):
        assert len(growth.beyond({"task": worse})) == 1
    assert growth.beyond({"task": replace(look, keys=10_000)}) == ["task (1 calls, 1 units, 10000 keys)"]


class Both:
    """The same tasks in the fake and in the ordered table."""

    def __init__(self) -> None:
        self.fake, self.ordered = MemoryDynamoDB(), OrderedDynamoDB()
        mixture = Mixture(100, START)
        self.items = [*mixture.tasks(), *mixture.running(leases=2)]
        for item in self.items:
            self.fake.put(item)
        self.ordered.load(self.items)
        self.stores: tuple[Store, Store] = (
            Backend("fake", self.fake).store(),
            Backend("ordered", self.ordered).store(),
        )

    def ask(self, method: str, *arguments: Any, **options: Any) -> Any:
        one, other = (getattr(store, method)(*arguments, **options) for store in self.stores)
        assert one == other
        return one


def test_the_ordered_table_answers_as_the_fake_does() -> None:
    both, draw = Both(), random.Random(5)
    partitions = [*sorted({str(item["dispatchKey"]) for item in both.items}), "OPEN#none#normal#0"]
    instants = [float(item["dueAt"]) for item in both.items]
    for _ in range(25):
        partition, at = draw.choice(partitions), draw.choice(instants)
        options: dict[str, Any] = {"limit": draw.randint(1, 9), "ascending": draw.random() < 0.5}
        if draw.random() < 0.7:
            options["bound"] = (draw.choice(("<", "<=", ">", ">=")), at)
        page = both.ask("query", partition, **options)
        if page.next_key is not None:
            both.ask("query", partition, **options, start=page.next_key)
        both.ask("count", partition, at_least=draw.randint(1, 30))
        both.ask("tally", partition, limit=draw.randint(1, 30))
    assert both.fake.read_units == both.ordered.read_units


def test_what_is_written_moves_in_the_index() -> None:
    both = Both()
    for db in (both.fake, both.ordered):
        for item in both.items[:50]:
            moved = {**item, "dispatchKey": "OPEN#moved#normal#0", "dueAt": float(item["dueAt"]) + 1}
            db.put(moved)
        db.remove(str(both.items[0]["taskId"]))
    assert both.ask("count", "OPEN#moved#normal#0") == 49
    both.ask("query", f"{Status.FAILED}#default#1", limit=100)
    assert len(both.ordered.rows_in_order) == len(both.items) - 1
