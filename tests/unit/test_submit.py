"""Submitting: one task for one key, one open task for equal work, defaults and times as the contract says."""

from __future__ import annotations

import subprocess
import sys
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import pytest

from tests.support.memory_dynamodb import Fault
from tests.support.stores import LosesReplies, SendsTwice
from tests.support.world import Died, World, die, to_status
from thunderagent import Done, Fail, task
from thunderagent.clock import SystemRandomness
from thunderagent.errors import Conflict, InvalidInput, OutcomeUnknown, StoreThrottled, TooLarge, Unprocessable
from thunderagent.operations import Operations, Operator
from thunderagent.schema import DAY_SECONDS, open_key, unique_id
from thunderagent.store import ATTEMPTS
from thunderagent.submit import Submission, fingerprint, request_hash, task_id_of

ROOT = Path(__file__).parents[2]
PINNED_ID = "7215ccb6b3bf29fec869fc82daa7791a"


@task("work")
def work(payload: Any, ctx: Any) -> Any:
    if payload == "fail":
        raise Fail("no")
    if payload == "retry":
        raise ValueError("again")
    return Done() if payload == "done" else payload


@pytest.fixture
def world() -> World:
    return World(work)


def operations(world: World) -> Operations:
    return Operations(world.api.store, world.api.bodies, world.api.dependencies)


def tasks(world: World) -> list[str]:
    return [item_id for item_id, item in world.db.items().items() if "status" in item]


# ---- what a task is born with ---------------------------------------------------------------------------------------


def test_only_the_type_is_needed(world: World) -> None:
    task_id = world.submit("work")
    now = world.clock.now()
    assert world.item(task_id) == {
        "taskId": task_id,
        "type": "work",
        "queue": "default",
        "priority": "normal",
        "status": "PENDING",
        "payload": "null",
        "retryCount": 0,
        "maxRetryNumber": 3,
        "timeoutSeconds": 300,
        "fence": 0,
        "createdAt": now,
        "updatedAt": now,
        "dueAt": now,
        "dispatchKey": open_key("default", "normal", 0),
        "formatVersion": 1,
        "homeRegion": "us-east-1",
    }


def test_what_is_given_wins_over_the_type_and_the_type_over_the_defaults(world: World) -> None:
    declared = {"queue": "default", "priority": "low", "maxRetryNumber": 9, "timeoutSeconds": 40, "leaseSeconds": 90}

    class Types:
        def defaults_of(self, type_name: str) -> Any:
            return declared

        def timeout_limit(self, type_name: str) -> float:
            return 870

    parts = world.api
    parts.submitter._types = Types()
    of_type = world.item(world.submit("work"))
    assert {name: of_type[name] for name in declared} == declared
    given = world.item(world.submit("work", priority="high", max_retry_number=1, timeout_seconds=5))
    assert (given["priority"], given["maxRetryNumber"], given["timeoutSeconds"]) == ("high", 1, 5)


@pytest.mark.parametrize("number", [0, 1])
def test_ta36_zero_is_a_value_and_not_an_absence(world: World, number: int) -> None:
    task_id = world.submit("work", payload='"retry"', max_retry_number=number, delay_seconds=0)
    assert world.item(task_id)["maxRetryNumber"] == number
    starts = 0
    for _ in range(5):
        world.sweep()
        starts += len(world.events)
        world.deliver_all()
        world.advance(400)
    assert starts == number + 1
    assert world.status(task_id) == "FAILED"


@pytest.mark.parametrize(
    "payload", ["0", "false", '""', "null", "{}", "1.0", "12345678901234567890123", '{"a":[null]}']
)
def test_ta36_payloads_survive_exactly(world: World, payload: str) -> None:
    task_id = world.submit("work", payload=payload)
    world.run()
    item = world.item(task_id)
    assert (item["payload"], item["result"], item["status"]) == (payload, payload, "SUCCESS")


def test_an_absent_and_an_explicit_default_behave_alike(world: World) -> None:
    plain = world.item(world.submit("work"))
    explicit = world.item(
        world.submit("work", queue="default", priority="normal", max_retry_number=3, timeout_seconds=300, depends_on=())
    )
    assert {**plain, "taskId": ""} == {**explicit, "taskId": ""}


def test_times_are_the_servers(world: World) -> None:
    now = world.clock.now()
    later = world.item(world.submit("work", delay_seconds=30, start_within_seconds=10))
    assert (later["dueAt"], later["runAt"], later["deadline"]) == (now + 30, now + 30, now + 40)
    at = world.item(world.submit("work", run_at=now + 99.5))
    assert (at["dueAt"], at["runAt"]) == (now + 99.5, now + 99.5)
    past = world.item(world.submit("work", run_at=now - 99))
    assert past["dueAt"] == now
    assert "runAt" not in past


