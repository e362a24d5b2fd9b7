"""The archive: removed tasks as lines of JSON in S3, by the hour they were removed in. No I/O but the one `put`.

The key of an object is made of its first record alone, and its bytes of its records: a batch that is delivered again
overwrites the same objects with the same bytes. A batch that is cut otherwise when it comes again may repeat lines
under another key, so that readers take each (taskId, fence) once.
"""

from __future__ import annotations

import gzip
import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime
from typing import Any

from thunderagent.bodies import IN_S3
from thunderagent.codec import Item
from thunderagent.stream import Change

PREFIX = "archive/"
BY_TTL, BY_USER = "ttl", "user"
SOURCE_CHARACTERS = 16  # of the event id that stands for the shard where the event does not name it

TOMBSTONE = (
    "taskId",
    "type",
    "queue",
    "priority",
    "status",
    "outcome",
    "fence",
    "retryCount",
    "createdAt",
    "startedAt",
    "finishedAt",
)
"""What is kept of a task that somebody erased: that it was, never what it held."""

KEPT = (
    *TOMBSTONE,
    "outcomeReason",
    "maxRetryNumber",
    "timeoutSeconds",
    "updatedAt",
    "runAt",
    "deadline",
    "lost",
    "dependsOn",
    "tags",
    "traceparent",
    "error",
    "attempts",
    "progress",
    "operator",
    "payload",
    "payloadBytes",
    "result",
    "resultBytes",
)


@dataclass(frozen=True)
class ArchiveObject:
    """One object: gzip of one line of JSON for each change, in the order of the stream."""

    key: str
    data: bytes
    changes: tuple[Change, ...]


def line_of(change: Change, bodies: Mapping[str, Item]) -> str:
    """The line of a removed task. `bodies` are the side items its references name, as far as they are stored.

    A task removed by its time to live is kept whole (bodies in S3 apart: their size only); one that was erased by
    somebody leaves ids and times.
    """
    item = change.old or {}
    names = KEPT if change.by_ttl else TOMBSTONE
    line: dict[str, Any] = {name: item[name] for name in names if name in item}
    line |= {"removedAt": change.at, "removedBy": BY_TTL if change.by_ttl else BY_USER}
    if change.by_ttl:
        line |= _bodies_of(item, bodies)
    return json.dumps(line, sort_keys=True, ensure_ascii=False, separators=(",", ":"))


def references_of(change: Change) -> list[str]:
    """Ids of the side items that the line of this change, or clearing up after it, needs."""
    item = change.old or {}
    wanted = ("payloadRef", "resultRef", "dependsOnRef") if change.by_ttl else ("dependsOnRef",)
    named = [item.get(name) for name in wanted]
    return [reference for reference in named if isinstance(reference, str) and not reference.startswith(IN_S3)]


def objects_of(lines: Sequence[tuple[Change, str]], *, shard: str | None) -> list[ArchiveObject]:
    """Lines put together by hour. `shard` is the stream's shard where the event names it."""
    hours: dict[str, list[tuple[Change, str]]] = {}
    for change, line in lines:
        hours.setdefault(_partition(change.at), []).append((change, line))
    return [_object(hour, entries, shard) for hour, entries in hours.items()]


def _object(partition: str, entries: Sequence[tuple[Change, str]], shard: str | None) -> ArchiveObject:
    first = entries[0][0]
    # Lambda does not name the shard of a DynamoDB stream. Sequence numbers are unique within one only; event ids are
    # unique in the whole stream.
    source = shard or first.event_id[:SOURCE_CHARACTERS]
    text = "".join(f"{line}\n" for _, line in entries)
    data = gzip.compress(text.encode(), mtime=0)
    key = f"{PREFIX}{partition}/{source}-{first.sequence}.jsonl.gz"
    return ArchiveObject(key, data, tuple(change for change, _ in entries))


def _partition(at: float) -> str:
    removed = datetime.fromtimestamp(at, UTC)
    return f"dt={removed:%Y-%m-%d}/hour={removed:%H}"


def _bodies_of(item: Item, bodies: Mapping[str, Item]) -> dict[str, Any]:
    found: dict[str, Any] = {}
    for name, reference, attribute in (
        ("payload", item.get("payloadRef"), "body"),
        ("result", item.get("resultRef"), "body"),
        ("dependsOn", item.get("dependsOnRef"), "ids"),
    ):
        body = bodies.get(str(reference), {}).get(attribute)
        if name not in item and body is not None:
            found[name] = body
    return found
