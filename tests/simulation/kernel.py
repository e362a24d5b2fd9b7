"""Simulated time and cooperative actors: one runs at a time, and one seed decides everything.

Every actor is a greenlet of one process (a container, a client). It gives the floor up only in `pause`, `wait` and
whatever is built on them; each request to the table pauses. What happens next is the earliest entry of one heap; ties
are broken by the seed. So a run is a function of its seed, and `digest` proves that two runs were the same.
"""

from __future__ import annotations

import hashlib
import heapq
import math
import random
from collections import Counter
from collections.abc import Callable
from itertools import count
from typing import Any

from greenlet import getcurrent, greenlet  # type: ignore[import-untyped]

START = 1_800_000_000.0


class Died(BaseException):
    """Raised inside an actor whose process has ended: whatever it still does has no effect."""


class Violation(Exception):
    """The run broke a rule."""


class Process:
    """What crashes, freezes and has a clock as one. Its randomness is its own, so that a dead one's last words (code
    that is unwound) draw nothing from the others' chance."""

    def __init__(self, kernel: Kernel, name: str, *, offset: float = 0) -> None:
        self.kernel = kernel
        self.name = name
        self.offset = self.offset_before = offset
        self.random = random.Random(kernel.random.getrandbits(64))
        self.is_dead = False
        self.frozen_until = -math.inf
        self.postponed: list[tuple[Actor, int]] = []  # what would have run, had it not been frozen
        self.cut_until = -math.inf
        self.touched_at = -math.inf
        self.actors: set[Actor] = set()
        self.tokens = 0

    def set_clock(self, offset: float) -> None:
        """What is under way was decided by the clock before."""
        self.offset, self.offset_before = offset, self.offset

    def touch(self) -> None:
        """A fault reached it: until a lease later, it may be late with anything."""
        self.touched_at = max(self.touched_at, self.kernel.now)


class Actor:
    """One line of execution."""

    __slots__ = (
        "_function",
        "_kernel",
        "interrupt",
        "is_done",
        "line",
        "name",
        "number",
        "process",
        "ticket",
        "when_done",
    )

    def __init__(self, kernel: Kernel, process: Process, name: str, function: Callable[[], Any]) -> None:
        self.process = process
        self.name = name
        self.number = kernel.number()
        self.ticket = 0
        self.is_done = False
        self.interrupt: type[BaseException] | None = None
        self.when_done: list[Callable[[], None]] = []
        self.line: greenlet | None = None  # from its first step to its end
        self._kernel = kernel
        self._function = function

    def run(self) -> None:
        """From its first step to its end, on a greenlet of the kernel's."""
        try:
            if not self.process.is_dead:
                self._function()
        except Died:
            pass
        except Violation as broken:
            self._kernel.broken = broken
        except BaseException as error:  # noqa: BLE001  a defect of the library, or of this simulator
            self._kernel.defect(self, error)
        finally:
            self.is_done = True
            self.line = None
            self.process.actors.discard(self)
            self._kernel.forget(self)
            for tell in self.when_done:
                tell()


