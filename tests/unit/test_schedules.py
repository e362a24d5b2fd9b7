"""Schedules: one task per firing whoever polls, what was missed, changes of clock, and bad ones that stop nobody."""

from __future__ import annotations

from collections.abc import Mapping
from datetime import UTC, datetime
from itertools import islice, pairwise, takewhile
from typing import Any
from zoneinfo import ZoneInfo

import pytest

from tests.support.fakes import FakeClock, FakeRandomness
from tests.support.memory_dynamodb import Call, Fault, MemoryDynamoDB
from thunderagent.bodies import Bodies
from thunderagent.codec import Item
from thunderagent.dependencies import Dependencies
from thunderagent.errors import InvalidInput, MalformedItem, NotFound, TooLarge, Unprocessable
from thunderagent.queues import Queues
from thunderagent.schedules import FIRINGS_AT_ONCE, Schedules
from thunderagent.schema import Layout, schedule_id
from thunderagent.store import Store
from thunderagent.submit import Submitter
from thunderagent.timetable import firings, last_firing, next_firing

NOON = datetime(2027, 1, 15, 12, 0, 30, tzinfo=UTC).timestamp()
HOUR, DAY = 3600, 86_400
HOURLY = {"cron": "0 * * * *", "task": {"type": "demo.echo", "payload": {"a": 1.0, "big": 12345678901234567890}}}


class Types:
    def defaults_of(self, type_name: str) -> dict[str, Any]:
        return {}

    def timeout_limit(self, type_name: str) -> float:
        return 870


class Remembering:
    def __init__(self) -> None:
        self.events: list[str] = []

    def log(self, event: str, *, level: str = "INFO", **fields: Any) -> None:
        self.events.append(event)

    def measure(self, metric: str, value: float = 1, *, queue: str | None = None, type: str | None = None) -> None: ...


class World:
    def __init__(self) -> None:
        self.db = MemoryDynamoDB()
        self.clock = FakeClock(NOON)
        self.observer = Remembering()
        self.schedules = self.poller("a")

    def poller(self, name: str) -> Schedules:
        store = Store(
            table="tasks",
            send=self.db,
            clock=self.clock,
            randomness=FakeRandomness(prefix=name),
            layout=Layout(shards=1),
        )
        bodies = Bodies(store, None)
        dependencies = Dependencies(store, bodies, observer=self.observer)
        submitter = Submitter(store, bodies, Queues(store, [], clock=self.clock), Types(), dependencies)
        return Schedules(store, submitter, observer=self.observer)

    def put(self, name: str = "report", **changes: Any) -> None:
        self.schedules.put(name, {**HOURLY, **changes})

    def tasks(self) -> dict[str, Item]:
        return {task_id: item for task_id, item in self.db.items().items() if "type" in item}

    def hours_of_tasks(self, name: str = "report") -> list[int]:
        """The hour of the day of every firing that made a task."""
        instants = sorted(int(task_id.rpartition(".")[2]) for task_id in self.tasks() if f"cron.{name}." in task_id)
        return [datetime.fromtimestamp(instant, UTC).hour for instant in instants]


@pytest.fixture
def world() -> World:
    return World()


def local(cron: str, zone: str, start: str, count: int) -> list[str]:
    """The first firings from a local time on, as local time with its offset."""
    after = datetime.fromisoformat(start).replace(tzinfo=ZoneInfo(zone)).timestamp()
    return [
        datetime.fromtimestamp(instant, ZoneInfo(zone)).strftime("%d %H:%M %z")
        for instant in islice(firings(cron, zone, after=after), count)
    ]


# ---- R2: changes of clock -------------------------------------------------------------------------------------------


def test_r2_an_hourly_job_fires_in_both_one_o_clock_hours() -> None:
    assert local("0 * * * *", "America/New_York", "2026-11-01T00:30", 4) == [
        "01 01:00 -0400",
        "01 01:00 -0500",
        "01 02:00 -0500",
        "01 03:00 -0500",
    ]


