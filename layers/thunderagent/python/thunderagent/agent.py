"""The agent: poller and executor in one long-running process, for work that takes longer than a Lambda may.

It is the same sweep, the same lease and the same batch runner; only the invoke seam differs, which hands a batch to
threads of this process instead of to Lambda. So everything the protocol promises holds between agents, and between
agents and Lambda executors of the same profile.
"""

from __future__ import annotations

import json
import math
import threading
from collections import Counter
from collections.abc import Callable, Collection, Mapping
from dataclasses import dataclass, field, replace
from typing import Any

from thunderagent.claims import Claims
from thunderagent.dispatch import Pass, Sweeper
from thunderagent.errors import DispatchError
from thunderagent.leased_batch import Batch
from thunderagent.registry import LONGEST_TIMEOUT_SECONDS, Handler, Registry
from thunderagent.runner import LAST_SECONDS, Runner
from thunderagent.seams import Seams
from thunderagent.settings import Settings
from thunderagent.telemetry import Telemetry
from thunderagent.threads import Threads
from thunderagent.wiring import Parts

REPORT_SECONDS = 60.0
UNUSABLE_PAUSE_SECONDS = 30.0  # while the table or its index refuses to be read
LONGEST_WAIT_SECONDS = 5.0


@dataclass(frozen=True)
class Plan:
    """How one agent works: under which name, how many batches at once, how long what runs may go on after a stop."""

    name: str
    batches: int = 2
    grace_seconds: float = 30
    queues: Collection[str] = ()  # none: all


@dataclass
class Report:
    """What an agent has done so far. `ended` counts tasks by the word for their end; `stuck` says that it must end
    because a handler's thread cannot be ended otherwise."""

    agent: str
    claimed: int = 0
    conflicts: int = 0
    batches: int = 0
    running: int = 0
    stuck: bool = False
    ended: Counter[str] = field(default_factory=Counter)

    def as_dict(self) -> dict[str, Any]:
        return {**vars(self), "ended": dict(self.ended)}


