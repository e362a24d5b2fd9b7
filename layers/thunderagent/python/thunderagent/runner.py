"""Runs one batch under its lease: begin, read, start, heartbeat, end each task, settle (ARCHITECTURE §3, §6).

The caller's thread coordinates; handlers run beside it in the thread seam. Three rules carry the rest: nothing starts
unless the lease was told first; whoever takes a task's end writes it, once; the lease is settled only when every last
write was answered.
"""

from __future__ import annotations

import math
from collections import deque
from collections.abc import Callable, Mapping
from typing import TYPE_CHECKING

from thunderagent import expressions
from thunderagent.bodies import Bodies
from thunderagent.charges import charged_to
from thunderagent.endings import Endings, Relatives
from thunderagent.errors import OutcomeUnknown, StoreError, StoreThrottled
from thunderagent.handler_call import Caller, HandlerCall
from thunderagent.held_lease import HeldLease
from thunderagent.holdings import Holdings
from thunderagent.leased_batch import Batch, Summary, Tally
from thunderagent.model import Task
from thunderagent.registry import Handler
from thunderagent.running_task import RunningTask
from thunderagent.store import Refused, Store
from thunderagent.telemetry import Observer, ids_of
from thunderagent.threads import Threads, exit_process

if TYPE_CHECKING:
    from thunderagent.submit import Submitter

FIT_MARGIN_SECONDS = 15.0  # beyond its timeout, what must be left of the invocation for a task to start
INTERRUPT_SECONDS = 5.0  # how long an interrupted handler may take to unwind before its end is written without it
LAST_SECONDS = 8.0  # of the invocation: whatever still runs is timed out, while there is time to record it
LAST_INTERRUPT_SECONDS = 2.0
RENEW_AGAIN_SECONDS = (0.5, 2.0)  # after a renewal or a start record that was not answered
ENDING_WAIT_SECONDS = 0.25
SHORTEST_WAIT_SECONDS, LONGEST_WAIT_SECONDS = 0.005, 30.0


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
        self.handlers = handlers
        self.threads = threads
        self.concurrency = concurrency
        self.lease_seconds = lease_seconds
        self.observer = observer
        self.task_seconds = task_seconds
        self.caller = Caller(bodies, submitter=submitter, relatives=relatives, observer=observer)
        self.endings = Endings(store, bodies, relatives=relatives, observer=observer)
        self._end_process = end_process

    def run(
        self,
        batch: Batch,
        remaining_seconds: Callable[[], float] = lambda: math.inf,
        stopping: Callable[[], bool] = lambda: False,
    ) -> Summary:
        """Run the batch to its end. Never raises for a failing store: what was not answered is left to the reaper.

        `remaining_seconds` is the life left to this process, of which the last `LAST_SECONDS` are for recording. Once
        `stopping` says yes, what waits goes back; what runs may go on while time remains, and is then released.
        """
        summary = Summary()
        lease = self._begin(batch, remaining_seconds)
        if lease is None:
            return summary
        summary.begun = True
        _BatchRun(self, lease, batch, remaining_seconds, stopping, summary).run()
        if summary.stuck:
            self.observer.log("batch.stuck", level="ERROR", threads=summary.stuck)
            self._end_process()
        return summary

    def _begin(self, batch: Batch, remaining_seconds: Callable[[], float]) -> HeldLease | None:
        """Tried for as long as the lease lasts, since the tasks can do nothing but wait for its end otherwise; while
        time is left to hand back those that would not fit any more."""
        tasks = len(batch.task_ids)

        def tell(error: StoreError) -> None:
            self.observer.log("batch.begin_again", level="WARNING", code=error.code, tasks=tasks)

        try:
            lease = HeldLease.begin(
                self.store,
                batch.token,
                lock_time=batch.lock_time,
                seconds=batch.lease_seconds or self.lease_seconds,
                remaining_seconds=lambda: remaining_seconds() - LAST_SECONDS,
                on_failure=tell,
            )
        except StoreError as error:
            self.observer.log("batch.begin_failed", level="WARNING", code=error.code, tasks=tasks)
            return None
        if isinstance(lease, Refused):
            # delivered twice, too late, or taken back: somebody else sees to these tasks
            self.observer.log("batch.not_begun", reason=lease.reason.value, tasks=tasks)
            return None
        return lease