def test_r2_an_hourly_job_fires_every_real_hour_across_the_gap() -> None:
    assert local("0 * * * *", "America/New_York", "2026-03-08T00:30", 3) == [
        "08 01:00 -0500",
        "08 03:00 -0400",
        "08 04:00 -0400",
    ]


def test_r2_a_daily_job_in_the_gap_is_not_skipped_but_fires_right_after_it() -> None:
    assert local("30 2 * * *", "America/New_York", "2026-03-07T12:00", 3) == [
        "08 03:00 -0400",
        "09 02:30 -0400",
        "10 02:30 -0400",
    ]


@pytest.mark.parametrize(
    ("cron", "zone", "start", "expected"),
    [
        ("30 1 * * *", "America/New_York", "2026-10-31T12:00", ["01 01:30 -0400", "02 01:30 -0500"]),
        ("30 2 * * *", "Europe/Berlin", "2026-10-24T12:00", ["25 02:30 +0200", "26 02:30 +0100"]),
        ("45 1 * * *", "Australia/Lord_Howe", "2026-04-04T12:00", ["05 01:45 +1100", "06 01:45 +1030"]),
    ],
)
def test_r2_a_daily_job_in_the_repeated_hour_is_not_doubled(
    cron: str, zone: str, start: str, expected: list[str]
) -> None:
    assert local(cron, zone, start, 2) == expected


def test_r2_looked_for_from_within_the_repeated_hour_it_is_not_found_again() -> None:
    """01:15 the second time: the 01:30 of that day was 45 minutes ago."""
    zone = ZoneInfo("America/New_York")
    second = datetime(2026, 11, 1, 1, 15, fold=1, tzinfo=zone).timestamp()
    found = next_firing("30 1 * * *", "America/New_York", after=second)
    assert datetime.fromtimestamp(found, zone).isoformat() == "2026-11-02T01:30:00-05:00"


@pytest.mark.parametrize("zone", ["America/New_York", "Europe/Berlin", "Australia/Lord_Howe", "Asia/Kolkata", "UTC"])
@pytest.mark.parametrize("cron", ["30 2 * * *", "0 * * * *", "15,45 1-3 * * *", "0 0 1 * *"])
def test_r2_a_year_of_firings_rises_and_each_day_has_its_own(cron: str, zone: str) -> None:
    start = datetime(2026, 1, 1, tzinfo=ZoneInfo(zone)).timestamp() - 1
    found = list(takewhile(lambda each: each < start + 365 * DAY, firings(cron, zone, after=start)))
    assert found == sorted(set(found))
    days = [datetime.fromtimestamp(each, ZoneInfo(zone)).date() for each in found]
    if cron == "30 2 * * *":
        assert len(days) == len(set(days)) == 365
    if cron == "0 * * * *":
        assert {later - earlier for earlier, later in pairwise(found)} <= {1800, HOUR, 5400}


# ---- the calendar ---------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    "cron",
    [
        "",
        "* * * *",
        "* * * * * *",
        "@daily",
        "61 * * * *",
        "* 24 * * *",
        "0 0 31 2 *",
        "a b c d e",
        "*/0 * * * *",
        "é * * * *",
    ],
)
def test_what_is_no_cron_expression_is_refused_with_its_path(cron: str) -> None:
    with pytest.raises(InvalidInput) as refused:
        next_firing(cron, "UTC", after=NOON)
    assert refused.value.path == "cron"


@pytest.mark.parametrize(
    "zone",
    ["", "Mars/Olympus", "America", "../etc/passwd", "/etc/localtime", "UTC+1", "a\0b", "localtime", "right/UTC"],
)
def test_what_is_no_time_zone_is_refused_with_its_path(zone: str) -> None:
    with pytest.raises(InvalidInput) as refused:
        next_firing("* * * * *", zone, after=NOON)
    assert refused.value.path == "timezone"


