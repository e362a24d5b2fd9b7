"""One call of a handler, in its own thread: its payload read, its context made, and what it said as a verdict."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from thunderagent.bodies import Bodies
from thunderagent.context import Context
from thunderagent.endings import Raised, Relatives, Returned, Stopped, TimedOut, Verdict
from thunderagent.errors import BodyMissing, InvalidInput, OutcomeUnknown, StoreThrottled
from thunderagent.jsontext import loads
from thunderagent.outcomes import BadPayload, Fail
from thunderagent.registry import Handler
from thunderagent.running_task import RunningTask
from thunderagent.telemetry import Observer
from thunderagent.threads import HandlerInterrupted, Job
from thunderagent.transactions import Commits

if TYPE_CHECKING:
    from thunderagent.submit import Submitter


@dataclass
class HandlerCall:
    """A task that was started: its handler, its thread, and when it must be over (monotonic seconds).

    `stopped` tells that it was interrupted because its process is to end, before its own time was over.
    """

    running: RunningTask
    handler: Handler
    timeout: float
    until: float
    job: Job | None = None
    interrupted_at: float | None = None
    stopped: bool = False
    given_up: bool = False
    moved_aside: bool = False

    @property
    def is_over(self) -> bool:
        return self.given_up or (self.job is not None and self.job.done)

    @property
    def cut_off(self) -> Verdict:
        """The verdict on a handler that was interrupted, or that never came back."""
        return Stopped() if self.stopped else TimedOut(self.timeout)

    def interrupt(self, at: float, *, stopped: bool) -> None:
        self.interrupted_at, self.stopped = at, stopped
        self.running.interruption.interrupt()


class Caller:
    """Calls handlers. Thread-safe."""

    def __init__(
        self, bodies: Bodies, *, submitter: Submitter | None, relatives: Relatives | None, observer: Observer
    ) -> None:
        self._bodies = bodies
        self._submitter = submitter
        self._relatives = relatives
        self._observer = observer
        self._commits = Commits(bodies)

    def verdict_of(self, call: HandlerCall) -> Verdict | None:
        """What the handler said. None: its payload could not be read just now, and it was not called."""
        running = call.running
        try:
            payload = self._payload(call)
        except (StoreThrottled, OutcomeUnknown):
            return None
        except Exception as error:  # noqa: BLE001  the payload is missing, unfit, or of a class that refuses it
            return Raised(error)
        context = Context(
            running,
            submitter=self._submitter,
            relatives=self._relatives,
            commits=self._commits,
            observer=self._observer,
            timeout_seconds=call.timeout,
        )
        interrupted = True
        verdict: Verdict = call.cut_off
        try:
            running.interruption.enter()
            try:
                verdict = Returned(call.handler.function(payload, context))
            finally:
                interrupted = running.interruption.leave()
        except HandlerInterrupted:
            interrupted = True
        except BaseException as error:  # noqa: BLE001  SystemExit and KeyboardInterrupt are the handler's failures too
            verdict = Raised(error)
        # Decided by `leave`: a handler that swallowed its interrupt is late, one that returned just before it is not.
        return call.cut_off if interrupted else verdict

    def _payload(self, call: HandlerCall) -> Any:
        task = call.running.task
        try:
            text = self._bodies.payload(task)
        except BodyMissing as missing:
            raise Fail(str(missing), reason="payload_missing") from missing
        try:
            value = loads(text, root="payload")
        except InvalidInput as problem:
            raise BadPayload(f"the stored payload cannot be read: {problem.message}") from problem
        return call.handler.read(value)
