"""Made-up tasks in every state, as the service leaves them: what a table is filled with before it is measured.

Of a hundred tasks 40 are dead letters, 30 succeeded, 10 done, 20 pending (half of them due), all in one queue, which
is the hardest case: the longest partitions there can be. Of a thousand tasks one, a dead letter, is of a rare type,
which a filter has to look for. What runs is bounded by executors, not by the table, and is added by itself.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import Any

from bench.small_task import small_task
from thunderagent.codec import Item
from thunderagent.model import TaskId
from thunderagent.schema import (
    DAY_SECONDS,
    FORMAT_VERSION,
    LEASE_SHARDS,
    RETENTION_SECONDS,
    Layout,
    lease_id,
    lease_key,
    shard_of,
)
from thunderagent.states import Status

PAYLOAD = '{"region":"eu","year":2012,"note":"' + "x" * 160 + '"}'
TYPES, RARE_TYPE, RARE_IN = ("demo.echo", "report.generate"), "demo.flaky", 1000
SHARES = ((40, Status.FAILED), (70, Status.SUCCESS), (80, Status.DONE), (100, Status.PENDING))
ENDED_WITHIN_SECONDS = 6 * DAY_SECONDS  # within the shortest retention: all of them can be listed
ERRORS = ("TimeoutError", "ValueError", "KeyError", "ConnectionError", "AssertionError")
LEASE_SECONDS = 3600.0


@dataclass(frozen=True)
class Mixture:
    """`count` tasks of one queue at the instant `now`, the same ones each time."""

    count: int
    now: float
    queue: str = "default"
    layout: Layout = field(default_factory=Layout)

    def tasks(self) -> Iterator[Item]:
        for number in range(self.count):
            yield self.task(number)

    def task(self, number: int) -> Item:
        status = next(status for most, status in SHARES if number % 100 < most)
        task_id = f"row-{number:07d}"
        age = (number + 1) / (self.count + 1)
        is_rare = number % RARE_IN == 7
        item = self._common(task_id, RARE_TYPE if is_rare else TYPES[number // 100 % len(TYPES)])
        if status is Status.PENDING:
            ahead = DAY_SECONDS * age if number % 2 else -1 - 3600 * age
            return {**item, "dueAt": round(self.now + ahead, 3)}
        ended = round(self.now - 60 - ENDED_WITHIN_SECONDS * age, 3)
        return {**item, **self._ended(task_id, status, ended, number)}

    def running(self, leases: int = 10, size: int = 10) -> Iterator[Item]:
        """Batches in flight: leases that nobody will close within the hour, and their tasks."""
        for number in range(leases):
            token = f"bench-{number:03d}"
            ids = [TaskId(f"run-{number:03d}-{place}") for place in range(size)]
            lock_time = round(self.now + LEASE_SECONDS + number, 3)
            for task_id in ids:
                yield {
                    **self._common(task_id, TYPES[0]),
                    "status": Status.RUNNING.value,
                    "fence": 1,
                    "dueAt": round(self.now - 30, 3),
                    "startedAt": round(self.now - 29, 3),
                    "leaseToken": token,
                    "lockTime": lock_time,
                    "owner": "bench",
                }
            yield {
                "taskId": lease_id(token),
                "profile": "default",
                "taskIds": list(ids),
                "lockTime": lock_time,
                "begun": "bench",
                "dispatchKey": lease_key("default", shard_of(token, LEASE_SHARDS)),
                "dueAt": lock_time,
                "createdAt": round(self.now - 30, 3),
                "formatVersion": FORMAT_VERSION,
            }

    def _common(self, task_id: str, type: str) -> dict[str, Any]:
        task = small_task(task_id, type=type, payload=PAYLOAD, now=self.now, layout=self.layout, queue=self.queue)
        created, updated = round(self.now - 7 * DAY_SECONDS, 3), round(self.now - 60, 3)
        return {**task, "createdAt": created, "updatedAt": updated}

    def _ended(self, task_id: str, status: Status, ended: float, number: int) -> dict[str, Any]:
        outcome: dict[str, Any] = {"result": '{"rows":42}'}
        if status is Status.DONE:
            outcome = {"outcome": "skipped"}
        if status is Status.FAILED:
            message = f"step {number % 97} did not answer within 30 s"
            outcome = {"error": {"type": ERRORS[number % 5], "message": message, "at": ended, "reason": "retries"}}
        return {
            "status": status.value,
            "fence": 1,
            "startedAt": round(ended - 2, 3),
            "finishedAt": ended,
            "updatedAt": ended,
            "dueAt": ended,
            "dispatchKey": self.layout.listed(status, self.queue, task_id),
            "expiresAt": int(ended) + RETENTION_SECONDS[status],
            **outcome,
        }
