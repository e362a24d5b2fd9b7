"""Tasks as the client sends them: one by one, and cut into batches the API accepts."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from datetime import datetime
from typing import Any, Final, TypedDict, cast

from thunderagent import jsontext
from thunderagent.errors import InvalidInput
from thunderagent.schema import utf8_size

BATCH_ENTRIES: Final = 500
BATCH_BYTES: Final = 2 * 1024 * 1024 - 1024


class TaskOptions(TypedDict, total=False):
    """The optional fields of a task. An absent one is decided by the handler's declaration, then by its queue."""

    queue: str
    priority: str
    delay_seconds: int
    run_at: datetime | str
    max_retry_number: int
    timeout_seconds: int
    start_within_seconds: int
    depends_on: Sequence[str]
    unique_window_seconds: int
    tags: Mapping[str, str]
    task_id: str
    ref: str


@dataclass(frozen=True)
class NewTask:
    """A task to submit. `options` as in TaskOptions; `ref` only in a batch, for `depends_on=["@ref"]` of others."""

    type: str
    payload: Any = None
    options: TaskOptions = field(default_factory=TaskOptions)

    @staticmethod
    def of_body(body: Any) -> NewTask:
        """From a request's JSON, as `POST /tasks` takes it. Raises InvalidInput for what is no task; whether its values
        are allowed, the API decides."""
        if not isinstance(body, dict) or not isinstance(body.get("type"), str):
            raise InvalidInput("a task is an object with a type", path="type")
        options: dict[str, Any] = {}
        for name, value in body.items():
            if name == "unique":
                if not isinstance(value, dict) or not {*value} <= {"windowSeconds"}:
                    raise InvalidInput('unique: it is {"windowSeconds": …}', path="unique")
                options["unique_window_seconds"] = value.get("windowSeconds", 0)
            elif name in _OPTIONS:
                options[_OPTIONS[name]] = value
            elif name not in ("type", "payload"):
                raise InvalidInput(f"{name}: unknown field; known: {', '.join(_KNOWN)}", path=name)
        return NewTask(body["type"], body.get("payload"), cast(TaskOptions, options))

    def as_body(self) -> dict[str, Any]:
        """The request's JSON. Raises InvalidInput for a field there is not."""
        body: dict[str, Any] = {"type": self.type, "payload": self.payload}
        for name, value in self.options.items():
            if name == "unique_window_seconds":
                body["unique"] = {"windowSeconds": value}
            elif name in _FIELDS:
                body[_FIELDS[name]] = _as_json(value)
            else:
                raise InvalidInput(f"{name}: unknown option", path=name)
        return body


_FIELDS: Final[Mapping[str, str]] = {
    "queue": "queue",
    "priority": "priority",
    "delay_seconds": "delaySeconds",
    "run_at": "runAt",
    "max_retry_number": "maxRetryNumber",
    "timeout_seconds": "timeoutSeconds",
    "start_within_seconds": "startWithinSeconds",
    "depends_on": "dependsOn",
    "tags": "tags",
    "task_id": "taskId",
    "ref": "ref",
}
_OPTIONS: Final[Mapping[str, str]] = {name: option for option, name in _FIELDS.items()}
_KNOWN: Final = ("type", "payload", *_OPTIONS, "unique")


def _as_json(value: Any) -> Any:
    if isinstance(value, datetime):
        return value.isoformat()  # a naive one has no offset, and the API says so
    if isinstance(value, Mapping):
        return dict(value)
    return list(value) if isinstance(value, Sequence) and not isinstance(value, str) else value


def batches(tasks: Iterable[NewTask]) -> Iterator[list[dict[str, Any]]]:
    batch: list[dict[str, Any]] = []
    size = 0
    for index, task in enumerate(tasks):
        body = task.as_body()
        entry_bytes = 1 + utf8_size(jsontext.dumps(body, root=f"tasks[{index}]", max_depth=jsontext.MAX_DEPTH + 1))
        if batch and (len(batch) == BATCH_ENTRIES or size + entry_bytes > BATCH_BYTES):
            yield batch
            batch, size = [], 0
        batch.append(body)
        size += entry_bytes
    if batch:
        yield batch


def with_known_refs(entry: dict[str, Any], ids_by_ref: Mapping[str, str]) -> dict[str, Any]:
    """Refs of earlier batches become ids; those of this batch stay, and the API knows them."""
    parents = entry.get("dependsOn", [])
    if not ids_by_ref or not parents:
        return entry
    known = [ids_by_ref.get(parent[1:], parent) if parent.startswith("@") else parent for parent in parents]
    return {**entry, "dependsOn": known}