def test_an_open_task_has_no_time_to_live_and_a_terminal_one_has_whole_seconds(world: World) -> None:
    world.clock.advance(0.7)
    task_id = world.submit("work")
    assert "expiresAt" not in world.item(task_id)
    world.run()
    assert world.item(task_id)["expiresAt"] == int(world.clock.now()) + 7 * DAY_SECONDS
    failed = world.submit("work", payload='"fail"')
    world.run()
    assert world.item(failed)["expiresAt"] == int(world.clock.now()) + 90 * DAY_SECONDS
    operations(world).redrive(failed, Operator("me"), key=None)
    assert "expiresAt" not in world.item(failed)


@pytest.mark.parametrize(
    ("fields", "error", "path"),
    [
        ({"queue": "nowhere"}, Unprocessable, "queue"),
        ({"timeout_seconds": 871}, InvalidInput, "timeoutSeconds"),
        ({"depth": 101}, InvalidInput, None),
        ({"payload": '"' + "é" * 524_288 + '"'}, TooLarge, "payload"),
    ],
    ids=["queue", "timeout", "depth", "size"],
)
def test_what_is_refused_leaves_no_row(world: World, fields: Any, error: type[Exception], path: str | None) -> None:
    with pytest.raises(error) as caught:
        world.submit("work", **fields)
    assert getattr(caught.value, "path", None) == path
    assert world.db.items() == {}
    assert world.db.writes() == []


# ---- one key, one task (TA-17) --------------------------------------------------------------------------------------


@pytest.mark.parametrize("unique", [None, 600.0], ids=["plain", "unique"])
def test_ta17_fifty_equal_submits_at_one_instant_make_one_task(world: World, unique: float | None) -> None:
    submission = Submission(type="work", payload="1", unique_seconds=unique)
    processes = [world.process("api") for _ in range(50)]
    for process in processes:
        process.store.randomness = SystemRandomness()

    def submit(index: int) -> Any:
        return processes[index].submitter.submit(submission, key="k", body={"type": "work", "payload": 1})

    with ThreadPoolExecutor(16) as pool:
        answers = list(pool.map(submit, range(50)))
    assert len(tasks(world)) == 1
    assert {answer.task.task_id for answer in answers} == set(tasks(world))
    assert sum(not answer.duplicate for answer in answers) == 1


def test_ta17_another_payload_under_the_same_key_is_a_conflict(world: World) -> None:
    world.submit("work", key="k", payload="1")
    with pytest.raises(Conflict) as caught:
        world.submit("work", key="k", payload="2")
    assert caught.value.code == "idempotency_conflict"
    assert len(tasks(world)) == 1


def test_ta17_the_key_again_after_the_end_finds_the_task_as_it_is(world: World) -> None:
    task_id = world.submit("work", key="k", payload="1")
    world.run()
    again = world.api.submitter.submit(Submission(type="work", payload="1"), key="k", body={"payload": "1"})
    assert again.duplicate
    assert (again.task.task_id, again.task.status) == (task_id, "SUCCESS")
    assert len(tasks(world)) == 1


def test_equal_bodies_are_equal_however_they_are_written() -> None:
    assert request_hash({"a": 1, "b": [1.0, "é"]}) == request_hash({"b": [1, "\u00e9"], "a": 1.0})
    assert request_hash({"a": 1}) != request_hash({"a": "1"})
    assert request_hash({"a": None}) != request_hash({})


def test_an_own_id_without_a_key_is_taken_once(world: World) -> None:
    world.submit("work", task_id="order-1")
    with pytest.raises(Conflict) as caught:
        world.submit("work", task_id="order-1")
    assert caught.value.status == "PENDING"


@pytest.mark.parametrize("loss", [LosesReplies, SendsTwice])
@pytest.mark.parametrize("fields", [{}, {"key": "k"}, {"task_id": "own"}, {"unique_seconds": 5.0}], ids=str)
def test_a_lost_reply_is_no_duplicate_and_no_conflict(world: World, fields: dict[str, Any], loss: Any) -> None:
    key = fields.pop("key", None)
    world.send = loss(world.db)
    submitted = world.process("api").submitter.submit(Submission(type="work", **fields), key=key, body=fields)
    assert not submitted.duplicate
    assert tasks(world) == [submitted.task.task_id]


