"""Schedules: tasks that are submitted by the calendar, one per firing, however many pollers look.

A schedule is an item under one index key, with its next firing as `dueAt`. A firing is one transaction: the task
`cron.<name>.<epoch>` comes to be, and the schedule's next firing moves on, as seen. What was missed while no poller
ran is caught up once (or as the schedule says); a schedule that cannot fire says why and stops nobody else.

Pollers look here in every pass and mostly find nothing due: calendar, time zones and validation are imported by the
functions that need them.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, replace
from itertools import islice, takewhile
from typing import TYPE_CHECKING, Any

from thunderagent import expressions
from thunderagent.codec import Item, item_bytes
from thunderagent.errors import (
    Conflict,
    InvalidInput,
    MalformedItem,
    NotFound,
    RequestError,
    StoreError,
    StoreThrottled,
    TooLarge,
)
from thunderagent.jsontext import dumps, loads
from thunderagent.schema import (
    DAY_SECONDS,
    FORMAT_VERSION,
    NAME_PATTERN,
    OPEN_ITEM_BYTES,
    SCHEDULE_KEY,
    SCHEDULED_PREFIX,
    schedule_id,
)
from thunderagent.store import Store, Written
from thunderagent.telemetry import Observer

if TYPE_CHECKING:
    from thunderagent.submit import Submission, Submitted, Submitter

CATCH_UPS = ("one", "none", "all")
ROUNDS = 5  # looks at a schedule that keeps changing under its writer
SCHEDULES_AT_ONCE = 100  # in one pass
FIRINGS_AT_ONCE = 20  # of one schedule in one pass, while it catches up all
CATCH_UP_SECONDS = DAY_SECONDS  # `all` reaches back so far; what is older is skipped
ON_TIME_SECONDS = 120.0  # two of a poller's periods: a firing no later than this is not a missed one
REST_SECONDS = 3600.0  # a schedule whose time cannot be computed is looked at again after this
PROBLEM_BYTES = 500


@dataclass(frozen=True)
class Schedule:
    """A schedule as stored. `next` and `last` are firings in epoch seconds; `problem` is why one made no task."""

    name: str
    cron: str
    timezone: str
    task: Mapping[str, Any]
    catch_up: str
    next: float
    version: int
    created_at: float
    updated_at: float
    last: float | None = None
    last_task_id: str | None = None
    problem: str | None = None

    @staticmethod
    def from_item(item: Item) -> Schedule:
        """Raises MalformedItem when the row has not a schedule's form."""
        item_id = str(item.get("taskId"))
        for name, kind in _FORM.items():
            if not isinstance(item.get(name), kind) or isinstance(item.get(name), bool):
                raise MalformedItem(item_id, f"{name} is missing or has the wrong type")
        try:
            task = loads(item["task"])
        except (InvalidInput, ValueError) as error:
            raise MalformedItem(item_id, "task is not JSON") from error
        if not isinstance(task, dict) or item["catchUp"] not in CATCH_UPS:
            raise MalformedItem(item_id, "task or catchUp is not what a schedule has")
        return Schedule(
            name=item_id.removeprefix(schedule_id("")),
            cron=item["cron"],
            timezone=item["timezone"],
            task=task,
            catch_up=item["catchUp"],
            next=item["dueAt"],
            version=item["version"],
            created_at=item["createdAt"],
            updated_at=item["updatedAt"],
            last=item.get("last"),
            last_task_id=item.get("lastTaskId"),
            problem=item.get("problem"),
        )

    def view(self) -> dict[str, Any]:
        """What readers see."""
        view = {
            "name": self.name,
            "cron": self.cron,
            "timezone": self.timezone,
            "catchUp": self.catch_up,
            "task": dict(self.task),
            "next": self.next,
            "last": self.last,
            "lastTaskId": self.last_task_id,
            "problem": self.problem,
            "createdAt": self.created_at,
            "updatedAt": self.updated_at,
        }
        return {name: value for name, value in view.items() if value is not None}

    def submission(self) -> Submission:
        """The task it makes, without id and time. Raises InvalidInput for one that no longer passes."""
        from thunderagent.intake import submission_of

        return submission_of(self.task, schema="ScheduledTask", steps=("task",))


_FORM: dict[str, type | tuple[type, ...]] = {
    "cron": str,
    "timezone": str,
    "task": str,
    "catchUp": str,
    "dueAt": (int, float),
    "version": int,
    "createdAt": (int, float),
    "updatedAt": (int, float),
}


