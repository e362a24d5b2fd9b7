"""How the tasks of one pass become batches: strict by priority, with a share of the room kept for lower ones.

Pure: no I/O, no clock. The share is a tenth of what a pass may take, at least one task. Where the room is a single
place, or tasks too long to share a batch, every tenth pass is the lower priorities' first.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field

from thunderagent.model import Task
from thunderagent.schema import EXECUTOR_MARGIN_SECONDS, PRIORITIES
from thunderagent.settings import Executor

SHARE = 10  # one in ten, of places and of passes, is kept for lower priorities
LAST = len(PRIORITIES) - 1


def is_lower_turn(level: int, turn: int) -> bool:
    """Whether in pass number `turn` the priorities below `level` come before it where room is short.

    One pass in ten for each level; those of two levels meet once in a hundred passes, so that the lowest priority gets
    the only place even when both above it always could fill it.
    """
    return level < LAST and (turn + (turn // SHARE) * level) % SHARE == SHARE - 1


@dataclass
class Packing:
    """The batches one executor profile may still be given in this pass (`free`), and what goes into them."""

    executor: Executor
    free: int
    size: int
    turn: int
    kept: int = 0  # places out of reach of the priority being packed
    _basket: list[Task] = field(default_factory=list)
    _level: int = LAST

    def __post_init__(self) -> None:
        self._single = self.free == 1

    @property
    def room(self) -> int:
        """How many more tasks fit at most."""
        return self.free * self.size - len(self._basket)

    def begin_level(self, level: int) -> None:
        """From here on tasks of this priority are added; what is kept for lower ones is out of their reach."""
        self._level = level
        if level == LAST:
            self.kept = 0
        elif self.room >= 2:
            self.kept = max(1, self.room // SHARE)
        else:
            self.kept = 1 if is_lower_turn(level, self.turn) else 0

    def fits(self, task: Task) -> bool:
        """Whether the task may be added now, without taking what is kept for lower priorities."""
        joins = self._joins(task)
        fresh = self.free - (1 if self._basket else 0) - (0 if joins else 1)
        if fresh < 0:
            return False
        if self.kept == 0:
            return True
        if is_lower_turn(self._level, self.turn):
            return fresh >= 1  # a whole batch, because theirs may not fit beside ours
        if self._single and not self._basket:
            return True  # strict: the first task of the only batch is of the highest priority, however long it may run
        left = fresh * self.size + (0 if task.lost else self.size - (len(self._basket) if joins else 0) - 1)
        seconds = (self._seconds if joins else 0) + task.timeout_seconds
        return left >= self.kept and (fresh > 0 or seconds <= self._budget * (1 - 1 / SHARE))

    def add(self, task: Task) -> list[list[Task]]:
        """Add a task that fits. Returns the batches that are complete now."""
        if task.lost:
            self.free -= 1
            return [[task]]  # it may be what kills its worker: no neighbours
        complete = [self._take()] if self._basket and not self._joins(task) else []
        self._basket.append(task)
        if len(self._basket) >= self.size:
            complete.append(self._take())
        return complete

    def rest(self) -> list[Task]:
        """The last batch, incomplete; empty when there is none."""
        return self._take() if self._basket else []

    def close(self) -> None:
        """The executor takes no more in this pass. What was added and not sent stays due."""
        self._basket, self.free = [], 0

    def _joins(self, task: Task) -> bool:
        """Whether it can share the batch that is being filled: by number, by time, and not suspected of killing it."""
        return bool(self._basket) and not task.lost and self._seconds + task.timeout_seconds <= self._budget

    @property
    def _seconds(self) -> float:
        return sum(task.timeout_seconds for task in self._basket)

    @property
    def _budget(self) -> float:
        """Seconds of timeouts a batch may add up to: what its threads can run before the function's own time ends."""
        return (self.executor.timeout_seconds - EXECUTOR_MARGIN_SECONDS) * self.executor.threads

    def _take(self) -> list[Task]:
        batch, self._basket = self._basket, []
        self.free -= 1
        return batch


def packings(
    executors: Iterable[Executor], free: Mapping[str, int], *, size: int, most: int, turn: int
) -> dict[str, Packing]:
    """One packing for each profile that has room; a pass takes about `most` tasks of one profile and no more."""
    batches_at_most = max(1, -(-most // size))
    return {
        executor.name: Packing(executor, min(free.get(executor.name, 0), batches_at_most), size, turn)
        for executor in executors
        if free.get(executor.name, 0) > 0
    }
