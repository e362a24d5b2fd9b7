"""Sending batches, for sweep and doorbell alike: several on their way together, each through the limits and the cap."""

from __future__ import annotations

from collections.abc import Sequence

from thunderagent.capacity import Capacity
from thunderagent.claims import Batch, Claims
from thunderagent.in_flight import InFlight
from thunderagent.limits import Limits
from thunderagent.model import LeaseToken, Task
from thunderagent.settings import Executor
from thunderagent.threads import Threads

BATCHES_AT_ONCE = 3  # most of a batch's time goes into waiting for answers


class Dispatcher:
    """Sends batches, for sweep and doorbell alike: the limits first, then a lease within the cap, then the claims."""

    def __init__(
        self,
        claims: Claims,
        limits: Limits,
        capacity: Capacity,
        in_flight: InFlight,
        *,
        at_once: int = BATCHES_AT_ONCE,
        threads: Threads,
    ) -> None:
        self.limits = limits
        self.capacity = capacity
        self.at_once = at_once
        self._claims = claims
        self._in_flight = in_flight
        self._threads = threads
        self._refusing: set[str] = set()

    def send_all(self, batches: Sequence[tuple[Sequence[Task], Executor]]) -> list[Batch]:
        """What became of each, in their order; `at_once` of them together, those in front first.

        After an executor refused, one batch goes ahead of the others, and they are kept if it is refused again.
        """
        sent: list[Batch] = []
        while len(sent) < len(batches):
            together = batches[len(sent) : len(sent) + self.at_once]
            if any(executor.name in self._refusing for _, executor in together):
                together = together[:1]
            answers = self._threads.map(lambda each: self._send(*each), together)
            for (_, executor), batch in zip(together, answers, strict=True):
                self._note(executor.name, batch)
            sent += answers
        return sent

    def _note(self, profile: str, batch: Batch) -> None:
        if batch.refused:
            self._refusing.add(profile)
            self.capacity.rest(profile)
        elif batch.dispatched:
            self._refusing.discard(profile)

    def _send(self, tasks: Sequence[Task], executor: Executor) -> Batch:
        if self.capacity.is_resting(executor.name):
            return Batch(refused=True)
        batch = self._claims.send(tasks, executor, gate=self)
        for task in batch.claimed:
            self._in_flight.note(task.task_id, task.due_at, until=task.lock_time or 0)
        return batch

    # ---- the gate of Claims ------------------------------------------------------------------------------------------

    def admit(self, tasks: Sequence[Task], token: LeaseToken, *, claim_by: float) -> Sequence[Task]:
        return self.limits.admit(tasks, token, claim_by=claim_by)

    def shard(self, executor: Executor) -> int | None:
        return self.capacity.shard(executor)

    def may_stay(self, executor: Executor, token: LeaseToken) -> bool:
        return self.capacity.may_stay(executor, token)

    def give_back(self, tasks: Sequence[Task], token: LeaseToken) -> None:
        self.limits.give_back(tasks, token)
