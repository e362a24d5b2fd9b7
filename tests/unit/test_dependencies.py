"""Tasks that wait for others: nobody is stranded, nobody runs too early, whoever settles, crashes or repeats."""

from __future__ import annotations

import random
from collections.abc import Callable
from contextlib import suppress
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tests.support.fakes import FakeClock, FakeRandomness
from tests.support.memory_dynamodb import Call, Fault, MemoryDynamoDB
from thunderagent import expressions
from thunderagent.bodies import Bodies
from thunderagent.codec import Item, item_bytes
from thunderagent.dependencies import Dependencies
from thunderagent.errors import InvalidInput, StoreError, Unprocessable
from thunderagent.expressions import Result
from thunderagent.model import Attempt, Failure, LeaseToken, Task
from thunderagent.operations import Operations, Operator
from thunderagent.queues import Queues
from thunderagent.schema import Layout, blocked_key, edge_id
from thunderagent.states import Status
from thunderagent.store import Store, Written
from thunderagent.submit import Submission, Submitted, Submitter

OPERATOR = Operator("arn:aws:iam::1:user/a")
DAY = 86_400


class Types:
    def defaults_of(self, type_name: str) -> dict[str, Any]:
        return {}

    def timeout_limit(self, type_name: str) -> float:
        return 870


class Silent:
    def log(self, event: str, *, level: str = "INFO", **fields: Any) -> None: ...
    def measure(self, metric: str, value: float = 1, *, queue: str | None = None, type: str | None = None) -> None: ...


class World:
    """One table with the library over it, and the shortest way through a task's life."""

    def __init__(self) -> None:
        self.db = MemoryDynamoDB()
        self.clock = FakeClock()
        self.store = Store(
            table="tasks", send=self.db, clock=self.clock, randomness=FakeRandomness(), layout=Layout(shards=1)
        )
        self.bodies = Bodies(self.store, None)
        self.dependencies = Dependencies(self.store, self.bodies, observer=Silent())
        queues = Queues(self.store, [], clock=self.clock)
        self.submitter = Submitter(self.store, self.bodies, queues, Types(), self.dependencies)
        self.operations = Operations(self.store, self.bodies, self.dependencies)
        self.started: list[str] = []

    def submit(self, task_id: str, *parents: str, key: str | None = None, **more: Any) -> Submitted:
        submission = Submission("demo.echo", task_id=task_id, depends_on=parents, **more)
        return self.submitter.submit(submission, key=key, body={"id": task_id})

    def task(self, task_id: str) -> Task:
        """As it is stored, whatever weather there is."""
        found = self.db.item(task_id)
        assert found is not None
        return Task.from_item(found)

    def status(self, task_id: str) -> str:
        task = self.task(task_id)
        if task.status is not Status.PENDING:
            return task.outcome or task.status.value
        return "BLOCKED" if task.blocked_count else "OPEN"

    def claim(self, task_id: str) -> Task:
        task, now = self.task(task_id), self.clock.now()
        token = LeaseToken(f"token-{task_id}-{task.fence}")
        write = expressions.claim(task, token=token, lock_time=now + 300, owner="p", now=now, region="us-east-1")
        answer = self.store.apply(write)
        assert isinstance(answer, Written), f"{task_id} could not be claimed: {self.status(task_id)}"
        self.started.append(task_id)
        return self.task(task_id)

    def end(self, task: Task, how: str = "SUCCESS", *, result: str = "null") -> Item | None:
        """The terminal write of a running task, without what is to follow it."""
        token, now, layout = task.lease_token, self.clock.now(), self.store.layout
        assert token is not None
        attempt = Attempt(1, now, now, how)
        match how:
            case "SUCCESS":
                placed = Result(text=result)
                write = expressions.commit(task, token, result=placed, attempt=attempt, layout=layout, now=now)
            case "skipped":
                write = expressions.finish(task, token, reason=None, attempt=attempt, layout=layout, now=now)
            case _:
                failure = Failure("ValueError", "no", "error")
                write = expressions.fail(task, token, failure=failure, attempt=attempt, layout=layout, now=now)
        answer = self.store.apply(write)
        assert isinstance(answer, Written)
        return answer.item

    def run(self, task_id: str, how: str = "SUCCESS", *, result: str = "null") -> None:
        self.dependencies.on_end(self.end(self.claim(task_id), how, result=result))

    def repair(self) -> int:
        return self.dependencies.repair([blocked_key("default", 0)])

    def edges(self) -> dict[str, Item]:
        return self.db.items("edge#")

    def check_edges(self) -> None:
        """The invariant: a task that waits has as many edges (and parents without one yet) as its count says."""
        for task_id, item in self.db.items().items():
            if "type" in item and item.get("blockedCount") and item["status"] in ("PENDING", "FAILED"):
                edges = [edge for edge in self.edges() if edge.endswith(f"#{task_id}")]
                assert len(edges) + item.get("unlinked", 0) == item["blockedCount"], task_id


