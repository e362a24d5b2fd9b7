"""What a handler is given besides its payload: who it is, how long it has, and the writes it may make on the way."""

from __future__ import annotations

import threading
from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from functools import cached_property
from typing import TYPE_CHECKING, Any, TypeVar

from thunderagent import expressions
from thunderagent.codec import item_bytes
from thunderagent.endings import Relatives
from thunderagent.errors import Conflict, InvalidInput, LeaseLost, StoreError, ThunderAgentError, TooLarge
from thunderagent.jsontext import dumps, loads
from thunderagent.model import Task
from thunderagent.outcomes import Fail, ReplayMismatch, StepRefused
from thunderagent.running_task import RunningTask
from thunderagent.schema import OPEN_ITEM_BYTES, STEPS_KEPT
from thunderagent.store import Refused, Written
from thunderagent.telemetry import Observer, ids_of
from thunderagent.text import cut
from thunderagent.transactions import Commits

if TYPE_CHECKING:
    from thunderagent.submit import Submitted, Submitter

Value = TypeVar("Value")

PROGRESS_MESSAGE_BYTES = 256
NAME_BYTES = 128


class Context:
    """One attempt, seen from its handler. Its methods raise LeaseLost (TaskCancelled after a cancel) once the attempt
    cannot count any more; an orderly handler lets that pass."""

    def __init__(
        self,
        running: RunningTask,
        *,
        submitter: Submitter | None,
        relatives: Relatives | None,
        commits: Commits,
        observer: Observer,
        timeout_seconds: float,
    ) -> None:
        task = running.task
        self.task_id: str = task.task_id
        self.type = task.type
        self.queue = task.queue
        self.attempt = task.attempt
        """1 for the first; a `RetryLater` does not count."""
        self.fence = task.fence
        """Rises with every attempt: a store that refuses a smaller one is safe from a predecessor's late writes."""
        self.idempotency_key: str = task.task_id
        """The same for every attempt: other systems can tell a repetition by it."""
        self.tags: Mapping[str, str] = dict(task.item.get("tags", {}))
        self.deadline = running.started_at + timeout_seconds
        """When this attempt is over (epoch seconds)."""
        self.traceparent: str | None = task.item.get("traceparent")
        """The W3C trace context the task was submitted with: hand it on to what this handler calls."""
        self.logger = TaskLogger(observer, **ids_of(task), attempt=task.attempt)
        self._running = running
        self._observer = observer
        self._submitter = submitter
        self._relatives = relatives
        self._commits = commits
        self._steps = Steps(running)
        self._submits: Counter[str] = Counter()

    @property
    def remaining_seconds(self) -> float:
        """Until the attempt is over; never negative."""
        return max(0.0, self.deadline - self._running.store.clock.now())

    @property
    def cancelled(self) -> bool:
        """Nothing this attempt still does can count: the task was cancelled, or its lease lost. Ask in long loops."""
        return self._running.must_stop

    def heartbeat(self) -> None:
        """Check in. The lease is renewed without this; it makes sure of it, and raises when the attempt should stop."""
        with self._running.interruption.shielded():
            with suppress(StoreError):  # one renewal that fails is harmless: the next comes long before the lease ends
                self._running.lease.renew_if_needed()
            self._running.check()

    def progress(self, fraction: float, message: str = "") -> None:
        """Show how far this is (0 to 1). One write each time. A store that fails costs the note, not the task."""
        if isinstance(fraction, bool) or not isinstance(fraction, int | float) or not 0 <= fraction <= 1:
            raise ValueError(f"progress({fraction!r}): a fraction from 0 to 1 is needed")
        running = self._running
        with running.interruption.shielded():
            running.check()
            now = running.store.clock.now()
            shown = {"fraction": fraction, "message": cut(str(message), PROGRESS_MESSAGE_BYTES), "at": now}
            write = expressions.progress(
                running.task.task_id,
                running.lease.token,
                fraction=fraction,
                message=str(shown["message"]),
                now=now,
            )
            try:
                answer = running.store.apply(write)
            except StoreError:
                return
            if isinstance(answer, Refused):
                running.note(answer)
                running.check()
            running.update(progress=shown)

    def step(self, name: str, function: Callable[[], Value]) -> Value:
        """Run a part once: its result (a JSON value) is stored, and a later attempt gets it without running it again.

        Steps are told apart by name and order, at most 100 to a task, and not nested. Raises ReplayMismatch when an
        earlier attempt made other steps at this place, StepRefused when the result cannot be stored. A function that
        raises is not remembered: the next attempt runs it again.
        """
        return self._steps.run(name, function)

    def submit(self, type: str, payload: Any = None, *, name: str | None = None, **options: Any) -> Task:
        """Submit a child, once for this task however often it is retried.

        The child is known by `name`, by default its type and which call for that type this is (inside a step: counted
        in that step). Options are fields of Submission: queue, priority, delay_seconds, run_at, max_retry_number,
        timeout_seconds, start_within_seconds, depends_on, unique_seconds, tags. Raises ReplayMismatch when an earlier
        attempt submitted something else under that name, Fail for a child that can never be accepted, and what else
        `Submitter.submit` raises.
        """
        if self._submitter is None:
            raise ThunderAgentError("children cannot be submitted here: no submitter is configured")
        call = name if name is not None else self._next_call(type)
        text = dumps(payload, root="payload")
        running = self._running
        with running.interruption.shielded():
            running.check()
            from thunderagent.submit import Submission  # most handlers have no children

            submission = Submission(
                type=type,
                payload=text,
                depth=int(running.task.item.get("depth", 0)) + 1,
                traceparent=running.task.item.get("traceparent"),
                **options,
            )
            body = {"type": type, "payload": payload, **{key: _plain(value) for key, value in options.items()}}
            try:
                submitted = self._submitter.submit(submission, key=child_key(self.task_id, call), body=body)
            except (InvalidInput, TooLarge) as problem:
                raise Fail(f"submit {call!r}: {problem.message}", reason="bad_submission") from problem
            except Conflict as conflict:
                raise ReplayMismatch(
                    f"submit {call!r}: an earlier attempt submitted another task at this place. Give each call a name "
                    "of its own, and take what changes (times, random values) from a step"
                ) from conflict
        self._tell_submitted(submitted)
        return submitted.task

    def _tell_submitted(self, submitted: Submitted) -> None:
        """A child that is new is a change of state; one that an earlier attempt submitted is none."""
        if not submitted.duplicate:
            task = submitted.task
            self._observer.log("task.submitted", **ids_of(task), parentId=self.task_id)
            self._observer.measure("Submitted", queue=task.queue)

    def _next_call(self, type: str) -> str:
        scope = self._steps.current
        prefix = f"{scope}/{type}" if scope is not None else type
        self._submits[prefix] += 1
        return f"{prefix}:{self._submits[prefix]}"

    @cached_property
    def dependency_results(self) -> dict[str, Any]:
        """The results of the tasks this one depended on, by their ids; None where there is none to keep."""
        if self._relatives is None:
            return {}
        with self._running.interruption.shielded():
            return self._relatives.results_of_parents(self._running.task)

    def commit_with(self, transact_items: Sequence[Mapping[str, Any]], result: Any = None) -> None:
        """Commit `result` and write the items in one transaction: all of it, once, or nothing.

        `transact_items` are entries of DynamoDB's TransactWriteItems (Put, Update, Delete, ConditionCheck; at most 99).
        After it the task is SUCCESS, and whatever the handler returns or raises changes nothing. Raises CommitRefused
        when one of the items' own conditions failed (nothing was written; the handler may go on), LeaseLost or
        TaskCancelled when the task may not be committed.
        """
        with self._running.interruption.shielded():
            self._running.check()
            self._commits.commit(self._running, transact_items, result)