class Agent:
    """Claims batches of its profile, as many at once as planned, and runs each in threads of its own.

    `settings.serves` is its profile, `handlers` are that profile's. `run` blocks until `stop`, which any thread may
    call. `make_threads` gives each of the batches run at once its own.
    """

    def __init__(
        self,
        plan: Plan,
        settings: Settings,
        seams: Seams,
        *,
        registry: Registry,
        handlers: Mapping[str, Handler],
        telemetry: Telemetry,
        make_threads: Callable[[], Threads],
    ) -> None:
        executor = settings.served[str(settings.serves)]
        # No batch is larger than what starts at once: what would wait here, another agent may have.
        settings = replace(settings, poll_batch_size=max(1, min(settings.poll_batch_size, executor.threads)))
        self._plan = plan
        self._settings = settings
        self._parts = Parts(settings, replace(seams, invoke=self._take), registry=registry, telemetry=telemetry)
        self._clock = seams.clock
        self._threads = seams.threads
        self._batch_threads = [make_threads() for _ in range(plan.batches)]
        self._lock = threading.Lock()
        self._report = Report(plan.name)
        self._stop_at: float | None = None
        self._told_at = -math.inf
        self._sweeper = self._make_sweeper()
        self._idle = [self._make_runner(handlers, threads, executor.threads) for threads in self._batch_threads]

    # ---- life --------------------------------------------------------------------------------------------------------

    def run(self) -> Report:
        """Claim and run until stopped, then until every batch has ended. Returns what was done."""
        self._told_at = self._clock.monotonic()
        jitter = self._parts.store.randomness.uniform(0, self._settings.poll_start_jitter_seconds)
        self._parts.telemetry.log("agent.started", agent=self._plan.name, jitter=round(jitter, 3))
        self._rest(jitter)
        self._sweeper.record_shards()
        while not self._is_stopping():
            if self._room():
                done = self._pass()
                self._rest(self._pause_after(done), for_room=done.cut_short or done.executors_full)
            else:
                self._rest(LONGEST_WAIT_SECONDS, for_room=True)
        while self.report().running:
            self._threads.wait(LONGEST_WAIT_SECONDS)
            self._parts.telemetry.flush_old()
        self._tell("agent.stopped")
        return self.report()

    def stop(self) -> None:
        """Claim no more. Batches hand back what waits, at once; what runs has the grace, and is then released. The
        first call counts."""
        with self._lock:
            if self._stop_at is None:
                self._stop_at = self._clock.monotonic()
        for threads in (self._threads, *self._batch_threads):
            threads.wake()

    def report(self) -> Report:
        """What it has done by now."""
        with self._lock:
            return replace(self._report, ended=Counter(self._report.ended))

    def _is_stopping(self) -> bool:
        return self._stop_at is not None

    def _remaining_seconds(self) -> float:
        """The life of this process, as its batches see it: endless, until a stop leaves them the grace and a moment
        more to record what they broke off."""
        if self._stop_at is None:
            return math.inf
        return self._stop_at + self._plan.grace_seconds + LAST_SECONDS - self._clock.monotonic()

    # ---- claiming ----------------------------------------------------------------------------------------------------

    def _pass(self) -> Pass:
        done = self._sweeper.run_pass()
        with self._lock:
            self._report.claimed += done.claimed
            self._report.conflicts += done.conflicts
        return done

    def _pause_after(self, done: Pass) -> float:
        return max(self._sweeper.pause_after(done), UNUSABLE_PAUSE_SECONDS if done.unusable else 0)

    def _rest(self, seconds: float, *, for_room: bool = False) -> None:
        """Until the time is over or a stop is asked for; with `for_room`, until a batch ends, too."""
        until = self._clock.monotonic() + seconds
        room = self._room()
        while not self._is_stopping() and (left := until - self._clock.monotonic()) > 0:
            self._threads.wait(min(left, LONGEST_WAIT_SECONDS))
            self._parts.telemetry.flush_old()
            if self._clock.monotonic() - self._told_at >= REPORT_SECONDS:
                self._tell("agent.alive")
            if for_room and self._room() > room:
                return

    def _room(self) -> int:
        """Batches that could be taken now."""
        return 0 if self._is_stopping() else len(self._idle)

    def _take(self, function: str, event: bytes) -> None:
        """The invoke seam: begin to run a batch. Refused, and so taken back, once this agent stops."""
        batch = Batch.from_event(json.loads(event))
        with self._lock:
            if self._stop_at is not None or not self._idle:
                code = "AgentFull" if self._stop_at is None else "AgentStopping"
                raise DispatchError(self._plan.name, code, accepted=False)
            runner = self._idle.pop()
            self._report.running += 1
            self._report.batches += 1
        self._threads.start(lambda: self._run(runner, batch))

    # ---- running -----------------------------------------------------------------------------------------------------

    def _run(self, runner: Runner, batch: Batch) -> None:
        """One batch, in a thread of its own. Never raises: the reaper sees to a lease whose runner failed."""
        ends: Counter[str] = Counter()
        try:
            ends = runner.run(batch, self._remaining_seconds, self._is_stopping).ends
        except Exception as error:  # noqa: BLE001  a defect in one batch must not end the others
            self._parts.telemetry.log(
                "agent.batch_failed", level="ERROR", agent=self._plan.name, errorType=type(error).__name__
            )
        finally:
            with self._lock:
                self._report.ended += ends
                self._report.running -= 1
                self._idle.append(runner)

    def _end_because_stuck(self) -> None:
        """A thread outlived its task: only the end of this process ends it. The other batches have their grace. (At a
        stop that is not worth a word: the end is near anyway.)"""
        with self._lock:
            self._report.stuck |= self._stop_at is None
        self.stop()

    # ---- parts -------------------------------------------------------------------------------------------------------

    def _make_sweeper(self) -> Sweeper:
        """Schedules are not its business: they fire wherever the stack's poller runs. It takes few batches, beside
        agents that do the same, and so takes them one by one: they would meet."""
        own, queues = self._parts, frozenset(self._plan.queues)
        claims = Claims(
            own.store, own.seams.invoke, threads=self._threads, owner=self._plan.name, observer=own.telemetry
        )
        return Sweeper(
            own.store,
            claims,
            own.registry,
            own.queues,
            self._settings,
            reap_stray=own.reaper.look_at,
            on_end=own.dependencies.on_end,
            room=self._room,
            sweeps=lambda queue: not queues or queue in queues,
            batches_at_once=1,
            threads=self._threads,
            observer=own.telemetry,
        )

    def _make_runner(self, handlers: Mapping[str, Handler], threads: Threads, concurrency: int) -> Runner:
        own = self._parts
        return Runner(
            own.store,
            own.bodies,
            handlers,
            threads=threads,
            concurrency=concurrency,
            lease_seconds=self._settings.served[str(self._settings.serves)].lease_seconds,
            observer=own.telemetry,
            submitter=own.submitter,
            relatives=own.dependencies,
            task_seconds=LONGEST_TIMEOUT_SECONDS,
            end_process=self._end_because_stuck,
        )

    def _tell(self, event: str) -> None:
        """How many tasks this one claimed, so that a look at several shows whether they share evenly."""
        self._told_at = self._clock.monotonic()
        self._parts.flush()
        self._parts.telemetry.log(event, **self.report().as_dict())
