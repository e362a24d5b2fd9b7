"""Queues and their settings: declared by the registry, changed by operators through `control#queue#…` items."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from typing import Any

from thunderagent import limit_writes
from thunderagent.clock import Clock
from thunderagent.codec import Item
from thunderagent.errors import InvalidInput, StoreThrottled
from thunderagent.schema import QUEUE_CONTROL_KEY, SHARDS_CONTROL_ID, SHARDS_MAX, queue_control_id, shard_of
from thunderagent.store import Store, Written

CACHE_SECONDS = 5
SETTLE_SECONDS = 60  # from when everybody reads more shards until somebody writes to them; far above the cache
PUT_ROUNDS = 5
SETTINGS = ("paused", "maxConcurrency", "ratePerSecond", "burst", "maxBacklog", "perKey", "shards")


@dataclass(frozen=True)
class Shards:
    """`read` covers every shard ever in use, `write` is among how many new tasks are spread."""

    read: int
    write: int


@dataclass(frozen=True)
class KeyLimits:
    """Limits that hold for each value of one tag by itself."""

    tag: str
    max_concurrency: int | None = None
    rate_per_second: float | None = None
    burst: int | None = None


@dataclass(frozen=True)
class QueueSettings:
    """What operators decided about one queue. None means no limit, or the default."""

    name: str
    paused: bool = False
    max_concurrency: int | None = None
    rate_per_second: float | None = None
    burst: int | None = None
    max_backlog: int | None = None
    per_key: Mapping[str, Any] | None = None
    shards: Shards = Shards(4, 4)
    declared: bool = field(default=True, compare=False)

    @staticmethod
    def from_item(
        name: str, item: Item, *, default: Shards = Shards(4, 4), now: float = 0, declared: bool = True
    ) -> QueueSettings:
        """Settings as stored; an attribute of a wrong type counts as not set."""
        return QueueSettings(
            name=name,
            paused=item.get("paused") is True,
            max_concurrency=_whole(item.get("maxConcurrency")),
            rate_per_second=_number(item.get("ratePerSecond")),
            burst=_whole(item.get("burst")),
            max_backlog=_whole(item.get("maxBacklog")),
            per_key=item["perKey"] if isinstance(item.get("perKey"), dict) else None,
            shards=_queue_shards(item, default, now),
            declared=declared,
        )

    @property
    def key_limits(self) -> KeyLimits | None:
        """`per_key` as read; None when it is not set or names no tag."""
        stored = self.per_key or {}
        tag = stored.get("tag")
        if not isinstance(tag, str) or not tag:
            return None
        return KeyLimits(
            tag=tag,
            max_concurrency=_whole(stored.get("maxConcurrency")),
            rate_per_second=_number(stored.get("ratePerSecond")),
            burst=_whole(stored.get("burst")),
        )

    def key_of(self, tags: object) -> str | None:
        """The value of the tag this queue distinguishes its tasks by, or None."""
        limits = self.key_limits
        value = tags.get(limits.tag) if limits and isinstance(tags, Mapping) else None
        return value if isinstance(value, str) else None

    def shard_for(self, task_id: str, tags: object) -> int:
        """Where a new task goes: with its key's other tasks where the queue has keys, so that one key that floods the
        queue stands in its own shard's way only; else by its id."""
        key = self.key_of(tags)
        return shard_of(task_id if key is None else f"key:{key}", self.shards.write)


