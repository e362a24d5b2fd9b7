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
        self.offset = offset
        self.random = random.Random(kernel.random.getrandbits(64))
        self.is_dead = False
        self.frozen_until = -math.inf
        self.postponed: list[tuple[Actor, int]] = []  # what would have run, had it not been frozen
        self.cut_until = -math.inf
        self.touched_at = -math.inf
        self.actors: set[Actor] = set()
        self.tokens = 0

    def touch(self) -> None:
        """A fault reached it: until a lease later, it may be late with anything."""
        self.touched_at = max(self.touched_at, self.kernel.now)


class Actor:
    """One line of execution."""

    def __init__(self, kernel: Kernel, process: Process, name: str, function: Callable[[], Any]) -> None:
        self.process = process
        self.name = name
        self.number = kernel.number()
        self.ticket = 0
        self.is_done = False
        self.interrupt: type[BaseException] | None = None
        self.when_done: list[Callable[[], None]] = []
        self._kernel = kernel
        self._function = function
        self.greenlet = greenlet(self._run, parent=kernel.main)  # where it returns to at its end

    def _run(self) -> None:
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
            self.process.actors.discard(self)
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
        self._numbers = 0
        self._actors: dict[int, Actor] = {}
        self.main = getcurrent()

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

    def number(self) -> int:
        self._numbers += 1
        return self._numbers

    def spawn(self, process: Process, name: str, function: Callable[[], Any], *, after: float = 0) -> Actor:
        actor = Actor(self, process, name, function)
        self._actors[actor.number] = actor
        actor.when_done.append(lambda: self._forget(actor))
        process.actors.add(actor)
        self._push(self.now + after, actor, actor.ticket)
        return actor

    def _forget(self, actor: Actor) -> None:
        self._actors.pop(actor.number, None)

    def at(self, instant: float, action: Callable[[], Any]) -> None:
        """Something that happens by itself: it may not pause."""
        self._push(instant, action, 0)

    def after(self, seconds: float, action: Callable[[], Any]) -> None:
        self.at(self.now + seconds, action)

    @property
    def current(self) -> Actor:
        actor: Actor = getcurrent().actor
        return actor

    def actor_of(self, number: int) -> Actor | None:
        return self._actors.get(number)

    def _push(self, instant: float, what: Any, ticket: int) -> None:
        heapq.heappush(self._heap, (instant, self.random.random(), self.number(), what, ticket))

    # ---- giving the floor up -----------------------------------------------------------------------------------------

    def pause(self, seconds: float) -> None:
        """Let time pass. Raises Died when the process ended meanwhile, and what `interrupt` asked for."""
        actor = self.current
        if actor.process.is_dead:
            raise Died
        self._push(self.now + max(0.0, seconds), actor, actor.ticket)
        self.main.switch()
        if actor.process.is_dead:
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
            while actor.greenlet and not actor.is_done:  # false before it has started
                actor.greenlet.actor = actor
                actor.greenlet.throw(Died)
        self._heap.clear()

    # ---- running -----------------------------------------------------------------------------------------------------

    def run_until(self, instant: float, *, each_step: Callable[[], None] | None = None) -> None:
        """Everything up to that instant. Raises Violation."""
        heap = self._heap
        while heap and heap[0][0] <= instant:
            due, _, _, what, ticket = heapq.heappop(heap)
            if isinstance(what, Actor):
                if what.is_done or what.ticket != ticket:
                    continue
                process = what.process
                if process.frozen_until > due and not process.is_dead:
                    process.postponed.append((what, ticket))
                    self._push(process.frozen_until, what, ticket)
                    continue
                self.now = max(self.now, due)
                what.ticket += 1
                what.greenlet.actor = what
                what.greenlet.switch()
            else:
                self.now = max(self.now, due)
                what()
            self.steps += 1
            if each_step is not None:
                each_step()
            if self.broken is not None:
                raise self.broken
        self.now = max(self.now, instant)
