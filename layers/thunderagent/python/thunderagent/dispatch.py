"""The sweep: find what is due, in order of priority, and send it to executors within every cap. Policy only."""

from __future__ import annotations

import math
from collections import defaultdict
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field

from thunderagent.batches import LAST, SHARE, Packing, packings
from thunderagent.candidates import Candidates, Partition
from thunderagent.capacity import Capacity
from thunderagent.claims import Claims
from thunderagent.clearing import Clearing, OnEnd
from thunderagent.codec import Item
from thunderagent.errors import StoreError, StoreRefused
from thunderagent.in_flight import InFlight
from thunderagent.limits import Limits, Obstacle
from thunderagent.model import Task
from thunderagent.queues import Queues, QueueSettings
from thunderagent.registry import Registry
from thunderagent.schema import DEFER_SECONDS, PRIORITIES, open_key
from thunderagent.sending import BATCHES_AT_ONCE, Dispatcher
from thunderagent.settings import Settings
from thunderagent.store import Store
from thunderagent.telemetry import Observer
from thunderagent.threads import Threads

PASS_TASKS = 500  # a pass claims no more, so that pauses, limits and newer high work are seen soon
EXAMINED_TASKS = 1_000  # of one priority in one pass, however many of them find no room
DEFERRED_TASKS = 200  # in one pass: each is a write; what is beyond is only remembered for a moment
MISSED_TASKS = 100  # of one profile and priority that found no room, until the pass looks for no more of them
SKIP_SECONDS = 3.0


@dataclass
class Pass:
    """What one pass found and did. `next_due` is when the next known task becomes due, None when none is known."""

    claimed: int = 0
    conflicts: int = 0
    executors_full: bool = False
    cut_short: bool = False  # a quota ended the gathering: more is probably due
    next_due: float | None = None
    failed: bool = False
    unusable: bool = False  # the table or its index refuses to be read: no pass can do better for a while

    def look_again_at(self, instant: float) -> None:
        self.next_due = instant if self.next_due is None else min(self.next_due, instant)


@dataclass(frozen=True)
class Tools:
    """What a pass works with."""

    store: Store
    registry: Registry
    settings: Settings
    in_flight: InFlight
    clearing: Clearing
    candidates: Candidates
    dispatcher: Dispatcher
    threads: Threads


