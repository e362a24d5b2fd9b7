"""Names and limits of what is stored: keys, attributes, ids of side items, sizes. Table and code both read it."""

from __future__ import annotations

import hashlib
import re
import zlib
from dataclasses import dataclass

from thunderagent.states import Status

FORMAT_VERSION = 1

# ---- the table ------------------------------------------------------------------------------------------------------

TABLE_KEY = "taskId"
INDEX_NAME = "dispatch-index"
INDEX_HASH = "dispatchKey"
INDEX_RANGE = "dueAt"
TTL_ATTRIBUTE = "expiresAt"

# ---- attributes of a task item, with their DynamoDB types -----------------------------------------------------------

TASK_ATTRIBUTES: dict[str, str] = {
    "taskId": "S",
    "type": "S",
    "queue": "S",
    "priority": "S",
    "status": "S",
    "payload": "S",  # JSON text: any JSON value returns equal
    "payloadRef": "S",  # where the payload is, when it is not inline: a side item's id, or s3:<key>
    "payloadBytes": "N",
    "retryCount": "N",
    "maxRetryNumber": "N",
    "lockTime": "N",  # end of the lease as granted at the claim
    "leaseToken": "S",
    "fence": "N",
    "owner": "S",
    "dispatchKey": "S",
    "dueAt": "N",
    "createdAt": "N",
    "updatedAt": "N",
    "startedAt": "N",
    "finishedAt": "N",
    "timeoutSeconds": "N",
    "deadline": "N",
    "result": "S",  # JSON text
    "resultRef": "S",
    "resultBytes": "N",
    "error": "M",
    "attempts": "L",
    "progress": "M",
    "steps": "M",
    "blockedCount": "N",
    "dependsOn": "L",  # the parents named at submit, in that order
    "dependsOnRef": "S",  # the side item that holds them instead, when they are many
    "unlinked": "N",  # how many of them, from the end, have no edge yet (submitting is not complete)
    "hasDependents": "BOOL",  # somebody waits, or waited, for this task: its end settles its edges
    "runAt": "N",
    "lost": "N",
    "redriveIds": "L",
    "outcome": "S",
    "outcomeReason": "S",
    "operator": "M",  # who did the last operator action, and why
    "idempotencyHash": "S",
    "nonce": "S",  # of the request that made the task, where another may ask for the same id: see submit
    "unique": "S",  # fingerprint this task holds, see unique#
    "uniqueSeconds": "N",
    "tags": "M",
    "traceparent": "S",
    "formatVersion": "N",
    "homeRegion": "S",
    "expiresAt": "N",
    "cancelRequested": "BOOL",
    "deferredFor": "S",  # why the last look did not claim it
    "exitedBy": "S",  # <lease token>:<event> of the last exit to PENDING: a lost reply is known by it
    "depth": "N",  # how many tasks submitted one another down to this one
    "backoff": "M",
    "leaseSeconds": "N",
}

PRIORITIES = ("high", "normal", "low")

# ---- index keys -----------------------------------------------------------------------------------------------------

LEASE_SHARDS = 4
SHARDS_MAX = 64  # of one queue


def shard_of(task_id: str, shards: int) -> int:
    """The shard of an id: stable across processes and versions (CRC-32 modulo the count)."""
    return zlib.crc32(task_id.encode()) % shards


def kept_shard(key: str | None) -> int | None:
    """The shard a task's index key names. It is decided at submit and stays in every later key of that task."""
    number = key.rpartition("#")[2] if key else ""
    return int(number) if number.isdecimal() and int(number) < SHARDS_MAX else None


def open_key(queue: str, priority: str, shard: int) -> str:
    """While PENDING, and for the first minute of RUNNING. `dueAt` is the due time."""
    return f"OPEN#{queue}#{priority}#{shard}"


def running_key(queue: str, shard: int) -> str:
    """A long task, moved out of the head of the open partition. `dueAt` stays."""
    return f"RUNNING#{queue}#{shard}"


def blocked_key(queue: str, shard: int) -> str:
    """While waiting for parents. `dueAt` is the next repair look."""
    return f"BLOCKED#{queue}#{shard}"


def listed_key(status: Status, queue: str, shard: int) -> str:
    """Terminal tasks, for lists. `dueAt` is `finishedAt`."""
    return f"{status.value}#{queue}#{shard}"


def lease_key(profile: str, shard: int) -> str:
    return f"LEASE#{profile}#{shard}"


def edge_key(parent_id: str) -> str:
    return f"EDGE#{parent_id}"


SCHEDULE_KEY = "SCHEDULE#"  # `dueAt` is the next firing
QUEUE_CONTROL_KEY = "CONTROL#queues"
SHARDS_CONTROL_ID = "control#shards"


def is_open_key(key: str) -> bool:
    return key.startswith("OPEN#")


# ---- ids of side items: every one contains '#', which no task id may -------------------------------------------------


def lease_id(token: str) -> str:
    return f"lease#{token}"


