"""Concurrency and rate limits of a queue and of each key in it, held across all pollers. Policy over slots and buckets.

A pass first *reserves* from what it saw, without a write, so that a batch is not filled with tasks that cannot run. The
lease token then *admits*: one conditional write for each slot, one for each bucket. Only admitted tasks are claimed.
"""

from __future__ import annotations

import math
from collections import deque
from collections.abc import Sequence
from dataclasses import dataclass, field

from thunderagent import limit_writes
from thunderagent.buckets import Bucket, Level
from thunderagent.codec import Item
from thunderagent.errors import StoreError
from thunderagent.model import LeaseToken, Task
from thunderagent.queues import Queues, QueueSettings
from thunderagent.schema import DEFER_SECONDS
from thunderagent.slots import free_slots
from thunderagent.store import Store, Written
from thunderagent.telemetry import Observer
from thunderagent.threads import Threads

CONCURRENCY, RATE = "concurrency_limit", "rate_limit"
WHOLE_QUEUE = ""  # the key of limits of the queue itself; those of a tag's value are "=<value>"
SHORTEST_WAIT_SECONDS = 1.0


@dataclass(frozen=True)
class Scope:
    """One set of limits a task falls under: its queue's, or its key's."""

    queue: str
    key: str
    max_concurrency: int | None = None
    bucket: Bucket | None = None

    @property
    def is_whole_queue(self) -> bool:
        return self.key == WHOLE_QUEUE


@dataclass(frozen=True)
class Obstacle:
    """What keeps a task from running now. `until` is when to look again, None when that is not known."""

    reason: str
    scope: Scope
    until: float | None


def scopes_of(settings: QueueSettings | None, task: Task) -> list[Scope]:
    """The limits a task falls under. A task without the tag is under its queue's only."""
    if settings is None:
        return []
    scopes = [
        _scope(settings.name, WHOLE_QUEUE, settings.max_concurrency, settings.rate_per_second, settings.burst),
    ]
    keys, value = settings.key_limits, settings.key_of(task.item.get("tags"))
    if keys is not None and value is not None:
        scopes.append(
            _scope(settings.name, f"={value}", keys.max_concurrency, keys.rate_per_second, keys.burst),
        )
    return [scope for scope in scopes if scope.max_concurrency is not None or scope.bucket is not None]


def _scope(queue: str, key: str, max_concurrency: int | None, rate: float | None, burst: int | None) -> Scope:
    most = max(1, burst or math.ceil(rate)) if rate else 0
    bucket = None if rate is None else Bucket(queue, key, rate, most)
    return Scope(queue, key, max_concurrency, bucket)


@dataclass
class _View:
    """What one pass saw of one scope, and has reserved of it."""

    scope: Scope
    slots: deque[tuple[str, Item | None]]
    level: Level | None
    bucket_item: Item | None
    fresh: bool = True  # nobody of this pass has written the bucket since the look
    spare: int = field(init=False)
    tokens: int = field(init=False)

    def __post_init__(self) -> None:
        self.spare = len(self.slots)
        self.tokens = self.level.whole if self.level else 0

    def obstacle(self, now: float) -> Obstacle | None:
        if self.scope.max_concurrency is not None and self.spare <= 0:
            return Obstacle(CONCURRENCY, self.scope, None)
        if self.scope.bucket is not None and self.level is not None and self.tokens <= 0:
            wait = self.level.wait(self.scope.bucket.rate, tokens=self.level.whole + 1)
            return Obstacle(RATE, self.scope, now + wait if wait < DEFER_SECONDS else None)
        return None

    def reserve(self) -> None:
        self.spare -= 1
        self.tokens -= 1


def _look(store: Store, scope: Scope) -> _View:
    most = scope.max_concurrency
    slots = free_slots(store, scope.queue, scope.key, most, randomness=store.randomness) if most else []
    level, item = scope.bucket.look(store) if scope.bucket else (None, None)
    return _View(scope, deque(slots), level, item)


def obstacle_now(store: Store, settings: QueueSettings | None, task: Task) -> Obstacle | None:
    """The limit that would keep the task out if it were looked at now: for `why`. Reads only."""
    looks = (_look(store, scope).obstacle(store.clock.now()) for scope in scopes_of(settings, task))
    return next((obstacle for obstacle in looks if obstacle is not None), None)