class Sweeper:
    """Claims what is due. One per container: it remembers what it saw in flight between passes."""

    def __init__(
        self,
        store: Store,
        claims: Claims,
        registry: Registry,
        queues: Queues,
        settings: Settings,
        *,
        reap_stray: Callable[[Item], None],
        on_end: OnEnd = lambda item: None,
        each_pass: Callable[[], object] = lambda: None,
        room: Callable[[], float] = lambda: math.inf,
        sweeps: Callable[[str], bool] = lambda queue: True,
        batches_at_once: int = BATCHES_AT_ONCE,
        threads: Threads,
        observer: Observer,
    ) -> None:
        """`room` is how many batches of each profile the sender itself can take, whatever the caps say; `sweeps` tells
        the queues that are looked into; `batches_at_once` are on their way together."""
        in_flight = InFlight(store.clock)
        clearing = Clearing(store, in_flight, on_end=on_end, observer=observer)
        self._tools = Tools(
            store=store,
            registry=registry,
            settings=settings,
            in_flight=in_flight,
            clearing=clearing,
            candidates=Candidates(
                store,
                settings,
                in_flight,
                clearing,
                batches_at_once=batches_at_once,
                threads=threads,
                reap_stray=reap_stray,
            ),
            dispatcher=Dispatcher(
                claims,
                Limits(store, queues, threads=threads, observer=observer),
                Capacity(store, settings, threads=threads, observer=observer),
                in_flight,
                at_once=batches_at_once,
                threads=threads,
            ),
            threads=threads,
        )
        self._store = store
        self._queues = queues
        self._settings = settings
        self._observer = observer
        self._each_pass = each_pass
        self._room = room
        self._sweeps = sweeps
        self._turn = store.randomness.below(SHARE * SHARE)

    def run(
        self, *, window_seconds: float, backlog_seconds: float = 0, stop: Callable[[], bool] = lambda: False
    ) -> Pass:
        """Pass after pass until the window is used up (0: one pass). Returns the totals.

        While there is a backlog, passes go on beyond the window, until `backlog_seconds` from the start are over. Ends
        early, and cleanly, when the table or its index cannot be read at all (missing, or still being built).
        """
        clock = self._store.clock
        until = clock.monotonic() + window_seconds
        backlog_until = clock.monotonic() + max(window_seconds, backlog_seconds)
        total = Pass()
        self.record_shards()
        while True:
            done = self.run_pass()
            total.claimed += done.claimed
            total.conflicts += done.conflicts
            total.failed |= done.failed
            total.unusable = done.unusable
            pause = self.pause_after(done)
            end = backlog_until if done.claimed or done.executors_full else until
            if done.unusable or stop() or clock.monotonic() + pause >= end:
                return total
            clock.sleep(pause)

    def run_pass(self) -> Pass:
        """One look at every queue. A failing store ends the pass, not the loop; no task is charged for it."""
        done = Pass()
        self._each_pass()
        try:
            self._sweep(done)
        except StoreError as error:
            done.failed = True
            done.unusable = isinstance(error, StoreRefused)
            self._observer.measure("SweepsFailed")
            self._observer.log("sweep.failed", level="WARNING", operation=error.operation, code=error.code)
        return done

    def pause_after(self, done: Pass) -> float:
        """None while a quota was the only limit, short after a pass that claimed, else until something is due."""
        busy, idle = self._settings.poll_busy_seconds, self._settings.poll_idle_seconds
        if done.claimed:
            return 0 if done.cut_short and not done.executors_full else busy
        if done.executors_full or done.next_due is None:
            return busy if done.executors_full else idle
        return max(busy, min(idle, done.next_due - self._store.clock.now()))

    def _sweep(self, done: Pass) -> None:
        tools = self._tools
        tools.in_flight.forget()
        queues = [each for each in self._queues.all().values() if not each.paused and self._sweeps(each.name)]
        own = int(min(self._room(), PASS_TASKS))
        room = packings(
            self._settings.served.values(),
            {profile: min(own, free) for profile, free in tools.dispatcher.capacity.free().items()},
            size=self._settings.poll_batch_size,
            most=PASS_TASKS,
            turn=self._turn,
        )
        if not room:
            done.executors_full = True
            return
        self._turn += 1
        tools.candidates.next_due = None
        tools.dispatcher.limits.begin_pass()
        _Round(tools, queues, room, done).run()

    def record_shards(self) -> None:
        """Once in a container's life, before its first pass: how many shards it was configured with."""
        try:
            self._queues.record_shards()
        except StoreError as error:
            self._observer.log("shards.record_failed", level="WARNING", code=error.code)