def test_a_date_that_never_comes_is_refused() -> None:
    with pytest.raises(InvalidInput, match="never fires"):
        next_firing("0 0 */30 2 MON#5", "UTC", after=NOON)  # 1 February would have to be a fifth Monday


@pytest.mark.parametrize("cron", ["* * * * *", "0 * * * *", "30 4 * * MON", "0 0 1 1 *", "0 0 29 2 *"])
def test_the_last_firing_of_a_long_outage(cron: str) -> None:
    since = datetime(2020, 1, 1, tzinfo=UTC).timestamp()
    latest = last_firing(cron, "UTC", since=since, until=NOON)
    assert latest is not None
    assert since <= latest <= NOON
    assert next_firing(cron, "UTC", after=latest) > NOON


def test_there_is_no_last_firing_before_the_first() -> None:
    assert last_firing("0 * * * *", "UTC", since=NOON - 10, until=NOON) is None
    assert last_firing("0 * * * *", "UTC", since=NOON - 30, until=NOON) == NOON - 30


# ---- firing ---------------------------------------------------------------------------------------------------------


def test_a_firing_makes_one_task_with_the_schedules_name_and_time(world: World) -> None:
    world.put()
    assert world.schedules.fire_due() == 0
    world.clock.advance(HOUR)
    assert world.schedules.fire_due() == 1
    assert world.schedules.fire_due() == 0

    (task,) = world.tasks().values()
    one = int(NOON) - 30 + HOUR
    assert task["taskId"] == f"cron.report.{one}"
    assert task["payload"] == '{"a":1.0,"big":12345678901234567890}'
    assert (task["status"], task["dueAt"]) == ("PENDING", world.clock.now())
    schedule = world.schedules.get("report")
    assert (schedule.last, schedule.next, schedule.last_task_id) == (one, one + HOUR, task["taskId"])


def test_a_pass_with_nothing_due_costs_one_query(world: World) -> None:
    world.put()
    world.db.calls.clear()
    world.schedules.fire_due()
    assert [call.operation for call in world.db.calls] == ["Query"]


def ignore(answer: object) -> None:
    """What a hook's action answers is nobody's concern."""


def advancing(call: Call) -> bool:
    return call.operation == "TransactWriteItems" and schedule_id("report") in call.item_ids


@pytest.mark.parametrize("point", ["before", "after"])
@pytest.mark.parametrize("operation", ["Query", "GetItem", "TransactWriteItems"])
def test_two_pollers_at_once_make_one_task(world: World, point: str, operation: str) -> None:
    world.put()
    other = world.poller("b")
    for _ in range(3):
        world.clock.advance(HOUR)
        hook = world.db.before if point == "before" else world.db.after
        hook(lambda call: call.operation == operation, lambda: ignore(other.fire_due()))
        world.schedules.fire_due()
    assert world.hours_of_tasks() == [13, 14, 15]


@pytest.mark.parametrize("fault", [Fault.LOST_REPLY, Fault.LOST_REQUEST, Fault.THROTTLED, Fault.CONFLICT])
@pytest.mark.parametrize("times", [1, 6])
def test_a_firing_in_bad_weather_still_makes_one_task(world: World, fault: Fault, times: int) -> None:
    world.put()
    world.clock.advance(HOUR)
    world.db.inject(fault, times=times, where=advancing)
    world.schedules.fire_due()
    world.schedules.fire_due()
    assert world.hours_of_tasks() == [13]


def test_a_task_that_exists_already_only_moves_the_schedule_on(world: World) -> None:
    world.put()
    one = int(NOON) - 30 + HOUR
    world.clock.advance(HOUR)
    world.schedules.fire_due()
    item = world.db.item(schedule_id("report"))
    assert item is not None
    world.db.put({**item, "dueAt": one})  # as a restored backup would have it
    assert world.schedules.fire_due() == 0
    assert world.hours_of_tasks() == [13]
    assert world.schedules.get("report").next == one + HOUR


