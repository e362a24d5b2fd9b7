"""The parts only the API needs, built on those all functions share."""

from __future__ import annotations

from functools import cached_property
from typing import TYPE_CHECKING, Any

from thunderagent.charges import charged_to
from thunderagent.errors import Backlogged
from thunderagent.model import Task
from thunderagent.seams import deferred
from thunderagent.submit import Submission, Submitted
from thunderagent.views import task_alone
from thunderagent.wiring import Parts

if TYPE_CHECKING:
    from thunderagent.backpressure import Backpressure
    from thunderagent.bulk import Bulk
    from thunderagent.census import Census
    from thunderagent.listing import Listing
    from thunderagent.operations import Operations
    from thunderagent.why import Why, Whys


class Service:
    """Everything a call may need, built when first used and kept for the life of the container."""

    def __init__(self, parts: Parts) -> None:
        self.parts = parts

    @cached_property
    def operations(self) -> Operations:
        from thunderagent.operations import Operations

        return Operations(self.parts.store, self.parts.bodies, self.parts.dependencies)

    @cached_property
    def listing(self) -> Listing:
        from thunderagent.listing import Listing

        own = self.parts
        return Listing(own.store, own.queues, own.registry, own.settings, threads=own.seams.threads)

    @cached_property
    def bulk(self) -> Bulk:
        from thunderagent.bulk import Bulk

        return Bulk(self.listing, threads=self.parts.seams.threads)

    @cached_property
    def census(self) -> Census:
        from thunderagent.census import Census

        return Census(self.parts.store, self.listing, threads=self.parts.seams.threads)

    @cached_property
    def backpressure(self) -> Backpressure:
        from thunderagent.backpressure import Backpressure

        return Backpressure(self.parts.queues, deferred(lambda: self.census), self.parts.seams.clock)

    @cached_property
    def _whys(self) -> Whys:
        from thunderagent.why import Whys

        return Whys(self.parts.store, self.parts.queues, self.parts.registry, self.parts.settings)

    def submit(self, submission: Submission, *, key: str | None, body: Any) -> Submitted:
        """Accept a task unless its queue is full (Backlogged). What was accepted before is answered all the same, and
        then by a read alone: those who repeat their calls during an overload must not add to it."""
        queue = submission.queue or self.parts.registry.defaults_of(submission.type).get("queue") or "default"
        try:
            self.backpressure.check(queue)
        except Backlogged:
            repeat = self.parts.submitter.repeat_of(submission, key=key, body=body)
            if repeat is None:
                raise
            return repeat
        with charged_to([(queue, submission.type)]):
            submitted = self.parts.submitter.submit(submission, key=key, body=body)
        if not submitted.duplicate:
            self.backpressure.accepted(submitted.task.queue)
        return submitted

    def why(self, task: Task) -> Why:
        return self._whys.why(task, self.parts.dependencies.blocked_by(task) if task.blocked_count else [])

    def view(self, task: Task, *, with_bodies: bool = True) -> dict[str, Any]:
        return task_alone(task, self.parts.bodies, self.parts.dependencies, with_bodies=with_bodies)