@dataclass
class _Round:
    """One pass under way."""

    tools: Tools
    queues: Sequence[QueueSettings]
    room: dict[str, Packing]
    done: Pass
    stopped: set[str] = field(default_factory=set)
    aside: dict[str, list[Task]] = field(default_factory=lambda: defaultdict(list))
    missed: dict[str, list[Task]] = field(default_factory=lambda: defaultdict(list))
    deferred: list[tuple[Task, float, str]] = field(default_factory=list)
    packed: list[tuple[list[Task], Packing]] = field(default_factory=list)

    def run(self) -> None:
        """High to low, each leaving the share of those below; then what was kept in vain is filled from above."""
        try:
            for level, priority in enumerate(PRIORITIES):
                self._begin_level(level)
                if any(packing.room for packing in self.room.values()):
                    self._gather(priority)
            self._begin_level(LAST)
            for task in [task for tasks in self.aside.values() for task in tasks]:
                self._place(task)
            for packing in self.room.values():
                self._send(packing.rest(), packing)
        finally:
            self._send_packed()
            self._defer_all()
        if self.tools.candidates.next_due is not None:
            self.done.look_again_at(self.tools.candidates.next_due)

    # ---- gathering ---------------------------------------------------------------------------------------------------

    def _begin_level(self, level: int) -> None:
        self.missed.clear()
        for packing in self.room.values():
            packing.begin_level(level)

    def _gather(self, priority: str) -> None:
        partitions = [
            Partition(queue.name, open_key(queue.name, priority, shard))
            for queue in self.queues
            if queue.name not in self.stopped
            for shard in range(queue.shards.read)
        ]
        room = sum(packing.room for packing in self.room.values())
        tasks = self.tools.candidates.due(partitions, room=room, skip=self.stopped.__contains__)
        for examined, task in enumerate(tasks, start=1):
            self._consider(task)
            if self._is_supplied():
                self.done.cut_short = True
                return
            if examined >= EXAMINED_TASKS:
                self.done.cut_short = True
                for missed in [task for tasks in self.missed.values() for task in tasks]:
                    self._skip(missed)  # the next pass must come further than this one
                return

    def _is_supplied(self) -> bool:
        """Whether for every profile no more of this priority fit, and enough are set aside for what is kept."""
        return all(
            len(self.missed[name]) >= MISSED_TASKS
            or (packing.room <= packing.kept and len(self.aside[name]) >= packing.room)
            for name, packing in self.room.items()
        )

    def _consider(self, task: Task) -> None:
        profile = self.tools.registry.profile_of(task.type)
        if task.queue in self.stopped:
            return
        if profile not in self.tools.settings.served and self.tools.settings.has_handler_elsewhere(profile):
            self._skip(task, seconds=DEFER_SECONDS)
        elif profile is None or profile not in self.tools.settings.served:
            jitter = self.tools.store.randomness.uniform(0.5, 1)
            self._defer(task, self.tools.store.clock.now() + DEFER_SECONDS * jitter, "no_handler")
        elif profile not in self.room:
            self.done.executors_full = True
            self.missed[profile].append(task)
        elif not self._place(task):
            if len(self.aside[profile]) < self.room[profile].room:
                self.aside[profile].append(task)
            else:
                self.missed[profile].append(task)

    def _place(self, task: Task) -> bool:
        """Whether the task found its place: in a batch, or in front of a limit."""
        profile = self.tools.registry.profile_of(task.type) or ""
        packing = self.room[profile]
        if not packing.fits(task):
            return False
        obstacle = self.tools.dispatcher.limits.reserve(task) if task.queue not in self.stopped else None
        if task.queue in self.stopped or obstacle is not None:
            if obstacle is not None:
                self._meet(task, obstacle)
            return True
        for batch in packing.add(task):
            self._send(batch, packing)
        return True

    # ---- what is in the way ------------------------------------------------------------------------------------------

    def _meet(self, task: Task, obstacle: Obstacle) -> None:
        """A limit of the queue stops the queue for this pass; one of a key sends its task out of the others' way."""
        if obstacle.scope.is_whole_queue:
            self.stopped.add(task.queue)
            now = self.tools.store.clock.now()
            self.done.look_again_at(obstacle.until or now + self.tools.settings.poll_busy_seconds)
        else:
            self._defer(task, self.tools.dispatcher.limits.next_look(obstacle), obstacle.reason)

    def _defer(self, task: Task, until: float, reason: str) -> None:
        if len(self.deferred) < DEFERRED_TASKS:
            self.deferred.append((task, until, reason))
            self.done.look_again_at(until)
        else:
            self._skip(task)

    def _skip(self, task: Task, *, seconds: float = SKIP_SECONDS) -> None:
        """Not looked up again for a moment."""
        now = self.tools.store.clock.now()
        self.tools.in_flight.note(task.task_id, task.due_at, until=now + seconds)

    def _defer_all(self) -> None:
        defer = self.tools.clearing.defer
        self.tools.threads.map(lambda each: defer(each[0], until=each[1], reason=each[2]), self.deferred)

    # ---- sending -----------------------------------------------------------------------------------------------------

    def _send(self, tasks: list[Task], packing: Packing) -> None:
        """Once so many batches are packed that they fill what is sent together."""
        if tasks:
            self.packed.append((tasks, packing))
        if len(self.packed) >= self.tools.dispatcher.at_once:
            self._send_packed()

    def _send_packed(self) -> None:
        packed, self.packed = self.packed, []
        sent = self.tools.dispatcher.send_all([(tasks, packing.executor) for tasks, packing in packed])
        for (_, packing), batch in zip(packed, sent, strict=True):
            self.done.conflicts += batch.conflicts
            if batch.dispatched:
                self.done.claimed += len(batch.claimed)
            if batch.refused or batch.full:
                self.done.executors_full |= batch.full
                packing.close()