def child_key(task_id: str, call: str) -> str:
    """The idempotency key of a child. No HTTP header can hold a line feed, so no client can name one."""
    return "\n".join(("child", task_id, call))


def _plain(value: Any) -> Any:
    return list(value) if isinstance(value, tuple | set | frozenset) else value


class Steps:
    """The memoised parts of one attempt. Stored as {name: {"n": place, "result": JSON text}}."""

    def __init__(self, running: RunningTask) -> None:
        self._running = running
        self._stored: dict[str, Mapping[str, Any]] = dict(running.task.item.get("steps", {}))
        self._names = {int(entry["n"]): name for name, entry in self._stored.items()}
        self._seen: set[str] = set()
        self._failed: dict[str, int] = {}
        self._lock = threading.Lock()
        self.current: str | None = None

    def run(self, name: str, function: Callable[[], Value]) -> Value:
        place = self._enter(name)
        try:
            if name in self._stored:
                return loads(self._stored[name]["result"])  # type: ignore[no-any-return]
            self._running.check()
            try:
                value = function()
            except BaseException:
                self._failed[name] = place
                raise
            return self._remember(name, place, value)
        finally:
            self.current = None

    def _enter(self, name: str) -> int:
        """The step's place, from 1. Raises where this attempt parts from the ones before."""
        if not isinstance(name, str) or not 0 < len(name.encode("utf-8", "replace")) <= NAME_BYTES:
            raise StepRefused(f"step {name!r}: a name of 1 to {NAME_BYTES} bytes is needed")
        with self._lock:
            if self.current is not None:
                raise StepRefused(f"step {name!r} inside step {self.current!r}: steps cannot be nested or run at once")
            if name in self._failed:  # tried again in the same attempt: its place is kept
                self.current = name
                return self._failed.pop(name)
            if name in self._seen:
                raise StepRefused(f"step {name!r} was made twice: each step needs a name of its own")
            place = len(self._seen) + 1
            before = self._names.get(place)
            if (before is not None and before != name) or (name in self._stored and before != name):
                expected = f"step {before!r}" if before is not None else "no step"
                raise ReplayMismatch(
                    f"step {name!r} is number {place} of this attempt, where an earlier attempt completed {expected}: "
                    "the handler's steps or their order changed. What was done cannot be matched; submit a new task"
                )
            if place > STEPS_KEPT:
                raise StepRefused(f"step {name!r}: a task has at most {STEPS_KEPT} steps")
            self._seen.add(name)
            self.current = name
            return place

    def _remember(self, name: str, place: int, value: Value) -> Value:
        running = self._running
        with running.interruption.shielded():
            running.check()
            try:
                text = dumps(value, root="result")
            except InvalidInput as problem:
                raise StepRefused(f"step {name!r}: {problem.message}") from problem
            steps = {**self._stored, name: {"n": place, "result": text}}
            size = item_bytes({**running.task.item, "steps": steps})
            if size > OPEN_ITEM_BYTES:
                raise StepRefused(
                    f"step {name!r}: the task would have {size} bytes; it may have {OPEN_ITEM_BYTES}. "
                    "Store large results yourself, and return where they are"
                )
            now = running.store.clock.now()
            write = expressions.step(running.task.task_id, running.lease.token, steps=steps, now=now)
            if isinstance(running.write(write), Written):
                self._stored = steps
                running.update(steps=steps)
                return loads(text)  # type: ignore[no-any-return]
            running.check()
            raise LeaseLost(running.task.task_id, reason="its step was refused")


class TaskLogger:
    """Lines of the task's own, with its ids. Messages may have %-arguments as in `logging`. Fields are JSON values and
    stand below `data`, where they can be taken for nothing else."""

    def __init__(self, observer: Observer, **ids: Any) -> None:
        self._observer = observer
        self._ids = ids

    def debug(self, message: object, *arguments: Any, **fields: Any) -> None:
        self._log("DEBUG", message, arguments, fields)

    def info(self, message: object, *arguments: Any, **fields: Any) -> None:
        self._log("INFO", message, arguments, fields)

    def warning(self, message: object, *arguments: Any, **fields: Any) -> None:
        self._log("WARNING", message, arguments, fields)

    def error(self, message: object, *arguments: Any, **fields: Any) -> None:
        self._log("ERROR", message, arguments, fields)

    def _log(self, level: str, message: object, arguments: tuple[Any, ...], fields: Mapping[str, Any]) -> None:
        try:
            text = str(message) % arguments if arguments else str(message)
        except (TypeError, ValueError, KeyError):
            text = f"{message} {arguments!r}"  # a slip in a log line is no reason for a retry
        self._observer.log("task.message", level=level, **self._ids, message=text, data=dict(fields) or None)
