"""The doorbell: tasks that just became due are claimed from the stream's images, at once and without a search.

It obeys the pauses, limits, caps and order of the sweep; whatever it cannot send at once it leaves to the sweep, which
delivers everything without it. Losing or repeating a record is therefore harmless.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from thunderagent.batches import packings
from thunderagent.capacity import COUNT_AGE_SECONDS, Capacity
from thunderagent.claims import Claims
from thunderagent.codec import Item, from_item
from thunderagent.dispatch import PASS_TASKS
from thunderagent.errors import MalformedItem, StoreError
from thunderagent.in_flight import InFlight
from thunderagent.limits import Limits
from thunderagent.model import Task, is_of_newer_format
from thunderagent.queues import Queues
from thunderagent.registry import Registry
from thunderagent.schema import PRIORITIES, is_open_key
from thunderagent.sending import Dispatcher
from thunderagent.settings import Executor, Settings
from thunderagent.states import Status
from thunderagent.store import Store
from thunderagent.telemetry import Observer
from thunderagent.threads import Threads

SOON_SECONDS = 0.5  # a task due this soon (or by a clock this far ahead) is waited for
OLDER_SECONDS = 2.0  # due work older than this is a backlog, which the sweep takes in order
OLDER_KEYS = 10
REMEMBER_SECONDS = 1.0  # how long a partition counts as backlogged, or as clear, without another look


@dataclass
class Rung:
    """What became of the records of one call."""

    claimed: int = 0
    left: int = 0  # due, and left to the sweep
    unreadable: int = 0


class Doorbell:
    """One per container. `ring` never raises for what a record contains, nor for a store or an executor that fails."""

    def __init__(
        self,
        store: Store,
        claims: Claims,
        registry: Registry,
        queues: Queues,
        settings: Settings,
        *,
        threads: Threads,
        observer: Observer,
    ) -> None:
        self._store = store
        self._registry = registry
        self._queues = queues
        self._settings = settings
        self._threads = threads
        self._observer = observer
        self._in_flight = InFlight(store.clock)
        self._dispatcher = Dispatcher(
            claims,
            Limits(store, queues, threads=threads, observer=observer),
            Capacity(store, settings, threads=threads, observer=observer),
            self._in_flight,
            threads=threads,
        )
        self._looked: dict[str, tuple[float, bool]] = {}  # until when, and whether older work was found

    def ring(self, records: Iterable[Mapping[str, Any]]) -> Rung:
        """Send what the records say is due now; then, after a moment, what is due very soon."""
        rung = Rung()
        waiting = self._opened(records, rung)
        try:
            waiting = [task for task in waiting if self._is_mine(task)]
            self._in_flight.forget()
            self._dispatcher.limits.begin_pass()
            while waiting:
                now = self._store.clock.now()
                self._send_due([task for task in waiting if task.due_at <= now], rung)
                waiting = [task for task in waiting if now < task.due_at <= now + SOON_SECONDS]
                if waiting:
                    self._store.clock.sleep(max(task.due_at for task in waiting) - now)
        except StoreError as error:
            rung.left += len(waiting)
            self._observer.log("doorbell.failed", level="WARNING", operation=error.operation, code=error.code)
        return rung

    # ---- reading records ---------------------------------------------------------------------------------------------

    def _opened(self, records: Iterable[Mapping[str, Any]], rung: Rung) -> list[Task]:
        """The tasks that became open by these changes, each once, in the order they should start."""
        tasks: dict[str, Task] = {}
        for record in records:
            try:
                task = opened_task(record)
            except (MalformedItem, KeyError, TypeError, ValueError, AttributeError) as problem:
                rung.unreadable += 1
                event_id = record.get("eventID") if isinstance(record, Mapping) else None
                self._observer.log(
                    "doorbell.unreadable", level="WARNING", eventId=event_id, problem=type(problem).__name__
                )
                continue
            if task is not None:
                tasks[task.task_id] = task  # a later image of the same task replaces an earlier one
        return sorted(tasks.values(), key=lambda task: (PRIORITIES.index(task.priority), task.due_at))

    def _is_mine(self, task: Task) -> bool:
        """Claimable as far as its image tells. The rest is the sweep's: it defers, expires and parks."""
        queue = self._queues.get(task.queue)
        region = self._store.layout.region
        return (
            queue is not None
            and not queue.paused
            and self._registry.profile_of(task.type) in self._settings.served
            and task.blocked_count == 0
            and not is_of_newer_format(task.item)
            and task.item.get("homeRegion", region) == region
            and (task.deadline is None or task.deadline > self._store.clock.now())
            and (task.payload is not None or task.payload_ref is not None)
            and task.retry_count <= task.max_retry_number
        )

    # ---- sending -----------------------------------------------------------------------------------------------------

    def _send_due(self, tasks: list[Task], rung: Rung) -> None:
        if not tasks:
            return
        free, backlogged = self._look(tasks)
        room = packings(
            self._settings.served.values(), free, size=self._settings.poll_batch_size, most=PASS_TASKS, turn=0
        )
        stopped: set[str] = set()
        packed: list[tuple[Sequence[Task], Executor]] = []
        for task in tasks:
            packing = room.get(self._registry.profile_of(task.type) or "")
            if packing is None or task.dispatch_key in backlogged or task.queue in stopped or not packing.fits(task):
                continue
            obstacle = self._dispatcher.limits.reserve(task)
            if obstacle is not None:
                if obstacle.scope.is_whole_queue:
                    stopped.add(task.queue)
                continue
            packed += [(batch, packing.executor) for batch in packing.add(task)]
        packed += [(packing.rest(), packing.executor) for packing in room.values()]
        sent = self._dispatcher.send_all([each for each in packed if each[0]])
        claimed = sum(len(batch.claimed) for batch in sent if batch.dispatched)
        rung.claimed += claimed
        rung.left += len(tasks) - claimed

    # ---- is there a backlog? -----------------------------------------------------------------------------------------

    def _look(self, tasks: list[Task]) -> tuple[dict[str, int], set[str]]:
        """Free batches by profile, and the partitions with older due work. The queries are made at once."""
        now = self._store.clock.monotonic()
        self._looked = {key: seen for key, seen in self._looked.items() if seen[0] > now}
        earliest: dict[str, float] = {}
        for task in tasks:
            key = task.dispatch_key or ""
            earliest[key] = min(earliest.get(key, task.due_at), task.due_at)
        unknown = [(key, due_at) for key, due_at in earliest.items() if key not in self._looked]
        answers = self._threads.map(lambda each: self._has_older(*each), unknown)
        for (key, _), older in zip(unknown, answers, strict=True):
            self._looked[key] = (now + REMEMBER_SECONDS, older)
        backlogged = {key for key, (_, older) in self._looked.items() if older}
        return self._dispatcher.capacity.free(max_age=COUNT_AGE_SECONDS), backlogged

    def _has_older(self, dispatch_key: str, due_at: float) -> bool:
        """Whether a task of the partition has been due for some seconds and waits. What runs stands there too, for its
        first minute: the latest few entries tell, because a backlog is taken from its other end."""
        page = self._store.query(dispatch_key, limit=OLDER_KEYS, until=due_at - OLDER_SECONDS, ascending=False)
        unknown = [key.task_id for key in page.keys if not self._in_flight.has(key.task_id, key.due_at)]
        items = self._store.get_items(unknown)
        for item in items.values():
            if item.get("status") == Status.RUNNING:
                self._in_flight.note(str(item["taskId"]), item["dueAt"], until=item.get("lockTime", 0))
        return any(_waits_under(dispatch_key, item) for item in items.values())


def _waits_under(dispatch_key: str, item: Item) -> bool:
    """Whether the row is a task that can start from this partition. One that cannot be read, or is of a newer release,
    must not hold up the others."""
    if item.get("status") != Status.PENDING or item.get("dispatchKey") != dispatch_key or is_of_newer_format(item):
        return False
    try:
        Task.from_item(item)
    except MalformedItem:
        return False
    return True


def opened_task(record: Mapping[str, Any]) -> Task | None:
    """The task of a stream record that tells of its becoming open; None for any other change.

    Open by insert, from another status, or unblocked. PENDING to PENDING under an open key (a deferral) is no news: a
    doorbell that deferred a task would ring itself. Raises MalformedItem, KeyError, TypeError, ValueError or
    AttributeError for what is no record of a task.
    """
    change = record["dynamodb"]
    new: Item = from_item(change.get("NewImage") or {})
    if new.get("status") != Status.PENDING or not is_open_key(str(new.get("dispatchKey", ""))):
        return None
    if record["eventName"] == "MODIFY":
        old = from_item(change["OldImage"])
        if old.get("status") == Status.PENDING and is_open_key(str(old.get("dispatchKey", ""))):
            return None
    return Task.from_item(new)