@pytest.fixture
def world() -> World:
    return World()


def settling(call: Call) -> bool:
    return call.operation == "TransactWriteItems" and any(op == "DeleteItem" for op, _ in call.entries)


# ---- the ordinary life ----------------------------------------------------------------------------------------------


def test_a_child_runs_after_its_last_parent(world: World) -> None:
    for parent in "ab":
        world.submit(parent)
    world.submit("c", "a", "b")

    world.run("a")
    assert world.status("c") == "BLOCKED"
    assert world.dependencies.blocked_by(world.task("c")) == ["b"]
    world.run("b")

    assert world.status("c") == "OPEN"
    assert world.task("c").dispatch_key == "OPEN#default#normal#0"
    assert world.task("c").due_at == world.clock.now()
    assert world.edges() == {}


def test_a_blocked_task_cannot_be_claimed(world: World) -> None:
    world.submit("a")
    child = world.submit("c", "a").task
    world.clock.advance(3600)
    write = expressions.claim(
        child, token=LeaseToken("t"), lock_time=1, owner="p", now=world.clock.now(), region="us-east-1"
    )

    assert not isinstance(world.store.apply(write), Written)


def test_a_parent_named_twice_counts_once(world: World) -> None:
    world.submit("a")
    assert world.submit("c", "a", "a", "a").task.blocked_count == 1
    world.run("a")
    assert world.status("c") == "OPEN"


@pytest.mark.parametrize("how", ["SUCCESS", "skipped", "acknowledged"])
def test_parents_that_ended_well_block_nobody(world: World, how: str) -> None:
    world.submit("a")
    world.run("a", "SUCCESS" if how == "acknowledged" else how)
    if how == "acknowledged":
        world.operations.acknowledge("a")

    assert world.status(world.submit("c", "a").task.task_id) == "OPEN"
    assert world.edges() == {}


def test_an_unblocked_task_still_waits_for_its_own_time(world: World) -> None:
    world.submit("a")
    world.submit("c", "a", delay_seconds=500)
    world.run("a")
    assert world.task("c").due_at == world.task("c").created_at + 500


def test_a_blocked_task_expires_at_its_deadline_and_its_child_fails(world: World) -> None:
    world.submit("a")
    world.submit("c", "a", start_within_seconds=90)
    world.submit("g", "c")
    world.clock.advance(61)
    world.repair()
    assert world.task("c").due_at == world.task("c").deadline
    world.clock.advance(60)
    world.repair()

    assert world.status("c") == "expired"
    assert (world.status("g"), world.task("g").item["error"]["parent"]) == ("FAILED", "c")
    world.run("a")
    assert set(world.edges()) == {edge_id("c", "g")}


def test_tasks_without_dependents_pay_nothing_for_it(world: World) -> None:
    world.submit("a")
    ended = world.end(world.claim("a"))
    calls = len(world.db.calls)
    world.dependencies.on_end(ended)
    assert len(world.db.calls) == calls