def test_a_schedule_changed_while_it_fires_does_not_fire_what_it_was(world: World) -> None:
    world.put()
    world.clock.advance(HOUR)
    changed = {**HOURLY, "task": {"type": "demo.sleep"}}
    world.db.before(advancing, lambda: ignore(world.poller("b").put("report", changed)))
    assert world.schedules.fire_due() == 0
    assert world.schedules.fire_due() == 1
    assert [task["type"] for task in world.tasks().values()] == ["demo.sleep"]


def test_unique_work_is_suppressed_while_the_task_before_is_open(world: World) -> None:
    world.put(task={"type": "demo.echo", "unique": {"windowSeconds": 0}})
    for _ in range(3):
        world.clock.advance(HOUR)
        world.schedules.fire_due()
    assert world.hours_of_tasks() == [13]
    assert world.schedules.get("report").next > world.clock.now()


# ---- what was missed ------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(("catch_up", "hours"), [("one", [17]), ("none", []), ("all", [13, 14, 15, 16, 17])])
def test_missed_firings_are_caught_up_as_configured(world: World, catch_up: str, hours: list[int]) -> None:
    world.put(catchUp=catch_up)
    world.clock.advance(5 * HOUR + 600)
    for _ in range(3):
        world.schedules.fire_due()
    assert world.hours_of_tasks() == hours
    world.clock.advance(HOUR - 600)
    world.schedules.fire_due()
    assert world.hours_of_tasks() == [*hours, 18]


def test_one_is_the_default_however_long_the_outage(world: World) -> None:
    world.put(cron="* * * * *")
    world.clock.advance(400 * DAY)
    assert world.schedules.fire_due() == 1
    assert world.schedules.fire_due() == 0
    assert world.schedules.get("report").last == world.clock.now() - 30


def test_catching_up_all_is_bounded_by_pass_and_by_a_day(world: World) -> None:
    world.put(cron="*/10 * * * *", catchUp="all")
    world.clock.advance(3 * DAY)
    passes = [world.schedules.fire_due() for _ in range(10)]
    assert passes[0] == FIRINGS_AT_ONCE
    assert sum(passes) == 144
    assert passes[-1] == 0


# ---- bad schedules --------------------------------------------------------------------------------------------------


def test_bad_schedules_stop_nobody_and_say_why(world: World) -> None:
    world.put("good")
    for name in ("no-queue", "no-cron", "no-zone", "no-task", "no-json", "no-due"):
        world.put(name)
    _spoil(world, "no-queue", task='{"type":"demo.echo","queue":"nowhere"}')
    _spoil(world, "no-cron", cron="99 * * * *")
    _spoil(world, "no-zone", timezone="Mars/Olympus")
    _spoil(world, "no-task", task="[]")
    _spoil(world, "no-json", task="{")
    _spoil(world, "no-due", version="many")
    world.clock.advance(HOUR)

    assert world.schedules.fire_due() == 1

    assert world.hours_of_tasks("good") == [13]
    problem = world.schedules.get("no-queue").problem
    assert problem is not None
    assert "nowhere" in problem
    world.db.calls.clear()
    assert world.schedules.fire_due() == 0
    assert [call.operation for call in world.db.calls] == ["Query"]  # none of them stands at the head any more
    assert "no-queue" in [schedule.name for schedule in world.schedules.all()]

    world.put("no-queue")
    assert world.schedules.get("no-queue").problem is None
    world.clock.advance(HOUR)
    world.schedules.fire_due()
    assert world.hours_of_tasks("no-queue") == [14]


def _spoil(world: World, name: str, **changes: Any) -> None:
    item = world.db.item(schedule_id(name))
    assert item is not None
    world.db.put({**item, **changes})


def test_a_failing_store_stops_nothing_but_this_pass(world: World) -> None:
    world.put()
    world.clock.advance(HOUR)
    world.db.inject(Fault.REFUSED, times=1, where=lambda call: call.operation == "Query")
    assert world.schedules.fire_due() == 0
    assert world.schedules.fire_due() == 1


