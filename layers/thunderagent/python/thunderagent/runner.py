"""Runs one batch under its lease: begin, read, start, heartbeat, end each task, settle (ARCHITECTURE §3, §6).

The caller's thread coordinates; handlers run beside it in the thread seam. Three rules carry the rest: nothing starts
unless the lease was told first; whoever takes a task's end writes it, once; the lease is settled only when every last
write was answered.
"""

from __future__ import annotations

import math
import threading
from collections import Counter, deque
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, TypeGuard

from thunderagent import expressions
from thunderagent.bodies import Bodies
from thunderagent.codec import Item
from thunderagent.context import Context
from thunderagent.endings import Endings, Raised, Relatives, Returned, TimedOut, Verdict
from thunderagent.errors import BodyMissing, InvalidInput, OutcomeUnknown, StoreError, StoreThrottled
from thunderagent.held_lease import HeldLease
from thunderagent.jsontext import loads
from thunderagent.model import LeaseToken, Task, TaskId
from thunderagent.outcomes import BadPayload, Fail
from thunderagent.registry import Handler
from thunderagent.running_task import RunningTask
from thunderagent.schema import DEFER_SECONDS, FORMAT_VERSION
from thunderagent.states import Status
from thunderagent.store import Refused, Store, readable
from thunderagent.submit import Submitter
from thunderagent.telemetry import Observer, ids_of
from thunderagent.threads import HandlerInterrupted, Job, Threads, exit_process
from thunderagent.transactions import Commits

FIT_MARGIN_SECONDS = 15.0  # beyond its timeout, what must be left of the invocation for a task to start
INTERRUPT_SECONDS = 5.0  # how long an interrupted handler may take to unwind before its end is written without it
LAST_SECONDS = 8.0  # of the invocation: whatever still runs is timed out, while there is time to record it
LAST_INTERRUPT_SECONDS = 2.0
RENEW_AGAIN_SECONDS = (0.5, 2.0)  # after a renewal or a start record that was not answered
ENDING_WAIT_SECONDS = 0.25
SHORTEST_WAIT_SECONDS, LONGEST_WAIT_SECONDS = 0.005, 30.0


@dataclass(frozen=True)
class Batch:
    """The event an executor is given: a lease, and the tasks claimed under it."""

    token: LeaseToken
    task_ids: tuple[TaskId, ...]
    lock_time: float
    lease_seconds: float | None = None

    @staticmethod
    def from_event(event: Any) -> Batch:
        """Read an event. Raises InvalidInput for anything that is not one."""
        if not isinstance(event, Mapping) or event.get("formatVersion") != FORMAT_VERSION:
            raise InvalidInput(f"not a batch of format version {FORMAT_VERSION}")
        token, task_ids, lock_time = event.get("leaseToken"), event.get("taskIds"), event.get("lockTime")
        if not isinstance(token, str) or not token:
            raise InvalidInput("leaseToken is missing", path="leaseToken")
        if not isinstance(task_ids, list) or not all(isinstance(each, str) and each for each in task_ids):
            raise InvalidInput("taskIds is not a list of ids", path="taskIds")
        if not _is_time(lock_time):
            raise InvalidInput("lockTime is not a number", path="lockTime")
        asked = event.get("leaseSeconds")
        return Batch(
            LeaseToken(token),
            tuple(TaskId(each) for each in dict.fromkeys(task_ids)),
            float(lock_time),
            float(asked) if _is_time(asked) and asked > 0 else None,
        )


def _is_time(value: Any) -> TypeGuard[float]:
    return isinstance(value, int | float) and not isinstance(value, bool) and abs(value) < 1e12


@dataclass
class Summary:
    """What became of a batch. `ends` counts tasks by the word for their end; `stuck` threads outlived their time."""

    begun: bool = False
    settled: bool = False
    stuck: int = 0
    ends: Counter[str] = field(default_factory=Counter)

    def as_dict(self) -> dict[str, Any]:
        return {"begun": self.begun, "settled": self.settled, "stuck": self.stuck, "ends": dict(self.ends)}