# ---- TA-14 ----------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("seed", range(10))
def test_ta_14_a_parent_that_ends_while_its_child_is_submitted_never_strands_it(world: World, seed: int) -> None:
    """20 pairs each: the parent's end and its settling fall before requests of the submit that are drawn at random."""
    chance = random.Random(seed)
    world.submit("done")
    world.run("done")
    for number in range(20):
        parent, child = f"p{number}", f"c{number}"
        world.submit(parent)
        pair = Pair(world, world.claim(parent))
        end_before, settle_before = sorted((chance.randrange(7), chance.randrange(9)))
        _at_request(world, end_before, pair.end)
        _at_request(world, settle_before, pair.settle)
        world.submit(child, parent)
        world.db.calm()
        pair.end()
        pair.settle()
        world.check_edges()
    world.submit("c-late", "done")

    children = ["c-late", *(f"c{number}" for number in range(20))]
    assert {world.status(child) for child in children} == {"OPEN"}  # without any repair
    for child in children:
        world.run(child)
    assert sorted(task for task in world.started if task.startswith("c")) == sorted(children)


class Pair:
    """A running parent that ends once, and is settled once after that."""

    def __init__(self, world: World, parent: Task) -> None:
        self.world = world
        self.parent = parent
        self.ended: Item | None = None
        self.settled = False

    def end(self) -> None:
        if self.ended is None:
            self.ended = self.world.end(self.parent)

    def settle(self) -> None:
        if self.ended is not None and not self.settled:
            self.settled = True
            self.world.dependencies.on_end(self.ended)


def _at_request(world: World, number: int, action: Callable[[], Any]) -> None:
    """Before the number-th request from now on; what the action itself sends does not count."""
    inside = [False]

    def act() -> None:
        inside[0] = True
        action()
        inside[0] = False

    world.db.before(lambda call: not inside[0], act, skip=number)


@pytest.mark.parametrize("point", range(12))
@pytest.mark.parametrize("fault", [Fault.LOST_REPLY, Fault.THROTTLED])
def test_a_submit_that_dies_at_any_request_is_completed_by_a_repeat_or_by_the_repair(point: int, fault: Fault) -> None:
    for rescue in ("repeat", "repair"):
        world = World()
        for parent in "ab":
            world.submit(parent)
        world.db.inject(fault, times=None, skip=point)  # from that request on nothing works: the process is as dead
        with suppress(StoreError):
            world.submit("c", "a", "b", key="k")
        world.db.calm()
        running = [world.claim(parent) for parent in "ab"]
        for each in running:
            world.dependencies.on_end(world.end(each))
        if rescue == "repeat" or world.db.item("c") is None:
            world.submit("c", "a", "b", key="k")
        else:
            world.clock.advance(61)
            world.repair()

        assert world.status("c") == "OPEN", rescue
        assert world.edges() == {}


def test_a_repeat_finds_the_task_whatever_became_of_its_parents(world: World) -> None:
    world.submit("a")
    first = world.submit("c", "a", key="k")
    world.db.remove("a")

    again = world.submit("c", "a", key="k")

    assert (again.duplicate, again.task.task_id) == (True, first.task.task_id)


# ---- TA-15 ----------------------------------------------------------------------------------------------------------


def test_ta_15_unknown_parents_and_the_task_itself_are_refused_and_leave_no_row(world: World) -> None:
    world.submit("a")
    before = world.db.items()
    for parents, code in ((("a", "nobody"), "unknown_dependency"), (("c", "a"), "dependency_cycle")):
        with pytest.raises(Unprocessable) as refused:
            world.submit("c", *parents)
        assert (refused.value.code, refused.value.path) == (code, "dependsOn")
    with pytest.raises(Unprocessable, match=r"x0, x1, x2 and 7 more"):
        world.submit("c", *(f"x{number}" for number in range(10)))
    with pytest.raises(InvalidInput, match="at most 1000"):
        world.submit("c", *(f"x{number}" for number in range(1001)))
    assert world.db.items() == before


def test_ta_15_side_items_and_tasks_past_their_time_to_live_are_unknown(world: World) -> None:
    world.submit("a")
    world.run("a")
    world.clock.advance(8 * DAY)
    world.db.put({"taskId": "lease#x", "lockTime": 1})
    for parent in ("a", "lease#x"):
        with pytest.raises(Unprocessable):
            world.submit("c", parent)


