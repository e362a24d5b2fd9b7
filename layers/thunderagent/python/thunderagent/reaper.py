"""Taking back what stopped workers left: lapsed leases first, then RUNNING rows whose lease is closed or gone.

A lease is closed before any of its tasks is touched, and deleted only after every reset was answered, so a reaper may
die at any point and the next one goes on from what is stored.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Any

from thunderagent import expressions
from thunderagent.codec import Item, from_item, to_item
from thunderagent.dependencies import Dependencies
from thunderagent.errors import MalformedItem, StoreError
from thunderagent.model import Attempt, Failure, Lease, LeaseToken, Task
from thunderagent.queues import Queues
from thunderagent.registry import Registry
from thunderagent.retry import delay_seconds
from thunderagent.schema import LEASE_SHARDS, PRIORITIES, blocked_key, lease_id, lease_key, open_key, running_key
from thunderagent.settings import Settings
from thunderagent.states import Status
from thunderagent.store import Refusal, Refused, Store, Written
from thunderagent.telemetry import Observer

HEAD_KEYS = 50  # of every partition, each minute
DEEPER_KEYS = 500  # a minute in all, from where the last look ended
CURSOR_ID = "control#reaper"
COUNT_LIMIT = 1_000  # per partition: a census says "at least" beyond it, so that a million tasks cost no more
WORKER_LOST = "worker_lost"


@dataclass
class Taken:
    """What one run took back."""

    leases: int = 0
    charged: int = 0
    returned: int = 0
    failed: int = 0
    cancelled: int = 0
    unanswered: int = 0


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

    def run(self) -> Taken:
        """Leases, the backstop and the census, then blocked tasks. A part that fails is logged and stops no other."""
        self.taken = Taken()
        for part in (self.reap_leases, self.look_at_heads, self.look_deeper, self.look_at_blocked):
            try:
                part()
            except StoreError as error:
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
                    self._meet_lease(key.task_id)

    def _meet_lease(self, item_id: str) -> None:
        item = self._store.get_item(item_id, consistent=True)
        if item is None:
            return
        try:
            self.take_lease(Lease.from_item(item))
        except MalformedItem as problem:
            self._observer.log("lease.malformed", level="ERROR", leaseId=item_id[:14], problem=problem.problem)
            self._store.apply(expressions.take_off_index(item))

    def take_lease(self, lease: Lease) -> None:
        """Close a lapsed lease and reap its tasks; go on with one closed already; put a renewed one in its place."""
        now = self._store.clock.now()
        if not lease.closed:
            if lease.lock_time + self._settings.lease_grace_seconds >= now:
                if lease.due_at != lease.lock_time:
                    self._store.apply(expressions.move_lease(lease))
                return
            answer = self._store.apply(expressions.close(lease, now=now))
            if isinstance(answer, Refused) or answer.item is None:
                return  # renewed, settled or voided meanwhile
            lease = Lease.from_item(answer.item)  # no start is recorded any more: `started` is final
            self.taken.leases += 1
            self._observer.measure("LeasesExpired")
            self._observer.log("lease.closed", level="WARNING", profile=lease.profile, tasks=len(lease.task_ids))
        if self._reset_tasks(lease):
            self._store.apply(expressions.bury_lease(lease.token))

    def _reset_tasks(self, lease: Lease) -> bool:
        """Whether every task still RUNNING under the lease was reset, or found not to be ours, with an answer."""
        answered = True
        for item in self._store.get_items(lease.task_ids, consistent=True).values():
            if item.get("leaseToken") != lease.token or item.get("status") != Status.RUNNING:
                continue
            answered &= self._reset_item(item, started=item["taskId"] in lease.started)
        return answered

    def _reset_item(self, item: Item, *, started: bool) -> bool:
        try:
            task = Task.from_item(item)
        except MalformedItem as problem:
            return self._park(item, problem.problem)
        return self._reset(task, started=started)

    # ---- one task ----------------------------------------------------------------------------------------------------

    def _reset(self, task: Task, *, started: bool) -> bool:
        """Take one RUNNING task back. False when the answer was lost: its lease must stay for the next reaper."""
        try:
            if task.cancel_requested:
                return self._end_cancelled(task)
            answer = self._store.apply(self._reset_write(task, started=started))
        except StoreError as error:
            self.taken.unanswered += 1
            self._observer.log("task.reap_failed", level="WARNING", taskId=task.task_id, code=error.code)
            return False
        if isinstance(answer, Refused) and answer.reason is Refusal.CANCELLED and answer.item:
            return self._reset(Task.from_item(answer.item), started=started)
        if isinstance(answer, Written):
            self._dependencies.on_end(answer.item)
        return True

    def _reset_write(self, task: Task, *, started: bool) -> Any:
        now, layout = self._store.clock.now(), self._store.layout
        if not started:
            self._note("task.returned", task)
            self.taken.returned += 1
            due_at = now if task.deadline is None else min(now, task.deadline)
            return expressions.reap(task, charged=False, due_at=due_at, attempt=None, layout=layout, now=now)
        attempt = Attempt(
            number=task.attempt, started_at=task.started_at, ended_at=now, outcome=WORKER_LOST, error_type="WorkerLost"
        )
        delay = delay_seconds(self._registry.backoff_of(task.type), task.retry_count, self._store.randomness)
        due_at = round(now + delay, 3)
        spent = task.retry_count >= task.max_retry_number
        if spent or (task.deadline is not None and due_at > task.deadline):
            failure = Failure("WorkerLost", _lost_message(task, spent), reason=WORKER_LOST)
            self.taken.failed += 1
            self._observer.measure("Failed", queue=task.queue)
            self._note("task.failed", task, level="ERROR", reason=WORKER_LOST)
            return expressions.reap_failed(task, failure=failure, attempt=attempt, layout=layout, now=now)
        self.taken.charged += 1
        self._observer.measure("Retried", queue=task.queue)
        self._note("task.reaped", task, level="WARNING", retryCount=task.retry_count + 1)
        return expressions.reap(task, charged=True, due_at=due_at, attempt=attempt, layout=layout, now=now)

    def _end_cancelled(self, task: Task) -> bool:
        now = self._store.clock.now()
        answer = self._store.apply(expressions.cancel_end(task, attempt=None, layout=self._store.layout, now=now))
        if isinstance(answer, Written):
            self._dependencies.on_end(answer.item)
        self.taken.cancelled += 1
        self._observer.measure("Cancelled", queue=task.queue)
        self._note("task.cancelled", task)
        return True

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
        self._observer.log(event, level=level, taskId=task.task_id, queue=task.queue, type=task.type, **fields)

    # ---- the backstop ------------------------------------------------------------------------------------------------

    def look_at(self, task: Task) -> None:
        """A RUNNING task past its own lock: reap it when its lease is closed or gone (read consistently), else see to
        the lease. A row that lost its lockTime gets its lease's back."""
        lease_item = None
        if task.lease_token is not None:
            lease_item = self._store.get_item(lease_id(task.lease_token), consistent=True)
        if lease_item is None:
            self._reset_as_read(task, token=task.lease_token, started=frozenset())
            return
        lease = Lease.from_item(lease_item)
        if lease.closed:
            self._reset_as_read(task, token=lease.token, started=lease.started)
        elif task.lock_time is None:
            self._store.apply(expressions.repair_lock(task, lock_time=lease.lock_time))
        else:
            self.take_lease(lease)  # of a profile that is no longer deployed, perhaps: nobody else looks for it

    def _reset_as_read(self, seen: Task, *, token: LeaseToken | None, started: frozenset[str]) -> None:
        item = self._store.get_item(seen.task_id, consistent=True)
        if item is None or item.get("status") != Status.RUNNING or item.get("leaseToken") != token:
            return
        self._reset_item(item, started=seen.task_id in started)

    def look_at_heads(self) -> None:
        """The first keys of every OPEN and RUNNING partition, paused queues included; and the census that falls out."""
        for queue in self._queues.all(fresh=True):
            oldest: float | None = None
            backlog = running = 0
            for partition in self._partitions(queue):
                items = self._read(partition, None)
                waiting = [item["dueAt"] for item in items if item.get("status") == Status.PENDING]
                oldest = min([due for due in (oldest, *waiting) if due is not None], default=None)
                count = self._store.count(partition, at_least=COUNT_LIMIT)
                in_flight = sum(item.get("status") == Status.RUNNING for item in items)
                running += count if partition.startswith("RUNNING#") else in_flight
                backlog += 0 if partition.startswith("RUNNING#") else max(0, count - in_flight)
            now = self._store.clock.now()
            self._observer.measure("Backlog", backlog, queue=queue)
            self._observer.measure("Running", running, queue=queue)
            self._observer.measure("OldestDueAge", max(0.0, now - oldest) if oldest is not None else 0, queue=queue)

    def look_deeper(self) -> None:
        """Go on behind the heads from the stored cursor, so that in time every key is looked at, at a bounded cost."""
        partitions = [partition for queue in self._queues.all() for partition in self._partitions(queue)]
        cursor = self._store.get_item(CURSOR_ID) or {}
        at = partitions.index(cursor["partition"]) if cursor.get("partition") in partitions else 0
        start: Mapping[str, Any] | None = cursor.get("start")
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

    def _read(self, partition: str, start: Mapping[str, Any] | None) -> list[Item]:
        now = self._store.clock.now()
        page = self._store.query(partition, limit=HEAD_KEYS, start=start, until=now)
        return self._examine([key.task_id for key in page.keys])

    def _examine(self, ids: list[str]) -> list[Item]:
        """Look the rows up; deal with every RUNNING one that is past its lock. One bad row never hides the others."""
        items = list(self._store.get_items(ids).values())
        late = self._store.clock.now() - self._settings.lease_grace_seconds
        for item in items:
            if item.get("status") != Status.RUNNING:
                continue
            lock_time = item.get("lockTime")
            if isinstance(lock_time, int | float) and lock_time >= late:
                continue
            try:
                self.look_at(Task.from_item(item))
            except MalformedItem as problem:
                self._park(item, problem.problem)
            except StoreError as error:
                self._observer.log("reaper.look_failed", level="WARNING", taskId=item["taskId"], code=error.code)
        return items


def _lost_message(task: Task, spent: bool) -> str:
    starts = task.retry_count + 1
    if spent:
        return f"the worker was lost during each of {starts} starts" if starts > 1 else "the worker was lost"
    return "the worker was lost, and a retry could only start after the deadline"


def _plain_key(raw: Mapping[str, Any] | None) -> dict[str, Any] | None:
    return from_item(raw) if raw else None


def _raw_key(plain: Mapping[str, Any] | None) -> Mapping[str, Any] | None:
    return to_item(plain) if plain else None