@dataclass(frozen=True)
class Firing:
    """One firing to make a task for, and the firing after it."""

    at: float
    then: float


class Schedules:
    """The use cases of schedules, and the poller's `fire_due`."""

    def __init__(self, store: Store, submitter: Submitter, *, observer: Observer) -> None:
        self._store = store
        self._submitter = submitter
        self._observer = observer

    # ---- for operators -----------------------------------------------------------------------------------------------

    def put(self, name: str, body: Mapping[str, Any]) -> tuple[Schedule, bool]:
        """Create or replace a schedule; True tells that it is new. `body` is a `ScheduleToPut`.

        With cron and time zone unchanged the next firing stays as it was, due ones included; otherwise it is the
        first one after now. Raises InvalidInput, Unprocessable (undeclared queue), TooLarge or a StoreError.
        """
        if not NAME_PATTERN.fullmatch(name):
            raise InvalidInput(f"{name!r} is not a schedule's name: {NAME_PATTERN.pattern}", path="name")
        from thunderagent.intake import submission_of
        from thunderagent.validation import check, schema_named

        check(body, schema_named("ScheduleToPut"))
        self._submitter.check(submission_of(body["task"], schema="ScheduledTask", steps=("task",)))
        for _ in range(ROUNDS):
            stored = self._store.get_item(schedule_id(name), consistent=True)
            item = self._item(name, body, stored)
            if isinstance(self._store.apply(expressions.put_schedule(item, stored=stored)), Written):
                return Schedule.from_item(item), stored is None
        raise StoreThrottled("PutItem", "Contention", f"schedule {name} keeps changing; try again")

    def _item(self, name: str, body: Mapping[str, Any], stored: Item | None) -> Item:
        from thunderagent.timetable import next_firing

        now = self._store.clock.now()
        cron, timezone = body["cron"], body.get("timezone", "UTC")
        due_at = next_firing(cron, timezone, after=now)
        before = stored or {}
        if (before.get("cron"), before.get("timezone")) == (cron, timezone) and "problem" not in before:
            due_at = min(due_at, before.get("dueAt", due_at))
        item: Item = {
            "taskId": schedule_id(name),
            "dispatchKey": SCHEDULE_KEY,
            "dueAt": due_at,
            "cron": cron,
            "timezone": timezone,
            "catchUp": body.get("catchUp", "one"),
            "task": dumps(body["task"], root="task"),
            "version": before.get("version", 0) + 1,
            "createdAt": before.get("createdAt", now),
            "updatedAt": now,
            "formatVersion": FORMAT_VERSION,
            **{name: before[name] for name in ("last", "lastTaskId") if name in before},
        }
        if item_bytes(item) > OPEN_ITEM_BYTES:
            raise TooLarge(f"a schedule holds at most {OPEN_ITEM_BYTES} bytes", path="task")
        return item

    def get(self, name: str) -> Schedule:
        """Raises NotFound, or MalformedItem for a row that others have spoilt (PUT replaces it)."""
        item = self._store.get_item(schedule_id(name), consistent=True)
        if item is None:
            raise NotFound(f"there is no schedule {name}")
        return Schedule.from_item(item)

    def all(self) -> list[Schedule]:
        """Every schedule, by name; one that is malformed is left out, and logged."""
        ids = [key.task_id for key in self._store.walk(SCHEDULE_KEY)]
        return sorted(self._readable(self._store.get_items(ids)), key=lambda schedule: schedule.name)

    def _readable(self, items: Mapping[str, Item]) -> Iterator[Schedule]:
        for item in items.values():
            try:
                yield Schedule.from_item(item)
            except MalformedItem as problem:
                self._observer.log("schedule.malformed", level="ERROR", schedule=problem.item_id, problem=str(problem))

    def delete(self, name: str) -> None:
        """Its tasks stay. Raises NotFound."""
        if not isinstance(self._store.apply(expressions.delete_schedule(schedule_id(name))), Written):
            raise NotFound(f"there is no schedule {name}")

    def run(self, name: str, *, key: str | None = None) -> Submitted:
        """Submit its task now, whatever the calendar says; the next firing stays. Raises NotFound or as `submit`."""
        schedule = self.get(name)
        return self._submitter.submit(schedule.submission(), key=key, body={"schedule": name, "task": schedule.task})

    # ---- for pollers -------------------------------------------------------------------------------------------------

    def fire_due(self) -> int:
        """Submit what is due by the calendar. One query when nothing is. Never raises for a failing store or a bad
        schedule. Returns how many tasks this call submitted."""
        fired = 0
        try:
            due = self._store.walk(SCHEDULE_KEY, until=self._store.clock.now())
            for key in islice(due, SCHEDULES_AT_ONCE):
                fired += self._look_at(key.task_id)
        except StoreError as error:
            self._observer.log("schedules.failed", level="WARNING", operation=error.operation, code=error.code)
        return fired

    def _look_at(self, item_id: str) -> int:
        item = self._store.get_item(item_id, consistent=True)
        now = self._store.clock.now()
        if item is None or not isinstance(item.get("dueAt"), int | float) or item["dueAt"] > now:
            return 0  # the index lags behind
        try:
            schedule = Schedule.from_item(item)
            fired = 0
            for firing in self._due(schedule, now):
                fired += self._fire(schedule, firing)
                schedule = self.get(schedule.name)
                if schedule.next != firing.then:
                    break  # somebody else has changed it
            return fired
        except (MalformedItem, RequestError) as problem:
            self._give_up(item, problem)
        except StoreError as error:
            self._observer.log("schedule.failed", level="WARNING", schedule=item_id, code=error.code)
        return 0

    def _due(self, schedule: Schedule, now: float) -> list[Firing]:
        """The firings to make tasks for. None when all that is due was missed and is not to be caught up: then the
        schedule has moved on."""
        from thunderagent.timetable import firings, last_firing, next_firing

        cron, timezone = schedule.cron, schedule.timezone
        then = next_firing(cron, timezone, after=now)
        if schedule.catch_up == "all":
            since = max(schedule.next, now - CATCH_UP_SECONDS)
            instants = [*takewhile(lambda each: each <= now, firings(cron, timezone, after=since - 1))]
            instants = instants[: FIRINGS_AT_ONCE + 1]
            afterwards = [*instants[1:], then]
            found = [Firing(at, after) for at, after in zip(instants, afterwards, strict=True)][:FIRINGS_AT_ONCE]
        else:
            latest = last_firing(cron, timezone, since=schedule.next, until=now)
            tolerated = schedule.catch_up == "one" or (latest is not None and now - latest <= ON_TIME_SECONDS)
            found = [Firing(latest, then)] if latest is not None and tolerated else []
        if not found:
            self._store.apply(expressions.advance_schedule(_seen(schedule), due_at=then))
        return found

    def _fire(self, schedule: Schedule, firing: Firing) -> int:
        """One task and the schedule's advance, in one transaction. The task exists already: advance alone."""
        from thunderagent.submit import Interfered

        task_id = f"{SCHEDULED_PREFIX}{schedule.name}.{int(firing.at)}"
        advance = expressions.advance_schedule(_seen(schedule), due_at=firing.then, last=firing.at, task_id=task_id)
        try:
            submitted = self._submitter.submit(
                replace(schedule.submission(), task_id=task_id, run_at=firing.at),
                body={"schedule": schedule.name, "at": int(firing.at)},
                along=[advance],
            )
        except Interfered:
            return 0  # another poller was faster, or an operator changed the schedule
        except Conflict:
            self._store.apply(advance)
            return 0
        if submitted.duplicate:  # `unique`: an equal task is still open, or in its window
            self._store.apply(advance)
            self._observer.log("schedule.suppressed", schedule=schedule.name, taskId=submitted.task.task_id)
            return 0
        self._observer.log("schedule.fired", schedule=schedule.name, taskId=task_id, queue=submitted.task.queue)
        self._observer.measure("Submitted", queue=submitted.task.queue)
        return 1

    def _give_up(self, item: Item, problem: MalformedItem | RequestError) -> None:
        """This firing makes no task; the schedule says why and waits for the next one."""
        from thunderagent.timetable import next_firing

        now = self._store.clock.now()
        self._observer.log("schedule.failed", level="ERROR", schedule=item["taskId"], problem=str(problem))
        try:
            due_at = next_firing(str(item.get("cron")), str(item.get("timezone")), after=now)
        except InvalidInput:
            due_at = now + REST_SECONDS
        try:
            text = str(problem)[:PROBLEM_BYTES]
            self._store.apply(expressions.advance_schedule(item, due_at=due_at, problem=text))
        except StoreError as error:
            self._observer.log("schedule.failed", level="WARNING", schedule=item["taskId"], code=error.code)


def _seen(schedule: Schedule) -> Item:
    return {"taskId": schedule_id(schedule.name), "dueAt": schedule.next, "version": schedule.version}