def _end_badly(world: World, task_id: str, how: str) -> None:
    match how:
        case "failed":
            world.run(task_id, "FAILED")
        case "cancelled":
            world.operations.cancel(task_id, OPERATOR)
        case "erased":
            world.run(task_id, "FAILED")
            world.operations.erase(task_id)
        case "removed":
            world.db.remove(task_id)
            world.clock.advance(61)
            world.repair()


@pytest.mark.parametrize("how", ["failed", "cancelled", "erased", "removed"])
def test_ta_15_child_and_grandchildren_of_a_dead_parent_fail_and_name_it(world: World, how: str) -> None:
    for parent in ("a", "other"):
        world.submit(parent)
    world.submit("b", "a", "other")
    world.submit("c", "b")
    world.submit("d", "c", "other")

    _end_badly(world, "a", how)

    for child, parent in (("b", "a"), ("c", "b"), ("d", "c")):
        task = world.task(child)
        assert task.status is Status.FAILED
        assert task.item["error"]["reason"] == "dependency_failed"
        assert task.item["error"]["parent"] == parent
        assert task.item["error"]["message"].startswith(f"parent {parent} ")
        assert task.expires_at is not None
        assert task.dispatch_key == "FAILED#default#0"
    if how == "failed":
        assert world.task("d").item["error"]["message"] == "parent c failed: parent a failed (error)"
    world.run("other")
    world.check_edges()


@pytest.mark.parametrize("how", ["failed", "cancelled"])
def test_ta_15_the_child_of_a_parent_that_is_dead_already_is_born_failed(world: World, how: str) -> None:
    world.submit("a")
    _end_badly(world, "a", how)

    task = world.submit("c", "a").task

    assert (task.status, task.item["error"]["parent"]) == (Status.FAILED, "a")
    assert task.expires_at is not None
    assert task.finished_at == task.created_at
    assert world.status("c") == "FAILED"


def test_ta_15_a_successful_parent_removed_by_its_time_to_live_neither_strands_nor_fails_a_child(world: World) -> None:
    for parent in "ab":
        world.submit(parent)
    world.submit("c", "a", "b")
    world.run("a")
    world.clock.advance(8 * DAY)
    world.db.remove("a")
    world.repair()
    assert world.status("c") == "BLOCKED"
    world.run("b")
    assert world.status("c") == "OPEN"


def test_ta_15_erasing_a_successful_parent_settles_it_first(world: World) -> None:
    world.submit("a")
    world.submit("c", "a")
    world.end(world.claim("a"))  # and the executor dies
    world.operations.erase("a")
    assert world.status("c") == "OPEN"


def test_erasing_a_child_takes_its_edges_along(world: World) -> None:
    world.submit("a")
    world.submit("c", "a")
    world.run("a", "FAILED")
    world.operations.erase("c")
    assert (world.edges(), world.db.item("c")) == ({}, None)


# ---- redrive --------------------------------------------------------------------------------------------------------


def _chain(world: World) -> None:
    world.submit("a")
    world.submit("b", "a")
    world.submit("c", "b")
    world.run("a", "FAILED")


def test_a_cascade_revives_everything_that_failed_because_of_the_task(world: World) -> None:
    _chain(world)

    world.operations.redrive("a", OPERATOR, key="r1", cascade=True)

    assert [world.status(task) for task in "abc"] == ["OPEN", "BLOCKED", "BLOCKED"]
    for task in "abc":
        world.run(task)
    assert [world.status(task) for task in "abc"] == ["SUCCESS"] * 3
    assert world.edges() == {}


