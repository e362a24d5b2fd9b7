"""Tasks as the client reads them from the API's answers."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from typing import Any

from thunderagent import jsontext
from thunderagent.signed_http import ApiError, error_of
from thunderagent.states import Outcome, Status, is_terminal

POLL_FIRST_SECONDS, POLL_CAP_SECONDS = 0.25, 5.0


@dataclass(frozen=True)
class TaskView:
    """A task as the API returned it. `fields` is the whole JSON object; times are epoch seconds."""

    task_id: str
    status: str
    type: str = ""
    queue: str = ""
    priority: str = "normal"
    retry_count: int = 0
    payload: Any = None
    result: Any = None
    error: Mapping[str, Any] | None = None
    outcome: str | None = None
    created_at: float | None = None
    due_at: float | None = None
    started_at: float | None = None
    finished_at: float | None = None
    duplicate: bool = False
    fields: Mapping[str, Any] = field(default_factory=dict, repr=False)

    @staticmethod
    def of(fields: Mapping[str, Any]) -> TaskView:
        return TaskView(
            task_id=fields["taskId"],
            status=fields["status"],
            type=fields.get("type", ""),
            queue=fields.get("queue", ""),
            priority=fields.get("priority", "normal"),
            retry_count=fields.get("retryCount", 0),
            payload=fields.get("payload"),
            result=fields.get("result"),
            error=fields.get("error"),
            outcome=fields.get("outcome"),
            created_at=fields.get("createdAt"),
            due_at=fields.get("dueAt"),
            started_at=fields.get("startedAt"),
            finished_at=fields.get("finishedAt"),
            duplicate=fields.get("duplicate", False),
            fields=fields,
        )

    @property
    def is_terminal(self) -> bool:
        return is_terminal(self.status)

    @property
    def succeeded(self) -> bool:
        """SUCCESS, or DONE by the handler's or the collector's word: cancelled and expired are no success."""
        return self.status == Status.SUCCESS or self.outcome in {Outcome.SKIPPED, Outcome.ACKNOWLEDGED}


@dataclass(frozen=True)
class TaskPage:
    """One page of a list. An empty page with `next_token` is not the end."""

    tasks: tuple[TaskView, ...]
    next_token: str | None


@dataclass(frozen=True)
class BatchReport:
    """What became of each task of `submit_many`, in order: the task, or the error that kept it out."""

    results: tuple[TaskView | ApiError, ...]

    @property
    def accepted(self) -> tuple[TaskView, ...]:
        return tuple(result for result in self.results if isinstance(result, TaskView))

    @property
    def rejected(self) -> tuple[tuple[int, ApiError], ...]:
        return tuple((index, result) for index, result in enumerate(self.results) if isinstance(result, ApiError))


class WaitTimeout(ApiError):
    """The task had not ended in time. It goes on; `task` is its last look."""

    def __init__(self, task: TaskView, seconds: float) -> None:
        super().__init__(0, "wait_timeout", f"task {task.task_id} is {task.status} after {seconds:g} s")
        self.task = task


def batch_result(answer: Mapping[str, Any]) -> TaskView | ApiError:
    if "error" not in answer:
        return TaskView.of(answer)
    return error_of(400, {}, jsontext.dumps({"error": answer["error"]}).encode(), attempts=1)


def poll_pauses() -> Iterator[float]:
    """Seconds between the looks of a `wait`, for ever."""
    pause = POLL_FIRST_SECONDS
    while True:
        yield pause
        pause = min(POLL_CAP_SECONDS, pause * 1.5)
