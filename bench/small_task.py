"""The row a submit leaves of a small task: what tables are filled with when submits are not what is measured."""

from __future__ import annotations

from typing import Any

from thunderagent.schema import FORMAT_VERSION, Layout
from thunderagent.states import Status


def small_task(
    task_id: str, *, type: str, payload: str, now: float, layout: Layout, queue: str = "default"
) -> dict[str, Any]:
    """PENDING, due at once. `payload` is JSON text, `now` epoch seconds."""
    return {
        "taskId": task_id,
        "type": type,
        "queue": queue,
        "priority": "normal",
        "status": Status.PENDING.value,
        "payload": payload,
        "retryCount": 0,
        "maxRetryNumber": 3,
        "timeoutSeconds": 60,
        "fence": 0,
        "createdAt": now,
        "updatedAt": now,
        "dueAt": now,
        "dispatchKey": layout.open(queue, "normal", task_id),
        "formatVersion": FORMAT_VERSION,
        "homeRegion": layout.region,
    }
