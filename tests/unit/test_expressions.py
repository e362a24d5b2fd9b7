"""The builders: existence always demanded, each attribute once, and which stored item each would take for its own."""

from __future__ import annotations

import re

import pytest

from tests.support.leases import stored_lease
from tests.support.protocol import LAYOUT, NOW, OTHER_TOKEN, TOKEN, premises, stored_task, write_of
from thunderagent import expressions as e
from thunderagent.conditions import Write
from thunderagent.model import Attempt, Lease, LeaseToken, Task, TaskId
from thunderagent.states import TRANSITIONS, Event, Status

WRITES: list[Write] = [
    write_of(row.event, Task.from_item(stored_task("t", row.source or Status.PENDING, **premises(row.event))))
    for row in TRANSITIONS
] + [
    e.open_lease(LeaseToken("x"), profile="p", task_ids=[TaskId("a")], lock_time=1, now=0),
    e.begin(LeaseToken("x"), nonce="n", lock_time=1, now=0),
    e.heartbeat(LeaseToken("x"), nonce="n", lock_time=1, starting=[TaskId("a")]),
    e.settle(LeaseToken("x"), nonce="n"),
    e.void(LeaseToken("x")),
    e.close(Lease.from_item(stored_lease("x")), now=0),
    e.move_lease(Lease.from_item(stored_lease("x"))),
    e.bury_lease(LeaseToken("x")),
    e.tell_lease(LeaseToken("x"), TaskId("a")),
    e.repair_lease(stored_lease("x", lockTime=None), lock_time=1),
]
EXPRESSIONS = ("ConditionExpression", "UpdateExpression")


@pytest.mark.parametrize("write", WRITES, ids=lambda write: str(write.event))
def test_no_attribute_stands_in_an_expression_by_its_own_name(write: Write) -> None:
    """Some are reserved words of DynamoDB (status, owner, result); none may ever become one unnoticed."""
    for name in EXPRESSIONS:
        words = re.findall(r"[#:]?[A-Za-z_][A-Za-z0-9_]*", write.arguments.get(name, ""))
        plain = {word for word in words if word[0] not in "#:"}
        assert plain <= {"SET", "REMOVE", "ADD", "AND", "OR", "NOT", "IN", "attribute_exists", "attribute_not_exists"}


@pytest.mark.parametrize("write", WRITES, ids=lambda write: str(write.event))
def test_every_write_asks_for_the_old_item_and_demands_or_denies_existence(write: Write) -> None:
    assert write.arguments["ReturnValuesOnConditionCheckFailure"] == "ALL_OLD"
    condition = write.arguments["ConditionExpression"]
    clause = "attribute_not_exists(#taskId)" if write.operation == "PutItem" else "attribute_exists(#taskId)"
    assert clause in condition.split(" AND ")


@pytest.mark.parametrize("write", WRITES, ids=lambda write: str(write.event))
def test_an_update_sets_and_removes_each_attribute_once(write: Write) -> None:
    names = re.findall(r"#\w+", write.arguments.get("UpdateExpression", ""))
    assert len(names) == len(set(names))


def test_no_state_changes_by_a_put() -> None:
    assert {write.operation for write in WRITES if write.event in set(Event) - {Event.SUBMIT}} == {"UpdateItem"}


# ---- what a write leaves, and who would recognise it ----------------------------------------------------------------


def test_exits_always_change_the_due_time_the_sweep_remembers() -> None:
    """A poller remembers entries by id and due time: one that came back must be news."""
    task = Task.from_item(stored_task("t", Status.RUNNING))
    for event in (Event.RETRY, Event.RELEASE, Event.SNOOZE, Event.REAP):
        write = write_of(event, task)
        values = write.arguments["ExpressionAttributeValues"].values()
        assert {"N": str(NOW + 7.5)} in values


@pytest.mark.parametrize("event", [Event.COMMIT, Event.FINISH, Event.FAIL, Event.RETRY, Event.RELEASE, Event.SNOOZE])
def test_an_exit_under_another_token_is_never_ours(event: Event) -> None:
    task = Task.from_item(stored_task("t", Status.RUNNING))
    write = write_of(event, task)
    left = dict(stored_task("t", Status.PENDING, exitedBy=f"{OTHER_TOKEN}:{event.value}"))
    for status in (Status.SUCCESS, Status.FAILED, Status.DONE):
        assert not write.applied(stored_task("t", status, leaseToken=OTHER_TOKEN, outcome="skipped", finishedAt=NOW))
    assert not write.applied(left)
    assert not write.applied(stored_task("t", Status.RUNNING, leaseToken=TOKEN))


def test_history_keeps_the_last_ten_lines() -> None:
    lines = [{"attempt": number} for number in range(1, 11)]
    task = Task.from_item(stored_task("t", Status.RUNNING, attempts=lines))
    kept = e.keep_attempts(task, Attempt(11, None, NOW, "error"))
    assert [line["attempt"] for line in kept] == list(range(2, 12))


def test_a_redrive_keeps_the_last_twenty_ids() -> None:
    known = [f"{number}:r" for number in range(20)]
    task = Task.from_item(stored_task("t", Status.FAILED, redriveIds=known))
    write = e.redrive(task, redrive_id="20:r", operator=None, layout=LAYOUT, now=NOW)
    kept = next(v["L"] for v in write.arguments["ExpressionAttributeValues"].values() if "L" in v)
    assert [entry["S"] for entry in kept] == [*known[1:], "20:r"]


@pytest.mark.parametrize(("deadline", "gone"), [(NOW - 1, True), (NOW, True), (NOW + 1, False)])
def test_a_redrive_drops_a_deadline_that_has_passed(deadline: float, gone: bool) -> None:
    task = Task.from_item(stored_task("t", Status.FAILED, deadline=deadline))
    write = e.redrive(task, redrive_id="r", operator=None, layout=LAYOUT, now=NOW)
    assert ("#deadline" in write.arguments["UpdateExpression"]) == gone
