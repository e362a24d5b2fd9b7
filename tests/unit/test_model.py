"""Rows of every kind of damage are told from tasks and leases, and nothing else is refused."""

from __future__ import annotations

from typing import Any

import pytest

from tests.support.protocol import NOW, new_task, stored_task
from thunderagent.codec import Foreign, Item
from thunderagent.errors import MalformedItem
from thunderagent.model import Attempt, Failure, Lease, Task, mended
from thunderagent.schema import TASK_ATTRIBUTES
from thunderagent.states import Status

WRONG: dict[str, list[Any]] = {
    "S": [1, True, ["a"], {"a": 1}, Foreign("B", b"x"), Foreign("NULL", True), None],
    "N": ["1", True, [1], Foreign("NULL", True), Foreign("NS", ["1"]), None],
    "BOOL": ["true", 1, Foreign("NULL", True)],
    "M": ["{}", [], 1, Foreign("NULL", True)],
    "L": ["[]", {}, 1, frozenset({"a"})],
}


@pytest.mark.parametrize("status", Status)
def test_a_task_of_every_state_is_read(status: Status) -> None:
    task = Task.from_item(stored_task("t", status))
    assert task.status is status
    assert task.is_terminal == (status in (Status.SUCCESS, Status.FAILED, Status.DONE))
    assert task.attempt == 2


@pytest.mark.parametrize("name", sorted(TASK_ATTRIBUTES.keys() - {"taskId"}))
def test_a_wrong_type_makes_a_row_malformed(name: str) -> None:
    for value in WRONG[TASK_ATTRIBUTES[name]]:
        with pytest.raises(MalformedItem) as caught:
            Task.from_item(new_task("t") | {name: value})
        assert caught.value.item_id == "t"
        assert name in caught.value.problem


@pytest.mark.parametrize("name", ["type", "queue", "status", "retryCount", "maxRetryNumber", "createdAt"])
def test_what_every_task_has_must_be_there(name: str) -> None:
    with pytest.raises(MalformedItem, match=f"{name} is missing"):
        Task.from_item(new_task("t", **{name: None}))


@pytest.mark.parametrize(
    "damage",
    [
        {"retryCount": -1},
        {"retryCount": 1.5},
        {"fence": -2},
        {"lost": 0.5},
        {"status": "WAITING"},
        {"status": "pending"},
        {"priority": "urgent"},
        {"tags": {"a": Foreign("B", "e30=")}},
        {"error": {"type": frozenset({"a"})}},
        {"attempts": [{"attempt": Foreign("NS", ["1"])}]},
        {"dependsOn": [frozenset({"a"})]},
        {"steps": {"load": 1}},
        {"steps": {"load": {"n": 1}}},
    ],
)
def test_values_no_task_can_have_make_a_row_malformed(damage: Item) -> None:
    with pytest.raises(MalformedItem):
        Task.from_item(new_task("t") | damage)


def test_only_terminal_tasks_past_their_time_to_live_are_not_shown() -> None:
    ended = Task.from_item(stored_task("t", Status.SUCCESS, expiresAt=int(NOW)))
    assert not ended.is_shown(NOW)
    assert ended.is_shown(NOW - 1)
    stray = Task.from_item(stored_task("t", Status.PENDING, expiresAt=int(NOW) - 1))
    assert stray.is_shown(NOW)


def test_history_lines_leave_out_what_is_not_known() -> None:
    assert Attempt(number=1, started_at=None, ended_at=5, outcome="snoozed").as_entry() == {
        "attempt": 1,
        "endedAt": 5,
        "outcome": "snoozed",
    }
    assert Failure("E", "m").as_map(at=1) == {"type": "E", "message": "m", "reason": "error", "at": 1}


# ---- leases ---------------------------------------------------------------------------------------------------------

LEASE: Item = {
    "taskId": "lease#x",
    "profile": "default",
    "taskIds": ["a", "b"],
    "lockTime": NOW,
    "dueAt": NOW - 5,
    "dispatchKey": "LEASE#default#0",
}


def test_a_lease_is_read() -> None:
    lease = Lease.from_item(LEASE | {"begun": "n", "started": frozenset({"a"}), "closed": NOW})
    assert (lease.token, lease.task_ids, lease.begun, lease.closed) == ("x", ("a", "b"), "n", True)
    assert lease.started == {"a"}
    assert not Lease.from_item(LEASE).closed


@pytest.mark.parametrize(
    "damage",
    [
        {"lockTime": None},
        {"lockTime": "1"},
        {"lockTime": True},
        {"taskId": "a"},
        {"dueAt": "1"},
        {"taskIds": "ab"},
        {"taskIds": [1]},
        {"taskIds": [""]},
        {"taskIds": Foreign("NS", ["1"])},
        {"profile": 5},
        {"begun": 1},
        {"started": ["a"]},
        {"cancelled": Foreign("NULL", True)},
    ],
)
def test_a_malformed_lease_is_told_from_one_and_what_can_be_read_is(damage: Item) -> None:
    item = {name: value for name, value in (LEASE | damage).items() if value is not None}
    with pytest.raises(MalformedItem):
        Lease.from_item(item)
    salvaged = Lease.salvaged(item)
    assert salvaged.lock_time == item.get("lockTime")
    assert salvaged.task_ids in ((), ("a", "b"))


def test_a_lease_that_lost_its_place_in_the_index_is_a_lease() -> None:
    item = {name: value for name, value in LEASE.items() if name != "dueAt"}
    assert Lease.from_item(item).due_at == NOW


# ---- mending --------------------------------------------------------------------------------------------------------

DAMAGES = [
    *(
        {name: value}
        for name, tag in TASK_ATTRIBUTES.items()
        for value in WRONG[tag]
        if name not in {"taskId", "status"}
    ),
    *({name: None} for name in ("type", "queue", "retryCount", "maxRetryNumber", "createdAt")),
    {
        "retryCount": -1,
        "fence": 0.5,
        "priority": "urgent",
        "steps": {"a": 1},
        "tags": [],
        "error": {"a": Foreign("B", b"")},
    },
]


@pytest.mark.parametrize("damage", DAMAGES, ids=str)
def test_what_is_damaged_can_be_mended_and_nothing_else_is_touched(damage: Item) -> None:
    item = new_task("t") | damage
    mends = mended(item, now=NOW)
    assert mends.keys() == damage.keys()
    whole = {name: value for name, value in (item | mends).items() if value is not None}
    Task.from_item(whole)


def test_a_sound_row_needs_no_mending() -> None:
    assert [mended(stored_task("t", status), now=NOW) for status in Status] == [{}] * len(Status)