# ---- for operators --------------------------------------------------------------------------------------------------


def test_put_creates_then_replaces_and_keeps_a_firing_that_is_due(world: World) -> None:
    schedule, is_new = world.schedules.put("report", {**HOURLY, "timezone": "Asia/Kolkata"})
    assert (is_new, schedule.timezone, schedule.catch_up) == (True, "Asia/Kolkata", "one")
    world.clock.advance(HOUR)
    again, is_new = world.schedules.put("report", {**HOURLY, "timezone": "Asia/Kolkata", "catchUp": "all"})
    assert (is_new, again.next, again.created_at) == (False, schedule.next, schedule.created_at)
    changed, _ = world.schedules.put("report", {"cron": "5 * * * *", "task": {"type": "demo.echo"}})
    assert changed.next > world.clock.now()
    assert changed.timezone == "UTC"


@pytest.mark.parametrize(
    ("body", "error", "path"),
    [
        ({"cron": "* * * *", "task": {"type": "demo.echo"}}, InvalidInput, "cron"),
        ({"cron": "* * * * *", "timezone": "Mars", "task": {"type": "demo.echo"}}, InvalidInput, "timezone"),
        ({"cron": "* * * * *"}, InvalidInput, "task"),
        ({"cron": "* * * * *", "task": {"type": "demo.echo", "taskId": "x"}}, InvalidInput, "task.taskId"),
        ({"cron": "* * * * *", "task": {"type": "demo.echo", "delaySeconds": 1}}, InvalidInput, "task.delaySeconds"),
        ({"cron": "* * * * *", "task": {"type": "demo.echo", "dependsOn": ["x"]}}, InvalidInput, "task.dependsOn"),
        ({"cron": "* * * * *", "task": {"type": "demo.echo"}, "catchUp": "two"}, InvalidInput, "catchUp"),
        ({"cron": "* * * * *", "task": {"type": "demo.echo", "queue": "nowhere"}}, Unprocessable, "queue"),
        ({"cron": "* * * * *", "task": {"type": "demo.echo", "payload": "x" * 301_000}}, TooLarge, "task"),
    ],
)
def test_put_refuses_what_could_never_fire_and_leaves_no_row(
    world: World, body: Mapping[str, Any], error: type[Exception], path: str
) -> None:
    with pytest.raises(error) as refused:
        world.schedules.put("report", body)
    assert refused.value.path == path  # type: ignore[attr-defined]
    assert world.db.items() == {}


def test_schedules_are_listed_by_name_read_and_deleted(world: World) -> None:
    for name in ("b", "a"):
        world.put(name)
    assert [schedule.name for schedule in world.schedules.all()] == ["a", "b"]
    assert world.schedules.get("a").view() == {
        "name": "a",
        "cron": "0 * * * *",
        "timezone": "UTC",
        "catchUp": "one",
        "task": HOURLY["task"],
        "next": int(NOON) - 30 + HOUR,
        "createdAt": NOON,
        "updatedAt": NOON,
    }
    world.schedules.delete("a")
    for missing in (world.schedules.get, world.schedules.delete, world.schedules.run):
        with pytest.raises(NotFound):
            missing("a")
    _spoil(world, "b", dueAt=NOON, catchUp=7)
    assert world.schedules.all() == []
    with pytest.raises(MalformedItem):
        world.schedules.get("b")


def test_a_run_on_request_leaves_the_calendar_alone(world: World) -> None:
    world.put()
    before = world.schedules.get("report")
    first = world.schedules.run("report", key="k")
    assert world.schedules.run("report", key="k").task.task_id == first.task.task_id
    assert world.schedules.run("report").task.task_id != first.task.task_id
    assert world.schedules.get("report") == before
    world.clock.advance(HOUR)
    assert world.schedules.fire_due() == 1
