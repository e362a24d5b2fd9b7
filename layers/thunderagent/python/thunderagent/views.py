"""What readers see of a stored task. An allow-list: the lease token, keys and hashes never leave the table."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import TYPE_CHECKING, Any, Final

from thunderagent import jsontext
from thunderagent.bodies import Bodies
from thunderagent.dependencies import Dependencies
from thunderagent.errors import BodyMissing, InvalidInput
from thunderagent.model import Task
from thunderagent.queues import QueueSettings
from thunderagent.schema import utf8_size

if TYPE_CHECKING:
    from thunderagent.census import Figures

INLINE_BYTES: Final = 256 * 1024

SHOWN: Final = (
    "taskId",
    "type",
    "queue",
    "priority",
    "status",
    "outcome",
    "outcomeReason",
    "retryCount",
    "maxRetryNumber",
    "timeoutSeconds",
    "fence",
    "createdAt",
    "updatedAt",
    "dueAt",
    "runAt",
    "startedAt",
    "finishedAt",
    "deadline",
    "lockTime",
    "expiresAt",
    "cancelRequested",
    "dependsOn",
    "tags",
    "error",
    "progress",
    "operator",
)
SHOWN_ALONE: Final = ("attempts",)
"""Not in lists: they grow with a task's history."""


def task_in_list(task: Task) -> dict[str, Any]:
    """A task without bodies, attempts and steps."""
    view: dict[str, Any] = {name: _as_stored(task.item[name]) for name in SHOWN if name in task.item}
    if "uniqueSeconds" in task.item:
        view["unique"] = {"windowSeconds": task.item["uniqueSeconds"]}
    if task.deadline is not None:
        view["startWithinSeconds"] = _as_stored(round(task.deadline - task.item.get("runAt", task.created_at), 3))
    return view


def task_alone(task: Task, bodies: Bodies, dependencies: Dependencies, *, with_bodies: bool = True) -> dict[str, Any]:
    """A task whole; payload and result inline up to 256 KiB each, else (or on request) their byte counts."""
    view = task_in_list(task) | _parents(task, dependencies)
    view |= {name: task.item[name] for name in SHOWN_ALONE if name in task.item} | _steps(task.item)
    view |= _body("payload", task.payload, task.item, lambda: bodies.payload(task), inline=with_bodies)
    if task.result is not None or task.result_ref is not None:
        view |= _body("result", task.result, task.item, lambda: bodies.result(task), inline=with_bodies)
    return view


def _as_stored(value: Any) -> Any:
    """300.0 as 300: the store keeps no such difference, so the answer to a submit shows what later reads show."""
    return int(value) if type(value) is float and value.is_integer() else value


def queue_view(queue: QueueSettings, figures: Figures | None = None) -> dict[str, Any]:
    """A queue's settings, and how it stands where that was asked."""
    return {
        "queue": queue.name,
        "declared": "registry" if queue.declared else "api",
        "paused": queue.paused,
        "maxConcurrency": queue.max_concurrency,
        "ratePerSecond": queue.rate_per_second,
        "burst": queue.burst,
        "maxBacklog": queue.max_backlog,
        "perKey": dict(queue.per_key) if queue.per_key is not None else None,
        "shards": queue.shards.write,
        **(figures.as_answer() if figures is not None else {}),
    }


def _steps(item: Mapping[str, Any]) -> dict[str, Any]:
    """The names of the steps done so far, in order. Their results stay with the handler: they are parts of bodies."""
    stored = item.get("steps")
    if not isinstance(stored, Mapping):
        return {}
    places = {name: step.get("n", 0) for name, step in stored.items() if isinstance(step, Mapping)}
    return {"steps": [{"name": name} for name in sorted(places, key=lambda name: places[name])]} if places else {}


def _parents(task: Task, dependencies: Dependencies) -> dict[str, Any]:
    """All parents, also of a task that has too many to name them in its own item; and those it still waits for."""
    if "dependsOn" not in task.item and "dependsOnRef" not in task.item:
        return {}
    try:
        blocked_by = dependencies.blocked_by(task)
        return {"dependsOn": list(dependencies.parents_of(task))} | ({"blockedBy": blocked_by} if blocked_by else {})
    except BodyMissing:
        return {}


def _body(
    name: str, stored: str | None, item: Mapping[str, Any], load: Callable[[], str | None], *, inline: bool
) -> dict[str, Any]:
    size = int(item.get(f"{name}Bytes", 0)) if stored is None else utf8_size(stored)
    if not inline or size > INLINE_BYTES:
        return {f"{name}Bytes": size}
    try:
        text = stored if stored is not None else load()
    except BodyMissing:
        return {f"{name}Bytes": size}  # expired or erased: the task itself can still be read
    if text is None:
        return {}
    try:
        return {name: jsontext.loads(text)}
    except InvalidInput:  # a row put by hand: `/payload` and `/result` give what is stored
        return {f"{name}Bytes": size}
