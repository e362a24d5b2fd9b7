"""What a removed task leaves behind: bodies, edges to its parents, its hold on a fingerprint. Cleared, repeatably.

The same id may live again by now, with the same payload under the same key. Each write is therefore bound to what the
removed life can have left: a body's time to live that the new life's exceeds, the holder's and the edge's instant.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from thunderagent import expressions
from thunderagent.bodies import IN_S3, Objects, is_own
from thunderagent.codec import Item
from thunderagent.conditions import Write
from thunderagent.schema import BODY_RETENTION_SECONDS, DAY_SECONDS, RETENTION_SECONDS
from thunderagent.states import Status
from thunderagent.store import Store
from thunderagent.stream import Change

KEEP_SECONDS = 2 * DAY_SECONDS
"""How long an archived task's bodies stay: a batch of the stream may come again for a day, and must find them."""
RESULT_SECONDS = RETENTION_SECONDS[Status.SUCCESS] + DAY_SECONDS


class Leftovers:
    """Clears what removed tasks owned. Raises a StoreError; repeating is harmless."""

    def __init__(self, store: Store, objects: Objects | None) -> None:
        self._store = store
        self._objects = objects

    def clear(self, change: Change, bodies: dict[str, Item]) -> None:
        """`bodies` are the task's side items as read for the archive (none were read for an erased task).

        Raises ValueError, and clears nothing, for a row that names as its own what is another's.
        """
        item = change.old or {}
        named = [item[name] for name in ("payloadRef", "resultRef", "dependsOnRef") if isinstance(item.get(name), str)]
        if not all(is_own(reference, change.item_id) for reference in named):
            raise ValueError("a body of another")
        for write in self._writes(change, bodies):
            self._store.apply(write)
        self._clear_objects(change)

    def _writes(self, change: Change, bodies: dict[str, Item]) -> Iterator[Write]:
        item = change.old or {}
        ended = float(item.get("finishedAt", change.at))
        for reference, longest in _side_bodies(item):
            latest = int(ended) + longest
            if not change.by_ttl:
                yield expressions.drop_body(reference, latest=latest)
            elif _outlives(bodies.get(reference), change.at):
                yield expressions.shorten_body(reference, latest=latest, expires_at=int(change.at) + KEEP_SECONDS)
        if isinstance(item.get("unique"), str):
            yield expressions.free_unique(item["unique"], holder=change.item_id, created_at=item["createdAt"])
        for parent_id in _parents(item, bodies) if item.get("blockedCount") else ():
            yield expressions.cut_left_edge(parent_id, change.item_id, latest=ended)

    def _clear_objects(self, change: Change) -> None:
        """Bodies in S3 have no condition to bind a delete to: while the id lives again they stay, for that life or for
        the bucket's lifecycle rule."""
        item = change.old or {}
        references = [item.get(name) for name in ("payloadRef", "resultRef")]
        keys = [str(each).removeprefix(IN_S3) for each in references if str(each).startswith(IN_S3)]
        if not keys or self._objects is None or self._store.get_item(change.item_id, consistent=True) is not None:
            return
        for key in keys:
            self._objects.delete(key)


def _side_bodies(item: Item) -> Iterator[tuple[str, int]]:
    """Side items a task refers to, and how long after its end its own life can have let each live."""
    for name, longest in (
        ("payloadRef", BODY_RETENTION_SECONDS),
        ("dependsOnRef", BODY_RETENTION_SECONDS),
        ("resultRef", RESULT_SECONDS),
    ):
        reference = item.get(name)
        if isinstance(reference, str) and not reference.startswith(IN_S3):
            yield reference, longest


def _outlives(body: Item | None, at: float) -> bool:
    """A result's own time to live ends soon enough: no write is spent on it."""
    return body is not None and float(body.get("expiresAt", 0)) > at + KEEP_SECONDS


def _parents(item: Item, bodies: dict[str, Item]) -> list[str]:
    named: Any = item.get("dependsOn")
    if named is None:
        named = bodies.get(str(item.get("dependsOnRef")), {}).get("ids")
    return [str(parent_id) for parent_id in named or ()]
