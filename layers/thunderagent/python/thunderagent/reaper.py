"""Taking back what stopped workers left: lapsed leases first, then RUNNING rows whose lease is closed or gone.

A lease is closed before any of its tasks is touched, and deleted only after every reset was answered, so a reaper may
die at any point and the next one goes on from what is stored.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from typing import Any

from thunderagent import expressions
from thunderagent.codec import Item, from_item, to_item
from thunderagent.conditions import Write
from thunderagent.dependencies import Dependencies
from thunderagent.errors import MalformedItem, StoreError, StoreRefused
from thunderagent.model import Attempt, Failure, Lease, LeaseToken, Task, is_of_newer_format
from thunderagent.queues import Queues
from thunderagent.registry import Registry
from thunderagent.retry import can_start, delay_seconds
from thunderagent.schema import LEASE_SHARDS, PRIORITIES, blocked_key, lease_id, lease_key, open_key, running_key
from thunderagent.settings import Settings
from thunderagent.states import Status
from thunderagent.store import Refusal, Refused, Store, Written
from thunderagent.telemetry import Observer, ids_of

HEAD_KEYS = 50  # of every partition, each minute
HEAD_PAGES = 8  # read on while all that was read is in flight
DEEPER_KEYS = 500  # a minute in all, from where the last look ended
CURSOR_ID = "control#reaper"
WORKER_LOST = "worker_lost"


@dataclass
class Taken:
    """What one run took back."""

    leases: int = 0
    charged: int = 0
    returned: int = 0
    failed: int = 0
    cancelled: int = 0
    expired: int = 0
    unanswered: int = 0


@dataclass(frozen=True)
class _Reset:
    """The write that takes a task back, and what to count once it took effect."""

    write: Write
    tell: Callable[[], None]
    at: float


class Reaper:
    """Runs every minute; `look_at` is also the sweep's answer to a RUNNING row past its lock."""

    def __init__(
        self,
        store: Store,
        registry: Registry,
        queues: Queues,
        settings: Settings,
        *,
        dependencies: Dependencies,
        observer: Observer,
    ) -> None:
        self._store = store
        self._registry = registry
        self._queues = queues
        self._settings = settings
        self._dependencies = dependencies
        self._observer = observer
        self.taken = Taken()
        self.refused = False  # of the last run: a part failed, or the store would not have something (a permission)

    def run(self) -> Taken:
        """Leases, the backstop, then blocked tasks. A part that fails is logged and stops no other."""
        self.taken, self.refused = Taken(), False
        for part in (self.reap_leases, self.look_at_heads, self.look_deeper, self.look_at_blocked):
            try:
                part()
            except StoreError as error:
                self.refused = True
                self._observer.log(
                    "reaper.part_failed", level="ERROR", part=part.__name__, operation=error.operation, code=error.code
                )
        return self.taken

    # ---- leases ------------------------------------------------------------------------------------------------------

    def reap_leases(self) -> None:
        """Every lease whose time has come, of every profile: bounded by what is in flight, whatever the backlog."""
        now = self._store.clock.now()
        for profile in self._settings.executors:
            for shard in range(LEASE_SHARDS):
                for key in self._store.walk(lease_key(profile, shard), until=now):
                    self._guarded("lease.reap_failed", {"leaseId": key.task_id[:14]}, self._meet_lease, key.task_id)

    def _guarded(self, event: str, ids: Mapping[str, str], look: Callable[..., Any], *arguments: Any) -> None:
        """One row that the store will not answer for does not keep the reaper from the next."""
        try:
            look(*arguments)
        except StoreError as error:
            self.taken.unanswered += 1
            self.refused |= isinstance(error, StoreRefused)
            self._observer.log(event, level="WARNING", operation=error.operation, code=error.code, **ids)

    def _meet_lease(self, item_id: str) -> None:
        item = self._store.get_item(item_id, consistent=True)
        if item is not None and (lease := self._lease_of(item)) is not None:
            self.take_lease(lease)

    def _lease_of(self, item: Item) -> Lease | None:
        """The lease, of a damaged one what can be read. One without a lockTime is given a term, and None is the answer:
        its holder renews it, or it lapses."""
        try:
            return Lease.from_item(item)
        except MalformedItem as problem:
            self._observer.log("lease.malformed", level="ERROR", leaseId=item["taskId"][:14], problem=problem.problem)
        if not item["taskId"].startswith(lease_id(LeaseToken(""))):
            self._store.apply(expressions.take_off_index(item))
            return None
        lease = Lease.salvaged(item)
        if lease.closed or (isinstance(lease.lock_time, int | float) and not isinstance(lease.lock_time, bool)):
            return lease
        lock_time = self._store.clock.now() + self._settings.lease_seconds
        self._store.apply(expressions.repair_lease(item, lock_time=lock_time))
        return None

    def take_lease(self, lease: Lease) -> None:
        """Close a lapsed lease and reap its tasks; go on with one closed already; put a renewed one in its place."""
        now = self._store.clock.now()
        if not lease.closed:
            if lease.lock_time + self._settings.lease_grace_seconds >= now:
                if lease.due_at <= now and lease.due_at != lease.lock_time:
                    self._store.apply(expressions.move_lease(lease))
                return
            answer = self._store.apply(expressions.close(lease, now=now))
            if isinstance(answer, Refused) or answer.item is None:
                return  # renewed, settled or voided meanwhile
            lease = Lease.salvaged(answer.item)  # no start is recorded any more: `started` is final
            self.taken.leases += 1
            self._observer.measure("LeasesExpired")
            self._observer.log("lease.closed", level="WARNING", profile=lease.profile, tasks=len(lease.task_ids))
        if self._reset_tasks(lease):
            self._store.apply(expressions.bury_lease(lease.token))

    def _reset_tasks(self, lease: Lease) -> bool:
        """Whether every task still RUNNING under the lease was reset, or found not to be ours, with an answer."""
        answered = True
        for item in self._store.get_items(lease.task_ids, consistent=True).values():
            if _is_held_by(lease.token, item):
                answered &= self._reset_item(item, started=item["taskId"] in lease.started)
        return answered

    def _reset_item(self, item: Item, *, started: bool) -> bool:
        """Take one RUNNING row back. False when the answer was lost, or only a later version knows the way back: its
        lease must stay for the next reaper."""
        if is_of_newer_format(item):
            return False
        try:
            return self._reset(Task.from_item(item), started=started)
        except MalformedItem as problem:
            return self._park(item, problem.problem)
        except StoreError as error:
            self.taken.unanswered += 1
            self.refused |= isinstance(error, StoreRefused)
            self._observer.log("task.reap_failed", level="WARNING", taskId=item["taskId"], code=error.code)
            return False

    # ---- one task ----------------------------------------------------------------------------------------------------

    def _reset(self, task: Task, *, started: bool) -> bool:
        reset = self._cancelled_end(task) if task.cancel_requested else self._way_back(task, started=started)
        answer = self._store.apply(reset.write)
        if isinstance(answer, Written):
            if not answer.replayed or (answer.item or {}).get("updatedAt") == reset.at:  # not another reaper's
                reset.tell()
            self._dependencies.on_end(answer.item)
        elif answer.reason is Refusal.CANCELLED and answer.item and _is_held_by(task.lease_token, answer.item):
            return self._reset_item(answer.item, started=started)
        return True

    def _way_back(self, task: Task, *, started: bool) -> _Reset:
        now, layout = self._store.clock.now(), self._store.layout
        if not started:
            due_at = now if task.deadline is None else min(now, task.deadline)
            write = expressions.reap(task, charged=False, due_at=due_at, attempt=None, layout=layout, now=now)
            return _Reset(write, lambda: self._told_returned(task), now)
        attempt = Attempt(
            number=task.attempt, started_at=task.started_at, ended_at=now, outcome=WORKER_LOST, error_type="WorkerLost"
        )
        delay = delay_seconds(self._registry.backoff_of(task.type), task.retry_count, self._store.randomness)
        due_at = round(now + delay, 3)
        spent = task.retry_count >= task.max_retry_number
        if spent or not can_start(due_at, task.deadline):
            failure = Failure("WorkerLost", _lost_message(task, spent), reason=WORKER_LOST)
            write = expressions.reap_failed(task, failure=failure, attempt=attempt, layout=layout, now=now)
            return _Reset(write, lambda: self._told_failed(task), now)
        write = expressions.reap(task, charged=True, due_at=due_at, attempt=attempt, layout=layout, now=now)
        return _Reset(write, lambda: self._told_charged(task), now)

    def _cancelled_end(self, task: Task) -> _Reset:
        now = self._store.clock.now()
        write = expressions.cancel_end(task, attempt=None, layout=self._store.layout, now=now)
        return _Reset(write, lambda: self._told_cancelled(task), now)

    def _told_returned(self, task: Task) -> None:
        self.taken.returned += 1
        self._note("task.returned", task)

    def _told_charged(self, task: Task) -> None:
        self.taken.charged += 1
        self._observer.measure("Retried", queue=task.queue, type=task.type)
        self._note("task.reaped", task, level="WARNING", retryCount=task.retry_count + 1)

    def _told_failed(self, task: Task) -> None:
        self.taken.failed += 1
        self._observer.measure("Failed", queue=task.queue, type=task.type)
        self._note("task.failed", task, level="ERROR", reason=WORKER_LOST)

    def _told_cancelled(self, task: Task) -> None:
        self.taken.cancelled += 1
        self._observer.measure("Cancelled", queue=task.queue)
        self._note("task.cancelled", task)

    def _park(self, item: Item, problem: str) -> bool:
        """A RUNNING row that is no task any more: a dead letter with the reason, so that nobody meets it again."""
        now = self._store.clock.now()
        try:
            answer = self._store.apply(expressions.park(item, problem=problem, layout=self._store.layout, now=now))
        except StoreError:
            return False
        if isinstance(answer, Written):
            self._dependencies.on_end(answer.item)
            self._observer.log("task.parked", level="ERROR", taskId=item["taskId"], problem=problem)
        return True

    def _note(self, event: str, task: Task, *, level: str = "INFO", **fields: Any) -> None:
        self._observer.log(event, level=level, **ids_of(task), **fields)

    # ---- the backstop ------------------------------------------------------------------------------------------------

    def look_at(self, item: Item) -> None:
        """A RUNNING row past its own lock, damaged or not: take it back when its lease is closed or gone (read
        consistently), else see to the lease. A row that lost its lockTime gets its lease's back. Never raises for a
        failing store."""
        self._guarded("task.look_failed", {"taskId": item["taskId"]}, self._look_at, item)

    def _look_at(self, item: Item) -> None:
        token, lease = item.get("leaseToken"), None
        if isinstance(token, str):
            found = self._store.get_item(lease_id(LeaseToken(token)), consistent=True)
            lease = self._lease_of(found) if found is not None else None
            if found is not None and lease is None:
                return
        if lease is None or lease.closed:
            self._reset_as_read(item, started=lease.started if lease else frozenset())
        elif "lockTime" not in item:
            self._store.apply(expressions.repair_lock(item, lock_time=lease.lock_time))
            return
        if lease is not None:
            self.take_lease(lease)  # of a profile that is no longer deployed, perhaps: nobody else looks for it

    def _reset_as_read(self, seen: Item, *, started: frozenset[str]) -> None:
        item = self._store.get_item(seen["taskId"], consistent=True)
        if item is not None and _is_held_by(seen.get("leaseToken"), item):
            self._reset_item(item, started=item["taskId"] in started)

    def look_at_heads(self) -> None:
        """The first keys of every OPEN and RUNNING partition, paused queues included."""
        for queue in self._queues.all(fresh=True):
            for partition in self._partitions(queue):
                self._read_head(partition)

    def look_deeper(self) -> None:
        """Go on behind the heads from the stored cursor, so that in time every key is looked at, at a bounded cost."""
        partitions = [partition for queue in self._queues.all() for partition in self._partitions(queue)]
        at, start = self._where_it_ended(partitions)
        read = 0
        while read < DEEPER_KEYS:
            page = self._store.query(partitions[at], limit=HEAD_KEYS, start=_raw_key(start))
            self._examine([key.task_id for key in page.keys])
            read += max(1, len(page.keys))
            start = _plain_key(page.next_key)
            if start is None:
                at = (at + 1) % len(partitions)
                if at == 0:
                    break
        self._store.apply(expressions.put_cursor(CURSOR_ID, partition=partitions[at], start=start))

    def _where_it_ended(self, partitions: list[str]) -> tuple[int, Mapping[str, Any] | None]:
        """Where the last look ended; the beginning when that is no place any more."""
        cursor = self._store.get_item(CURSOR_ID) or {}
        if cursor.get("partition") not in partitions:
            return 0, None
        at, start = partitions.index(cursor["partition"]), cursor.get("start")
        try:
            self._store.query(partitions[at], limit=1, start=_raw_key(start))
        except (StoreRefused, AttributeError):
            return at, None
        return at, start

    def look_at_blocked(self) -> None:
        """Tasks that wait for parents, when their repair look is due: mended, told, or looked at later."""
        self._dependencies.repair(
            [blocked_key(queue, shard) for queue in self._queues.all() for shard in self._shards(queue)]
        )

    def _partitions(self, queue: str) -> Iterator[str]:
        for shard in self._shards(queue):
            yield running_key(queue, shard)
            for priority in PRIORITIES:
                yield open_key(queue, priority, shard)

    def _shards(self, queue: str) -> range:
        settings = self._queues.all().get(queue)
        return range(settings.shards.read if settings else self._settings.dispatch_shards)

    def _read_head(self, partition: str) -> None:
        """Look at the first keys due; at more of them while none of those waits."""
        now = self._store.clock.now()
        start: Mapping[str, Any] | None = None
        for _ in range(HEAD_PAGES):
            page = self._store.query(partition, limit=HEAD_KEYS, start=start, until=now)
            items = self._examine([key.task_id for key in page.keys])
            start = page.next_key
            if start is None or any(_waits(item) for item in items):
                return

    def _examine(self, ids: list[str]) -> list[Item]:
        """Look the rows up; deal with every RUNNING one that is past its lock, and with deadlines that passed while
        nobody sweeps (a paused queue). One bad row never hides the others."""
        items = list(self._store.get_items(ids).values())
        now = self._store.clock.now()
        for item in items:
            if is_of_newer_format(item):
                continue
            lock_time, deadline = item.get("lockTime"), item.get("deadline")
            if item.get("status") == Status.RUNNING:
                if not isinstance(lock_time, int | float) or lock_time + self._settings.lease_grace_seconds < now:
                    self.look_at(item)
            elif item.get("status") == Status.PENDING and isinstance(deadline, int | float) and deadline < now:
                self._guarded("task.expire_failed", {"taskId": item["taskId"]}, self._expire, item)
        return items

    def _expire(self, item: Item) -> None:
        try:
            task = Task.from_item(item)
        except MalformedItem:
            return  # the sweep parks it
        answer = self._store.apply(expressions.expire(task, layout=self._store.layout, now=self._store.clock.now()))
        if isinstance(answer, Written):
            self.taken.expired += 1
            self._note("task.expired", task)
            self._dependencies.on_end(answer.item)


def _is_held_by(token: Any, item: Item) -> bool:
    return item.get("status") == Status.RUNNING and item.get("leaseToken") == token


def _waits(item: Item) -> bool:
    return item.get("status") == Status.PENDING and isinstance(item.get("dueAt"), int | float)


def _lost_message(task: Task, spent: bool) -> str:
    starts = task.retry_count + 1
    if spent:
        return f"the worker was lost during each of {starts} starts" if starts > 1 else "the worker was lost"
    return "the worker was lost, and a retry could only start after the deadline"


def _plain_key(raw: Mapping[str, Any] | None) -> dict[str, Any] | None:
    return from_item(raw) if raw else None


def _raw_key(plain: Mapping[str, Any] | None) -> Mapping[str, Any] | None:
    return to_item(plain) if plain else None