class Runner:
    """Runs batches. One per container; each `run` is one lease.

    `task_seconds` is the longest a task may run here. After a batch that left a stuck thread `end_process` is called,
    when all is written: Python cannot end such a thread, and none may survive the invocation.
    """

    def __init__(
        self,
        store: Store,
        bodies: Bodies,
        handlers: Mapping[str, Handler],
        *,
        threads: Threads,
        concurrency: int,
        lease_seconds: float,
        observer: Observer,
        submitter: Submitter | None = None,
        relatives: Relatives | None = None,
        task_seconds: float = math.inf,
        end_process: Callable[[], None] = exit_process,
    ) -> None:
        self.store = store
        self.bodies = bodies
        self.handlers = handlers
        self.threads = threads
        self.concurrency = concurrency
        self.lease_seconds = lease_seconds
        self.observer = observer
        self.submitter = submitter
        self.relatives = relatives
        self.task_seconds = task_seconds
        self.commits = Commits(bodies)
        self.endings = Endings(store, bodies, relatives=relatives, observer=observer)
        self._end_process = end_process

    def run(self, batch: Batch, remaining_seconds: Callable[[], float] = lambda: math.inf) -> Summary:
        """Run the batch to its end. Never raises for a failing store: what was not answered is left to the reaper."""
        summary = Summary()
        try:
            seconds = batch.lease_seconds or self.lease_seconds
            lease = HeldLease.begin(self.store, batch.token, lock_time=batch.lock_time, seconds=seconds)
        except StoreError as error:
            self.observer.log("batch.begin_failed", level="WARNING", code=error.code, tasks=len(batch.task_ids))
            return summary
        if isinstance(lease, Refused):
            # delivered twice, too late, or taken back: somebody else sees to these tasks
            self.observer.log("batch.not_begun", reason=lease.reason.value, tasks=len(batch.task_ids))
            return summary
        summary.begun = True
        _BatchRun(self, lease, batch, remaining_seconds, summary).run()
        if summary.stuck:
            self.observer.log("batch.stuck", level="ERROR", threads=summary.stuck)
            self._end_process()
        return summary


@dataclass
class _Attempt:
    """A task that was started: its handler, its thread, and when it must be over (monotonic seconds)."""

    running: RunningTask
    handler: Handler
    timeout: float
    until: float
    job: Job | None = None
    interrupted_at: float | None = None
    given_up: bool = False
    moved_aside: bool = False

    @property
    def is_over(self) -> bool:
        return self.given_up or (self.job is not None and self.job.done)


