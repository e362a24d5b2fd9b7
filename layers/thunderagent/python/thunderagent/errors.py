"""Every error the library raises, under one root. Facts are attributes; the text says what to do next.

Three families: the caller's mistake (`RequestError`), a right that was lost (`LeaseLost`), and a dependency that
fails (`StoreError`, `DispatchError`), which say whether a retry is safe. Losing a race for a claim is not an error.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any


class ThunderAgentError(Exception):
    """Root of every error of this library."""


# ---- the caller's mistake -------------------------------------------------------------------------------------------


class RequestError(ThunderAgentError):
    """The request cannot be accepted as it is; nothing was written.

    `code` is the stable error code of the HTTP contract, `path` names the offending field where there is one.
    """

    code = "validation_error"

    def __init__(self, message: str, *, path: str | None = None, code: str | None = None) -> None:
        super().__init__(message)
        self.message = message
        self.path = path
        if code is not None:
            self.code = code


class InvalidInput(RequestError):
    """A value is not acceptable (HTTP 400)."""


class TooLarge(RequestError):
    """A body or payload exceeds its limit in UTF-8 bytes (HTTP 413)."""

    code = "too_large"


class NotFound(RequestError):
    """There is no such task, queue or schedule (HTTP 404)."""

    code = "not_found"


class Conflict(RequestError):
    """The stored state does not allow it (HTTP 409). `status` is the actual state where one is known."""

    code = "conflict"

    def __init__(self, message: str, *, status: str | None = None, code: str | None = None) -> None:
        super().__init__(message, code=code)
        self.status = status


class Unprocessable(RequestError):
    """Well-formed, but it names something that does not exist or cannot be: queue, dependency, cycle (HTTP 422)."""

    code = "unprocessable"


class Backlogged(RequestError):
    """The queue holds `maxBacklog` tasks already (HTTP 429). `retry_after_seconds` is a hint."""

    code = "backlog_full"

    def __init__(self, message: str, *, retry_after_seconds: int) -> None:
        super().__init__(message)
        self.retry_after_seconds = retry_after_seconds


# ---- a right that was lost ------------------------------------------------------------------------------------------


class LeaseLost(ThunderAgentError):
    """This holder may no longer write the task: its lease was closed, or the task ended or moved on."""

    def __init__(self, task_id: str, *, reason: str) -> None:
        super().__init__(f"task {task_id}: the right to write it is gone ({reason})")
        self.task_id = task_id
        self.reason = reason


class TaskCancelled(LeaseLost):
    """The task was cancelled while it ran; whatever the handler returns has no effect."""

    def __init__(self, task_id: str) -> None:
        super().__init__(task_id, reason="cancelled")


# ---- a dependency that fails ----------------------------------------------------------------------------------------


class StoreError(ThunderAgentError):
    """DynamoDB did not do what was asked. `applied` is False when the write surely had no effect, None when unknown."""

    applied: bool | None = None

    def __init__(self, operation: str, code: str, message: str = "") -> None:
        super().__init__(f"{operation}: {code}{': ' if message else ''}{message}")
        self.operation = operation
        self.code = code


class StoreThrottled(StoreError):
    """DynamoDB refused for lack of throughput. Nothing was written; trying later is safe."""

    applied = False


class StoreRefused(StoreError):
    """DynamoDB refused the request itself (validation, access, missing table or index). Nothing was written."""

    applied = False


class OutcomeUnknown(StoreError):
    """The request was sent and no answer came: the write may or may not have been applied."""


class ConditionFailed(StoreError):
    """The write's condition did not hold; `item` is the stored item (raw attribute values), None when there is none.

    Raised at the `send` seam only: the store classifies it.
    """

    applied = False

    def __init__(self, operation: str, item: Mapping[str, Any] | None) -> None:
        super().__init__(operation, "ConditionalCheckFailedException")
        self.item = item


class TransactionCancelled(StoreError):
    """A transaction was refused whole. `reasons` has one (code, raw old item or None) per entry, in order.

    Raised at the `send` seam only: the store classifies it.
    """

    applied = False

    def __init__(self, operation: str, reasons: Sequence[tuple[str, Mapping[str, Any] | None]]) -> None:
        super().__init__(operation, "TransactionCanceledException", ", ".join(code for code, _ in reasons))
        self.reasons = tuple(reasons)


class DispatchError(ThunderAgentError):
    """An executor could not be invoked. `accepted` is False when it surely was not, None when the answer is unknown."""

    def __init__(self, function: str, code: str, *, accepted: bool | None) -> None:
        super().__init__(f"invoke {function}: {code}")
        self.function = function
        self.code = code
        self.accepted = accepted


class MalformedItem(ThunderAgentError):
    """A stored row does not have the form of its kind. It is parked or skipped, never a reason to stop a loop."""

    def __init__(self, item_id: str, problem: str) -> None:
        super().__init__(f"item {item_id}: {problem}")
        self.item_id = item_id
        self.problem = problem


class BodyMissing(ThunderAgentError):
    """A task refers to a body (payload or result) that is no longer stored."""

    def __init__(self, reference: str) -> None:
        super().__init__(f"body {reference} is not stored (expired or erased)")
        self.reference = reference


class ConfigurationError(ThunderAgentError):
    """A setting, a registry or a declaration is wrong; the text names it and the allowed values."""


def place_of(error: BaseException) -> str | None:
    """File, line and function an exception came from: what to look at, without its text and the values in it."""
    traceback = error.__traceback__
    if traceback is None:
        return None
    while traceback.tb_next is not None:
        traceback = traceback.tb_next
    code = traceback.tb_frame.f_code
    return f"{code.co_filename}:{traceback.tb_lineno} {code.co_name}"
