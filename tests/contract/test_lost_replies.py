"""A write that took effect and whose answer was lost is recognised as ours, over every store (ARCHITECTURE §6).

Two ways: the library's own retry meets its own condition, and an SDK repeated the request below the `send` seam.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

import pytest

from tests.support.leases import MINE, STATES, stored_lease
from tests.support.protocol import NOW, premises, stored_task, write_of
from tests.support.stores import Backend, LosesReplies, SendsTwice
from thunderagent import expressions
from thunderagent.conditions import Write
from thunderagent.errors import OutcomeUnknown, StoreRefused, StoreThrottled
from thunderagent.model import Failure, Lease, LeaseToken, Task, TaskId
from thunderagent.schema import unique_id
from thunderagent.states import TRANSITIONS, Event, Status
from thunderagent.store import ATTEMPTS, Refusal, Refused, Send, Written

NewId = Callable[[], str]
LATER = NOW + 300
LOSSES = [LosesReplies, SendsTwice]
APART = {Event.SUBMIT, Event.UNBLOCK}
ROWS = [(row.event, row.source) for row in TRANSITIONS if row.event not in APART]
REPEATABLE = {Event.STEP, Event.PROGRESS, Event.MOVE_ASIDE, Event.CANCEL_REQUEST}  # their premise still holds


@pytest.mark.parametrize("loss", LOSSES)
@pytest.mark.parametrize(("event", "source"), ROWS, ids=[f"{event}-{source}" for event, source in ROWS])
def test_every_event_is_recognised(
    event: Event, source: Status, loss: Callable[[Send], Send], backend: Backend, new_id: NewId
) -> None:
    item = stored_task(new_id(), source, **premises(event))
    backend.put(item)
    write = write_of(event, Task.from_item(item))
    answer = backend.store(loss(backend.send)).apply(write)
    assert isinstance(answer, Written)
    assert answer.replayed == (event not in REPEATABLE)
    after = backend.raw(item["taskId"])
    fresh = {**item, "taskId": new_id()}
    backend.put(fresh)
    backend.store().apply(write_of(event, Task.from_item(fresh)))
    once = dict(backend.raw(fresh["taskId"]) or {}) | {"taskId": {"S": item["taskId"]}}
    keys = {"dispatchKey"}  # of another shard, perhaps
    assert {**(after or {})} == once | {name: (after or {})[name] for name in keys if name in once}


@pytest.mark.parametrize("loss", LOSSES)
@pytest.mark.parametrize("repeated", [False, True], ids=["one call", "called again"])
def test_a_parent_is_counted_once(
    repeated: bool, loss: Callable[[Send], Send], backend: Backend, new_id: NewId
) -> None:
    """The count is relative: the edge that goes with it is what keeps it from happening twice."""
    parent, child = new_id(), stored_task(new_id(), Status.PENDING, blockedCount=3)
    backend.put(child)
    store = backend.store(loss(backend.send))
    store.transact([expressions.put_edge(parent, child["taskId"], now=NOW)], request_token=f"edge-{parent}")
    writes = [
        expressions.cut_edge(parent, child["taskId"]),
        expressions.unblock(Task.from_item(child), due_at=NOW, layout=store.layout, now=NOW),
    ]
    for token in ["first", "second"][: 1 + repeated]:
        answer = store.transact(writes, request_token=f"{token}-{parent}")
    if backend.name != "moto":  # which does not remember request tokens
        assert isinstance(answer, tuple if repeated else Written)
    assert (backend.item(child["taskId"]) or {})["blockedCount"] == 2


@pytest.mark.parametrize("loss", LOSSES)
@pytest.mark.parametrize("nonce", ["n1", None], ids=["own id", "random id"])
def test_a_submit_is_recognised(
    nonce: str | None, loss: Callable[[Send], Send], backend: Backend, new_id: NewId
) -> None:
    item = stored_task(new_id(), Status.PENDING, nonce=nonce)
    answer = backend.store(loss(backend.send)).apply(expressions.submit(item))
    assert answer == Written(backend.item(item["taskId"]), replayed=True)


def test_the_submit_of_another_at_the_same_instant_is_not_ours(backend: Backend, new_id: NewId) -> None:
    item = stored_task(new_id(), Status.PENDING, nonce="theirs", idempotencyHash="equal")
    backend.put(item)
    answer = backend.store().apply(expressions.submit(item | {"nonce": "mine"}))
    assert isinstance(answer, Refused)


@pytest.mark.parametrize("loss", LOSSES)
def test_a_unique_submit_is_recognised(loss: Callable[[Send], Send], backend: Backend, new_id: NewId) -> None:
    item = stored_task(new_id(), Status.PENDING, unique=new_id(), nonce="n")
    writes = [expressions.submit(item), *expressions.take_unique(item, pointer=None, holder=None)]
    answer = backend.store(loss(backend.send)).transact(writes, request_token=f"token-{item['taskId']}")
    assert isinstance(answer, Written)
    assert (backend.item(unique_id(item["unique"])) or {})["holder"] == item["taskId"]


def test_a_transaction_repeated_after_its_token_was_forgotten_is_recognised(backend: Backend, new_id: NewId) -> None:
    item = stored_task(new_id(), Status.PENDING, unique=new_id(), nonce="n")
    writes = [expressions.submit(item), *expressions.take_unique(item, pointer=None, holder=None)]
    for token in ("first", "second"):
        answer = backend.store().transact(writes, request_token=f"{token}-{item['taskId']}")
        assert isinstance(answer, Written)
    assert isinstance(answer, Written)
    assert answer.replayed


LEASE_STEPS: dict[str, tuple[str, Callable[[LeaseToken], Write], bool]] = {
    "begin": ("open", lambda t: expressions.begin(t, nonce=MINE, lock_time=LATER, now=NOW), True),
    "heartbeat": (
        "begun by me",
        lambda t: expressions.heartbeat(t, nonce=MINE, lock_time=LATER, starting=[TaskId("a")]),
        True,
    ),
    "close": ("past", lambda t: expressions.close(Lease.salvaged(stored_lease(t, **STATES["past"])), now=NOW), True),
    "move": (
        "past",
        lambda t: expressions.move_lease(Lease.salvaged(stored_lease(t, **STATES["past"]))),
        True,
    ),
    "tell": ("open", lambda t: expressions.tell_lease(t, TaskId("a")), True),
    "settle": ("begun by me", lambda t: expressions.settle(t, nonce=MINE), False),
    "void": ("open", expressions.void, False),
    "bury": ("closed", expressions.bury_lease, False),
}


@pytest.mark.parametrize("loss", LOSSES)
@pytest.mark.parametrize("name", LEASE_STEPS)
def test_every_step_of_a_lease_is_recognised(
    name: str, loss: Callable[[Send], Send], backend: Backend, new_id: NewId
) -> None:
    """Deleted twice is gone: the callers of settle, void and bury take that for done."""
    state, write_of_step, stays = LEASE_STEPS[name]
    token = LeaseToken(new_id())
    backend.put(stored_lease(token, **STATES[state]))
    answer = backend.store(loss(backend.send)).apply(write_of_step(token))
    if stays:
        assert isinstance(answer, Written)
        assert backend.raw(f"lease#{token}") is not None
    else:
        assert answer == Refused(Refusal.GONE)
        assert backend.raw(f"lease#{token}") is None


def test_begin_by_another_delivery_is_not_ours(backend: Backend, new_id: NewId) -> None:
    token = LeaseToken(new_id())
    backend.put(stored_lease(token))
    backend.store().apply(expressions.begin(token, nonce="first", lock_time=LATER, now=NOW))
    again = expressions.begin(token, nonce="second", lock_time=LATER, now=NOW)
    assert isinstance(backend.store(SendsTwice(backend.send)).apply(again), Refused)


def test_an_open_is_sent_once_and_a_lost_answer_is_unknown(backend: Backend, new_id: NewId) -> None:
    token = LeaseToken(new_id())
    write = expressions.open_lease(token, profile="p", task_ids=[TaskId("a")], lock_time=LATER, now=NOW)
    losing = LosesReplies(backend.send)
    with pytest.raises(OutcomeUnknown):
        backend.store(losing).apply(write, once=True)
    assert losing.lost == ["PutItem"]
    assert backend.raw(f"lease#{token}") is not None


def test_an_acknowledged_commit_is_still_ours(backend: Backend, new_id: NewId) -> None:
    """The answer is lost, the client sees SUCCESS and acknowledges, and only then the commit is repeated."""
    item = stored_task(new_id(), Status.RUNNING)
    backend.put(item)
    commit = write_of(Event.COMMIT, Task.from_item(item))

    def acknowledge_in_between(operation: str, arguments: Mapping[str, Any]) -> Mapping[str, Any]:
        answer = backend.send(operation, arguments)
        if arguments.get("UpdateExpression") == commit.arguments["UpdateExpression"]:
            stored = Task.from_item(backend.item(item["taskId"]) or {})
            backend.store().apply(write_of(Event.ACKNOWLEDGE, stored))
            raise OutcomeUnknown(operation, "ReadTimeoutError")
        return answer

    answer = backend.store(acknowledge_in_between).apply(commit)
    assert isinstance(answer, Written)
    assert answer.replayed
    assert (backend.item(item["taskId"]) or {})["outcome"] == "acknowledged"


@pytest.mark.parametrize("event", [Event.COMMIT, Event.FINISH, Event.FAIL, Event.CANCEL_END])
def test_an_end_decided_again_a_second_later_is_still_ours(event: Event, backend: Backend, new_id: NewId) -> None:
    """A caller that gave up and starts over builds the write anew, with another now."""
    item = stored_task(new_id(), Status.RUNNING, **premises(event))
    backend.put(item)
    task = Task.from_item(item)
    assert isinstance(backend.store().apply(write_of(event, task)), Written)
    before = backend.raw(item["taskId"])
    again = backend.store().apply(write_of(event, task, now=NOW + 1))
    assert again == Written(backend.item(item["taskId"]), replayed=True)
    assert backend.raw(item["taskId"]) == before


def test_the_reapers_end_is_not_taken_for_the_holders(backend: Backend, new_id: NewId) -> None:
    item = stored_task(new_id(), Status.RUNNING, retryCount=3)
    backend.put(item)
    task = Task.from_item(item)
    lost = Failure("WorkerLost", "gone", "worker_lost")
    store = backend.store()
    store.apply(expressions.reap_failed(task, failure=lost, attempt=None, layout=store.layout, now=NOW))
    answer = store.apply(write_of(Event.FAIL, task))
    assert isinstance(answer, Refused)
    assert answer.reason is Refusal.TERMINAL


# ---- what the attempts of one call add up to ------------------------------------------------------------------------


class Scripted:
    """Answers the requests of one call in turn: raises what is given, and forwards where None is."""

    def __init__(self, send: Send, script: list[Exception | None], *, apply_first: bool = False) -> None:
        self._send = send
        self._script = script
        self._apply_first = apply_first

    def __call__(self, operation: str, arguments: Mapping[str, Any]) -> Mapping[str, Any]:
        outcome = self._script.pop(0) if self._script else None
        if self._apply_first:
            self._apply_first = False
            self._send(operation, arguments)
        if outcome is not None:
            raise outcome
        return self._send(operation, arguments)


LOST = OutcomeUnknown("UpdateItem", "ReadTimeoutError")
THROTTLED = StoreThrottled("UpdateItem", "ThrottlingException")
CONFLICT = StoreRefused("UpdateItem", "TransactionConflictException")
EXPIRED = StoreRefused("UpdateItem", "ExpiredTokenException")


def test_throttling_alone_says_that_nothing_was_written(backend: Backend, new_id: NewId) -> None:
    item = stored_task(new_id(), Status.RUNNING)
    backend.put(item)
    write = write_of(Event.COMMIT, Task.from_item(item))
    with pytest.raises(StoreThrottled) as caught:
        backend.store(Scripted(backend.send, [THROTTLED] * ATTEMPTS)).apply(write)
    assert caught.value.applied is False


@pytest.mark.parametrize("later", [THROTTLED, CONFLICT, EXPIRED, LOST], ids=lambda error: error.code)
def test_once_an_answer_was_lost_nothing_that_follows_denies_the_write(
    later: Exception, backend: Backend, new_id: NewId
) -> None:
    item = stored_task(new_id(), Status.RUNNING)
    backend.put(item)
    write = write_of(Event.COMMIT, Task.from_item(item))
    script: list[Exception | None] = [LOST, *[later] * (ATTEMPTS - 1)]
    with pytest.raises(OutcomeUnknown) as caught:
        backend.store(Scripted(backend.send, script, apply_first=True)).apply(write)
    assert caught.value.applied is None
    assert (backend.item(item["taskId"]) or {})["status"] == "SUCCESS"


def test_a_transaction_conflict_is_retried_and_never_a_refusal(backend: Backend, new_id: NewId) -> None:
    item = stored_task(new_id(), Status.RUNNING)
    backend.put(item)
    write = write_of(Event.COMMIT, Task.from_item(item))
    answer = backend.store(Scripted(backend.send, [CONFLICT, THROTTLED, None])).apply(write)
    assert answer == Written(backend.item(item["taskId"]))


def test_a_refused_request_is_not_retried(backend: Backend, new_id: NewId) -> None:
    item = stored_task(new_id(), Status.RUNNING)
    backend.put(item)
    scripted = Scripted(backend.send, [EXPIRED, None])
    with pytest.raises(StoreRefused, match="ExpiredToken"):
        backend.store(scripted).apply(write_of(Event.COMMIT, Task.from_item(item)))
    assert (backend.item(item["taskId"]) or {})["status"] == "RUNNING"


def test_an_expiry_at_the_very_instant_of_a_cancel_is_not_the_cancel(backend: Backend, new_id: NewId) -> None:
    item = stored_task(new_id(), Status.PENDING, deadline=NOW - 1)
    backend.put(item)
    task = Task.from_item(item)
    assert isinstance(backend.store().apply(write_of(Event.EXPIRE, task)), Written)
    assert isinstance(backend.store().apply(write_of(Event.CANCEL, task)), Refused)