def test_a_submit_that_was_never_answered_may_be_repeated_with_its_key(world: World) -> None:
    world.db.inject(Fault.LOST_REPLY, where=lambda call: call.operation == "PutItem", times=ATTEMPTS)
    with pytest.raises(OutcomeUnknown):
        world.submit("work", key="k")
    world.submit("work", key="k")
    assert len(tasks(world)) == 1


def test_ta30_a_throttled_submit_says_that_nothing_was_written(world: World) -> None:
    world.db.inject(Fault.THROTTLED, where=lambda call: call.operation == "PutItem", times=None)
    with pytest.raises(StoreThrottled) as caught:
        world.submit("work")
    assert caught.value.applied is False
    assert tasks(world) == []
    world.db.calm()
    world.submit("work")


# ---- equal work (TA-24) ---------------------------------------------------------------------------------------------


class Equal:
    """Submits the same unique work again and again."""

    def __init__(self, world: World, *, payload: str = '"x"', window: float = 600) -> None:
        self.world = world
        self.submission = Submission(type="work", payload=payload, unique_seconds=window)

    def submit(self) -> tuple[str, bool]:
        answer = self.world.process("api").submitter.submit(self.submission)
        return str(answer.task.task_id), answer.duplicate


def test_ta24_equal_work_is_suppressed_while_open_and_within_its_window_after_success(world: World) -> None:
    equal = Equal(world)
    first, duplicate = equal.submit()
    assert not duplicate
    assert equal.submit() == (first, True)
    world.sweep()
    assert equal.submit() == (first, True), "while it runs"
    world.deliver_all()
    assert world.status(first) == "SUCCESS"
    world.advance(599)
    assert equal.submit() == (first, True), "within its window"
    world.advance(2)
    second, duplicate = equal.submit()
    assert not duplicate
    assert second != first


def test_ta24_a_window_of_zero_frees_at_success(world: World) -> None:
    equal = Equal(world, window=0)
    first, _ = equal.submit()
    world.run()
    assert equal.submit()[0] != first


def test_ta24_a_task_with_nothing_to_keep_holds_its_window_too(world: World) -> None:
    equal = Equal(world, payload='"done"')
    first, _ = equal.submit()
    world.run()
    assert world.item(first)["outcome"] == "skipped"
    assert equal.submit() == (first, True)


def test_ta24_an_acknowledged_result_holds_its_window(world: World) -> None:
    equal = Equal(world)
    first, _ = equal.submit()
    world.run()
    operations(world).acknowledge(first)
    assert equal.submit() == (first, True)


@pytest.mark.parametrize("end", ["failed", "cancelled", "expired"])
def test_ta24_what_did_not_succeed_frees_it(world: World, end: str) -> None:
    equal = Equal(world, payload='"fail"')
    if end == "expired":
        equal.submission = Submission(type="work", payload='"x"', unique_seconds=600, start_within_seconds=1)
    first, _ = equal.submit()
    if end == "cancelled":
        operations(world).cancel(first, Operator("me"))
    elif end == "expired":
        world.advance(2)
        world.sweep()
    else:
        world.run()
    assert world.status(first) in ("FAILED", "DONE")
    second, duplicate = equal.submit()
    assert not duplicate
    assert equal.submit() == (second, True)


def test_ta24_waiting_for_a_retry_is_open_and_a_newer_holder_does_not_block_it(world: World) -> None:
    equal = Equal(world, payload='"retry"')
    first, _ = equal.submit()
    world.run()
    assert (world.status(first), world.task(first).retry_count) == ("PENDING", 1)
    assert equal.submit() == (first, True)
    world.advance(400)
    world.run()
    assert world.task(first).retry_count == 2


def test_ta24_a_redrive_neither_takes_the_fingerprint_nor_is_blocked_by_it(world: World) -> None:
    equal = Equal(world, payload='"fail"')
    first, _ = equal.submit()
    world.run()
    second, _ = equal.submit()
    operations(world).redrive(first, Operator("me"), key=None)
    assert world.status(first) == "PENDING"
    assert equal.submit() == (second, True)


def test_ta24_a_dead_worker_frees_the_fingerprint_through_the_reaper(world: World) -> None:
    equal = Equal(world)
    equal.submission = Submission(type="work", payload='"x"', unique_seconds=600, max_retry_number=0)
    first, _ = equal.submit()
    world.sweep()
    world.db.before(to_status("SUCCESS"), die)
    with pytest.raises(Died):
        world.deliver()
    assert equal.submit() == (first, True)
    world.lapse()
    world.reap()
    assert world.status(first) == "FAILED"
    assert equal.submit()[1] is False


