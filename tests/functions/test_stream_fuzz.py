"""Every function that reads events or rows others have made, given garbage: none of it raises, none stops the rest.

The same few examples in every run. `make fuzz` draws new ones (SECONDS for each test) and keeps none.
"""

from __future__ import annotations

import os
import time
from typing import Any

import pytest
from hypothesis import HealthCheck, Phase, given, settings
from hypothesis import strategies as st

from functions.api import handler as api_handler
from tests.support.api import Api
from tests.support.fakes import START
from tests.support.leases import stored_lease
from tests.support.protocol import new_task
from tests.support.recording import Rig, record
from tests.support.upkeep import Minute
from tests.support.world import World
from thunderagent import task
from thunderagent.codec import Foreign, Item
from thunderagent.errors import InvalidInput, MalformedItem
from thunderagent.leased_batch import Batch
from thunderagent.model import Lease, Task
from thunderagent.stream import BadRecord, Change

SECONDS = float(os.environ.get("FUZZ_SECONDS", "0"))
BEGUN: dict[str, float] = {}
FUZZ = settings(
    max_examples=1_000_000 if SECONDS else 12,
    derandomize=not SECONDS,
    deadline=None,
    database=None,
    phases=(Phase.explicit, Phase.generate),
    suppress_health_check=list(HealthCheck),
)

TEXTS = st.sampled_from(
    ["", "a", "x#y", "lease#t", "OPEN#default#normal#0", "\x00", "\u202e", "9" * 40, "PENDING"]
) | st.text(max_size=8)
NUMBERS = st.integers(-(10**20), 10**20) | st.sampled_from(
    [-1, 0, 0.5, 1e-9, START, START - 900, START + 900, 1e15, 1e120]
)
VALUES = st.recursive(
    TEXTS
    | NUMBERS
    | st.booleans()
    | st.sampled_from([Foreign("NULL", True), Foreign("B", "e30="), Foreign("NS", ["1"]), frozenset({"a"})]),
    lambda inner: st.lists(inner, max_size=2) | st.dictionaries(TEXTS.filter(bool), inner, max_size=2),
    max_leaves=4,
)
ABSENT = object()
JSON = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats(allow_nan=True) | st.text(max_size=8),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=8), inner, max_size=3),
    max_leaves=8,
)


def damaged(row: Item, *, but: tuple[str, ...] = ("taskId",)) -> st.SearchStrategy[Item]:
    """The row with up to four attributes changed or gone, or with new ones; what it is found by stays."""
    names = st.sampled_from(sorted(set(row) - set(but))) | TEXTS.filter(lambda name: bool(name) and name not in but)
    changes = st.dictionaries(names, VALUES | st.just(ABSENT), max_size=4)
    return changes.map(
        lambda changed: {name: value for name, value in {**row, **changed}.items() if value is not ABSENT}
    )


@task("echo")
def echo(payload: Any, ctx: Any) -> Any:
    return payload


FOUND_BY = ("taskId", "dispatchKey", "dueAt")
TASK = new_task("bad", type="echo", lost=None, dispatchKey="OPEN#default#normal#0", dueAt=START - 60)
RUNNING = TASK | {"status": "RUNNING", "leaseToken": "t", "lockTime": START - 600, "startedAt": START - 900, "fence": 1}
ENDED = TASK | {"status": "FAILED", "dispatchKey": "FAILED#default#0", "finishedAt": START - 60, "error": {"type": "E"}}
BLOCKED = TASK | {"dispatchKey": "BLOCKED#default#0", "blockedCount": 1, "dependsOn": ["p"]}
LEASE = stored_lease("t", taskIds=["bad"], dispatchKey="LEASE#default#0", dueAt=START - 60, lockTime=START - 60)
SCHEDULE: Item = {
    "taskId": "schedule#s",
    "dispatchKey": "SCHEDULE#",
    "dueAt": START - 60,
    "cron": "* * * * *",
    "timezone": "UTC",
    "task": '{"type":"echo"}',
    "version": 1,
}
ROWS = st.one_of(*(damaged(row, but=FOUND_BY) for row in (TASK, RUNNING, ENDED, BLOCKED, LEASE, SCHEDULE)))


