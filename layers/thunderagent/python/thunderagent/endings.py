"""How an attempt ends: from what its handler said to the one write that ends it, and what operators see of it.

Whatever a handler returns or raises, its task does not stay RUNNING. A result that cannot be stored is a FAILED with
that reason, never a retry: the side effect is done.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, Protocol

from thunderagent import expressions
from thunderagent.bodies import Bodies
from thunderagent.codec import Item
from thunderagent.conditions import Write
from thunderagent.errors import InvalidInput, LeaseLost, StoreError, StoreRefused, TooLarge, place_of
from thunderagent.expressions import Result
from thunderagent.jsontext import dumps
from thunderagent.model import Attempt, Failure, Task
from thunderagent.outcomes import Done, Fail, HandlerOutcome, RetryLater
from thunderagent.retry import Backoff, can_start, delay_seconds
from thunderagent.running_task import RunningTask
from thunderagent.schema import ERROR_MESSAGE_BYTES
from thunderagent.states import TERMINAL
from thunderagent.store import Refused, Store, Written
from thunderagent.telemetry import Observer, ids_of
from thunderagent.text import cut

HISTORY_MESSAGE_BYTES = 200  # of each line in `attempts`: every state change pays for the whole item
TYPE_NAME_BYTES = 128
REASON_BYTES = 1024
RELEASE_JITTER_SECONDS = (1.0, 5.0)


@dataclass(frozen=True)
class TimedOut:
    """The handler took longer than it may."""

    seconds: float


@dataclass(frozen=True)
class Stopped:
    """The handler was cut off because its process is to end. That is no fault of its own: nothing is charged."""


@dataclass(frozen=True)
class Raised:
    error: BaseException


@dataclass(frozen=True)
class Returned:
    value: object


Verdict = Returned | Raised | TimedOut | Stopped


@dataclass(frozen=True)
class _End:
    """One way to end: the write, the word for it, and what to count and log."""

    word: str
    write: Write
    metric: str | None = None
    failure: Failure | None = None
    level: str = "INFO"
    where: str | None = None


class Relatives(Protocol):
    """The tasks that wait for one, and those it waited for. The first two never raise."""

    def on_end(self, ended: Item | None) -> None: ...
    def on_end_of(self, task_id: str) -> None: ...
    def results_of_parents(self, task: Task) -> dict[str, Any]: ...


class Endings:
    """Ends running tasks. Never raises for a failing store: a task whose end was not answered is left to the reaper."""

    def __init__(
        self,
        store: Store,
        bodies: Bodies,
        *,
        relatives: Relatives | None,
        observer: Observer,
    ) -> None:
        self._store = store
        self._bodies = bodies
        self._relatives = relatives
        self._observer = observer

    # ---- ends --------------------------------------------------------------------------------------------------------

    def conclude(self, running: RunningTask, verdict: Verdict, backoff: Backoff) -> str:
        """Write the end of an attempt; return the word for what became of it.

        The caller has taken the end (`take_end`).
        """
        if running.committed or running.commit_unknown:
            # commit_with had the last word; what came after it changes nothing
            if running.committed and self._relatives is not None:
                self._relatives.on_end_of(running.task.task_id)
            return self._told(running, "succeeded" if running.committed else "unanswered", "Succeeded")
        if running.cancelled:
            return self._end_cancelled(running)
        if running.lost or (
            running.lease.lost and isinstance(verdict, Raised) and isinstance(verdict.error, LeaseLost)
        ):
            return self._told(running, "lost", None)
        try:
            end = self._end_of(running, verdict, backoff)
            try:
                return self._write(running, end)
            except StoreRefused as refused:
                if end.word != "succeeded":
                    raise
                return self._write(running, self._not_stored(running, refused))
        except StoreError as error:
            return self._unanswered(running, error)

    def hand_back(self, running: RunningTask, *, wait_seconds: float | None = None, why: str) -> str:
        """Release a task unharmed: nothing is charged. By default it is due again after 1-5 s."""
        try:
            return self._write(running, self._release(running, wait_seconds), why=why)
        except StoreError as error:
            return self._unanswered(running, error)

    def end_cancelled(self, running: RunningTask) -> str:
        """End a task that was cancelled before it started."""
        return self._end_cancelled(running, started=False)

    # ---- which end ---------------------------------------------------------------------------------------------------

    def _end_of(self, running: RunningTask, verdict: Verdict, backoff: Backoff) -> _End:
        match verdict:
            case TimedOut(seconds):
                message = f"the handler did not end within its {seconds:g} s"
                return self._retry(running, Failure("Timeout", message, "timeout"), backoff, word="timed_out")
            case Stopped():
                return self._release(running, None, level="WARNING")
            case Returned(HandlerOutcome() as outcome) | Raised(HandlerOutcome() as outcome):
                return self._end_by_outcome(running, outcome)
            case Raised(error):
                return self._retry(running, failure_of(error), backoff, where=place_of(error))
            case Returned(value):
                return self._commit(running, value)

    def _release(self, running: RunningTask, wait_seconds: float | None, *, level: str = "DEBUG") -> _End:
        now = self._store.clock.now()
        wait = self._store.randomness.uniform(*RELEASE_JITTER_SECONDS) if wait_seconds is None else wait_seconds
        write = expressions.release(
            running.task,
            running.lease.token,
            due_at=_due(running.task, now + wait),
            layout=self._store.layout,
            now=now,
        )
        return _End("released", write, level=level)

    def _end_by_outcome(self, running: RunningTask, outcome: HandlerOutcome) -> _End:
        match outcome:
            case Done():
                return self._finish(running, outcome.reason)
            case RetryLater():
                return self._snooze(running, outcome.seconds)
            case Fail():
                return self._fail(running, failure_of(outcome, reason=outcome.reason))
        return self._fail(running, failure_of(outcome, reason="permanent"))

    def _commit(self, running: RunningTask, value: object) -> _End:
        try:
            text = dumps(value, root="result")
        except InvalidInput as problem:
            return self._fail(running, Failure("BadResult", cut(problem.message, ERROR_MESSAGE_BYTES), "bad_result"))
        try:
            result: Result = running.persist(lambda: self._bodies.place_result(running.task, text))
        except TooLarge as problem:
            return self._fail(running, Failure("ResultTooLarge", problem.message, "result_too_large"))
        except StoreRefused as refused:
            return self._not_stored(running, refused)
        return _End("succeeded", self._commit_write(running, result), "Succeeded")

    def _not_stored(self, running: RunningTask, refused: StoreRefused) -> _End:
        message = cut(str(refused), ERROR_MESSAGE_BYTES)
        return self._fail(running, Failure("ResultNotStored", message, "result_not_stored"))

    def _commit_write(self, running: RunningTask, result: Result) -> Write:
        now, attempt = self._now(), self._attempt(running, "success")
        return expressions.commit(
            running.task, running.lease.token, result=result, attempt=attempt, layout=self._store.layout, now=now
        )

    def _finish(self, running: RunningTask, reason: object) -> _End:
        text = None if reason is None else cut(str(reason), REASON_BYTES)
        attempt = self._attempt(running, "skipped")
        write = expressions.finish(
            running.task,
            running.lease.token,
            reason=text,
            attempt=attempt,
            layout=self._store.layout,
            now=self._now(),
        )
        return _End("skipped", write)

    def _snooze(self, running: RunningTask, seconds: float) -> _End:
        now = self._now()
        write = expressions.snooze(
            running.task,
            running.lease.token,
            due_at=_due(running.task, now + seconds),
            attempt=self._attempt(running, "snoozed"),
            layout=self._store.layout,
            now=now,
        )
        return _End("snoozed", write)

    def _retry(
        self,
        running: RunningTask,
        failure: Failure,
        backoff: Backoff,
        *,
        word: str = "retried",
        where: str | None = None,
    ) -> _End:
        """A retry, or the dead letter: when none is left, or when it could only start after the deadline."""
        task, now = running.task, self._now()
        due_at = round(now + delay_seconds(backoff, task.retry_count, self._store.randomness), 3)
        if task.retry_count >= task.max_retry_number:
            return self._fail(running, failure, where=where)
        if not can_start(due_at, task.deadline):
            message = cut(f"no retry can start before the deadline; {failure.message}", ERROR_MESSAGE_BYTES)
            return self._fail(running, Failure(failure.type, message, "deadline"))
        attempt = self._attempt(running, "timeout" if failure.reason == "timeout" else "error", failure)
        write = expressions.retry(
            task,
            running.lease.token,
            due_at=due_at,
            failure=failure,
            attempt=attempt,
            layout=self._store.layout,
            now=now,
        )
        return _End(word, write, "Retried", failure, level="WARNING", where=where)

    def _fail(self, running: RunningTask, failure: Failure, *, where: str | None = None) -> _End:
        attempt = self._attempt(running, "timeout" if failure.reason == "timeout" else "failed", failure)
        write = expressions.fail(
            running.task,
            running.lease.token,
            failure=failure,
            attempt=attempt,
            layout=self._store.layout,
            now=self._now(),
        )
        return _End("failed", write, "Failed", failure, level="ERROR", where=where)

    # ---- writing and telling -----------------------------------------------------------------------------------------

    def _write(self, running: RunningTask, end: _End, **fields: str) -> str:
        answer = running.write(end.write)
        if isinstance(answer, Written):
            self._tell_relatives(answer)
            if end.where is not None:
                fields["where"] = end.where
            return self._told(running, end.word, end.metric, failure=end.failure, level=end.level, **fields)
        if running.cancelled:
            return self._end_cancelled(running, started=end.word != "released")
        return self._told(running, "lost", None)

    def _end_cancelled(self, running: RunningTask, *, started: bool = True) -> str:
        attempt = self._attempt(running, "cancelled") if started else None
        write = expressions.cancel_end(running.task, attempt=attempt, layout=self._store.layout, now=self._now())
        try:
            answer = running.persist(lambda: self._store.apply(write))
        except StoreError as error:
            return self._unanswered(running, error)
        if isinstance(answer, Refused):
            running.lost = True
            return self._told(running, "lost", None)
        self._tell_relatives(answer)
        return self._told(running, "cancelled", "Cancelled")

    def _tell_relatives(self, answer: Written) -> None:
        """Who waits for this task hears of its end now (the repair look would tell them within the minute)."""
        if self._relatives is not None and answer.item is not None and answer.item.get("status") in TERMINAL:
            self._relatives.on_end(answer.item)

    def _unanswered(self, running: RunningTask, error: StoreError) -> str:
        """Perhaps written, perhaps not. The lease stays, and the reaper finds out."""
        running.unanswered = True
        return self._told(running, "unanswered", None, code=error.code, level="ERROR")

    def _told(
        self, running: RunningTask, word: str, metric: str | None, *, failure: Failure | None = None, **fields: str
    ) -> str:
        task = running.task
        seconds = max(0.0, self._now() - running.started_at)
        if failure is not None:
            fields |= {"errorType": failure.type, "reason": failure.reason}
        level = fields.pop("level", "WARNING" if word == "lost" else "INFO")
        self._observer.log(
            f"task.{word}",
            level=level,
            **ids_of(task),
            attempt=task.attempt,
            seconds=round(seconds, 3),
            **fields,
        )
        if metric is not None and word != "unanswered":
            self._count(task, metric, seconds)
        return word

    def _count(self, task: Task, metric: str, seconds: float) -> None:
        if metric == "Cancelled":
            self._observer.measure("Cancelled", queue=task.queue)
            return
        self._observer.measure(metric, queue=task.queue, type=task.type)
        self._observer.measure("Duration", seconds, queue=task.queue, type=task.type)
        if metric == "Succeeded":
            self._observer.measure("Failed", 0, queue=task.queue, type=task.type)  # see `metrics`: the failure rate

    def _attempt(self, running: RunningTask, word: str, failure: Failure | None = None) -> Attempt:
        return Attempt(
            running.task.attempt,
            running.started_at,
            self._now(),
            word,
            error_type=failure.type if failure else None,
            message=cut(failure.message, HISTORY_MESSAGE_BYTES) if failure else None,
        )

    def _now(self) -> float:
        return self._store.clock.now()


def failure_of(error: BaseException, *, reason: str = "error") -> Failure:
    """An exception as it is stored: its class and its message, cut by bytes. One that cannot be printed has none."""
    try:
        message = str(error)
    except Exception:  # noqa: BLE001  whatever a foreign __str__ raises
        message = "(its message cannot be printed)"
    return Failure(cut(type(error).__name__, TYPE_NAME_BYTES), cut(message, ERROR_MESSAGE_BYTES), reason)


def _due(task: Task, due_at: float) -> float:
    """Never after the deadline: at that time the task must be looked at, to expire."""
    return round(due_at if task.deadline is None else min(due_at, task.deadline), 3)