class Kernel:
    """The clock, the heap, the history."""

    def __init__(self, seed: int, *, keep: bool = True) -> None:
        self.random = random.Random(seed)
        self.now = START
        self.steps = 0
        self.history: list[str] = []
        self.faults: Counter[str] = Counter()  # what went wrong, by kind
        self.broken: Violation | None = None
        self._keep = keep
        self._digest = hashlib.sha256(f"seed {seed}".encode())
        self._heap: list[tuple[float, float, int, Any, int]] = []
        self._until = -math.inf  # nothing later happens now
        self._actors: dict[int, Actor] = {}
        self._idle_lines: list[greenlet] = []
        self._look: tuple[int, Callable[[], None]] = (0, lambda: None)  # every so many steps
        self._next_look: float = math.inf
        self.number: Callable[[], int] = count(1).__next__
        self.main = getcurrent()
        self.current: Actor  # who has the floor

    # ---- history -----------------------------------------------------------------------------------------------------

    def note(self, text: str) -> None:
        """One line of the history."""
        line = f"{self.now - START:10.3f} {text}"
        self._digest.update(line.encode())
        if self._keep:
            self.history.append(line)

    def digest(self) -> str:
        return self._digest.hexdigest()[:32]

    def violate(self, problem: str) -> None:
        """The rules are broken: the run ends at the next look."""
        self.note(f"VIOLATION {problem}")
        if self.broken is None:
            self.broken = Violation(problem)

    def defect(self, actor: Actor, error: BaseException) -> None:
        import traceback

        where = "".join(traceback.format_exception(error)[-3:])
        self.violate(f"{actor.name} ended with {type(error).__name__}: {error}\n{where}")

    # ---- actors ------------------------------------------------------------------------------------------------------

    def spawn(self, process: Process, name: str, function: Callable[[], Any], *, after: float = 0) -> Actor:
        actor = Actor(self, process, name, function)
        self._actors[actor.number] = actor
        process.actors.add(actor)
        self._push(self.now + after, actor, actor.ticket)
        return actor

    def forget(self, actor: Actor) -> None:
        self._actors.pop(actor.number, None)

    def look_every(self, steps: int, look: Callable[[], None]) -> None:
        """Between two steps, now and then: `look` may not pause."""
        self._look, self._next_look = (steps, look), self.steps + steps

    def at(self, instant: float, action: Callable[[], Any]) -> None:
        """Something that happens by itself: it may not pause."""
        self._push(instant, action, 0)

    def after(self, seconds: float, action: Callable[[], Any]) -> None:
        self.at(self.now + seconds, action)

    def actor_of(self, number: int) -> Actor | None:
        return self._actors.get(number)

    def _push(self, instant: float, what: Any, ticket: int) -> None:
        heapq.heappush(self._heap, (instant, self.random.random(), self.number(), what, ticket))

    # ---- giving the floor up -----------------------------------------------------------------------------------------

    def pause(self, seconds: float) -> None:
        """Let time pass. Raises Died when the process ended meanwhile, and what `interrupt` asked for."""
        actor = self.current
        process = actor.process
        if process.is_dead:
            raise Died
        instant = self.now + seconds if seconds > 0 else self.now
        entry = (instant, self.random.random(), self.number(), actor, actor.ticket)
        heap = self._heap
        if (
            (not heap or entry < heap[0])  # the heap would give the floor back, and nothing is to be done before:
            and instant <= self._until  # then nobody else need be asked
            and process.frozen_until <= instant
            and self.steps + 1 < self._next_look
            and self.broken is None
        ):
            self.now = instant
            actor.ticket += 1
            self.steps += 1
        else:
            heapq.heappush(heap, entry)
            self.main.switch()
            if process.is_dead:
                raise Died
        if actor.interrupt is not None:
            error, actor.interrupt = actor.interrupt, None
            raise error

    def wait(self, seconds: float = math.inf) -> None:
        """Like `pause`, but `wake` ends it earlier."""
        actor = self.current
        if actor.process.is_dead:
            raise Died
        if seconds < math.inf:
            self._push(self.now + max(0.0, seconds), actor, actor.ticket)
        self.main.switch()
        if actor.process.is_dead:
            raise Died

    def wake(self, actor: Actor) -> None:
        actor.ticket += 1
        self._push(self.now, actor, actor.ticket)

    # ---- ends --------------------------------------------------------------------------------------------------------

    def kill(self, process: Process, why: str) -> None:
        """The process ends here. Its actors are unwound, without effect."""
        if process.is_dead:
            return
        process.is_dead = True
        process.touch()
        self.note(f"{process.name} DIES: {why}")
        for actor in sorted(process.actors, key=lambda each: each.number):
            self.wake(actor)

    def freeze(self, process: Process, seconds: float) -> None:
        """Nothing of the process runs for a while; the world goes on, and so does its clock."""
        process.frozen_until = max(process.frozen_until, self.now + seconds)
        process.touched_at = max(process.touched_at, process.frozen_until)
        self.note(f"{process.name} FREEZES for {seconds:.1f} s")

    def thaw(self, process: Process) -> None:
        """A frozen process runs on now."""
        if process.frozen_until <= self.now or process.is_dead:
            return
        process.frozen_until = self.now
        process.touched_at = self.now
        self.note(f"{process.name} THAWS")
        for actor, ticket in process.postponed:
            self._push(self.now, actor, ticket)
        process.postponed.clear()

    def close(self) -> None:
        """Unwind whatever is still suspended: what is left so can never be collected."""
        for actor in list(self._actors.values()):
            actor.process.is_dead = True
            while actor.line is not None:  # it has started, and has not ended
                self.current = actor
                actor.line.throw(Died)
        for line in self._idle_lines:
            line.throw()
        self._idle_lines.clear()
        self._heap.clear()

    # ---- running -----------------------------------------------------------------------------------------------------

    def run_until(self, instant: float) -> None:
        """Everything up to that instant. Raises Violation."""
        heap, self._until = self._heap, instant
        while heap and heap[0][0] <= instant:
            due, _, _, what, ticket = heapq.heappop(heap)
            if type(what) is Actor:
                if what.is_done or what.ticket != ticket:
                    continue
                process = what.process
                if process.frozen_until > due and not process.is_dead:
                    process.postponed.append((what, ticket))
                    self._push(process.frozen_until, what, ticket)
                    continue
                if due > self.now:
                    self.now = due
                what.ticket += 1
                self._give_floor(what)
            else:
                if due > self.now:
                    self.now = due
                what()
            self.steps += 1
            if self.steps >= self._next_look:
                self._next_look = self.steps + self._look[0]
                self._look[1]()
            if self.broken is not None:
                raise self.broken
        self.now = max(self.now, instant)

    def _give_floor(self, actor: Actor) -> None:
        self.current = actor
        if actor.line is None:
            actor.line = self._idle_lines.pop() if self._idle_lines else greenlet(self._run_actors, parent=self.main)
            actor.line.gr_context = None
            actor.line.switch(actor)
        else:
            actor.line.switch()

    def _run_actors(self, actor: Actor) -> None:
        """What every greenlet does: one actor after the other. To make a greenlet costs more than most actors do."""
        line = getcurrent()
        while True:
            actor.run()
            self._idle_lines.append(line)
            actor = self.main.switch()
