"""Counts of partitions too long to be counted each minute: a bounded piece of each at a time, kept between the runs."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Final

from thunderagent.codec import from_item, to_item
from thunderagent.store import Store

KEYS_A_RUN: Final = 20_000  # over all partitions: about 300 read units, however long they are
KEYS_A_PAGE: Final = 5_000


@dataclass
class _Progress:
    """`full` is what the last complete count found; `so_far` belongs to the one under way, which goes on at `start`."""

    full: int | None = None
    so_far: int = 0
    start: Mapping[str, Any] | None = None


class DeepCounts:
    """What is known of long partitions. Good for a queue of a million tasks within an hour, and never lower than what
    the count under way has met already."""

    def __init__(self, stored: Mapping[str, Any] | None = None) -> None:
        state = stored or {}
        self._last = str(state.get("last", ""))
        self._known = {name: _progress_of(entry) for name, entry in (state.get("partitions") or {}).items()}

    def of(self, partition: str) -> int:
        """The best figure there is; 0 when nothing is known."""
        known = self._known.get(partition, _Progress())
        return max(known.full or 0, known.so_far)

    def is_complete(self, partition: str) -> bool:
        """Whether the partition was ever counted to its end."""
        return self._known.get(partition, _Progress()).full is not None

    def advance(self, store: Store, partitions: Sequence[str]) -> None:
        """Count on, in turn, within the run's bound. Partitions that are not named are short again, and forgotten."""
        self._known = {name: self._known.get(name, _Progress()) for name in partitions}
        order = sorted(partitions)
        order = [name for name in order if name >= self._last] + [name for name in order if name < self._last]
        left = KEYS_A_RUN
        for name in order:
            left = self._count_on(store, name, left)
            self._last = name
            if left <= 0:
                return

    def _count_on(self, store: Store, name: str, left: int) -> int:
        known = self._known[name]
        while left > 0:
            page = store.tally(name, limit=min(KEYS_A_PAGE, left), start=known.start)
            left -= max(1, page.count)
            known.so_far += page.count
            known.start = page.next_key
            if page.next_key is None:
                known.full, known.so_far = known.so_far, 0
                break
        return left

    def as_stored(self) -> dict[str, Any]:
        return {"last": self._last, "partitions": {name: _entry_of(known) for name, known in self._known.items()}}


def _progress_of(entry: Mapping[str, Any]) -> _Progress:
    start = entry.get("start")
    return _Progress(entry.get("full"), int(entry.get("soFar", 0)), to_item(start) if start else None)


def _entry_of(known: _Progress) -> dict[str, Any]:
    entry = {
        "full": known.full,
        "soFar": known.so_far or None,
        "start": from_item(known.start) if known.start else None,
    }
    return {name: value for name, value in entry.items() if value is not None}
