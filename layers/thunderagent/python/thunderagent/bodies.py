"""Where payloads and results stand: in the task item while that costs one write unit, else in a side item, else in S3.

A body is written before the state change that refers to it, under an id made of its content (payloads) or of the
writer's fence (results): a lost race leaves an orphan with a time to live, and a stale writer can never replace a body
that counts.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Protocol

from thunderagent.codec import item_bytes
from thunderagent.conditions import put_body
from thunderagent.errors import BodyMissing, InvalidInput, TooLarge
from thunderagent.expressions import Result, renew_body
from thunderagent.model import Task
from thunderagent.schema import (
    BODY_RETENTION_SECONDS,
    BUCKET_DELAY_SECONDS,
    CHEAP_ITEM_BYTES,
    CLAIM_BYTES,
    DAY_SECONDS,
    OUTCOME_RESERVE_BYTES,
    PAYLOAD_BYTES,
    RESULT_BYTES,
    RETENTION_SECONDS,
    SIDE_ITEM_BYTES,
    body_key,
    digest,
    payload_id,
    result_id,
    utf8_size,
)
from thunderagent.states import Status
from thunderagent.store import Store

IN_S3 = "s3:"
URL_SECONDS = 60
REMOVED_BY_COMMIT = {"result", "resultRef", "resultBytes", "error", "lockTime", "owner"}
END_BYTES = 40  # finishedAt, expiresAt and the longer status and key of a terminal item


def is_own(reference: str, task_id: str) -> bool:
    """Whether a reference names a side item, or an object, that this task can have made."""
    ids = [f"{kind}#{task_id}#" for kind in ("payload", "result", "parents")]
    return reference.startswith((*ids, *(IN_S3 + body_key(each) for each in ids)))


class Objects(Protocol):
    """The S3 seam: whole objects by key. `get` answers None for a key that is not there."""

    def put(self, key: str, data: bytes) -> None: ...
    def get(self, key: str) -> bytes | None: ...
    def delete(self, key: str) -> None: ...
    def url(self, key: str, *, seconds: int) -> str: ...


class Bodies:
    """Places and loads bodies. `objects` may be None where there is no bucket: large bodies are then refused."""

    def __init__(self, store: Store, objects: Objects | None) -> None:
        self._store = store
        self._objects = objects

    def place_payload(self, item: Mapping[str, Any], text: str, *, due_at: float) -> dict[str, Any]:
        """Store the payload of a new task whose other attributes are `item`; return the attributes that refer to it.

        Raises TooLarge beyond 1 MiB of UTF-8 bytes, and InvalidInput for a payload of the bucket's size in a task that
        is due more than a year ahead: the bucket's rule would have removed it by then.
        """
        size = utf8_size(text)
        if size > PAYLOAD_BYTES:
            raise TooLarge(f"the payload has {size} bytes; at most {PAYLOAD_BYTES} are accepted", path="payload")
        if size > SIDE_ITEM_BYTES and due_at > self._store.clock.now() + BUCKET_DELAY_SECONDS:
            days = BUCKET_DELAY_SECONDS // DAY_SECONDS
            raise InvalidInput(
                f"runAt: a payload of more than {SIDE_ITEM_BYTES} bytes is kept for {days} days at most", path="runAt"
            )
        inline = {"payload": text}
        if item_bytes({**item, **inline}) + CLAIM_BYTES + OUTCOME_RESERVE_BYTES <= CHEAP_ITEM_BYTES:
            return inline
        reference = self._put(payload_id(item["taskId"], digest(text)), text, size, due_at + BODY_RETENTION_SECONDS)
        return {"payloadRef": reference, "payloadBytes": size}

    def place_result(self, task: Task, text: str) -> Result:
        """Store a result, or say that it stands inline. Raises TooLarge beyond 10 MiB of UTF-8 bytes."""
        size = utf8_size(text)
        if size > RESULT_BYTES:
            raise TooLarge(f"the result has {size} bytes; at most {RESULT_BYTES} are kept", path="result")
        if _stays_inline(task.item, size):
            return Result(text=text)
        for kept in _shorter_histories(task):
            if _stays_inline({**task.item, "attempts": kept or None}, size):
                return Result(text=text, attempts=kept)
        keep = self._store.clock.now() + RETENTION_SECONDS[Status.SUCCESS] + DAY_SECONDS
        return Result(reference=self._put(result_id(task.task_id, task.fence), text, size, keep), size=size)

    def payload(self, task: Task) -> str:
        """The payload's JSON text. Raises BodyMissing when it is stored nowhere."""
        return self._load(task.payload, task.payload_ref)

    def result(self, task: Task) -> str | None:
        """The result's JSON text, or None when the task has none. Raises BodyMissing."""
        return None if task.result is None and task.result_ref is None else self._load(task.result, task.result_ref)

    def url(self, reference: str) -> str | None:
        """Where to fetch a body that stands in S3, for a minute; None for one that stands in the table."""
        if self._objects is None or not reference.startswith(IN_S3):
            return None
        return self._objects.url(reference.removeprefix(IN_S3), seconds=URL_SECONDS)

    def renew(self, task: Task, *, due_at: float) -> None:
        """A redriven task's payload lives on: its time to live starts again. (S3 bodies: see the lifecycle rule.)"""
        if task.payload_ref is not None and not task.payload_ref.startswith(IN_S3):
            self._store.apply(renew_body(task.payload_ref, expires_at=int(due_at) + BODY_RETENTION_SECONDS))

    def erase(self, task: Task) -> None:
        """Delete the bodies of a task that is gone; not what a damaged row names as its own."""
        for reference in (task.payload_ref, task.result_ref):
            if reference is not None and is_own(reference, task.task_id):
                self._delete(reference)

    def _put(self, item_id: str, text: str, size: int, keep_until: float) -> str:
        if size <= SIDE_ITEM_BYTES:
            self._store.apply(put_body({"taskId": item_id, "body": text, "expiresAt": int(keep_until)}))
            return item_id
        if self._objects is None:
            raise TooLarge(f"a body of {size} bytes needs a bucket, and none is configured")
        key = body_key(item_id)
        self._objects.put(key, text.encode())
        return IN_S3 + key

    def _load(self, inline: str | None, reference: str | None) -> str:
        if inline is not None:
            return inline
        if reference is None:
            raise BodyMissing("(none)")
        if reference.startswith(IN_S3):
            data = self._objects.get(reference.removeprefix(IN_S3)) if self._objects else None
            text = data.decode() if data is not None else None
        else:
            text = (self._store.get_item(reference, consistent=True) or {}).get("body")
        if text is None:
            raise BodyMissing(reference)
        return text

    def _delete(self, reference: str) -> None:
        if not reference.startswith(IN_S3):
            self._store.delete_body(reference)
        elif self._objects is not None:
            self._objects.delete(reference.removeprefix(IN_S3))


def _shorter_histories(task: Task) -> list[list[dict[str, Any]]]:
    """The attempts without the oldest, without the two oldest, and so on: dropped before a body is moved out."""
    return [task.attempts[dropped:] for dropped in range(1, len(task.attempts) + 1)]


def _stays_inline(item: Mapping[str, Any], size: int) -> bool:
    """Inline when the item stays one write unit, or when it is larger anyway and no unit is added."""
    without = {name: value for name, value in item.items() if name not in REMOVED_BY_COMMIT}
    base = item_bytes(without) + len("result") + END_BYTES
    total = base + size
    return total <= CHEAP_ITEM_BYTES or (base > CHEAP_ITEM_BYTES and -(-total // 1024) == -(-base // 1024))
