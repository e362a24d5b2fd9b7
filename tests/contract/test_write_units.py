"""What one task costs: 5 write units (6 where ends are listed) from submit to SUCCESS, and 6 for each batch.

As AWS meters them: the fake by the documented rules, the embedded AWS by its own ConsumedCapacity.
"""

from __future__ import annotations

import itertools
from collections.abc import Callable, Iterator
from typing import Any

import pytest

from tests.support.stores import Backend, Metered, create_table, embedded_client, memory_backend
from tests.support.world import World
from thunderagent import task
from thunderagent.transport import boto_send

LEASE_UNITS = 6  # open 2, begin 1, start 1, settle 2


@task("small")
def small(payload: Any, ctx: Any) -> dict[str, Any]:
    return {"rows": 3}


@task("again")
def again(payload: Any, ctx: Any) -> dict[str, Any]:
    if ctx.attempt == 1:
        raise ValueError("the first time")
    return {"rows": 3}


Build = Callable[..., World]


@pytest.fixture(params=["memory", "embedded"])
def build(request: pytest.FixtureRequest) -> Iterator[Build]:
    """A deployment over a table of its own, so that a sweep meets nobody else's tasks."""
    if request.param == "memory":
        yield lambda **more: World(small, again, send=Metered(memory_backend().send), **more)
        return
    shared: Backend = request.getfixturevalue("_embedded")
    assert shared.endpoint is not None
    client = embedded_client(shared.endpoint)
    table = f"units-{next(_tables)}"
    create_table(client, table)
    yield lambda **more: World(small, again, send=Metered(boto_send(client)), table=table, **more)
    client.close()


_tables = itertools.count()


def units_of_a_batch(world: World, number: int, type: str = "small", **fields: Any) -> float:
    """Write units from submit to end for so many tasks in one batch, its lease included."""
    for _ in range(number):
        world.submit(type, payload='{"region":"eu","n":12}', **fields)
    world.clock.advance(0.125)
    world.sweep()
    assert [len(event["taskIds"]) for event in world.events] == [number]
    world.clock.advance(0.25)
    summary = world.deliver()
    assert (sum(summary.ends.values()), summary.settled) == (number, True)
    return float(world.send.take())


@pytest.mark.parametrize(("list_completed", "each"), [(False, 5), (True, 6)], ids=["unlisted", "listed"])
@pytest.mark.parametrize("number", [1, 10])
def test_a_small_task_costs_what_the_design_says(build: Build, list_completed: bool, each: int, number: int) -> None:
    world = build(list_completed=list_completed)
    assert units_of_a_batch(world, number) == each * number + LEASE_UNITS


def test_a_batch_of_ten_costs_less_than_six_units_a_task(build: Build) -> None:
    assert units_of_a_batch(build(list_completed=False), 10) / 10 == pytest.approx(5.6)


def test_tags_key_and_deadline_do_not_cost_a_unit_more(build: Build) -> None:
    world = build(list_completed=False)
    fields = {"tags": {"tenant": "a"}, "start_within_seconds": 3600, "key": "order-1"}
    assert units_of_a_batch(world, 1, **fields) == 5 + LEASE_UNITS


def test_a_retry_costs_its_own_attempt_and_no_more(build: Build) -> None:
    """Create 2, claim 1, and 3 for the write that moves it to its later due time; then the attempt that succeeds."""
    world = build(list_completed=False)
    assert units_of_a_batch(world, 1, "again") == 2 + 1 + 3 + LEASE_UNITS
    world.clock.advance(60)
    world.sweep()
    world.deliver()
    assert world.send.take() == 1 + 2 + LEASE_UNITS


def test_each_start_beyond_the_first_costs_one_unit(build: Build) -> None:
    assert units_of_a_batch(build(list_completed=False, concurrency=1), 2) == 2 * 5 + 1 + LEASE_UNITS


def test_a_payload_of_five_kilobytes_adds_six_units(build: Build) -> None:
    world = build(list_completed=False)
    world.submit("small", payload='"' + "x" * 5118 + '"')
    world.sweep()
    world.deliver()
    assert world.send.take() == 5 + 6 + LEASE_UNITS


def test_a_sweep_that_finds_nothing_writes_nothing(build: Build) -> None:
    world = build()
    world.sweep()
    assert world.send.take() == 0
