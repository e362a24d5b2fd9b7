"""The sweep: find what is due, in order of priority, and send it to executors within every cap. Policy only.

What a look at the index finds is a hint. Tasks in flight stand at the head of a partition for up to a minute: the sweep
pages past them, remembers them, and looks the rest up before it spends a write. The claim's condition decides.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field

from thunderagent import expressions
from thunderagent.claims import Claims
from thunderagent.codec import Item
from thunderagent.errors import MalformedItem, StoreError
from thunderagent.model import IndexKey, Task
from thunderagent.queues import Queues, QueueSettings
from thunderagent.registry import Registry
from thunderagent.schema import (
    DEFER_SECONDS,
    EXECUTOR_MARGIN_SECONDS,
    LEASE_SHARDS,
    PRIORITIES,
    lease_key,
    open_key,
)
from thunderagent.settings import Executor, Settings
from thunderagent.states import Status
from thunderagent.store import Answer, Store, Written
from thunderagent.telemetry import Observer

PAGE_KEYS = 100
LOOKUP_KEYS = 25
KEYS_PER_PARTITION = 5_000  # a sweep reads no further into one partition; the next one goes on where due work is left
PASS_TASKS = 500  # a pass claims no more, so that pauses, limits and newer high work are seen soon
RESERVED_SHARE = 10  # one tenth of a pass is kept for lower priorities, at least one task
BACK_OFF_SECONDS = 5.0  # after an executor refused, its profile rests this long
FORGET_SECONDS = 60.0  # how long a stale index entry is not looked at again


@dataclass
class Pass:
    """What one pass found and did. `next_due` is when the next known task becomes due, None when none is known."""

    claimed: int = 0
    conflicts: int = 0
    executors_full: bool = False
    cut_short: bool = False  # a quota ended the gathering: more is probably due
    next_due: float | None = None
    failed: bool = False


@dataclass
class _Capacity:
    """Free batches per executor profile in this pass."""

    free: dict[str, int]

    def take(self, profile: str) -> None:
        self.free[profile] = self.free.get(profile, 0) - 1

    def has(self, profile: str) -> bool:
        return self.free.get(profile, 0) > 0


@dataclass
class _Baskets:
    """Tasks gathered for each profile until they make a batch."""

    by_profile: dict[str, list[Task]] = field(default_factory=dict)

    def add(self, profile: str, task: Task) -> list[Task]:
        basket = self.by_profile.setdefault(profile, [])
        basket.append(task)
        return basket

    def empty(self, profile: str) -> list[Task]:
        return self.by_profile.pop(profile, [])


class Sweeper:
    """Claims what is due. One per container: it remembers what it saw in flight between passes."""

    def __init__(
        self,
        store: Store,
        claims: Claims,
        registry: Registry,
        queues: Queues,
        settings: Settings,
        *,
        reap_stray: Callable[[Task], None],
        observer: Observer,
    ) -> None:
        self._store = store
        self._claims = claims
        self._registry = registry
        self._queues = queues
        self._settings = settings
        self._reap_stray = reap_stray
        self._observer = observer
        self._in_flight: dict[str, tuple[float, float]] = {}
        self._resting: dict[str, float] = {}

    # ---- the loop ----------------------------------------------------------------------------------------------------

    def run(self, *, window_seconds: float, stop: Callable[[], bool] = lambda: False) -> Pass:
        """Pass after pass until the window is used up (0: one pass). Returns the totals."""
        clock = self._store.clock
        until = clock.monotonic() + window_seconds
        total = Pass()
        while True:
            done = self.run_pass()
            total.claimed += done.claimed
            total.conflicts += done.conflicts
            pause = self._pause(done)
            if stop() or clock.monotonic() + pause >= until:
                return total
            clock.sleep(pause)

    def _pause(self, done: Pass) -> float:
        """None while a quota was the only limit, short after a pass that claimed, else until something is due."""
        busy, idle = self._settings.poll_busy_seconds, self._settings.poll_idle_seconds
        if done.claimed:
            return 0 if done.cut_short and not done.executors_full else busy
        if done.executors_full or done.next_due is None:
            return busy if done.executors_full else idle
        return max(busy, min(idle, done.next_due - self._store.clock.now()))

    def run_pass(self) -> Pass:
        """One look at every queue. A failing store ends the pass, not the loop."""
        done = Pass()
        try:
            self._sweep(done)
        except StoreError as error:
            done.failed = True
            self._observer.log("sweep.failed", level="WARNING", operation=error.operation, code=error.code)
        return done

    def _sweep(self, done: Pass) -> None:
        self._forget(self._store.clock.now())
        queues = [queue for queue in self._queues.all().values() if not queue.paused]
        capacity = _Capacity(self._free_batches())
        if not any(capacity.free.values()):
            done.executors_full = True
            return
        budget = min(PASS_TASKS, sum(capacity.free.values()) * self._settings.poll_batch_size)
        for reserve in (True, False):  # what lower priorities leave of their share goes round again
            for position, priority in enumerate(PRIORITIES):
                kept = max(1, budget // RESERVED_SHARE) if reserve and position < len(PRIORITIES) - 1 else 0
                quota = min(budget - done.claimed - kept, budget)
                if quota > 0:
                    self._drain(queues, priority, quota, capacity, done)
            if done.claimed >= budget or not done.cut_short:
                return

    # ---- gathering ---------------------------------------------------------------------------------------------------

    def _drain(
        self, queues: Sequence[QueueSettings], priority: str, quota: int, capacity: _Capacity, done: Pass
    ) -> None:
        """Claim up to `quota` due tasks of one priority over all queues and shards, from a random one on."""
        baskets = _Baskets()
        gathered = 0
        for task in self._due_tasks(queues, priority, done):
            profile = self._registry.profile_of(task.type)
            if profile is None or profile not in self._settings.executors:
                self._defer(task, "no_handler")
                continue
            if not capacity.has(profile):
                done.executors_full = True
                if not any(capacity.free.values()):
                    break
                continue
            gathered += 1
            executor = self._settings.executors[profile]
            if task.lost:
                self._send([task], executor, capacity, done)
            elif self._is_full(baskets.add(profile, task), executor):
                self._send(baskets.empty(profile), executor, capacity, done)
            if gathered >= quota:
                done.cut_short = True
                break
        for profile in list(baskets.by_profile):
            self._send(baskets.empty(profile), self._settings.executors[profile], capacity, done)

    def _due_tasks(self, queues: Sequence[QueueSettings], priority: str, done: Pass) -> Iterator[Task]:
        """Tasks that look claimable, looked up a few at a time just before they are used."""
        partitions = [open_key(queue.name, priority, shard) for queue in queues for shard in range(queue.shards.read)]
        start = self._store.randomness.below(len(partitions)) if partitions else 0
        for dispatch_key in partitions[start:] + partitions[:start]:
            for keys in self._due_keys(dispatch_key, done):
                for first in range(0, len(keys), LOOKUP_KEYS):
                    yield from self._look_up(keys[first : first + LOOKUP_KEYS])

    def _due_keys(self, dispatch_key: str, done: Pass) -> Iterator[list[IndexKey]]:
        """Due keys of one partition, page by page, without what is known in flight; each page from a random place on,
        so that pollers at the same partition rarely meet."""
        start = None
        read = 0
        while True:
            page = self._store.query(dispatch_key, limit=PAGE_KEYS, start=start)
            now = self._store.clock.now()
            due = [key for key in page.keys if key.due_at <= now and not self._is_known(key)]
            if due:
                turn = self._store.randomness.below(len(due))
                yield due[turn:] + due[:turn]
            later = [key.due_at for key in page.keys if key.due_at > now]
            if later:
                done.next_due = min(later[0], done.next_due or later[0])
            start, read = page.next_key, read + len(page.keys)
            if later or start is None or read >= KEYS_PER_PARTITION:
                return

    def _look_up(self, keys: Sequence[IndexKey]) -> Iterator[Task]:
        items = self._store.get_items([key.task_id for key in keys])
        for key in keys:
            task = self._examine(key, items.get(key.task_id))
            if task is not None:
                yield task

    def _examine(self, key: IndexKey, item: Item | None) -> Task | None:
        """The task when it looks claimable; otherwise deal with what stands in its way, once."""
        now = self._store.clock.now()
        if item is None or item.get("dueAt") != key.due_at or item.get("dispatchKey") != key.dispatch_key:
            self._in_flight[key.task_id] = (key.due_at, now + FORGET_SECONDS)  # the index lags behind the table
            return None
        try:
            task = Task.from_item(item)
        except MalformedItem as problem:
            self._park(item, problem.problem)
            return None
        if task.status is Status.RUNNING:
            self._meet_running(task, now)
            return None
        if task.is_terminal:
            self._write(
                "task.relisted", task, lambda: self._store.apply(expressions.relist(task, layout=self._store.layout))
            )
            return None
        return self._claimable(task, now)

    def _claimable(self, task: Task, now: float) -> Task | None:
        if task.deadline is not None and task.deadline <= now:
            self._expire(task, now)
        elif task.payload is None and task.payload_ref is None:
            self._park(task.item, "payload is missing")
        elif task.retry_count > task.max_retry_number:
            self._park(task.item, "more retries spent than allowed")
        elif (
            task.blocked_count == 0
            and task.item.get("homeRegion", self._store.layout.region) == self._store.layout.region
        ):
            return task
        else:
            self._in_flight[task.task_id] = (task.due_at, now + FORGET_SECONDS)
        return None

    def _meet_running(self, task: Task, now: float) -> None:
        lock_time = task.lock_time or 0
        if lock_time + self._settings.lease_grace_seconds < now:
            self._reap_stray(task)
            lock_time = now + FORGET_SECONDS
        self._in_flight[task.task_id] = (task.due_at, lock_time)

    # ---- sending -----------------------------------------------------------------------------------------------------

    def _free_batches(self) -> dict[str, int]:
        """Batches each profile may still be given: its cap less the leases it has, across pollers (index lag apart)."""
        now = self._store.clock.monotonic()
        free = {}
        for name, executor in self._settings.executors.items():
            if self._resting.get(name, 0) > now:
                free[name] = 0
                continue
            open_leases = sum(
                self._store.count(lease_key(name, shard), at_least=executor.max_in_flight)
                for shard in range(LEASE_SHARDS)
            )
            free[name] = max(0, executor.max_in_flight - open_leases)
        return free

    def _is_full(self, basket: Sequence[Task], executor: Executor) -> bool:
        """A batch is full by number, or when one more task of its kind would not fit into the executor's time."""
        if len(basket) >= self._settings.poll_batch_size:
            return True
        budget = (executor.timeout_seconds - EXECUTOR_MARGIN_SECONDS) * executor.threads
        longest = max(task.timeout_seconds for task in basket)
        return sum(task.timeout_seconds for task in basket) + longest > budget

    def _send(self, tasks: list[Task], executor: Executor, capacity: _Capacity, done: Pass) -> None:
        if not tasks or not capacity.has(executor.name):
            return
        capacity.take(executor.name)
        batch = self._claims.send(tasks, executor)
        done.conflicts += batch.conflicts
        if batch.dispatched:
            done.claimed += len(batch.claimed)
        for task in batch.claimed:
            self._in_flight[task.task_id] = (task.due_at, task.lock_time or 0)
        if batch.refused:
            self._resting[executor.name] = self._store.clock.monotonic() + BACK_OFF_SECONDS
            capacity.free[executor.name] = 0

    # ---- what is in the way ------------------------------------------------------------------------------------------

    def _defer(self, task: Task, reason: str) -> None:
        now = self._store.clock.now()
        until = round(now + self._store.randomness.uniform(DEFER_SECONDS / 2, DEFER_SECONDS), 3)
        if task.deadline is not None:
            until = min(until, task.deadline)
        write = expressions.defer(task, until=until, reason=reason, now=now)
        self._write("task.deferred", task, lambda: self._store.apply(write), level="DEBUG", reason=reason)

    def _expire(self, task: Task, now: float) -> None:
        write = expressions.expire(task, layout=self._store.layout, now=now)
        self._write("task.expired", task, lambda: self._store.apply(write))

    def _park(self, item: Item, problem: str) -> None:
        """A row that can never run becomes a dead letter (a row that is no task leaves the index)."""
        now = self._store.clock.now()
        is_task = item.get("status") in {None, Status.PENDING.value} or "type" in item
        write = (
            expressions.park(item, problem=problem, layout=self._store.layout, now=now)
            if is_task
            else expressions.take_off_index(item)
        )
        try:
            if isinstance(self._store.apply(write), Written):
                self._observer.log("task.parked", level="ERROR", taskId=item["taskId"], problem=problem)
        except StoreError as error:
            self._observer.log("task.park_failed", level="WARNING", taskId=item["taskId"], code=error.code)
        self._in_flight[str(item["taskId"])] = (item["dueAt"], now + FORGET_SECONDS)

    def _write(
        self, event: str, task: Task, apply: Callable[[], Answer], *, level: str = "INFO", **fields: str
    ) -> None:
        """Apply a write that clears the way; a failure is only noted, the next look meets the task again."""
        try:
            if isinstance(apply(), Written):
                self._observer.log(event, level=level, taskId=task.task_id, queue=task.queue, type=task.type, **fields)
        except StoreError as error:
            self._observer.log(f"{event}_failed", level="WARNING", taskId=task.task_id, code=error.code)

    # ---- memory ------------------------------------------------------------------------------------------------------

    def _is_known(self, key: IndexKey) -> bool:
        known = self._in_flight.get(key.task_id)
        return known is not None and known[0] == key.due_at and known[1] > self._store.clock.now()

    def _forget(self, now: float) -> None:
        """Nothing is remembered past its lease: from then on it may be somebody's to take back."""
        self._in_flight = {task_id: seen for task_id, seen in self._in_flight.items() if seen[1] > now}