class Limits:
    """One per poller. `begin_pass` forgets what was seen; `reserve` and `admit` belong to the pass."""

    def __init__(self, store: Store, queues: Queues, *, threads: Threads, observer: Observer) -> None:
        self._store = store
        self._queues = queues
        self._threads = threads
        self._observer = observer
        self._views: dict[Scope, _View] = {}
        self._taken: dict[tuple[str, str], list[str]] = {}
        self._waiting: dict[Scope, _Waiting] = {}

    def begin_pass(self) -> None:
        now = self._store.clock.now()
        self._views.clear()
        self._taken.clear()
        self._waiting = {scope: waiting for scope, waiting in self._waiting.items() if waiting.next_at > now}

    def reserve(self, task: Task) -> Obstacle | None:
        """Count the task in, or say which limit keeps it out. Raises StoreError when the limits cannot be read."""
        views = [self._view(scope) for scope in self._scopes(task)]
        now = self._store.clock.now()
        for view in views:
            obstacle = view.obstacle(now)
            if obstacle is not None:
                return obstacle
        for view in views:
            view.reserve()
        return None

    def next_look(self, obstacle: Obstacle) -> float:
        """When a task kept out by a key's limit should be due again: in its turn, at most 60 s from now.

        Turns follow one another at the limit's rate; of a concurrency limit that is unknown, so the pace halves with
        each pass that finds no slot free, and starts anew with one that does.
        """
        now = self._store.clock.now()
        waiting = self._waiting.setdefault(obstacle.scope, _Waiting(next_at=now))
        return waiting.turn(obstacle, now, jitter=self._store.randomness.uniform(0.75, 1))

    # ---- admission, under the lease token ----------------------------------------------------------------------------

    def admit(self, tasks: Sequence[Task], token: LeaseToken, *, claim_by: float) -> list[Task]:
        """Those of the tasks that hold all their slots and tokens now. Never raises: what fails is not admitted."""
        if not any(self._scopes(task) for task in tasks):
            return list(tasks)
        held = self._threads.map(lambda task: self._take_slots(task, token, claim_by), tasks)
        admitted = [task for task, holds in zip(tasks, held, strict=True) if holds]
        for scope in {scope: None for task in admitted for scope in self._scopes(task) if scope.bucket}:
            admitted = self._take_tokens(scope, admitted)
        kept = {task.task_id for task in admitted}
        self.give_back([task for task in tasks if task.task_id not in kept], token)
        return admitted

    def give_back(self, tasks: Sequence[Task], token: LeaseToken) -> None:
        """The claims of these tasks were not made, or lost. Best effort: slots not given back lapse by themselves."""
        slots = [(item_id, task) for task in tasks for item_id in self._taken.pop((task.task_id, token), [])]
        if slots:
            self._threads.map(lambda each: self._give_back(each[0], each[1], token), slots)

    def _take_slots(self, task: Task, token: LeaseToken, claim_by: float) -> bool:
        taken = self._taken.setdefault((task.task_id, token), [])
        try:
            return all(
                self._take_slot(self._view(scope), task, token, claim_by, taken)
                for scope in self._scopes(task)
                if scope.max_concurrency is not None
            )
        except StoreError as error:
            self._observer.log("slot.take_failed", level="WARNING", taskId=task.task_id, code=error.code)
            return False

    def _take_slot(self, view: _View, task: Task, token: LeaseToken, claim_by: float, taken: list[str]) -> bool:
        while view.slots:
            try:
                item_id, seen = view.slots.popleft()
            except IndexError:  # another thread took the last one
                return False
            write = limit_writes.take_slot(
                item_id,
                seen=seen,
                holder=task.task_id,
                fence=task.fence,
                token=token,
                claim_by=claim_by,
                now=self._store.clock.now(),
            )
            taken.append(item_id)  # before the write: its answer may be lost
            if isinstance(self._store.apply(write), Written):
                return True
            taken.pop()
        return False

    def _take_tokens(self, scope: Scope, tasks: list[Task]) -> list[Task]:
        """One write for all tasks of the scope. A token taken for a claim that is lost then is not given back."""
        view = self._view(scope)
        asking = [task for task in tasks if scope in self._scopes(task)]
        try:
            known = (view.level, view.bucket_item) if view.fresh and view.level else None
            view.fresh = False
            granted = scope.bucket.take(self._store, len(asking), first=known) if scope.bucket else 0
        except StoreError as error:
            self._observer.log("bucket.take_failed", level="WARNING", queue=scope.queue, code=error.code)
            granted = 0
        refused = {task.task_id for task in asking[granted:]}
        return [task for task in tasks if task.task_id not in refused]

    def _give_back(self, item_id: str, task: Task, token: LeaseToken) -> None:
        try:
            self._store.apply(limit_writes.give_back_slot(item_id, holder=task.task_id, token=token))
        except StoreError as error:
            self._observer.log("slot.give_back_failed", level="DEBUG", taskId=task.task_id, code=error.code)

    # ---- views -------------------------------------------------------------------------------------------------------

    def _scopes(self, task: Task) -> list[Scope]:
        return scopes_of(self._queues.all().get(task.queue), task)

    def _view(self, scope: Scope) -> _View:
        if scope not in self._views:
            view = self._views[scope] = _look(self._store, scope)
            if view.slots and scope in self._waiting:
                self._waiting[scope].step = SHORTEST_WAIT_SECONDS
        return self._views[scope]


@dataclass
class _Waiting:
    """The turns given out to tasks waiting at one limit."""

    next_at: float
    step: float = SHORTEST_WAIT_SECONDS
    stepped_at: float = 0

    def turn(self, obstacle: Obstacle, now: float, *, jitter: float) -> float:
        limit, bucket = obstacle.scope.max_concurrency, obstacle.scope.bucket
        if obstacle.reason == RATE and bucket is not None:
            interval = 1 / bucket.rate if bucket.rate else DEFER_SECONDS
            first = obstacle.until if obstacle.until is not None else now + interval
        else:
            interval = self.step / max(1, limit or 1)
            first = now + self.step
            if now > self.stepped_at:
                self.stepped_at, self.step = now, min(float(DEFER_SECONDS), self.step * 2)
        turn = max(self.next_at, first)
        if turn > now + DEFER_SECONDS:
            return round(now + DEFER_SECONDS * jitter, 3)  # beyond what may be promised: ask again then
        self.next_at = turn + interval
        return round(turn, 3)
