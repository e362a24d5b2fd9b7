"""An executor: runs one leased batch through the handlers of its profile."""

from __future__ import annotations

import math
from collections.abc import Callable
from functools import cache
from typing import Any

from thunderagent.errors import InvalidInput
from thunderagent.leased_batch import Batch
from thunderagent.registry import load_handlers
from thunderagent.runner import Runner
from thunderagent.schema import EXECUTOR_MARGIN_SECONDS
from thunderagent.seams import deferred
from thunderagent.threads import exit_process
from thunderagent.wiring import Parts, parts_from_environment


@cache
def parts() -> Parts:
    return parts_from_environment(threads=1)


@cache
def runner() -> Runner:
    """Once per container; the profile's modules are imported here. Raises ConfigurationError."""
    own = parts()
    settings = own.settings
    executor = settings.executors[settings.executor_profile]
    return Runner(
        own.store,
        own.bodies,
        load_handlers(own.registry.modules_of(settings.executor_profile)),
        threads=own.seams.threads,
        concurrency=executor.threads,
        lease_seconds=settings.lease_seconds,
        observer=own.telemetry,
        submitter=deferred(lambda: own.submitter),
        relatives=own.relatives,
        task_seconds=executor.timeout_seconds - EXECUTOR_MARGIN_SECONDS,
        end_process=_flush_and_exit,
    )


def handler(event: Any, context: Any) -> dict[str, Any]:
    """One asynchronous invocation: one batch. Returns what became of it, for whoever invokes it by hand.

    What is no batch is logged and dropped: nobody waits for an answer, and a failure would only discard the container.
    """
    own = parts()
    own.begin()
    try:
        batch = Batch.from_event(event)
    except InvalidInput as problem:
        own.telemetry.log("batch.malformed", level="ERROR", problem=problem.message)
        return {"begun": False}
    try:
        return runner().run(batch, _remaining_seconds(context)).as_dict()
    finally:
        own.flush()


def _remaining_seconds(context: Any) -> Callable[[], float]:
    if context is None:
        return lambda: math.inf
    return lambda: float(context.get_remaining_time_in_millis()) / 1000


def _flush_and_exit() -> None:
    parts().flush()
    exit_process()