class _BatchRun:
    """The coordinator of one batch: everything but handlers and their end writes happens in its thread."""

    def __init__(
        self,
        runner: Runner,
        lease: HeldLease,
        batch: Batch,
        remaining_seconds: Callable[[], float],
        summary: Summary,
    ) -> None:
        self._runner = runner
        self._store = runner.store
        self._clock = runner.store.clock
        self._endings = runner.endings
        self._lease = lease
        self._batch = batch
        self._remaining_seconds = remaining_seconds
        self._summary = summary
        self._waiting: deque[RunningTask] = deque()
        self._attempts: list[_Attempt] = []
        self._not_ours: set[TaskId] = set()
        self._renew_not_before = -math.inf
        self._start_not_before = -math.inf
        self._told_lost = False
        self._answered = True
        self._lock = threading.Lock()

    def run(self) -> None:
        self._read(self._batch.task_ids, hand_back=False)
        while self._waiting or self._in_progress():
            self._drop_cancelled()
            self._hand_back_what_cannot_fit()
            self._start()
            if self._waiting or self._in_progress():
                self._runner.threads.wait(self._pause())
                self._runner.observer.flush_old()
            self._renew()
            self._watch_time()
        if not self._look_for_late_claims():
            self._answered = False
        self._settle()

    def _in_progress(self) -> list[_Attempt]:
        return [attempt for attempt in self._attempts if not attempt.is_over]

    # ---- what is ours ------------------------------------------------------------------------------------------------

    def _read(self, task_ids: Sequence[TaskId], *, hand_back: bool) -> bool:
        """One consistent look; False when it was not answered. Ours wait for a thread (or go back, when it is too late
        for that); the rest are looked at again later: a claim whose answer was lost may still arrive."""
        try:
            items = self._store.get_items(task_ids, consistent=True)
        except StoreError as error:
            self._runner.observer.log("batch.read_failed", level="WARNING", code=error.code)
            self._not_ours |= set(task_ids)
            return False
        ours = {task_id: item for task_id, item in items.items() if self._is_ours(item)}
        self._not_ours = (self._not_ours | set(task_ids)) - {TaskId(task_id) for task_id in ours}
        tasks, bad = readable(ours)
        for problem in bad:
            self._park(ours[problem.item_id], problem.problem)
        for task_id in (each for each in task_ids if each in tasks):
            self._take_up(tasks[task_id], hand_back=hand_back)
        return True

    def _is_ours(self, item: Item) -> bool:
        return item.get("status") == Status.RUNNING and item.get("leaseToken") == self._lease.token

    def _take_up(self, task: Task, *, hand_back: bool) -> None:
        running = RunningTask(task, self._lease, self._store, remaining_seconds=self._remaining_seconds)
        if task.cancel_requested:
            self._ended(running, self._endings.end_cancelled(running))
        elif task.type not in self._runner.handlers:
            # deployed later than it was claimed, or not any more: it waits, at no cost, but not at the head of the line
            wait = self._store.randomness.uniform(DEFER_SECONDS / 2, DEFER_SECONDS)
            self._ended(running, self._endings.hand_back(running, wait_seconds=wait, why="no_handler"))
        elif hand_back:
            self._ended(running, self._endings.hand_back(running, why="claimed_late"))
        else:
            self._waiting.append(running)

    def _park(self, item: Item, problem: str) -> None:
        """A claimed row that is no task can never run: it becomes a dead letter."""
        write = expressions.park(item, problem=problem, layout=self._store.layout, now=self._clock.now())
        try:
            self._store.apply(write)
        except StoreError:
            self._answered = False
            return
        self._runner.observer.log("task.parked", level="ERROR", taskId=item["taskId"], problem=problem)
        self._summary.ends["parked"] += 1

    def _look_for_late_claims(self) -> bool:
        return not self._not_ours or self._lease.lost or self._read(sorted(self._not_ours), hand_back=True)

    # ---- starting ----------------------------------------------------------------------------------------------------

    def _idle(self) -> int:
        return max(0, self._runner.concurrency - len(self._in_progress()))

    def _hand_back_what_cannot_fit(self) -> None:
        """Before each start: who would be cut off by the end of the invocation goes back at once, and so does everybody
        once a thread is stuck, for then this process is about to end."""
        remaining = self._remaining_seconds()
        stuck = self._stuck() > 0
        for running in list(self._waiting):
            if stuck or remaining < self._timeout_of(running.task) + FIT_MARGIN_SECONDS:
                self._waiting.remove(running)
                self._ended(running, self._endings.hand_back(running, why="stuck" if stuck else "too_little_time"))

    def _timeout_of(self, task: Task) -> float:
        return min(task.timeout_seconds, self._runner.task_seconds)

    def _start(self) -> None:
        """As many as there are idle threads: recorded with one write, then started. Not recorded: none starts."""
        if self._clock.monotonic() < self._start_not_before:
            return
        starting = [self._waiting.popleft() for _ in range(min(self._idle(), len(self._waiting)))]
        if not starting:
            return
        try:
            recorded = self._lease.renew([running.task.task_id for running in starting])
        except StoreError as error:
            self._start_later(starting, error)
            return
        if not recorded:
            self._waiting.extendleft(reversed(starting))
            self._lose_lease()
            return
        for running in starting:
            self._start_one(running)

    def _start_one(self, running: RunningTask) -> None:
        if running.task.task_id in self._lease.cancelled:
            running.cancelled = True
            self._ended(running, self._endings.end_cancelled(running))
            return
        handler = self._runner.handlers[running.task.type]
        timeout = self._timeout_of(running.task)
        running.started_at = self._clock.now()
        attempt = _Attempt(running, handler, timeout, until=self._clock.monotonic() + timeout)
        self._attempts.append(attempt)
        self._tell_start(running)
        attempt.job = self._runner.threads.start(lambda: self._attend(attempt))

    def _start_later(self, starting: list[RunningTask], error: StoreError) -> None:
        """The record was not answered. While the lease is good it is tried again; then they are handed back."""
        self._runner.observer.log("batch.start_failed", level="WARNING", code=error.code)
        self._waiting.extendleft(reversed(starting))
        refused = not isinstance(error, StoreThrottled | OutcomeUnknown)
        if refused or self._lease.lock_time - self._clock.now() < self._lease.seconds / 5:
            while self._waiting:
                running = self._waiting.popleft()
                self._ended(running, self._endings.hand_back(running, why="not_recorded"))
            return
        self._start_not_before = self._clock.monotonic() + self._store.randomness.uniform(*RENEW_AGAIN_SECONDS)

    def _tell_start(self, running: RunningTask) -> None:
        task = running.task
        self._runner.observer.log("task.started", level="DEBUG", **ids_of(task), attempt=task.attempt)
        if task.retry_count == 0 and task.lost == 0:
            waited = "dependsOn" in task.item or "dependsOnRef" in task.item
            due = task.due_at if waited else max(task.created_at, task.item.get("runAt", 0))
            self._runner.observer.measure("QueueLatency", max(0.0, running.started_at - due), queue=task.queue)

    # ---- in a handler's thread ---------------------------------------------------------------------------------------

    def _attend(self, attempt: _Attempt) -> None:
        """Run one handler and write its end. Never raises."""
        running = attempt.running
        try:
            verdict = self._call(attempt)
            if verdict is None:
                if running.take_end():
                    self._ended(running, self._endings.hand_back(running, why="payload_unavailable"))
            elif running.committed or running.commit_unknown or running.take_end():
                self._ended(running, self._endings.conclude(running, verdict, attempt.handler.backoff))
            else:
                self._runner.observer.log("task.late_result", level="WARNING", taskId=running.task.task_id)
        except BaseException as error:  # noqa: BLE001  a defect of ours must not take the batch with it
            running.unanswered = True
            self._ended(running, "unanswered")
            self._runner.observer.log(
                "task.end_failed", level="ERROR", taskId=running.task.task_id, errorType=type(error).__name__
            )

    def _call(self, attempt: _Attempt) -> Verdict | None:
        """What the handler said. None: its payload could not be read just now, and it was not called."""
        running = attempt.running
        try:
            payload = self._payload(attempt)
        except (StoreThrottled, OutcomeUnknown):
            return None
        except Exception as error:  # noqa: BLE001  the payload is missing, unfit, or of a class that refuses it
            return Raised(error)
        context = Context(
            running,
            submitter=self._runner.submitter,
            relatives=self._runner.relatives,
            commits=self._runner.commits,
            observer=self._runner.observer,
            timeout_seconds=attempt.timeout,
        )
        interrupted = True
        verdict: Verdict = TimedOut(attempt.timeout)
        try:
            running.interruption.enter()
            try:
                verdict = Returned(attempt.handler.function(payload, context))
            finally:
                interrupted = running.interruption.leave()
        except HandlerInterrupted:
            interrupted = True
        except BaseException as error:  # noqa: BLE001  SystemExit and KeyboardInterrupt are the handler's failures too
            verdict = Raised(error)
        # Decided by `leave`: a handler that swallowed its interrupt is late, one that returned just before it is not.
        return TimedOut(attempt.timeout) if interrupted else verdict

    def _payload(self, attempt: _Attempt) -> Any:
        task = attempt.running.task
        try:
            text = self._runner.bodies.payload(task)
        except BodyMissing as missing:
            raise Fail(str(missing), reason="payload_missing") from missing
        try:
            value = loads(text, root="payload")
        except InvalidInput as problem:
            raise BadPayload(f"the stored payload cannot be read: {problem.message}") from problem
        return attempt.handler.read(value)

    # ---- while they run ----------------------------------------------------------------------------------------------

    def _pause(self) -> float:
        """Until something is due to be done here; the end of a handler wakes earlier."""
        monotonic = self._clock.monotonic()
        waits = [LONGEST_WAIT_SECONDS]
        if not self._lease.lost:
            waits.append(max(self._lease.renewal_in(), self._renew_not_before - monotonic))
        if self._waiting and self._idle():
            waits.append(self._start_not_before - monotonic)
        waits += [self._due_in(attempt, monotonic) for attempt in self._in_progress()]
        return max(SHORTEST_WAIT_SECONDS, min(waits))

    def _due_in(self, attempt: _Attempt, monotonic: float) -> float:
        """Seconds until `_watch_time` has something to do with an attempt."""
        if attempt.interrupted_at is None:
            return min(attempt.until - monotonic, self._remaining_seconds() - LAST_SECONDS)
        grace = attempt.interrupted_at + self._grace() - monotonic
        return grace if grace > 0 else ENDING_WAIT_SECONDS  # its thread is writing its end: that ends by itself

    def _grace(self) -> float:
        return LAST_INTERRUPT_SECONDS if self._remaining_seconds() <= LAST_SECONDS else INTERRUPT_SECONDS

    def _renew(self) -> None:
        """A heartbeat for the whole batch, waiting tasks included, when less than 4/5 of the lease is left."""
        lease, monotonic = self._lease, self._clock.monotonic()
        if lease.lost:
            self._lose_lease()
            return
        if not (self._waiting or self._in_progress()) or not lease.needs_renewal():
            self._pass_cancels_on()
            return
        if monotonic < self._renew_not_before:
            return
        try:
            renewed = lease.renew()
        except StoreError as error:
            self._renew_not_before = monotonic + self._store.randomness.uniform(*RENEW_AGAIN_SECONDS)
            self._runner.observer.log("batch.heartbeat_failed", level="WARNING", code=error.code)
            return
        if not renewed:
            self._lose_lease()
            return
        self._pass_cancels_on()
        self._move_aside()
        self._look_for_late_claims()

    def _lose_lease(self) -> None:
        """Refused: nothing that waits may start (the reaper takes it back), and what runs is told."""
        if not self._told_lost:
            self._told_lost = True
            self._runner.observer.measure("HeartbeatsLost")
            self._runner.observer.log("batch.lease_lost", level="WARNING", tasks=len(self._batch.task_ids))
        if self._waiting:
            self._summary.ends["dropped"] += len(self._waiting)
            self._waiting.clear()

    def _pass_cancels_on(self) -> None:
        for attempt in self._in_progress():
            if attempt.running.task.task_id in self._lease.cancelled:
                attempt.running.cancelled = True

    def _drop_cancelled(self) -> None:
        for running in [each for each in self._waiting if each.task.task_id in self._lease.cancelled]:
            self._waiting.remove(running)
            self._ended(running, self._endings.end_cancelled(running))

    def _move_aside(self) -> None:
        """Tasks that have run for a fifth of the lease leave the head of their partition, each once. (Every start
        renews the lease too, so whatever runs at a renewal has run that long.)"""
        for attempt in self._in_progress():
            if attempt.moved_aside or attempt.running.cancelled or attempt.running.lost:
                continue
            attempt.moved_aside = True
            task = attempt.running.task
            try:
                self._store.apply(expressions.move_aside(task, self._lease.token, layout=self._store.layout))
            except StoreError as error:
                self._runner.observer.log("task.move_aside_failed", level="DEBUG", taskId=task.task_id, code=error.code)

    def _watch_time(self) -> None:
        """Interrupt who is over time; end without its thread who did not unwind; all of them before the invocation's
        end, for nothing can be recorded after it."""
        monotonic = self._clock.monotonic()
        last = self._remaining_seconds() <= LAST_SECONDS
        for attempt in self._in_progress():
            if attempt.interrupted_at is None:
                if monotonic >= attempt.until or last:
                    attempt.interrupted_at = monotonic
                    attempt.running.interruption.interrupt()
            elif monotonic >= attempt.interrupted_at + self._grace() and attempt.running.take_end():
                attempt.given_up = True
                verdict = TimedOut(attempt.timeout)
                ended = self._endings.conclude(attempt.running, verdict, attempt.handler.backoff)
                self._ended(attempt.running, ended)

    # ---- the end -----------------------------------------------------------------------------------------------------

    def _ended(self, running: RunningTask, word: str) -> None:
        with self._lock:
            self._summary.ends[word] += 1
            if running.unanswered:
                self._answered = False

    def _stuck(self) -> int:
        """Threads that outlived their task and still run."""
        return sum(1 for each in self._attempts if each.given_up and each.job is not None and not each.job.done)

    def _settle(self) -> None:
        summary = self._summary
        summary.stuck = self._stuck()
        if self._lease.lost or not self._answered:
            return
        try:
            summary.settled = not isinstance(self._lease.settle(), Refused)
        except StoreError as error:
            self._runner.observer.log("batch.settle_failed", level="WARNING", code=error.code)