def test_a_cascade_can_be_repeated_and_goes_on_where_it_stopped(world: World) -> None:
    _chain(world)
    world.db.inject(Fault.THROTTLED, times=None, where=lambda call: "c" in call.item_ids)
    with pytest.raises(StoreError):
        world.operations.redrive("a", OPERATOR, key="r1", cascade=True)
    world.db.calm()
    assert [world.status(task) for task in "abc"] == ["OPEN", "BLOCKED", "FAILED"]

    world.operations.redrive("a", OPERATOR, key="r1", cascade=True)
    assert [world.status(task) for task in "abc"] == ["OPEN", "BLOCKED", "BLOCKED"]
    fences = [world.task(task).fence for task in "abc"]
    world.operations.redrive("a", OPERATOR, key="r1", cascade=True)
    assert [world.task(task).fence for task in "abc"] == fences

    world.run("a", "FAILED")
    assert [world.status(task) for task in "abc"] == ["FAILED"] * 3
    world.operations.redrive("a", OPERATOR, key="r2", cascade=True)
    for task in "abc":
        world.run(task)
    assert [world.status(task) for task in "abc"] == ["SUCCESS"] * 3


def test_a_revived_child_fails_again_when_another_parent_is_dead(world: World) -> None:
    for parent in "ab":
        world.submit(parent)
    world.submit("c", "a", "b")
    world.run("a", "FAILED")
    world.run("b", "FAILED")

    world.operations.redrive("a", OPERATOR, key=None, cascade=True)
    assert (world.status("c"), world.task("c").item["error"]["parent"]) == ("FAILED", "b")
    world.operations.redrive("b", OPERATOR, key=None, cascade=True)
    assert world.status("c") == "BLOCKED"
    world.run("a")
    world.run("b")
    assert world.status("c") == "OPEN"


def test_redriving_a_child_of_a_dead_parent_alone_fails_it_again(world: World) -> None:
    _chain(world)
    assert world.operations.redrive("b", OPERATOR, key=None).status is Status.FAILED
    world.operations.redrive("a", OPERATOR, key=None)
    assert world.operations.redrive("b", OPERATOR, key=None).blocked_count == 1
    world.run("a")
    assert world.status("b") == "OPEN"


def test_a_failed_child_counts_the_parents_that_succeed_meanwhile(world: World) -> None:
    for parent in "ab":
        world.submit(parent)
    world.submit("c", "a", "b")
    world.run("a", "FAILED")
    world.run("b")
    world.operations.redrive("a", OPERATOR, key=None)
    world.run("a")
    assert (world.status("c"), world.task("c").blocked_count) == ("FAILED", 0)
    assert world.operations.redrive("c", OPERATOR, key=None).status is Status.PENDING
    assert world.status("c") == "OPEN"


def test_a_late_settler_cannot_fail_the_child_of_a_parent_that_was_redriven(world: World) -> None:
    world.submit("a")
    world.submit("c", "a")
    ended = world.end(world.claim("a"), "FAILED")  # its settler stalls
    world.operations.redrive("a", OPERATOR, key=None)
    world.dependencies.on_end(ended)
    assert world.status("c") == "BLOCKED"
    world.run("a")
    assert world.status("c") == "OPEN"


# ---- fan-in, fan-out, races -----------------------------------------------------------------------------------------


def test_a_thousand_parents_of_one_child(world: World) -> None:
    parents = [f"parent-with-a-rather-long-name-{number:04d}" for number in range(1000)]
    for parent in parents:
        world.submit(parent)
    child = world.submit("c", *parents).task
    stored = world.db.item("c")
    assert stored is not None
    assert (child.blocked_count, len(world.edges())) == (1000, 1000)
    assert item_bytes(stored) <= 1024  # a thousand unblocks pay one unit for the child, not forty
    world.run(parents[0])
    assert world.dependencies.blocked_by(world.task("c")) == parents[1:]
    ends = [world.end(world.claim(parent), result=str(number)) for number, parent in enumerate(parents) if number]
    for ended in ends[:20]:
        world.dependencies.on_end(ended)
    assert world.task("c").blocked_count == 979
    world.clock.advance(61)
    world.repair()  # the other settlers have died
    assert (world.status("c"), world.edges()) == ("OPEN", {})
    results = world.dependencies.results_of_parents(world.claim("c"))
    assert list(results) == parents
    assert results[parents[999]] == 999