class Queues:
    """The declared queues with their settings, read at most every five seconds."""

    def __init__(
        self,
        store: Store,
        declared: Iterable[str],
        *,
        clock: Clock,
        deployed: Mapping[str, Mapping[str, Any]] | None = None,
    ) -> None:
        """`deployed` are the limits the registry gives a queue: they hold where operators have set nothing."""
        self._store = store
        self._declared = tuple(sorted({"default", *declared}))
        self._deployed = deployed or {}
        self._clock = clock
        self._read_at: float | None = None
        self._settings: dict[str, QueueSettings] = {}

    def all(self, *, fresh: bool = False) -> dict[str, QueueSettings]:
        """Every queue by name. `fresh` reads now, whatever is remembered."""
        now = self._clock.monotonic()
        if fresh or self._read_at is None or now - self._read_at >= CACHE_SECONDS:
            self._settings = self._read()
            self._read_at = now
        return self._settings

    def get(self, name: str) -> QueueSettings | None:
        """One queue, or None when it is not declared (a queue declared moments ago is looked for in the table)."""
        return self.all().get(name) or self.all(fresh=True).get(name)

    def put(self, name: str, changes: Mapping[str, Any], *, operator: Mapping[str, Any] | None = None) -> QueueSettings:
        """Merge changes (names as in the HTTP contract, and `shards`) into a queue's settings; None resets one to what
        is deployed.

        A queue that is not declared is declared by it. Raises InvalidInput for a name that is no setting or a shard
        count out of range; StoreThrottled when others change the same queue all the time.
        """
        _check(changes)
        for _ in range(PUT_ROUNDS):
            item_id = queue_control_id(name)
            items = self._store.get_items([item_id, SHARDS_CONTROL_ID], consistent=True)
            seen, now = items.get(item_id), self._clock.now()
            current = self._settings_of(name, seen or {}, items, now)
            settings = {
                **(seen or {"createdAt": now}),
                **changes,
                **(_shard_plan(changes["shards"], current.shards, now) if changes.get("shards") is not None else {}),
                "operator": dict(operator) if operator else None,
                "updatedAt": now,
                "revision": self._store.randomness.token(),
                "dispatchKey": QUEUE_CONTROL_KEY,
                "dueAt": (seen or {}).get("dueAt", now),
            }
            write = limit_writes.put_settings(item_id, seen=seen, settings=settings)
            if isinstance(self._store.apply(write), Written):
                self._read_at = None
                return self._settings_of(name, settings, items, now)
        raise StoreThrottled("PutItem", "SettingsContention", "the queue is being changed by others; try again")

    def record_shards(self) -> None:
        """Note a raised default shard count, so that writers know from when on everybody reads it, and that readers
        never forget it. Called by pollers; one conditional write per raise."""
        seen = self._store.get_item(SHARDS_CONTROL_ID, consistent=True)
        most, own = _whole((seen or {}).get("shards")) or 0, self._store.layout.shards
        if own <= most:
            return
        now = self._clock.now()
        plan = {
            **_shard_plan(own, Shards(read=max(own, most), write=most or own), now),
            "revision": self._store.randomness.token(),
        }
        self._store.apply(limit_writes.put_settings(SHARDS_CONTROL_ID, seen=seen, settings=plan))
        self._read_at = None

    def _read(self) -> dict[str, QueueSettings]:
        ids = {queue_control_id(name): name for name in self._declared}
        for key in self._store.walk(QUEUE_CONTROL_KEY):
            ids[key.task_id] = key.task_id.removeprefix(queue_control_id(""))
        items = self._store.get_items([*ids, SHARDS_CONTROL_ID])
        now = self._clock.now()
        return {name: self._settings_of(name, items.get(item_id, {}), items, now) for item_id, name in ids.items()}

    def _settings_of(self, name: str, item: Item, items: Mapping[str, Item], now: float) -> QueueSettings:
        decided = {setting: value for setting, value in item.items() if value is not None}
        return QueueSettings.from_item(
            name,
            {**self._deployed.get(name, {}), **decided},
            default=self._default(items),
            now=now,
            declared=name in self._declared,
        )

    def _default(self, items: Mapping[str, Item]) -> Shards:
        """Of queues that have no count of their own: what is deployed, held to what is recorded."""
        own = self._store.layout.shards
        recorded = _recorded(items.get(SHARDS_CONTROL_ID, {}), self._clock.now())
        if recorded is None:
            return Shards(own, own)
        return Shards(read=max(own, recorded.read), write=min(own, recorded.write))


# ---- shard counts: what is read is raised first, what is written a minute later, what is read never lowered ----------


def _recorded(item: Item, now: float) -> Shards | None:
    asked = _shard_count(item.get("shards"))
    if asked is None:
        return None
    before = _shard_count(item.get("shardsBefore")) or asked
    since = _number(item.get("shardsSince")) or 0
    settling = asked > before and now < since + SETTLE_SECONDS
    return Shards(read=max(asked, _shard_count(item.get("shardsMost")) or 0), write=before if settling else asked)


def _queue_shards(item: Item, default: Shards, now: float) -> Shards:
    most = _shard_count(item.get("shardsMost")) or 0
    recorded = _recorded(item, now)
    return Shards(
        read=max(default.read, most, recorded.read if recorded else 0),
        write=recorded.write if recorded else default.write,
    )


def _shard_plan(asked: int, current: Shards, now: float) -> dict[str, Any]:
    most = max(asked, current.read)
    return {"shards": asked, "shardsBefore": current.write, "shardsSince": now, "shardsMost": most}


def _check(changes: Mapping[str, Any]) -> None:
    for name in changes:
        if name not in SETTINGS:
            raise InvalidInput(f"{name} is not a setting of a queue", path=name)
    shards = changes.get("shards")
    if shards is not None and _shard_count(shards) is None:
        raise InvalidInput(f"shards is {shards!r}: 1 to {SHARDS_MAX} are possible", path="shards")


def _shard_count(value: Any) -> int | None:
    count = _whole(value)
    return count if count is not None and 1 <= count <= SHARDS_MAX else None


def _whole(value: Any) -> int | None:
    return value if isinstance(value, int) and not isinstance(value, bool) and value >= 0 else None


def _number(value: Any) -> float | None:
    return float(value) if isinstance(value, int | float) and not isinstance(value, bool) and value >= 0 else None
