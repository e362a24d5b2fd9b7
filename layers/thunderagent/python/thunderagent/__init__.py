"""ThunderAgent: a distributed task agent on DynamoDB and Lambda.

    from thunderagent import task, Done, Fail, RetryLater, Backoff

Names are imported when first used: what an API function never touches costs its cold start nothing.
"""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from thunderagent.context import Context as Context
    from thunderagent.outbox import transact_submit as transact_submit
    from thunderagent.outcomes import Done as Done
    from thunderagent.outcomes import Fail as Fail
    from thunderagent.outcomes import RetryLater as RetryLater
    from thunderagent.registry import task as task
    from thunderagent.retry import Backoff as Backoff

_HOMES = {
    "Backoff": "retry",
    "Context": "context",
    "Done": "outcomes",
    "Fail": "outcomes",
    "RetryLater": "outcomes",
    "task": "registry",
    "transact_submit": "outbox",
}

__all__ = ["Backoff", "Context", "Done", "Fail", "RetryLater", "task", "transact_submit"]


def __getattr__(name: str) -> Any:
    if name not in _HOMES:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    value = getattr(import_module(f"{__name__}.{_HOMES[name]}"), name)
    globals()[name] = value
    return value


def __dir__() -> list[str]:
    return sorted({*globals(), *_HOMES})
