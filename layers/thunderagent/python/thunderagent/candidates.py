"""Finding due tasks: index partitions read in turn, entries looked up just before they are used. All of it is hints.

Tasks in flight stand at the head of a partition for up to a minute: they are paged past, remembered, and what is not
known is looked up before a write is spent. The claim's condition decides.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Iterator, Mapping, Sequence
from itertools import chain, zip_longest
from typing import Any

from thunderagent.clearing import FORGET_SECONDS, Clearing
from thunderagent.codec import Item
from thunderagent.errors import MalformedItem
from thunderagent.in_flight import InFlight
from thunderagent.model import IndexKey, Task, is_of_newer_format
from thunderagent.settings import Settings
from thunderagent.states import Status
from thunderagent.store import Store
from thunderagent.threads import Threads

PAGE_KEYS = (100, 500)  # by what may be taken: pollers take from random places, and in a larger page meet more rarely
CHOICE = 10  # so many entries are read for each one that may be taken
LOOKUP_KEYS = 100  # entries looked up together at most, over all partitions
FRESH_SECONDS = 0.2  # a look is good for so long: sending a batch takes time, and others claim meanwhile
STALE_SECONDS = 2.0  # an entry that the row does not confirm: the index lags, or the copy that was read does
KEYS_PER_PARTITION = 5_000  # a pass reads no further into one partition; the next one goes on where due work is left


class Partition:
    """One partition as it is read in this pass."""

    def __init__(self, queue: str, dispatch_key: str) -> None:
        self.queue = queue
        self.dispatch_key = dispatch_key
        self.keys: deque[IndexKey] = deque()
        self.start: Mapping[str, Any] | None = None
        self.page_keys = PAGE_KEYS[0]
        self.read = 0
        self.ended = False


class Candidates:
    """Claimable tasks, as far as a look can tell. `next_due` is when the next entry seen becomes due."""

    def __init__(
        self,
        store: Store,
        settings: Settings,
        in_flight: InFlight,
        clearing: Clearing,
        *,
        batches_at_once: int,
        threads: Threads,
        reap_stray: Callable[[Item], None],
    ) -> None:
        """`batches_at_once` is how many batches are sent together."""
        self._store = store
        self._settings = settings
        self._in_flight = in_flight
        self._clearing = clearing
        self._batches_at_once = batches_at_once
        self._threads = threads
        self._reap_stray = reap_stray
        self.next_due: float | None = None

    def due(self, partitions: Sequence[Partition], *, room: int, skip: Callable[[str], bool]) -> Iterator[Task]:
        """Due tasks of all partitions in turn, one of each while they last, from a random partition on.

        So of any N tasks taken, N partitions with due work give one each: a flooded one cannot hold the others up.
        `room` is how many will be taken at most. `skip` tells, by queue, which partitions to read no further.

        What is sent together is looked up together, just before it is claimed, each from a random place of its page:
        what was looked up a moment ago another poller has taken by then, and two that met would go on side by side.
        Where nothing at all is claimable, more are looked up together.
        """
        turn = self._store.randomness.below(len(partitions)) if partitions else 0
        open_partitions = [*partitions[turn:], *partitions[:turn]]
        for partition in partitions:
            partition.page_keys = max(PAGE_KEYS[0], min(PAGE_KEYS[1], CHOICE * room // len(partitions)))
        self._threads.map(self._fetch, open_partitions)
        size = self._settings.poll_batch_size
        fewest = min(LOOKUP_KEYS, max(size, min(room, size * self._batches_at_once)))
        wanted = fewest
        while open_partitions := [each for each in open_partitions if not skip(each.queue) and self._has_keys(each)]:
            share, more = divmod(max(wanted, len(open_partitions)), len(open_partitions))
            taken = [self._take(each.keys, share + (place < more)) for place, each in enumerate(open_partitions)]
            open_partitions = [*open_partitions[more:], *open_partitions[:more]]
            in_turn = [key for key in chain.from_iterable(zip_longest(*taken)) if key is not None]
            found = 0
            for task in self._look_up(in_turn):
                found += 1
                yield task
            wanted = fewest if found else min(LOOKUP_KEYS, 2 * wanted)

    def _take(self, keys: deque[IndexKey], number: int) -> list[IndexKey]:
        keys.rotate(-self._store.randomness.below(len(keys)))
        return [keys.popleft() for _ in range(min(number, len(keys)))]

    # ---- reading -----------------------------------------------------------------------------------------------------

    def _has_keys(self, partition: Partition) -> bool:
        while not partition.keys and not partition.ended:
            self._fetch(partition)
        return bool(partition.keys)

    def _fetch(self, partition: Partition) -> None:
        """One page: its due entries that are not known."""
        page = self._store.query(partition.dispatch_key, limit=partition.page_keys, start=partition.start)
        now = self._store.clock.now()
        due = [key for key in page.keys if key.due_at <= now and not self._in_flight.has(key.task_id, key.due_at)]
        partition.keys.extend(due)
        later = [key.due_at for key in page.keys if key.due_at > now]
        if later:
            self.next_due = min(later[0], self.next_due or later[0])
        partition.start, partition.read = page.next_key, partition.read + len(page.keys)
        partition.ended = bool(later) or page.next_key is None or partition.read >= KEYS_PER_PARTITION

    def _look_up(self, keys: Sequence[IndexKey]) -> Iterator[Task]:
        clock = self._store.clock
        looked_at: float | None = None
        for position, key in enumerate(keys):
            if looked_at is None or clock.monotonic() - looked_at > FRESH_SECONDS:
                items = self._store.get_items([each.task_id for each in keys[position:]])
                looked_at = clock.monotonic()
            task = self._examine(key, items.get(key.task_id))
            if task is not None:
                yield task

    # ---- judging -----------------------------------------------------------------------------------------------------

    def _examine(self, key: IndexKey, item: Item | None) -> Task | None:
        """The task when it looks claimable; otherwise deal with what stands in its way, once."""
        if item is None or item.get("dueAt") != key.due_at or item.get("dispatchKey") != key.dispatch_key:
            self._rest(key.task_id, key.due_at, seconds=STALE_SECONDS)
            return None
        if is_of_newer_format(item):
            self._rest(key.task_id, key.due_at)
            return None
        if item.get("status") == Status.RUNNING:
            self._meet_running(item, key.due_at)
            return None
        try:
            task = Task.from_item(item)
        except MalformedItem as problem:
            self._clearing.park(item, problem.problem)
            return None
        if task.is_terminal:
            self._clearing.relist(task)
        elif self._is_claimable(task):
            return task
        return None

    def _is_claimable(self, task: Task) -> bool:
        if task.deadline is not None and task.deadline <= self._store.clock.now():
            self._clearing.expire(task)
        elif task.payload is None and task.payload_ref is None:
            self._clearing.park(task.item, "payload is missing")
        elif task.retry_count > task.max_retry_number:
            self._clearing.park(task.item, "more retries spent than allowed")
        elif task.blocked_count or not self._is_of_this_region(task):
            self._rest(task.task_id, task.due_at)
        else:
            return True
        return False

    def _is_of_this_region(self, task: Task) -> bool:
        region = self._store.layout.region
        return bool(task.item.get("homeRegion", region) == region)

    def _meet_running(self, item: Item, due_at: float) -> None:
        """In flight until its lock ends, damaged or not: its holder may be at work."""
        lock_time = item.get("lockTime")
        if (
            not isinstance(lock_time, int | float)
            or lock_time + self._settings.lease_grace_seconds < self._store.clock.now()
        ):
            self._reap_stray(item)
            self._rest(item["taskId"], due_at)
        else:
            self._in_flight.note(item["taskId"], due_at, until=lock_time)

    def _rest(self, task_id: str, due_at: float, *, seconds: float = FORGET_SECONDS) -> None:
        self._in_flight.note(task_id, due_at, until=self._store.clock.now() + seconds)
