"""Queues and their settings: declared by the registry, changed by operators through `control#queue#…` items."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from typing import Any

from thunderagent.clock import Clock
from thunderagent.codec import Item
from thunderagent.schema import QUEUE_CONTROL_KEY, queue_control_id
from thunderagent.store import Store

CACHE_SECONDS = 5


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
    shards: int | None = None
    declared: bool = field(default=True, compare=False)

    @staticmethod
    def from_item(name: str, item: Item) -> QueueSettings:
        """Settings as stored; an attribute of a wrong type counts as not set."""
        return QueueSettings(
            name=name,
            paused=item.get("paused") is True,
            max_concurrency=_whole(item.get("maxConcurrency")),
            rate_per_second=_number(item.get("ratePerSecond")),
            burst=_whole(item.get("burst")),
            max_backlog=_whole(item.get("maxBacklog")),
            per_key=item["perKey"] if isinstance(item.get("perKey"), dict) else None,
            shards=_whole(item.get("shards")),
        )


class Queues:
    """The declared queues with their settings, read at most every five seconds."""

    def __init__(self, store: Store, declared: Iterable[str], *, clock: Clock) -> None:
        self._store = store
        self._declared = tuple(sorted({"default", *declared}))
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

    def _read(self) -> dict[str, QueueSettings]:
        ids = {queue_control_id(name): name for name in self._declared}
        for key in self._store.walk(QUEUE_CONTROL_KEY):
            ids[key.task_id] = key.task_id.removeprefix(queue_control_id(""))
        items = self._store.get_items(ids)
        return {name: QueueSettings.from_item(name, items.get(item_id, {})) for item_id, name in ids.items()}


def _whole(value: Any) -> int | None:
    return value if isinstance(value, int) and not isinstance(value, bool) and value >= 0 else None


def _number(value: Any) -> float | None:
    return float(value) if isinstance(value, int | float) and not isinstance(value, bool) and value >= 0 else None