def in_time() -> None:
    """Ends a long run of one test, as skipped: Hypothesis knows no limit but a number of examples."""
    begun = BEGUN.setdefault(os.environ["PYTEST_CURRENT_TEST"], time.monotonic())
    if SECONDS and time.monotonic() - begun > SECONDS:
        pytest.skip(f"nothing found in {SECONDS:g} s")


@given(rows=st.lists(ROWS, min_size=1, max_size=3))
@FUZZ
def test_a_good_task_runs_whatever_rows_stand_beside_it(rows: list[Item]) -> None:
    in_time()
    world = World(echo)
    for row in rows:
        world.db.put(row)
    good = world.submit(payload="1")
    for _ in range(3):
        world.run()
        world.reap()
        world.lapse()
    assert world.status(good) == "SUCCESS"


LAPSED = {**LEASE, "taskId": "lease#good-token", "taskIds": ["good"], "lockTime": START - 600}
LOST = RUNNING | {"taskId": "good", "leaseToken": "good-token"}
ORPHAN = RUNNING | {"taskId": "orphan", "leaseToken": "of no lease"}


@given(row=ROWS)
@FUZZ
def test_a_minute_of_the_reaper_takes_back_the_good_beside_one_bad_row(row: Item) -> None:
    in_time()
    minute = Minute(shards=1)
    for each in (row, LAPSED, LOST, ORPHAN):
        minute.table.put(each)
    taken = minute.run()
    told = {event for events in REAPER_TELLS.values() for event in events if minute.logged(event)}
    assert taken["well"], minute.log.getvalue()
    assert minute.measured("ReaperHeartbeat") == 1
    backlog = minute.measured("Backlog", "default")
    assert backlog is not None
    assert backlog >= 2
    assert [(minute.table.item(id) or {}).get("status") for id in ("good", "orphan")] == ["PENDING", "PENDING"]
    assert minute.table.item("lease#good-token") is None
    if is_malformed(row) and (events := REAPER_TELLS.get(kind_of(row))):
        assert told & events, minute.log.getvalue()
    assert minute.run()["well"], "nor does what it wrote of it end the next minute"


REAPER_TELLS = {
    "lease": {"lease.malformed"},
    "running": {"task.parked"},
    "blocked": {"dependencies.left_to_repair", "task.recounted"},
}
"""What it says, one or another, of a row that it meets and that cannot be read. One that is due, or over, is not its to
look at."""


def is_malformed(row: Item) -> bool:
    try:
        (Lease if str(row["taskId"]).startswith("lease#") else Task).from_item(row)
    except MalformedItem:
        return True
    return False


def kind_of(row: Item) -> str:
    if str(row["taskId"]).startswith("lease#"):
        return "lease"
    if str(row["dispatchKey"]).startswith("BLOCKED#"):
        return "blocked"
    is_open = str(row["dispatchKey"]).startswith("OPEN#")
    return "running" if is_open and row.get("status") == "RUNNING" else "other"


@given(row=damaged(TASK), other=damaged(RUNNING), event=JSON)
@FUZZ
def test_the_doorbell_rings_for_the_good_record_among_bad_ones(row: Item, other: Item, event: Any) -> None:
    in_time()
    world = World(echo)
    good = world.submit(payload="1")
    records = [event, record("INSERT", "bad", new=row), record("MODIFY", "bad", old=other, new=row)]
    records += [record("INSERT", good, new=world.item(good)), {"dynamodb": event, "eventName": "INSERT"}]
    world.poller.doorbell.ring(records)
    world.deliver_all()
    assert world.status(good) == "SUCCESS"


