"""Lists of tasks by status: many index partitions merged into one order, a bounded number of keys per page.

The order is `dueAt` (for terminal tasks the end, newest first), then the partition's name, then DynamoDB's own order in
it. A token names the last key looked at in just these terms, so that any number of keys with one `dueAt` can be cut at
any place, and neither a key that is gone nor a new queue moves the place where the next page goes on.
"""

from __future__ import annotations

import base64
import hashlib
import heapq
import json
import math
from collections import deque
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from itertools import islice
from typing import Any, Final

from thunderagent.codec import to_item
from thunderagent.errors import InvalidInput
from thunderagent.model import IndexKey, Lease, Task
from thunderagent.queues import Queues
from thunderagent.registry import Registry
from thunderagent.schema import (
    INDEX_HASH,
    INDEX_RANGE,
    LEASE_SHARDS,
    PRIORITIES,
    TABLE_KEY,
    blocked_key,
    lease_key,
    listed_key,
    open_key,
)
from thunderagent.settings import Settings
from thunderagent.states import TERMINAL, Status
from thunderagent.store import Bound, Store, readable
from thunderagent.threads import Threads

LOOKUP_KEYS: Final = 100
KEYS_READ: Final = 500  # of one page, at least; a filter that fits nothing still ends there
LEASES_READ: Final = 1_000
CHECKSUM_BYTES: Final = 9


@dataclass(frozen=True)
class Selection:
    """Which tasks to list. `since` is epoch seconds: the end of terminal tasks, the submission of open ones."""

    status: Status
    queue: str | None = None
    type: str | None = None
    error_type: str | None = None
    since: float | None = None

    def takes(self, task: Task) -> bool:
        """Whether a task of this status and queue is wanted."""
        began = task.finished_at if task.is_terminal else task.created_at
        return (
            (self.type is None or task.type == self.type)
            and (self.error_type is None or (task.item.get("error") or {}).get("type") == self.error_type)
            and (self.since is None or (began is not None and began >= self.since))
        )

    def ends_before(self, key: IndexKey) -> bool:
        """Newest first, nothing that was wanted comes after an end before `since`."""
        return self.newest_first and self.since is not None and key.due_at < self.since

    @property
    def is_filtered(self) -> bool:
        return self.type is not None or self.error_type is not None or self.since is not None

    @property
    def newest_first(self) -> bool:
        return self.status in TERMINAL


@dataclass(frozen=True)
class Position:
    """The last key a page looked at."""

    due_at: float
    partition: str
    task_id: str

    @staticmethod
    def of(key: IndexKey) -> Position:
        return Position(key.due_at, key.dispatch_key, key.task_id)


@dataclass(frozen=True)
class TaskPage:
    """Tasks in order, and where to go on. A short or empty page with a `position` is not the end."""

    tasks: tuple[Task, ...]
    position: Position | None