def payload_id(task_id: str, digest: str) -> str:
    return f"payload#{task_id}#{digest}"


def result_id(task_id: str, fence: int) -> str:
    return f"result#{task_id}#{fence}"


def edge_id(parent_id: str, child_id: str) -> str:
    return f"edge#{parent_id}#{child_id}"


def parents_id(task_id: str, digest: str) -> str:
    return f"parents#{task_id}#{digest}"


def child_of(edge: str) -> str:
    """The child an edge's id names."""
    return edge.rpartition("#")[2]


def unique_id(fingerprint: str) -> str:
    return f"unique#{fingerprint}"


def queue_control_id(queue: str) -> str:
    return f"control#queue#{queue}"


def slot_id(queue: str, key: str, number: int) -> str:
    return f"slot#{queue}#{key}#{number}"


def bucket_id(queue: str, key: str) -> str:
    return f"bucket#{queue}#{key}"


def schedule_id(name: str) -> str:
    return f"schedule#{name}"


def body_key(item_id: str) -> str:
    """The S3 key of a body: the side item's id as a path, under the prefix the lifecycle rule expires."""
    return "bodies/" + item_id.replace("#", "/")


# ---- limits (bytes are UTF-8 bytes of the stored form) ---------------------------------------------------------------

KIB = 1024
CHEAP_ITEM_BYTES = 1 * KIB  # one write unit; every state change pays for the whole item
OUTCOME_RESERVE_BYTES = 200  # kept free in a new item, so that its terminal write is still one unit
CLAIM_BYTES = 110  # leaseToken, lockTime, owner and startedAt, which the claim adds
SIDE_ITEM_BYTES = 350 * KIB  # a body larger than this goes to S3 (an item may have 400 KB)
OPEN_ITEM_BYTES = 300_000  # submit, steps and progress stop here, so that the terminal write always fits
PAYLOAD_BYTES = 1024 * KIB
RESULT_BYTES = 10 * 1024 * KIB
ERROR_MESSAGE_BYTES = 2 * KIB
ATTEMPTS_KEPT = 10
REDRIVES_KEPT = 20
STEPS_KEPT = 100
PARENTS_MAX = 1000
PARENTS_INLINE_BYTES = 256  # more stand in a side item: every state change pays for the whole task
EDGES_AT_ONCE = 90  # in one transaction (DynamoDB's limit is 100 items), beside the child and its `unique#`
SPAWN_DEPTH_MAX = 100

DAY_SECONDS = 86_400
RETENTION_SECONDS = {Status.SUCCESS: 7 * DAY_SECONDS, Status.DONE: 7 * DAY_SECONDS, Status.FAILED: 90 * DAY_SECONDS}
BODY_RETENTION_SECONDS = 400 * DAY_SECONDS  # of an open task's bodies, from its due time
BUCKET_DELAY_SECONDS = 366 * DAY_SECONDS  # until a task with a body in S3 is due: there the rule counts from the upload
DEFER_SECONDS = 60
BLOCKED_LOOK_SECONDS = (60, 600)  # a blocked task is looked at again after its own age, within these bounds
DEFAULT_MAX_RETRY_NUMBER = 3
DEFAULT_TIMEOUT_SECONDS = 300
EXECUTOR_MARGIN_SECONDS = 30  # a task's timeout ends this long before its executor's

NAME_PATTERN = re.compile(r"[a-z0-9][a-z0-9._-]{0,63}")
SCHEDULED_PREFIX = "cron."


def utf8_size(text: str) -> int:
    """What every limit of a size counts."""
    return len(text) if text.isascii() else len(text.encode())


def digest(text: str) -> str:
    """SHA-256 of the text as 64 hex digits."""
    return hashlib.sha256(text.encode()).hexdigest()


@dataclass(frozen=True)
class Layout:
    """Where items of this deployment stand in the index. `shards` is what is written; readers may read more."""

    shards: int = 4
    list_completed: bool = True
    region: str = "us-east-1"

    def shard(self, task_id: str, kept: str | None = None) -> int:
        """The shard that `kept` (the task's index key so far) names; without one, the hash of the id."""
        named = kept_shard(kept)
        return shard_of(task_id, self.shards) if named is None else named

    def open(self, queue: str, priority: str, task_id: str, kept: str | None = None) -> str:
        return open_key(queue, priority, self.shard(task_id, kept))

    def running(self, queue: str, task_id: str, kept: str | None = None) -> str:
        return running_key(queue, self.shard(task_id, kept))

    def blocked(self, queue: str, task_id: str, kept: str | None = None) -> str:
        return blocked_key(queue, self.shard(task_id, kept))

    def listed(self, status: Status, queue: str, task_id: str, kept: str | None = None) -> str | None:
        """The list partition of a terminal task; None when tasks that ended well are not listed."""
        if status is not Status.FAILED and not self.list_completed:
            return None
        return listed_key(status, queue, self.shard(task_id, kept))