def test_linking_that_stops_half_way_is_finished_by_the_repair(world: World) -> None:
    parents = [f"p{number}" for number in range(300)]
    for parent in parents:
        world.submit(parent)
    world.db.inject(Fault.THROTTLED, times=None, skip=2, where=lambda call: call.operation == "TransactWriteItems")
    world.submit("c", *parents)
    world.db.calm()
    world.check_edges()
    assert world.task("c").item["unlinked"] > 0
    for parent in parents:
        world.run(parent)
    assert world.status("c") == "BLOCKED"
    world.clock.advance(61)
    world.repair()
    assert (world.status("c"), world.edges()) == ("OPEN", {})
    assert "unlinked" not in world.task("c").item


def test_settling_is_told_once_however_many_settle(world: World) -> None:
    for parent in "ab":
        world.submit(parent)
    world.submit("c", "a", "b")
    ended = world.end(world.claim("a"))
    world.db.before(settling, lambda: world.dependencies.on_end(ended))
    world.dependencies.on_end(ended)
    world.dependencies.on_end(ended)
    assert (world.status("c"), world.task("c").blocked_count) == ("BLOCKED", 1)


def test_both_last_parents_at_once_open_the_child(world: World) -> None:
    for parent in "ab":
        world.submit(parent)
    world.submit("c", "a", "b")
    ends = [world.end(world.claim(parent)) for parent in "ab"]
    world.db.before(settling, lambda: world.dependencies.on_end(ends[1]))
    world.dependencies.on_end(ends[0])
    assert world.status("c") == "OPEN"


@pytest.mark.parametrize("fault", [Fault.LOST_REPLY, Fault.CONFLICT, Fault.THROTTLED])
def test_settling_survives_what_a_transaction_may_meet(world: World, fault: Fault) -> None:
    world.submit("a")
    world.submit("c", "a")
    world.db.inject(fault, times=8, where=settling)
    world.run("a")
    world.clock.advance(61)
    world.repair()
    assert (world.status("c"), world.edges()) == ("OPEN", {})


def test_a_cancelled_child_is_left_in_peace(world: World) -> None:
    world.submit("a")
    world.submit("c", "a")
    world.operations.cancel("c", OPERATOR)
    world.run("a", "FAILED")
    assert (world.status("c"), world.edges()) == ("cancelled", {})


def test_a_child_whose_edges_and_count_disagree_is_mended(world: World) -> None:
    for parent in "abd":
        world.submit(parent)
    world.submit("c", "a", "b", "d")
    world.run("d")
    world.db.remove(edge_id("a", "c"))
    world.clock.advance(61)
    world.repair()
    world.check_edges()
    assert set(world.edges()) == {edge_id("a", "c"), edge_id("b", "c")}
    item = world.db.item("c")
    assert item is not None
    world.db.put({**item, "blockedCount": 5})
    world.clock.advance(3600)
    world.repair()
    world.check_edges()
    for parent in "ab":
        world.run(parent)
    assert world.status("c") == "OPEN"


def test_repair_looks_come_after_the_tasks_own_age_up_to_ten_minutes(world: World) -> None:
    world.submit("a")
    world.submit("c", "a")
    pauses = []
    for _ in range(6):
        pauses.append(world.task("c").due_at - world.clock.now())
        world.clock.advance(pauses[-1])
        assert world.repair() == 1
        assert world.repair() == 0
    assert pauses == [60, 60, 120, 240, 480, 600]


def test_a_malformed_child_stops_nobody(world: World) -> None:
    world.submit("a")
    for child in ("c1", "c2"):
        world.submit(child, "a")
    item = world.db.item("c1")
    assert item is not None
    world.db.put({**item, "retryCount": "many"})
    world.run("a")
    assert world.status("c2") == "OPEN"
    world.clock.advance(61)
    world.repair()
    parked = world.db.item("c1")
    assert parked is not None
    assert (parked["status"], parked["error"]["reason"]) == ("FAILED", "malformed")