class Listing:
    """Lists tasks. Reads are eventually consistent: a state change takes a moment to show."""

    def __init__(
        self, store: Store, queues: Queues, registry: Registry, settings: Settings, *, threads: Threads
    ) -> None:
        self._store = store
        self._queues = queues
        self._registry = registry
        self._settings = settings
        self._threads = threads

    def page(self, selection: Selection, *, limit: int, after: Position | None = None) -> TaskPage:
        """Up to `limit` tasks after a position. Raises InvalidInput (`listing_disabled`) when no such list is kept."""
        if selection.status in TERMINAL and selection.status is not Status.FAILED and not self._settings.list_completed:
            raise InvalidInput(
                f"status: this deployment does not list {selection.status} tasks (list_completed is off)",
                path="status",
                code="listing_disabled",
            )
        keys = self._running(after) if selection.status is Status.RUNNING else self._merged(selection, after)
        return self._filled(keys, selection, limit)

    def _filled(self, keys: Iterator[IndexKey], selection: Selection, limit: int) -> TaskPage:
        found: list[Task] = []
        looked_at = 0
        position: Position | None = None
        budget = max(KEYS_READ, 2 * limit)
        # With a filter most of what is looked up may be for nothing: ask for many at once.
        at_once = LOOKUP_KEYS if selection.is_filtered else limit
        while looked_at < budget:
            chunk = list(islice(keys, min(LOOKUP_KEYS, budget - looked_at, max(1, at_once - len(found)))))
            if not chunk:
                return TaskPage(tuple(found), None)
            for key, task in self._looked_up(chunk, selection):
                if selection.ends_before(key):
                    return TaskPage(tuple(found), None)
                looked_at += 1
                position = Position.of(key)
                if task is not None:
                    found.append(task)
                if len(found) == limit:
                    rest = key is not chunk[-1] or next(keys, None) is not None
                    return TaskPage(tuple(found), position if rest else None)
        return TaskPage(tuple(found), position)

    def _looked_up(self, keys: Sequence[IndexKey], selection: Selection) -> Iterator[tuple[IndexKey, Task | None]]:
        """Each key with its task when it is wanted, and still stands where the key says."""
        tasks, _ = readable(self._store.get_items(key.task_id for key in keys))
        now = self._store.clock.now()
        by_id = {str(task_id): task for task_id, task in tasks.items()}
        for key in keys:
            task = by_id.get(key.task_id)
            wanted = (
                task is not None
                and task.status is selection.status
                and (task.status is Status.RUNNING or _stands_at(task, key))
                and (selection.queue is None or task.queue == selection.queue)
                and task.is_shown(now)
                and selection.takes(task)
            )
            yield key, task if wanted else None

    # ---- running: through the leases ---------------------------------------------------------------------------------

    def _running(self, after: Position | None) -> Iterator[IndexKey]:
        """By `dueAt` and id."""
        keys = sorted((task.due_at, str(task.task_id)) for task in self.running_tasks())
        start = (after.due_at, after.task_id) if after is not None else (-math.inf, "")
        return (IndexKey(task_id, "", due_at) for due_at, task_id in keys if (due_at, task_id) > start)

    def running_tasks(self) -> list[Task]:
        """Every running task an open lease names. There are as many leases as batches in flight."""
        profiles = sorted({*self._settings.executors, *self._registry.profiles})
        partitions = [lease_key(profile, shard) for profile in profiles for shard in range(LEASE_SHARDS)]
        pages = self._threads.map(lambda partition: self._store.query(partition, limit=LEASES_READ), partitions)
        ids = [key.task_id for page in pages for key in page.keys]
        task_ids = sorted({task_id for lease in self._leases(ids) for task_id in lease.task_ids})
        tasks, _ = readable(self._store.get_items(task_ids))
        return [task for task in tasks.values() if task.status is Status.RUNNING]

    def _leases(self, ids: Iterable[str]) -> Iterator[Lease]:
        for item in self._store.get_items(ids).values():
            yield Lease.salvaged(item)

    # ---- the others: partitions merged -------------------------------------------------------------------------------

    def _partitions(self, selection: Selection) -> list[str]:
        settings = self._queues.all()
        names = sorted(settings) if selection.queue is None else [selection.queue]
        found: list[str] = []
        for name in names:
            shards = settings[name].shards.read if name in settings else self._settings.dispatch_shards
            for shard in range(shards):
                if selection.status is Status.PENDING:
                    found += [open_key(name, priority, shard) for priority in PRIORITIES]
                    found.append(blocked_key(name, shard))
                else:
                    found.append(listed_key(selection.status, name, shard))
        return sorted(found)

    def _merged(self, selection: Selection, after: Position | None) -> Iterator[IndexKey]:
        partitions = self._partitions(selection)
        # DynamoDB reads up to 4 KiB for the price of one key: some 25 keys. With a filter many are read anyway.
        page = LOOKUP_KEYS if selection.is_filtered else max(25, LOOKUP_KEYS // len(partitions))
        readers = [_Reader(self._store, name, page, selection.newest_first, after) for name in partitions]
        self._threads.map(lambda reader: reader.fill(), readers)
        sign = -1 if selection.newest_first else 1
        heads = [
            (sign * key.due_at, reader.name, index) for index, reader in enumerate(readers) if (key := reader.head)
        ]
        heapq.heapify(heads)
        while heads:
            _, name, index = heads[0]
            reader = readers[index]
            yield reader.take()
            if (key := reader.head) is not None:
                heapq.heapreplace(heads, (sign * key.due_at, name, index))
            else:
                heapq.heappop(heads)


def _stands_at(task: Task, key: IndexKey) -> bool:
    return task.dispatch_key == key.dispatch_key and task.due_at == key.due_at


@dataclass
class _Reader:
    """One partition, read page by page from a position on."""

    store: Store
    name: str
    page: int
    newest_first: bool
    after: Position | None
    _buffer: deque[IndexKey] = field(default_factory=deque)
    _start: Mapping[str, Any] | None = None
    _is_begun: bool = False

    def fill(self) -> None:
        """Read on until there is a key or the partition ends: an empty page is not the end."""
        while not self._buffer and not (self._is_begun and self._start is None):
            start = self._start if self._is_begun else self._first_start()
            bound = None if start is not None else self._bound()
            page = self.store.query(
                self.name, limit=self.page, bound=bound, start=start, ascending=not self.newest_first
            )
            self._buffer.extend(page.keys)
            self._start, self._is_begun = page.next_key, True

    @property
    def head(self) -> IndexKey | None:
        self.fill()
        return self._buffer[0] if self._buffer else None

    def take(self) -> IndexKey:
        return self._buffer.popleft()

    def _first_start(self) -> Mapping[str, Any] | None:
        """In the partition of the last key, go on behind that very key."""
        if self.after is None or self.after.partition != self.name:
            return None
        key = {TABLE_KEY: self.after.task_id, INDEX_HASH: self.name, INDEX_RANGE: self.after.due_at}
        return to_item(key)

    def _bound(self) -> Bound | None:
        """Partitions before it in name have given all keys of that `dueAt`; those after it, none."""
        if self.after is None:
            return None
        if self.name < self.after.partition:
            return ("<" if self.newest_first else ">", self.after.due_at)
        return ("<=" if self.newest_first else ">=", self.after.due_at)


# ---- tokens ---------------------------------------------------------------------------------------------------------


def token_of(selection: Selection, position: Position) -> str:
    """A position as a text for one's caller, good for this selection only.

    Its checksum is no secret: it tells of alteration, not of forgery. Nor need it: whatever a token says, the next page
    is read from the partitions of the request's own selection.
    """
    fields = [*_identity(selection), position.due_at, position.partition, position.task_id]
    text = json.dumps(fields, separators=(",", ":")).encode()
    return base64.urlsafe_b64encode(_checksum(text) + text).decode().rstrip("=")


def position_of(token: str, selection: Selection) -> Position:
    """The position of a token. Raises InvalidInput for one that `token_of` did not make of this selection."""
    identity: list[Any] = []
    due_at: Any = None
    partition: Any = None
    task_id: Any = None
    with suppress(ValueError, TypeError, RecursionError):
        *identity, due_at, partition, task_id = json.loads(_checked_text(token))
    if identity != _identity(selection) or not _is_position(due_at, partition, task_id):
        raise InvalidInput("nextToken: it belongs to another list, or to none", path="nextToken")
    position = Position(due_at, partition, task_id)
    if token_of(selection, position) != token:
        raise InvalidInput("nextToken: it was altered", path="nextToken")
    return position


def _checked_text(token: str) -> bytes:
    """Raises ValueError (binascii.Error is one)."""
    raw = base64.b64decode(token + "=" * (-len(token) % 4), altchars=b"-_", validate=True)
    checksum, text = raw[:CHECKSUM_BYTES], raw[CHECKSUM_BYTES:]
    if checksum != _checksum(text):
        raise ValueError("altered")
    return text


def _checksum(text: bytes) -> bytes:
    return hashlib.sha256(text).digest()[:CHECKSUM_BYTES]


def _identity(selection: Selection) -> list[Any]:
    return [selection.status.value, selection.queue, selection.type, selection.error_type, selection.since]


def _is_position(due_at: Any, partition: Any, task_id: Any) -> bool:
    return (
        isinstance(due_at, int | float)
        and not isinstance(due_at, bool)
        and abs(due_at) < 1e12
        and isinstance(partition, str)
        and isinstance(task_id, str)
        and 0 < len(task_id) <= 128
    )
