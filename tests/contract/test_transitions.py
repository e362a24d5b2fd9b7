"""Every (event, status) pair of the transition table, over every store: what is allowed, and that nothing else is."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest

from tests.support.protocol import LAYOUT, NOW, OTHER_TOKEN, UNLISTED, premises, stored_task, write_of
from tests.support.stores import Backend, Raw
from thunderagent import expressions
from thunderagent.codec import Item
from thunderagent.model import Task
from thunderagent.schema import TASK_ATTRIBUTES, Layout
from thunderagent.states import LISTED, TERMINAL, TRANSITIONS, Event, Proof, Status, Transition, allows
from thunderagent.store import Refusal, Refused, Written

STATUSES: tuple[Status | None, ...] = (None, *Status)
PAIRS = [(event, status) for event in Event for status in STATUSES]
ALLOWED = {(row.event, row.source) for row in TRANSITIONS}
ROWS = [row for row in TRANSITIONS if row.source is not None]

NewId = Callable[[], str]


def name(event: Event, status: Status | None) -> str:
    return f"{event}-{status or 'absent'}"


def source_of(event: Event) -> Status:
    """A state the event is allowed in: what a late or mistaken caller believes it sees."""
    return next(row.source or Status.PENDING for row in TRANSITIONS if row.event is event)


def changed(before: Raw | None, after: Raw | None) -> set[str]:
    old, new = before or {}, after or {}
    return {key for key in old.keys() | new.keys() if old.get(key) != new.get(key)}


def apply(backend: Backend, event: Event, seen: Item, *, layout: Layout = LAYOUT) -> Any:
    return backend.store(layout=layout).apply(write_of(event, Task.from_item(seen), layout=layout))


@pytest.mark.parametrize("pair", sorted(ALLOWED, key=str), ids=lambda pair: name(*pair))
@pytest.mark.parametrize("layout", [LAYOUT, UNLISTED], ids=["listed", "unlisted"])
def test_an_allowed_event_changes_exactly_the_stated_attributes(
    pair: tuple[Event, Status | None], layout: Layout, backend: Backend, new_id: NewId
) -> None:
    event, source = pair
    row = next(row for row in TRANSITIONS if (row.event, row.source) == pair)
    item = stored_task(new_id(), source or Status.PENDING, **premises(event))
    if source is not None:
        backend.put(item)
    before = backend.raw(item["taskId"])
    answer = apply(backend, event, item, layout=layout)
    after = backend.raw(item["taskId"])
    assert isinstance(answer, Written)
    assert not answer.replayed
    assert after is not None
    assert after["status"]["S"] == row.target
    if event is not Event.SUBMIT:
        assert_only_stated(row, changed(before, after), after, layout)
    Task.from_item(backend.item(item["taskId"]) or {})


def assert_only_stated(row: Transition, touched: set[str], after: Raw, layout: Layout) -> None:
    taken_off = LISTED if not layout.list_completed and LISTED - after.keys() else frozenset()
    sets = row.sets - {"status"} if row.source is row.target else row.sets
    assert sets <= touched, f"not set: {sets - touched}"
    assert sets <= after.keys(), f"not there: {sets - after.keys()}"
    stated = row.sets | row.may_set | row.removes | row.may_remove | taken_off
    assert touched <= stated, f"not stated: {touched - stated}"
    assert not row.removes & after.keys(), f"still there: {row.removes & after.keys()}"


@pytest.mark.parametrize(("event", "status"), PAIRS, ids=[name(*pair) for pair in PAIRS])
def test_every_other_pair_is_refused_and_changes_nothing(
    event: Event, status: Status | None, backend: Backend, new_id: NewId
) -> None:
    if (event, status) in ALLOWED:
        return
    task_id = new_id()
    if status is not None:
        others = {"leaseToken": OTHER_TOKEN} if status in TERMINAL else {}  # under ours it would be our own write
        backend.put(stored_task(task_id, status, **(premises(event) | others)))
    before = backend.raw(task_id)
    believed = stored_task(task_id, source_of(event), **premises(event))
    if event is Event.SUBMIT:
        believed["nonce"] = "of this request"
    for seen in (believed, believed if event is Event.SUBMIT else backend.item(task_id) or believed):
        answer = apply(backend, event, seen)
        assert isinstance(answer, Refused), f"as seen {seen['status']}"
        assert backend.raw(task_id) == before
    if status is None:
        assert answer.reason is Refusal.GONE
    elif status in TERMINAL:
        assert answer.reason is Refusal.TERMINAL


# ---- the proofs, broken one at a time -------------------------------------------------------------------------------

BROKEN: dict[Proof, list[dict[str, Any]]] = {
    Proof.TOKEN: [{"leaseToken": OTHER_TOKEN}, {"leaseToken": None}],
    Proof.TOKEN_AS_SEEN: [{"leaseToken": OTHER_TOKEN}, {"leaseToken": None}],
    Proof.LAPSED: [{"leaseToken": OTHER_TOKEN}, {"leaseToken": None}],
    Proof.AS_SEEN: [{"fence": 6}, {"fence": None}, {"dueAt": NOW - 10.5}],
    Proof.DUE_AS_SEEN: [{"dueAt": NOW - 10.5}],
    Proof.FENCE_AS_SEEN: [{"fence": 7}, {"fence": None}],
    Proof.READY: [
        {"dueAt": NOW + 0.001},
        {"blockedCount": 1},
        {"deadline": NOW},
        {"deadline": NOW - 1},
        {"homeRegion": "eu-west-1"},
        {"formatVersion": 2},
    ],
    Proof.NOT_CANCELLED: [{"cancelRequested": True}],
    Proof.CANCEL_REQUESTED: [{"cancelRequested": None}],
    Proof.LATE: [{"deadline": NOW + 1}, {"deadline": NOW}, {"deadline": None}],
    Proof.BLOCKED: [{"blockedCount": None}, {"blockedCount": 0}],
    Proof.UNCHANGED: [{"updatedAt": NOW - 29}, {"updatedAt": None}],
}
IN_OTHER_TESTS = {Proof.ABSENT, Proof.EDGE, Proof.DEAD_PARENT, Proof.STATUS_ONLY}
BREACHES = [(row, proof, breach) for row in ROWS for proof in row.proofs for breach in BROKEN.get(proof, [])]


def test_every_proof_is_broken_by_some_test() -> None:
    assert set(Proof) == BROKEN.keys() | IN_OTHER_TESTS
    assert {proof for row in TRANSITIONS for proof in row.proofs} == set(Proof)


@pytest.mark.parametrize(
    ("row", "proof", "breach"), BREACHES, ids=[f"{r.event}-{r.source}-{p.name}-{b}" for r, p, b in BREACHES]
)
def test_a_write_without_its_proof_is_refused(
    row: Transition, proof: Proof, breach: dict[str, Any], backend: Backend, new_id: NewId
) -> None:
    assert row.source is not None
    task_id = new_id()
    seen = stored_task(task_id, row.source, **premises(row.event))
    backend.put(stored_task(task_id, row.source, **(premises(row.event) | breach)))
    before = backend.raw(task_id)
    if proof is Proof.READY:  # what is not ready is refused even when it was seen to be so
        assert isinstance(apply(backend, row.event, backend.item(task_id) or {}), Refused)
    answer = apply(backend, row.event, seen)
    assert isinstance(answer, Refused)
    assert backend.raw(task_id) == before
    if proof is Proof.NOT_CANCELLED:
        assert answer.reason is Refusal.CANCELLED


@pytest.mark.parametrize("row", ROWS, ids=lambda row: name(row.event, row.source))
def test_nothing_recreates_a_deleted_task(row: Transition, backend: Backend, new_id: NewId) -> None:
    assert row.source is not None
    gone = stored_task(new_id(), row.source, **premises(row.event))
    answer = apply(backend, row.event, gone)
    assert answer == Refused(Refusal.GONE)
    assert backend.raw(gone["taskId"]) is None


def test_a_row_of_no_status_is_parked_but_not_recreated(backend: Backend, new_id: NewId) -> None:
    """As seen says that status and updatedAt are absent, which is true of a row that is gone as well."""
    item = {"taskId": new_id(), "type": "t", "dispatchKey": "OPEN#default#normal#0", "dueAt": NOW}
    write = expressions.park(item, problem="status is missing", layout=LAYOUT, now=NOW)
    assert backend.store().apply(write) == Refused(Refusal.GONE)
    assert backend.raw(item["taskId"]) is None
    backend.put(item)
    assert isinstance(backend.store().apply(write), Written)
    assert (backend.item(item["taskId"]) or {})["status"] == "FAILED"


def test_the_table_names_stored_attributes_only() -> None:
    named = {a for row in TRANSITIONS for a in row.sets | row.may_set | row.removes | row.may_remove}
    assert named <= TASK_ATTRIBUTES.keys()


def test_the_table_says_which_events_a_status_allows() -> None:
    assert all(allows(event, status) == ((event, status) in ALLOWED) for event in Event for status in Status)
