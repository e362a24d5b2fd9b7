"""Each invariant: a violation that is seeded is found, and what the protocol passes through on its way is none."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest

from tests.support.fakes import START, FakeClock
from tests.support.memory_dynamodb import MemoryDynamoDB
from tests.support.protocol import new_task, stored_task
from tests.support.stores import Backend
from tests.support.upkeep import Minute
from thunderagent import audit as auditing
from thunderagent.audit import STATE_ID, Rules, audit
from thunderagent.audit_rules import Finding, change_findings
from thunderagent.codec import Item
from thunderagent.schema import blocked_key, edge_id, lease_id, open_key, payload_id, slot_id, unique_id
from thunderagent.states import TRANSITIONS, Status
from thunderagent.store import Store

LONG_AGO = START - 10_000
LEASE = {"taskId": lease_id("t"), "taskIds": ["a"], "lockTime": START + 300, "dueAt": START + 300}
RUNNING = {"leaseToken": "t", "lockTime": LONG_AGO}


class World:
    """A table, a clock and the store over them."""

    def __init__(self) -> None:
        self.table = MemoryDynamoDB("tasks")
        self.clock = FakeClock()
        self.store: Store = Backend("memory", self.table).store(clock=self.clock)

    def put(self, *items: Item) -> None:
        for item in items:
            self.table.put({name: value for name, value in item.items() if value is not None})

    def found(self, **options: Any) -> list[tuple[int, str]]:
        return [(finding.invariant, finding.item_id) for finding in audit(self.store, **options).findings]


@pytest.fixture
def world() -> World:
    return World()


def blocked(task_id: str, *parents: str, count: int | None = None, **changes: Any) -> Item:
    waits: Item = {"blockedCount": len(parents) if count is None else count, "dependsOn": list(parents)}
    return new_task(task_id, **{"dispatchKey": blocked_key("default", 0), "dueAt": START + 60, **waits, **changes})


def edge(parent: str, child: str) -> Item:
    return {"taskId": edge_id(parent, child), "expiresAt": START + 1000, "createdAt": START}


def ended(task_id: str, status: Status = Status.SUCCESS, **changes: Any) -> Item:
    return stored_task(task_id, status, **changes)


def slot(**changes: Any) -> Item:
    base = {"taskId": slot_id("default", "", 0), "holder": "a", "leaseToken": "t", "fence": 4, "claimBy": LONG_AGO}
    return {**base, "expiresAt": START + 1000, **changes}


VIOLATIONS: dict[str, tuple[int, list[Item]]] = {
    "RUNNING without a token": (2, [stored_task("a", Status.RUNNING, leaseToken=None)]),
    "RUNNING without a lock": (2, [stored_task("a", Status.RUNNING, lockTime=None), LEASE]),
    "RUNNING long after its lease is gone": (2, [stored_task("a", Status.RUNNING, **RUNNING)]),
    "RUNNING under a lease that does not list it": (
        2,
        [stored_task("a", Status.RUNNING, **RUNNING), {**LEASE, "taskIds": ["b"]}],
    ),
    "RUNNING long after its lease was closed": (
        2,
        [stored_task("a", Status.RUNNING, **RUNNING), {**LEASE, "closed": START - 121}],
    ),
    "a lease past its lock": (3, [{**LEASE, "lockTime": START - 126}]),
    "a lease without a lock": (3, [{**LEASE, "lockTime": None}]),
    "SUCCESS under an open key": (4, [ended("a", dispatchKey=open_key("default", "normal", 0))]),
    "DONE under a running key": (4, [ended("a", Status.DONE, dispatchKey="RUNNING#default#0")]),
    "FAILED under a blocked key": (4, [ended("a", Status.FAILED, dispatchKey="BLOCKED#default#0")]),
    "PENDING without a key": (4, [new_task("a", dispatchKey=None)]),
    "PENDING without a due time": (4, [new_task("a", dueAt=None)]),
    "RUNNING without a key": (4, [stored_task("a", Status.RUNNING, dispatchKey=None)]),
    "PENDING in the list of the failed": (4, [new_task("a", dispatchKey="FAILED#default#0")]),
    "PENDING with a time to live": (5, [new_task("a", expiresAt=int(START) + 1000)]),
    "RUNNING with a time to live": (5, [stored_task("a", Status.RUNNING, expiresAt=int(START) + 1000)]),
    "more retries than allowed": (6, [new_task("a", retryCount=4)]),
    "fewer edges than it waits for": (8, [blocked("a", "p", "q"), edge("p", "a"), new_task("p"), new_task("q")]),
    "more edges than it waits for": (8, [blocked("a", "p", count=2), edge("p", "a"), new_task("p")]),
    "waiting for a parent that ended long ago": (
        8,
        [blocked("a", "p"), edge("p", "a"), ended("p", finishedAt=LONG_AGO)],
    ),
    "waiting for a parent that is gone": (8, [blocked("a", "p"), edge("p", "a")]),
    "waiting for a list that is gone": (8, [blocked("a", dependsOn=None, dependsOnRef="parents#a#d", count=1)]),
    "a slot held past its lease": (9, [slot(taskId="slot#default##0"), stored_task("a", Status.RUNNING, **RUNNING)]),
    "a slot for a claim that never comes": (9, [slot(claimBy=START + 100_000)]),
    "a body without owner or time to live": (10, [{"taskId": payload_id("x", "d"), "body": "1"}]),
    "a fingerprint held by nobody": (10, [{"taskId": unique_id("f"), "holder": "x", "createdAt": LONG_AGO}]),
    "an item of no known kind": (10, [{"taskId": "what#ever", "x": 1}]),
}


@pytest.mark.parametrize("name", VIOLATIONS)
def test_a_seeded_violation_is_found(world: World, name: str) -> None:
    invariant, items = VIOLATIONS[name]
    world.put(*items)
    assert invariant in {found for found, _ in world.found()}


def test_a_task_that_vanished_is_found(world: World) -> None:
    """Invariant 1, for somebody who knows what was submitted."""
    world.put(new_task("open"), ended("done"))
    assert world.found(submitted=["open", "done", "archived", "lost"], archived=["archived"]) == [(1, "lost")]


@pytest.mark.parametrize(
    ("before", "after", "is_broken"),
    [
        ({"status": "RUNNING", "fence": 5}, {"status": "SUCCESS", "fence": 4}, True),
        ({"status": "SUCCESS", "finishedAt": 1}, {"status": "SUCCESS", "finishedAt": 2}, True),
        ({"status": "SUCCESS"}, {"status": "FAILED"}, True),
        ({"status": "DONE"}, {"status": "SUCCESS"}, True),
        ({"status": "PENDING"}, {"status": "SUCCESS"}, True),
        ({"status": "SUCCESS", "finishedAt": 1}, {"status": "SUCCESS", "finishedAt": 1, "dispatchKey": "x"}, False),
        ({"status": "FAILED", "fence": 3}, {"status": "PENDING", "fence": 4}, False),
        ({"status": "weird"}, {"status": "FAILED"}, False),
    ],
)
def test_a_second_success_and_a_falling_fence_are_seen_in_the_change(
    before: Item, after: Item, is_broken: bool
) -> None:
    findings = list(change_findings({"taskId": "a", **before}, {"taskId": "a", **after}))
    assert {finding.invariant for finding in findings} == ({7} if is_broken else set())


def test_no_transition_of_the_protocol_is_a_violation() -> None:
    for row in TRANSITIONS:
        if row.source is not None:
            before = {"taskId": "a", "status": row.source.value, "fence": 1}
            after = {"taskId": "a", "status": row.target.value, "fence": 2, "finishedAt": None}
            assert not list(change_findings(before, after)), row.event


# ---- no false alarms -------------------------------------------------------------------------------------------------

CLEAN: dict[str, list[Item]] = {
    "waiting": [new_task("a")],
    "running, just claimed": [stored_task("a", Status.RUNNING, leaseToken="t"), LEASE],
    "running for hours, its lease renewed": [stored_task("a", Status.RUNNING, **RUNNING), LEASE],
    "its lease is gone, its own lock is not long past": [
        stored_task("a", Status.RUNNING, leaseToken="t", lockTime=START - 120)
    ],
    "its lease was closed a moment ago": [
        stored_task("a", Status.RUNNING, **RUNNING),
        {**LEASE, "lockTime": START - 100, "closed": START - 90},
    ],
    "a lease the next reaper will take": [{**LEASE, "lockTime": START - 100}],
    "ended, in its list": [ended("a"), ended("b", Status.FAILED), ended("c", Status.DONE)],
    "ended, not listed": [ended("a", dispatchKey=None, dueAt=None)],
    "all retries spent": [new_task("a", retryCount=3)],
    "waiting for open parents": [blocked("a", "p", "q"), edge("p", "a"), edge("q", "a"), new_task("p"), new_task("q")],
    "one parent satisfied": [blocked("a", "p", "q", count=1), edge("q", "a"), new_task("q"), ended("p")],
    "a parent ended a moment ago": [blocked("a", "p"), edge("p", "a"), ended("p", finishedAt=START - 5)],
    "edges still to be made": [blocked("a", "p", "q", count=2, unlinked=1), edge("p", "a"), new_task("p")],
    "many parents": [
        blocked("a", dependsOn=None, dependsOnRef="parents#a#d", count=1),
        {"taskId": "parents#a#d", "ids": ["p"], "expiresAt": START + 99},
        edge("p", "a"),
        new_task("p"),
    ],
    "failed for a parent, its edge kept": [
        stored_task("a", Status.FAILED, blockedCount=1, dependsOn=["p"]),
        edge("p", "a"),
    ],
    "a slot that lapsed with its holder": [slot(), ended("a")],
    "a slot whose claim is being made": [slot(claimBy=START + 60), new_task("a")],
    "a body with a time to live": [{"taskId": payload_id("x", "d"), "body": "1", "expiresAt": int(START) + 10}],
    "a fingerprint and its holder": [{"taskId": unique_id("f"), "holder": "a", "createdAt": 1}, new_task("a")],
    "what belongs to the service": [
        {"taskId": "control#reaper"},
        {"taskId": "control#queue#default"},
        {"taskId": "schedule#nightly"},
        {"taskId": "counter#k", "count": 1},
    ],
    "somebody else's item": [{"taskId": "order-1", "status": "NEW"}],
}


@pytest.mark.parametrize("name", CLEAN)
def test_a_clean_system_is_clean(world: World, name: str) -> None:
    world.put(*CLEAN[name])
    assert world.found() == []


Act = Callable[[World], None]


def commits(world: World) -> None:
    world.put(ended("a"))
    world.table.remove(lease_id("t"))


def unblocks(world: World) -> None:
    world.table.remove(edge_id("p", "a"))
    world.put(blocked("a", "p", "q", count=1))


def is_reaped(world: World) -> None:
    world.put(new_task("a"))
    world.table.remove(lease_id("t"))


IN_FLIGHT: dict[str, tuple[list[Item], Act]] = {
    "it commits": ([stored_task("a", Status.RUNNING, **RUNNING), LEASE], commits),
    "it is reaped": ([stored_task("a", Status.RUNNING, **RUNNING), LEASE], is_reaped),
    "a parent satisfies it": (
        [blocked("a", "p", "q"), edge("p", "a"), edge("q", "a"), new_task("p"), new_task("q")],
        unblocks,
    ),
}


@pytest.mark.parametrize("name", IN_FLIGHT)
@pytest.mark.parametrize("moment", range(6))
def test_what_changes_while_it_looks_is_no_finding(world: World, name: str, moment: int) -> None:
    """The change comes just before each of its reads in turn."""
    items, act = IN_FLIGHT[name]
    world.put(*items)
    world.table.before(lambda call: True, lambda: act(world), skip=moment)
    suspected = list(Rules(world.store, grace_seconds=5).look(world.store.scan(limit=100)[0]))
    assert suspected == []


def test_what_is_mended_between_the_two_looks_is_no_finding(world: World) -> None:
    world.put(new_task("a", expiresAt=5))
    world.clock.on_sleep = lambda seconds: world.put(new_task("a"))
    assert world.found() == []


def test_it_looks_at_every_page(world: World, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(auditing, "WHOLE_PAGE_ITEMS", 3)
    world.put(*(new_task(f"t{number}") for number in range(10)), new_task("z", retryCount=9))
    seen: list[int] = []
    result = audit(world.store, progress=seen.append)
    assert result.items == 11
    assert [finding.item_id for finding in result.findings] == ["z"]
    assert seen == [3, 6, 9, 11]


def test_a_lease_is_named_without_its_token() -> None:
    fields = Finding(3, lease_id("a-very-secret-token"), "late").as_fields()
    assert "secret-token" not in str(fields)


# ---- a little each minute --------------------------------------------------------------------------------------------


@pytest.fixture
def minute() -> Minute:
    return Minute()


def test_a_violation_is_told_once_and_measured_until_it_is_mended(minute: Minute) -> None:
    minute.table.put(new_task("a", expiresAt=5))
    minute.run()
    assert minute.measured("AuditViolations") == 0, "suspected only"
    minute.run()
    assert minute.measured("AuditViolations") == 1
    (line,) = minute.logged("audit.violation")
    assert (line["invariant"], line["taskId"], line["level"]) == (5, "a", "ERROR")
    minute.run()
    assert minute.measured("AuditViolations") == 1
    assert not minute.logged("audit.violation")
    minute.table.put(new_task("a"))
    minute.run()
    assert minute.measured("AuditViolations") == 0


def test_every_item_is_met_in_time_at_a_bounded_cost_each_minute(
    minute: Minute, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(auditing, "PAGE_ITEMS", 10)
    for number in range(45):
        minute.table.put(ended(f"t{number:02d}"))
    minute.table.put(ended("z", dispatchKey=open_key("default", "normal", 0)))
    scanned = []
    for _ in range(8):
        before = len(minute.table.calls)
        minute.upkeep.auditor.step()
        scanned += [call for call in minute.table.calls[before:] if call.operation == "Scan"]
        minute.clock.advance(60)
    assert len(scanned) == 8
    assert all(call.arguments["Limit"] == 10 for call in scanned)
    assert [finding.item_id for finding in minute.upkeep.auditor.step()] == ["z"]


def test_many_edges_are_looked_at_in_bounds_and_the_next_minute_goes_on(
    minute: Minute, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(auditing, "EDGES_BUDGET", 5)
    for child in ("a", "b", "c"):
        minute.table.put(blocked(child, "p1", "p2", "p3"))
        for parent in ("p1", "p2", "p3"):
            minute.table.put(edge(parent, child))
    for parent in ("p1", "p2", "p3"):
        minute.table.put(new_task(parent))
    cursors = []
    for _ in range(3):
        minute.upkeep.auditor.step()
        cursors.append((minute.table.item(STATE_ID) or {}).get("cursor"))
    assert cursors == ["a", "b", "c"]


def test_a_minute_of_ordinary_life_has_no_findings(minute: Minute) -> None:
    for items in CLEAN.values():
        for item in items:
            minute.table.put({name: value for name, value in item.items() if value is not None})
        for _ in range(2):
            assert minute.upkeep.auditor.step() == []
        for item in items:
            minute.table.remove(str(item["taskId"]))
        minute.table.remove(STATE_ID)