class _BatchRun:
    """The coordinator of one batch: everything but handlers and their end writes happens in its thread."""

    def __init__(
        self,
        runner: Runner,
        lease: HeldLease,
        batch: Batch,
        remaining_seconds: Callable[[], float],
        stopping: Callable[[], bool],
        summary: Summary,
    ) -> None:
        self._runner = runner
        self._store = runner.store
        self._clock = runner.store.clock
        self._endings = runner.endings
        self._lease = lease
        self._batch = batch
        self._remaining_seconds = remaining_seconds
        self._stopping = stopping
        self._tally = Tally(summary)
        self._holdings = Holdings(
            runner.store,
            lease,
            endings=runner.endings,
            types=runner.handlers,
            remaining_seconds=remaining_seconds,
            tally=self._tally,
            observer=runner.observer,
        )
        self._waiting: deque[RunningTask] = deque()
        self._calls: list[HandlerCall] = []
        self._renew_not_before = -math.inf
        self._start_not_before = -math.inf
        self._told_lost = False

    def run(self) -> None:
        self._waiting.extend(self._holdings.take_up(self._batch.task_ids))
        while self._waiting or self._in_progress():
            self._drop_cancelled()
            self._hand_back_what_will_not_run()
            self._start()
            if self._waiting or self._in_progress():
                self._runner.threads.wait(self._pause())
                self._runner.observer.flush_old()
            self._renew()
            self._watch_time()
        if not self._holdings.return_late_claims(patiently=True):
            self._tally.answered = False
        self._settle()

    def _in_progress(self) -> list[HandlerCall]:
        return [call for call in self._calls if not call.is_over]

    # ---- starting ----------------------------------------------------------------------------------------------------

    def _idle(self) -> int:
        return max(0, self._runner.concurrency - len(self._in_progress()))

    def _hand_back_what_will_not_run(self) -> None:
        """Before each start: who would be cut off by the end of the invocation goes back at once, and so does everybody
        once this process is about to end: it was told to, or a thread is stuck."""
        remaining = self._remaining_seconds()
        ending = "stopping" if self._stopping() else "stuck" if self._stuck() else None
        for running in list(self._waiting):
            if ending is not None or remaining < self._timeout_of(running.task) + FIT_MARGIN_SECONDS:
                self._waiting.remove(running)
                self._ended(running, self._endings.hand_back(running, why=ending or "too_little_time"))

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
        call = HandlerCall(running, handler, timeout, until=self._clock.monotonic() + timeout)
        self._calls.append(call)
        self._tell_start(running)
        call.job = self._runner.threads.start(lambda: self._attend_charged(call))

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

    def _attend_charged(self, call: HandlerCall) -> None:
        """What this thread reads and writes is on the task's account."""
        with charged_to([(call.running.task.queue, call.running.task.type)]):
            self._attend(call)

    def _attend(self, call: HandlerCall) -> None:
        """Run one handler and write its end. Never raises."""
        running = call.running
        try:
            verdict = self._runner.caller.verdict_of(call)
            if verdict is None:
                if running.take_end():
                    self._ended(running, self._endings.hand_back(running, why="payload_unavailable"))
            elif running.committed or running.commit_unknown or running.take_end():
                self._ended(running, self._endings.conclude(running, verdict, call.handler.backoff))
            else:
                self._runner.observer.log("task.late_result", level="WARNING", taskId=running.task.task_id)
        except BaseException as error:  # noqa: BLE001  a defect of ours must not take the batch with it
            running.unanswered = True
            self._ended(running, "unanswered")
            self._runner.observer.log(
                "task.end_failed", level="ERROR", taskId=running.task.task_id, errorType=type(error).__name__
            )

    # ---- while they run ----------------------------------------------------------------------------------------------

    def _pause(self) -> float:
        """Until something is due to be done here; the end of a handler wakes earlier."""
        monotonic = self._clock.monotonic()
        waits = [LONGEST_WAIT_SECONDS]
        if not self._lease.lost:
            waits.append(max(self._lease.renewal_in(), self._renew_not_before - monotonic))
        if self._waiting and self._idle():
            waits.append(self._start_not_before - monotonic)
        waits += [self._due_in(call, monotonic) for call in self._in_progress()]
        return max(SHORTEST_WAIT_SECONDS, min(waits))

    def _due_in(self, call: HandlerCall, monotonic: float) -> float:
        """Seconds until `_watch_time` has something to do with a call."""
        if call.interrupted_at is None:
            return min(call.until - monotonic, self._remaining_seconds() - LAST_SECONDS)
        grace = call.interrupted_at + self._grace() - monotonic
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
        self._holdings.return_late_claims()

    def _lose_lease(self) -> None:
        """Refused: nothing that waits may start (the reaper takes it back), and what runs is told."""
        if not self._told_lost:
            self._told_lost = True
            self._runner.observer.measure("HeartbeatsLost")
            self._runner.observer.log("batch.lease_lost", level="WARNING", tasks=len(self._batch.task_ids))
        if self._waiting:
            self._tally.count("dropped", len(self._waiting))
            self._waiting.clear()

    def _pass_cancels_on(self) -> None:
        for call in self._in_progress():
            if call.running.task.task_id in self._lease.cancelled:
                call.running.cancelled = True

    def _drop_cancelled(self) -> None:
        for running in [each for each in self._waiting if each.task.task_id in self._lease.cancelled]:
            self._waiting.remove(running)
            self._ended(running, self._endings.end_cancelled(running))

    def _move_aside(self) -> None:
        """Tasks that have run for a fifth of the lease leave the head of their partition, each once. (Every start
        renews the lease too, so whatever runs at a renewal has run that long.)"""
        for call in self._in_progress():
            if call.moved_aside or call.running.cancelled or call.running.lost:
                continue
            call.moved_aside = True
            task = call.running.task
            try:
                self._store.apply(expressions.move_aside(task, self._lease.token, layout=self._store.layout))
            except StoreError as error:
                self._runner.observer.log("task.move_aside_failed", level="DEBUG", taskId=task.task_id, code=error.code)

    def _watch_time(self) -> None:
        """Interrupt who is over time; end without its thread who did not unwind; all of them before the invocation's
        end, for nothing can be recorded after it."""
        monotonic = self._clock.monotonic()
        last = self._remaining_seconds() <= LAST_SECONDS
        for call in self._in_progress():
            if call.interrupted_at is None:
                if monotonic >= call.until or last:
                    call.interrupt(monotonic, stopped=monotonic < call.until and self._stopping())
            elif monotonic >= call.interrupted_at + self._grace() and call.running.take_end():
                call.given_up = True
                ended = self._endings.conclude(call.running, call.cut_off, call.handler.backoff)
                self._ended(call.running, ended)

    # ---- the end -----------------------------------------------------------------------------------------------------

    def _ended(self, running: RunningTask, word: str) -> None:
        self._tally.ended(running, word)

    def _stuck(self) -> int:
        """Threads that outlived their task and still run."""
        return sum(1 for each in self._calls if each.given_up and each.job is not None and not each.job.done)

    def _settle(self) -> None:
        summary = self._tally.summary
        summary.stuck = self._stuck()
        if self._lease.lost or not self._tally.answered:
            return
        try:
            summary.settled = not isinstance(self._lease.settle(self._remaining_seconds), Refused)
        except StoreError as error:
            self._runner.observer.log("batch.settle_failed", level="WARNING", code=error.code)