@given(old=damaged(ENDED), new=damaged(RUNNING), event=JSON)
@FUZZ
def test_the_recorder_records_the_good_one_among_bad_ones(old: Item, new: Item, event: Any) -> None:
    in_time()
    rig = Rig(patience_seconds=0)
    good = {**ENDED, "taskId": "good"}
    bad = [event, record("REMOVE", "bad", old=old, ttl=True), record("REMOVE", "bad", old=new)]
    bad += [record("MODIFY", "bad", old=old, new=new), record("MODIFY", "bad", old=new, new=old), {"dynamodb": event}]
    recorded = rig.recording.recorder.record({"Records": [*bad, record("REMOVE", "good", old=good, ttl=True)]})
    assert "good" in [line["taskId"] for line in rig.lines()]
    unread = [each for each in bad if not is_readable(each)]
    assert [each["stage"] for each in rig.failures].count("read") == len(unread)
    assert len(rig.failures) == len(recorded.bad) == rig.measured("Undelivered")


def is_readable(each: Any) -> bool:
    try:
        Change.from_record(each)
    except BadRecord:
        return False
    return True


@given(event=JSON)
@FUZZ
def test_an_event_of_the_recorder_that_is_none(event: Any) -> None:
    """What is no record is given up, each with a message of its own; what stands beside it is recorded."""
    in_time()
    rig = Rig()
    records = event if isinstance(event, list) else [event]
    good = record("REMOVE", "good", old={**ENDED, "taskId": "good"}, ttl=True)
    recorded = rig.recording.recorder.record({"Records": [*records, good]})
    assert recorded.as_dict() == {"archived": 1, **({"givenUp": len(records)} if records else {})}
    assert [each["stage"] for each in rig.failures] == ["read"] * len(records)
    assert [line["taskId"] for line in rig.lines()] == ["good"]


@given(event=JSON.filter(lambda value: not isinstance(value, list)))
@FUZZ
def test_an_event_without_records_is_nothing_to_record(event: Any) -> None:
    in_time()
    rig = Rig()
    has_records = not isinstance(event, dict) or isinstance(event.get("Records"), list)
    for each in ({"Records": event}, {} if has_records else event):
        assert rig.recording.recorder.record(each).as_dict() == {}
    assert rig.failures == []


@given(
    event=JSON
    | st.fixed_dictionaries({"formatVersion": st.just(1), "leaseToken": JSON, "taskIds": JSON, "lockTime": JSON})
)
@FUZZ
def test_an_event_of_the_executor_that_is_none(event: Any) -> None:
    in_time()
    world = World(echo)
    try:
        batch = Batch.from_event(event)
    except InvalidInput:
        return
    assert not world.executor(world.process("executor")).run(batch, lambda: 900.0).begun


@given(row=damaged(RUNNING), lease=damaged(LEASE))
@FUZZ
def test_an_executor_runs_the_good_task_beside_damaged_ones(row: Item, lease: Item) -> None:
    in_time()
    world = World(echo)
    good = world.submit(payload="1")
    world.sweep()
    (event,) = world.events
    event = {**event, "taskIds": ["bad", *event["taskIds"]]}
    world.db.put({**row, "leaseToken": event["leaseToken"]})
    world.db.put({**lease, "taskId": "lease#other"})
    world.events.clear()
    world.deliver(event)
    assert world.status(good) == "SUCCESS"


@given(row=ROWS)
@FUZZ
def test_no_row_makes_a_call_of_the_api_a_defect(row: Item) -> None:
    in_time()
    api = Api()
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(api_handler, "service", lambda: api.service)
        api.table.put(row)
        calls = [("GET", f"/tasks?status={status}") for status in ("PENDING", "RUNNING", "FAILED")]
        calls += [("GET", "/stats"), ("GET", "/schedules"), ("GET", "/tasks/bad"), ("GET", "/tasks/bad/why")]
        calls += [
            ("POST", "/tasks/bad/cancel"),
            ("POST", "/tasks/bad/redrive"),
            ("POST", "/redrive"),
            ("DELETE", "/tasks/bad"),
        ]
        for method, path in calls:
            place, _, query = path.partition("?")
            answer = api.call(method, place, {} if method == "POST" else None, query=query)
            assert answer.status < 500, (method, path, answer.text, api.log.getvalue())
