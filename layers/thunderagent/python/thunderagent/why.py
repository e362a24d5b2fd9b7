"""Why a task is not running, or what it is doing: the poller's own predicates, asked about one task."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Final

from thunderagent.errors import MalformedItem
from thunderagent.limits import obstacle_now
from thunderagent.model import Task
from thunderagent.queues import Queues, QueueSettings
from thunderagent.registry import Registry
from thunderagent.schema import LEASE_SHARDS, lease_key
from thunderagent.settings import Executor, Settings
from thunderagent.states import Event, Status
from thunderagent.store import Store

PARENTS_NAMED: Final = 5


@dataclass(frozen=True)
class Why:
    """`reason` is one of the contract's words, `detail` says it to a person, `until` is when that ends, if known."""

    reason: str
    detail: str
    until: float | None = None

    def as_answer(self) -> dict[str, Any]:
        answer = {"reason": self.reason, "detail": self.detail, "until": self.until}
        return {name: value for name, value in answer.items() if value is not None}


class Whys:
    """Looks at one task the way a sweep would, and names the first thing in its way."""

    def __init__(self, store: Store, queues: Queues, registry: Registry, settings: Settings) -> None:
        self._store = store
        self._queues = queues
        self._registry = registry
        self._settings = settings

    def why(self, task: Task, blocked_by: list[str]) -> Why:
        if task.is_terminal:
            return _terminal(task)
        if task.status is Status.RUNNING:
            return self._running(task)
        now = self._store.clock.now()
        return (
            _blocked(task, blocked_by)
            or _expired(task, now)
            or self._later(task, now)
            or self._paused(task)
            or self._no_handler(task)
            or self._limited(task)
            or self._full(task)
            or Why("next_sweep", "due, and nothing is in its way: the next sweep takes it, in order of priority")
        )

    # ---- running -----------------------------------------------------------------------------------------------------

    def _running(self, task: Task) -> Why:
        try:
            lease = self._store.get_lease(task.lease_token) if task.lease_token is not None else None
        except MalformedItem:
            return Why("lease_expired", "its lease is damaged: the reaper mends it, or takes the task back")
        now = self._store.clock.now()
        if lease is None or lease.closed:
            return Why(
                "lease_expired", "its worker is gone and its lease closed: the reaper puts it back within minutes"
            )
        if lease.lock_time + self._settings.lease_grace_seconds < now:
            since = f"{now - lease.lock_time:.0f} s ago"
            return Why("lease_expired", f"its lease ended {since} without a word: the reaper takes it back")
        doing = "running" if task.task_id in lease.started else "leased, waiting for a thread in its batch"
        if task.cancel_requested:
            doing += "; a cancel was requested and is decisive: it ends DONE"
        return Why("running", f"attempt {task.attempt}: {doing}", lease.lock_time)

    # ---- pending -----------------------------------------------------------------------------------------------------

    def _later(self, task: Task, now: float) -> Why | None:
        if task.due_at <= now:
            return None
        deferred = task.item.get("deferredFor")
        if isinstance(deferred, str):
            return Why(deferred, self._deferral(task, deferred), task.due_at)
        if str(task.item.get("exitedBy", "")).endswith(f":{Event.RETRY.value}"):
            error = task.item.get("error") or {}
            spent = f"{task.retry_count} of {task.max_retry_number} retries spent"
            return Why("backing_off", f"{spent}; it failed with {error.get('type', 'an error')}", task.due_at)
        return Why("due_later", f"it is due in {task.due_at - now:.0f} s", task.due_at)

    def _deferral(self, task: Task, reason: str) -> str:
        queue = self._queues.get(task.queue)
        match reason:
            case "no_handler":
                return self._missing_handler(task)
            case "concurrency_limit":
                return f"queue {task.queue} is at its concurrency limit{_limit(queue, 'max_concurrency')}"
            case "rate_limit":
                return f"queue {task.queue} is at its rate limit{_limit(queue, 'rate_per_second')}"
        return f"the last look put it off: {reason}"

    def _paused(self, task: Task) -> Why | None:
        queue = self._queues.get(task.queue)
        if queue is None:
            return Why("queue_paused", f"queue {task.queue} is no longer declared, so nobody sweeps it")
        return Why("queue_paused", f"queue {task.queue} is paused") if queue.paused else None

    def _no_handler(self, task: Task) -> Why | None:
        profile = self._registry.profile_of(task.type)
        if profile is not None and profile in self._settings.executors:
            return None
        return Why("no_handler", self._missing_handler(task))

    def _missing_handler(self, task: Task) -> str:
        profile = self._registry.profile_of(task.type)
        if profile is None:
            return f"no deployed handler has type {task.type}; the task waits and loses nothing"
        return f"type {task.type} belongs to executor profile {profile}, which is not deployed"

    def _limited(self, task: Task) -> Why | None:
        obstacle = obstacle_now(self._store, self._queues.get(task.queue), task)
        if obstacle is None:
            return None
        return Why(obstacle.reason, self._deferral(task, obstacle.reason), obstacle.until)

    def _full(self, task: Task) -> Why | None:
        executor = self._settings.executors[str(self._registry.profile_of(task.type))]
        batches = self._batches_in_flight(executor)
        if batches < executor.max_in_flight:
            return None
        return Why("executors_full", f"executor {executor.name} has all its {executor.max_in_flight} batches in flight")

    def _batches_in_flight(self, executor: Executor) -> int:
        partitions = [lease_key(executor.name, shard) for shard in range(LEASE_SHARDS)]
        return sum(self._store.count(partition, at_least=executor.max_in_flight) for partition in partitions)


def _terminal(task: Task) -> Why:
    error: Mapping[str, Any] = task.item.get("error") or {}
    if task.status is Status.FAILED:
        return Why(
            "terminal", f"FAILED: {error.get('reason', 'error')}, {error.get('type', '?')}; redrive starts it anew"
        )
    return Why("terminal", f"{task.status}" + (f": {task.outcome}" if task.outcome else ""))


def _blocked(task: Task, blocked_by: list[str]) -> Why | None:
    if not task.blocked_count:
        return None
    if not blocked_by:
        return Why("blocked", "its last parent has just ended: it is being unblocked")
    more = f" and {len(blocked_by) - PARENTS_NAMED} more" if len(blocked_by) > PARENTS_NAMED else ""
    return Why("blocked", f"waiting for {', '.join(blocked_by[:PARENTS_NAMED])}{more}")


def _expired(task: Task, now: float) -> Why | None:
    if task.deadline is None or task.deadline > now:
        return None
    return Why("next_sweep", "its time to start has passed: the next sweep ends it as expired")


def _limit(queue: QueueSettings | None, name: str) -> str:
    value = None if queue is None else getattr(queue, name)
    return "" if value is None else f" of {value:g}"