def test_ta24_submitted_while_it_runs_and_then_it_fails(world: World) -> None:
    equal = Equal(world, payload='"fail"')
    first, _ = equal.submit()
    world.sweep()
    assert equal.submit() == (first, True)
    world.deliver_all()
    assert world.status(first) == "FAILED"
    assert equal.submit()[1] is False


def test_ta24_a_holder_removed_by_its_time_to_live_blocks_nobody(world: World) -> None:
    equal = Equal(world, window=1e6)
    first, _ = equal.submit()
    world.run()
    world.db.remove(first)
    second, duplicate = equal.submit()
    assert not duplicate
    assert world.db.item(unique_id(world.item(second)["unique"]))["holder"] == second  # type: ignore[index]


def test_a_takeover_loses_to_whoever_was_there_first(world: World) -> None:
    equal = Equal(world, payload='"fail"')
    equal.submit()
    world.run()
    other = Equal(world, payload='"fail"')
    between: list[tuple[str, bool]] = []
    world.db.before(lambda call: call.operation == "TransactWriteItems", lambda: between.append(other.submit()))
    assert equal.submit() == (between[0][0], True)
    assert between[0][1] is False


def test_a_takeover_loses_to_a_redrive_of_the_holder(world: World) -> None:
    """The holder was terminal when it was looked at; redriven meanwhile, it is open work again."""
    equal = Equal(world, payload='"fail"')
    first, _ = equal.submit()
    world.run()
    world.db.before(
        lambda call: call.operation == "TransactWriteItems",
        lambda: operations(world).redrive(first, Operator("me"), key=None),
    )
    assert equal.submit() == (first, True)


@pytest.mark.parametrize(
    "damage", [{"holder": None}, {"holder": 5}, {"holder": "gone"}], ids=["no holder", "a number", "gone"]
)
def test_a_damaged_pointer_does_not_block_its_fingerprint(world: World, damage: dict[str, Any]) -> None:
    equal = Equal(world)
    first, _ = equal.submit()
    world.run()
    pointer = unique_id(world.item(first)["unique"])
    item = (world.db.item(pointer) or {}) | damage
    world.db.put({name: value for name, value in item.items() if value is not None})
    second, duplicate = equal.submit()
    assert not duplicate
    assert equal.submit() == (second, True)


@pytest.mark.parametrize("damage", [{"finishedAt": None}, {"uniqueSeconds": "x"}])
def test_a_damaged_holder_does_not_raise(world: World, damage: dict[str, Any]) -> None:
    equal = Equal(world)
    first, _ = equal.submit()
    world.run()
    item = world.item(first) | damage
    world.db.put({name: value for name, value in item.items() if value is not None})
    assert equal.submit()[1] is False


# ---- fingerprints ---------------------------------------------------------------------------------------------------


def test_fingerprints_follow_rfc_8785() -> None:
    assert fingerprint("q", "t", '{"a":1,"b":2}') == fingerprint("q", "t", '{"b":2.0,"a":1e0}')
    assert fingerprint("q", "t", '"é"') == fingerprint("q", "t", '"\\u00e9"')
    different = [("q", "t", "1"), ("q", "t", '"1"'), ("p", "t", "1"), ("q", "s", "1"), ("q", "t", "[1]")]
    different += [("q", "t", "9007199254740993"), ("q", "t", "9007199254740992")]
    assert len({fingerprint(*each) for each in different}) == len(different)


def test_fingerprints_and_ids_are_stable_across_processes_and_versions() -> None:
    program = (
        "from thunderagent.submit import fingerprint, request_hash, task_id_of;"
        'print(fingerprint(\'q\',\'t\',\'{"b":[1.0,"é"],"a":{"z":1,"y":2}}\'),'
        " request_hash({'type':'t','payload':{'b':1,'a':2}}), task_id_of('key'))"
    )
    found = {
        subprocess.run(
            [sys.executable, "-c", program],
            env={"PYTHONHASHSEED": seed, "PYTHONPATH": str(ROOT / "layers/thunderagent/python")},
            capture_output=True,
            text=True,
            check=True,
        ).stdout
        for seed in ("0", "1", "4242")
    }
    payload = '{"a":{"y":2,"z":1},"b":[1,"é"]}'
    here = [fingerprint("q", "t", payload), request_hash({"payload": {"a": 2, "b": 1}, "type": "t"}), task_id_of("key")]
    assert found == {" ".join(here) + "\n"}
    assert task_id_of("key") == PINNED_ID, "ids of keys must be the same in every release"