def test_results_of_skipped_and_gone_parents_are_none(world: World) -> None:
    for parent in "abd":
        world.submit(parent)
    world.submit("c", "a", "b", "d")
    world.run("a", result='{"big": 12345678901234567890, "one": 1.0}')
    world.run("b", "skipped")
    world.run("d", result="[]")
    world.db.remove("d")
    assert world.dependencies.results_of_parents(world.task("c")) == {
        "a": {"big": 12345678901234567890, "one": 1.0},
        "b": None,
        "d": None,
    }


# ---- any graph, any weather -----------------------------------------------------------------------------------------

ENDS = ("SUCCESS", "skipped", "FAILED", "cancelled", "silence")


@st.composite
def graphs(draw: st.DrawFn) -> list[tuple[list[int], str]]:
    """Tasks in the order of submitting: earlier ones each depends on, and how it is to end."""
    size = draw(st.integers(1, 9))
    return [
        (sorted(draw(st.sets(st.integers(0, place - 1), max_size=4))) if place else [], draw(st.sampled_from(ENDS)))
        for place in range(size)
    ]


@settings(max_examples=150, deadline=None)
@given(graphs(), st.randoms(use_true_random=False))
def test_every_task_of_any_graph_ends_and_none_runs_before_its_parents(
    graph: list[tuple[list[int], str]], chance: random.Random
) -> None:
    """Submits and ends in any order, each in bad weather. `silence`: it succeeds, and its settler dies at once."""
    world = World()
    unsubmitted = list(range(len(graph)))
    for _ in range(400):
        can_run = [n for n in range(len(graph)) if world.db.item(f"t{n}") and world.status(f"t{n}") == "OPEN"]
        if unsubmitted and (not can_run or chance.random() < 0.5):
            _try_submit(world, unsubmitted, graph, chance)
        elif can_run:
            number = chance.choice(can_run)
            assert all(_ended_well(world, parent) for parent in graph[number][0])
            _play(world, number, graph[number][1], chance)
        else:
            world.clock.advance(601)
            world.repair()
        world.check_edges()
        if not unsubmitted and all(world.task(f"t{number}").is_terminal for number in range(len(graph))):
            break
    for number, (parents, how) in enumerate(graph):
        if all(_ended_well(world, parent) for parent in parents):
            assert world.status(f"t{number}") == {"silence": "SUCCESS"}.get(how, how)
        else:
            assert (world.status(f"t{number}"), world.started.count(f"t{number}")) == ("FAILED", 0)


def _bad_weather(world: World, chance: random.Random) -> None:
    if chance.random() < 0.3:
        fault = chance.choice([Fault.CONFLICT, Fault.THROTTLED, Fault.LOST_REPLY])
        world.db.inject(fault, times=chance.choice([1, 7, None]), skip=chance.randrange(6))


def _try_submit(
    world: World, unsubmitted: list[int], graph: list[tuple[list[int], str]], chance: random.Random
) -> None:
    number = unsubmitted[0]
    _bad_weather(world, chance)
    with suppress(StoreError):  # the client tries again
        world.submit(f"t{number}", *(f"t{parent}" for parent in graph[number][0]), key=f"k{number}")
        unsubmitted.pop(0)
    world.db.calm()


def _ended_well(world: World, number: int) -> bool:
    return world.status(f"t{number}") in {"SUCCESS", "skipped"}


def _play(world: World, number: int, how: str, chance: random.Random) -> None:
    task_id = f"t{number}"
    if how == "cancelled":
        world.operations.cancel(task_id, OPERATOR)
        return
    ended = world.end(world.claim(task_id), "SUCCESS" if how == "silence" else how)
    if how != "silence":
        _bad_weather(world, chance)
        world.dependencies.on_end(ended)
        world.db.calm()


def test_two_that_link_the_same_child_do_not_undo_each_other(world: World) -> None:
    parents = [f"p{number}" for number in range(200)]
    for parent in parents:
        world.submit(parent)
    world.db.before(
        lambda call: call.operation == "TransactWriteItems" and "unlinked" in call.sets and call.sets["unlinked"] == 20,
        lambda: world.dependencies.look_at("c"),
    )
    world.submit("c", *parents)
    assert "unlinked" not in world.task("c").item
    world.check_edges()
