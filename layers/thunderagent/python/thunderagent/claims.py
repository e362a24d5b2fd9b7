"""The poller's side of a lease: open it, claim its tasks, dispatch the batch; and take everything back when that fails.

The order is the protocol: the lease exists before the first claim, the claims before the invoke, and after a failed
invoke the lease goes first. A task is released only when no executor can begin under its token any more.
"""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Protocol

from thunderagent import expressions
from thunderagent.charges import charged_to
from thunderagent.clearing import OnEnd
from thunderagent.conditions import Write
from thunderagent.errors import DispatchError, MalformedItem, OutcomeUnknown, StoreError
from thunderagent.model import LeaseToken, Task
from thunderagent.persist import persist
from thunderagent.schema import FORMAT_VERSION, LEASE_SHARDS, shard_of
from thunderagent.settings import Executor
from thunderagent.store import Answer, Refusal, Refused, Store, Written
from thunderagent.telemetry import Observer
from thunderagent.threads import Threads
from thunderagent.transport import Invoke

CLAIM_UNTIL = 0.5  # of the lease: a poller that froze longer than this after opening claims no more
RELEASE_JITTER_SECONDS = (1.0, 5.0)
TAKE_BACK_SECONDS = 10.0  # for which a void and its releases are tried: a poller has others to look after


@dataclass(frozen=True)
class Batch:
    """What became of one batch. `claimed` were won; `refused` tells that its executor was not (surely) reached, `full`
    that the profile's leases were used up by others meanwhile."""

    claimed: tuple[Task, ...] = ()
    conflicts: int = 0
    dispatched: bool = False
    refused: bool = False
    full: bool = False


class Gate(Protocol):
    """What has to let a batch through: limits before its lease is opened, the profile's cap once it is."""

    def admit(self, tasks: Sequence[Task], token: LeaseToken, *, claim_by: float) -> Sequence[Task]:
        """Those that may be claimed under this token until `claim_by`."""

    def shard(self, executor: Executor) -> int | None:
        """Which of the profile's lease shards has room for one more; None when any will do."""

    def may_stay(self, executor: Executor, token: LeaseToken) -> bool:
        """Whether the lease just opened for the profile is within its cap."""

    def give_back(self, tasks: Sequence[Task], token: LeaseToken) -> None:
        """These were admitted, and will not be claimed under this token."""


class OpenGate:
    """Lets everything through."""

    def admit(self, tasks: Sequence[Task], token: LeaseToken, *, claim_by: float) -> Sequence[Task]:
        return tasks

    def shard(self, executor: Executor) -> int | None:
        return None

    def may_stay(self, executor: Executor, token: LeaseToken) -> bool:
        return True

    def give_back(self, tasks: Sequence[Task], token: LeaseToken) -> None:
        return None


@dataclass
class _Claims:
    won: list[Task] = field(default_factory=list)
    unknown: list[Task] = field(default_factory=list)
    unclaimed: list[Task] = field(default_factory=list)
    lost: int = 0

    def travelling(self) -> list[Task]:
        """Those whose claim stayed unknown go too: the read at begin decides."""
        return self.won + self.unknown


class Claims:
    """Sends batches of tasks to executors, under one fresh lease each."""

    def __init__(
        self,
        store: Store,
        invoke: Invoke,
        *,
        threads: Threads,
        owner: str,
        on_end: OnEnd = lambda item: None,
        observer: Observer,
    ) -> None:
        self._store = store
        self._on_end = on_end
        self._invoke = invoke
        self._threads = threads
        self._owner = owner
        self._observer = observer

    def send(self, tasks: Sequence[Task], executor: Executor, *, gate: Gate | None = None) -> Batch:
        """Open, claim, dispatch. Never raises for a failing dependency: what is left undone, the reaper finds."""
        gate = gate or OpenGate()
        token = self._fresh_token(gate.shard(executor))
        now = self._store.clock.now()
        lock_time = round(now + lease_seconds(tasks, executor), 3)
        claim_until = now + CLAIM_UNTIL * (lock_time - now)
        tasks = gate.admit(tasks, token, claim_by=claim_until)
        if not tasks:
            return Batch()
        if not self._open(tasks, token, executor, lock_time, now):
            gate.give_back(tasks, token)
            return Batch()
        if not gate.may_stay(executor, token):
            self._void(token)
            gate.give_back(tasks, token)
            return Batch(full=True)
        claims = self._claim_all(tasks, token, lock_time, claim_until)
        gate.give_back(claims.unclaimed, token)
        return self._dispatch(claims, token, lock_time, executor)

    def _fresh_token(self, shard: int | None) -> LeaseToken:
        """A token nobody has had, of a lease that stands in this shard."""
        while True:
            token = self._store.randomness.token()
            if shard is None or shard_of(token, LEASE_SHARDS) == shard:
                return LeaseToken(token)

    def _open(self, tasks: Sequence[Task], token: LeaseToken, executor: Executor, lock_time: float, now: float) -> bool:
        """Whether the lease surely exists. An unknown outcome abandons the token: nobody will ever claim under it."""
        opening = expressions.open_lease(
            token, profile=executor.name, task_ids=[task.task_id for task in tasks], lock_time=lock_time, now=now
        )
        try:
            with charged_to((task.queue, task.type) for task in tasks):
                return isinstance(self._store.apply(opening, once=True), Written)
        except StoreError as error:
            self._observer.log("lease.open_failed", level="WARNING", code=error.code, tasks=len(tasks))
            return False

    # ---- claim -------------------------------------------------------------------------------------------------------

    def _claim_all(self, tasks: Sequence[Task], token: LeaseToken, lock_time: float, claim_until: float) -> _Claims:
        claims = _Claims()
        answers = self._threads.map(lambda task: self._claim_one(task, token, lock_time, claim_until), tasks)
        for task, answer in zip(tasks, answers, strict=True):
            if isinstance(answer, Task):
                claims.won.append(answer)
            elif answer == "unknown":
                claims.unknown.append(task)
            else:
                claims.unclaimed.append(task)
                claims.lost += answer == "lost"
        return claims

    def _claim_one(self, task: Task, token: LeaseToken, lock_time: float, claim_until: float) -> Task | str:
        now = self._store.clock.now()
        if now >= claim_until:
            return "late"
        write = expressions.claim(
            task, token=token, lock_time=lock_time, owner=self._owner, now=now, region=self._store.layout.region
        )
        try:
            with charged_to([(task.queue, task.type)]):
                answer = self._store.apply(write)
        except OutcomeUnknown:
            return "unknown"
        except StoreError as error:
            self._observer.log("task.claim_failed", level="WARNING", taskId=task.task_id, code=error.code)
            return "failed"
        if isinstance(answer, Refused):
            self._observer.measure("ClaimConflicts", queue=task.queue)
            return "lost"
        try:
            return Task.from_item(answer.item or {})
        except MalformedItem:
            return "unknown"

    # ---- dispatch ----------------------------------------------------------------------------------------------------

    def _dispatch(self, claims: _Claims, token: LeaseToken, lock_time: float, executor: Executor) -> Batch:
        travelling = claims.travelling()
        if not travelling:
            self._void(token)
            return Batch(conflicts=claims.lost)
        event = {
            "formatVersion": FORMAT_VERSION,
            "leaseToken": token,
            "profile": executor.name,
            "lockTime": lock_time,
            "leaseSeconds": lease_seconds(travelling, executor),
            "taskIds": [task.task_id for task in travelling],
        }
        try:
            self._invoke(executor.function, json.dumps(event, separators=(",", ":")).encode())
        except DispatchError as error:
            self._take_back(claims, token, error)
            return Batch(tuple(claims.won), claims.lost, dispatched=False, refused=True)
        for queue, count in Counter(task.queue for task in claims.won).items():
            self._observer.measure("Claimed", count, queue=queue)
        return Batch(tuple(claims.won), claims.lost, dispatched=True)

    def _take_back(self, claims: _Claims, token: LeaseToken, error: DispatchError) -> None:
        """Refused or unknown: the lease goes first; only when it surely went are its claims released, at once."""
        self._observer.measure("DispatchFailures")
        self._observer.log(
            "batch.dispatch_failed",
            level="WARNING",
            function=error.function,
            code=error.code,
            accepted=error.accepted,
            tasks=len(claims.travelling()),
        )
        until = self._store.clock.monotonic() + TAKE_BACK_SECONDS
        if self._void(token, until):
            self._threads.map(lambda task: self._release(task, token, until), claims.travelling())

    def _persist(self, write: Write, until: float) -> Answer:
        clock = self._store.clock
        return persist(
            lambda: self._store.apply(write),
            clock=clock,
            randomness=self._store.randomness,
            seconds_left=lambda: until - clock.monotonic(),
        )

    def _void(self, token: LeaseToken, until: float | None = None) -> bool:
        """Whether no executor can begin under this token any more. A lease that stays takes one of the profile's places
        until it ends."""
        if until is None:
            until = self._store.clock.monotonic() + TAKE_BACK_SECONDS
        try:
            answer = self._persist(expressions.void(token), until)
        except StoreError as error:
            self._observer.log("lease.void_failed", level="WARNING", code=error.code)
            return False
        return isinstance(answer, Written) or answer.reason is Refusal.GONE

    def _release(self, task: Task, token: LeaseToken, until: float) -> None:
        now = self._store.clock.now()
        due_at = round(now + self._store.randomness.uniform(*RELEASE_JITTER_SECONDS), 3)
        if task.deadline is not None:
            due_at = min(due_at, task.deadline)
        try:
            layout = self._store.layout
            answer = self._persist(expressions.release(task, token, due_at=due_at, layout=layout, now=now), until)
            if isinstance(answer, Refused) and answer.reason is Refusal.CANCELLED and answer.item:
                seen = Task.from_item(answer.item)
                if seen.lease_token == token:
                    ended = self._persist(expressions.cancel_end(seen, attempt=None, layout=layout, now=now), until)
                    self._on_end(ended.item if isinstance(ended, Written) else None)
        except (StoreError, MalformedItem) as error:
            # its lease is gone: the backstop finds it once its own lockTime has passed
            self._observer.log("task.release_failed", level="WARNING", taskId=task.task_id, error=type(error).__name__)


def lease_seconds(tasks: Sequence[Task], executor: Executor) -> float:
    """The lease of a batch: the shortest of its tasks' own, where their types ask for one, or else the profile's."""
    return min(float(task.item.get("leaseSeconds") or executor.lease_seconds) for task in tasks)
