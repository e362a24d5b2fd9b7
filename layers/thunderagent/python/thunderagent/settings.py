"""What the environment of a function says, read once per container and validated.

The only reader of `os.environ` beside `aws_environment`.
"""

from __future__ import annotations

import json
import os
from collections.abc import Mapping
from dataclasses import dataclass, field
from functools import cached_property
from typing import Any

from thunderagent.errors import ConfigurationError
from thunderagent.states import TERMINAL


@dataclass(frozen=True)
class Executor:
    """One executor profile: who runs its batches, and how much at once. `function` is the Lambda function of a profile
    of that kind; those of kind `agent` are run by `thunder agent` processes alone."""

    name: str
    function: str
    timeout_seconds: float = 900
    threads: int = 10
    max_in_flight: int = 20
    lease_seconds: float = 300
    kind: str = "lambda"


KINDS = ("lambda", "agent")
TRANSPORTS = ("auto", "direct", "boto")  # how requests reach DynamoDB and Lambda; see `seams`


@dataclass(frozen=True)
class Settings:
    """The whole configuration of a container. `ENVIRONMENT_NAMES` says which variable each field comes from; `serves`
    is the profile of an agent, which claims for itself alone."""

    table_name: str
    region: str = "us-east-1"
    bucket_name: str | None = None
    service_name: str = "ThunderAgent"
    environment: str = "local"
    executors: Mapping[str, Executor] = field(default_factory=dict)
    executor_profile: str = "default"
    lease_seconds: float = 300
    lease_grace_seconds: float = 5
    poll_busy_seconds: float = 1
    poll_idle_seconds: float = 5
    poll_window_seconds: float = 50
    poll_start_jitter_seconds: float = 3
    poll_batch_size: int = 10
    dispatch_shards: int = 4
    list_completed: bool = True
    log_level: str = "INFO"
    log_debug_share: float = 0
    event_bus: str | None = None
    event_statuses: frozenset[str] = frozenset({"SUCCESS", "FAILED", "DONE"})
    failures_queue_url: str | None = None
    undelivered_queue_url: str | None = None
    recorder_patience_seconds: float = 21_600
    transport: str = "auto"
    memory_mib: float | None = None  # of a function; None in a process that is none
    serves: str | None = None

    @cached_property
    def served(self) -> dict[str, Executor]:
        """The profiles whose tasks this container claims and sends: an agent's own, or those that Lambda runs."""
        if self.serves is not None:
            return {self.serves: self.executors[self.serves]}
        return {name: executor for name, executor in self.executors.items() if executor.kind == "lambda"}

    def has_handler_elsewhere(self, profile: str | None) -> bool:
        """Whether tasks of a profile that is not served here are somebody else's to claim. An agent, which may know no
        other profile, leaves whatever is not its own."""
        return self.serves is not None or profile in self.executors


ENVIRONMENT_NAMES: dict[str, str] = {
    "table_name": "TABLE_NAME",
    "region": "AWS_REGION",
    "bucket_name": "BUCKET_NAME",
    "service_name": "SERVICE_NAME",
    "environment": "ENVIRONMENT",
    "executors": "EXECUTORS",
    "executor_profile": "EXECUTOR_PROFILE",
    "lease_seconds": "LEASE_SECONDS",
    "lease_grace_seconds": "LEASE_GRACE_SECONDS",
    "poll_busy_seconds": "POLL_BUSY_SECONDS",
    "poll_idle_seconds": "POLL_IDLE_SECONDS",
    "poll_window_seconds": "POLL_WINDOW_SECONDS",
    "poll_start_jitter_seconds": "POLL_START_JITTER_SECONDS",
    "poll_batch_size": "POLL_BATCH_SIZE",
    "dispatch_shards": "DISPATCH_SHARDS",
    "list_completed": "LIST_COMPLETED",
    "log_level": "LOG_LEVEL",
    "log_debug_share": "LOG_DEBUG_SHARE",
    "event_bus": "EVENT_BUS",
    "event_statuses": "EVENT_STATUSES",
    "failures_queue_url": "FAILURES_QUEUE_URL",
    "undelivered_queue_url": "UNDELIVERED_QUEUE_URL",
    "recorder_patience_seconds": "RECORDER_PATIENCE_SECONDS",
    "transport": "TRANSPORT",
    "memory_mib": "AWS_LAMBDA_FUNCTION_MEMORY_SIZE",
}


def load_settings(environ: Mapping[str, str] | None = None) -> Settings:
    """Settings from the environment. Raises ConfigurationError naming the variable and what it may be."""
    source = os.environ if environ is None else environ
    if not source.get("TABLE_NAME"):
        raise ConfigurationError("TABLE_NAME is not set: it must name the task table")
    return Settings(
        table_name=source["TABLE_NAME"],
        region=source.get("AWS_REGION") or source.get("AWS_DEFAULT_REGION") or "us-east-1",
        bucket_name=source.get("BUCKET_NAME") or None,
        service_name=source.get("SERVICE_NAME") or "ThunderAgent",
        environment=source.get("ENVIRONMENT") or "local",
        executors=_executors(source.get("EXECUTORS") or "{}"),
        executor_profile=source.get("EXECUTOR_PROFILE") or "default",
        lease_seconds=_number(source, "LEASE_SECONDS", 300, minimum=10),
        lease_grace_seconds=_number(source, "LEASE_GRACE_SECONDS", 5, minimum=0),
        poll_busy_seconds=_number(source, "POLL_BUSY_SECONDS", 1, minimum=0),
        poll_idle_seconds=_number(source, "POLL_IDLE_SECONDS", 5, minimum=0),
        poll_window_seconds=_number(source, "POLL_WINDOW_SECONDS", 50, minimum=0),
        poll_start_jitter_seconds=_number(source, "POLL_START_JITTER_SECONDS", 3, minimum=0),
        poll_batch_size=int(_number(source, "POLL_BATCH_SIZE", 10, minimum=1)),
        dispatch_shards=int(_number(source, "DISPATCH_SHARDS", 4, minimum=1)),
        list_completed=_flag(source, "LIST_COMPLETED", default=True),
        log_level=(source.get("LOG_LEVEL") or "INFO").upper(),
        log_debug_share=_number(source, "LOG_DEBUG_SHARE", 0, minimum=0),
        event_bus=source.get("EVENT_BUS") or None,
        event_statuses=_statuses(source.get("EVENT_STATUSES") or "SUCCESS,FAILED,DONE"),
        failures_queue_url=source.get("FAILURES_QUEUE_URL") or None,
        undelivered_queue_url=source.get("UNDELIVERED_QUEUE_URL") or None,
        recorder_patience_seconds=_number(source, "RECORDER_PATIENCE_SECONDS", 21_600, minimum=0),
        transport=_transport(source.get("TRANSPORT") or "auto"),
        memory_mib=_number(source, "AWS_LAMBDA_FUNCTION_MEMORY_SIZE", 0, minimum=0) or None,
    )


def _number(source: Mapping[str, str], name: str, default: float, *, minimum: float) -> float:
    text = source.get(name, "")
    if text == "":
        return default
    try:
        value = float(text)
    except ValueError:
        value = float("nan")
    if not minimum <= value < 1e9:
        raise ConfigurationError(f"{name}={text!r}: a number of at least {minimum:g} is needed")
    return value


def _flag(source: Mapping[str, str], name: str, *, default: bool) -> bool:
    text = source.get(name, "").lower()
    if text not in {"", "true", "false"}:
        raise ConfigurationError(f"{name}={text!r}: true or false is needed")
    return default if text == "" else text == "true"


def _transport(text: str) -> str:
    if text not in TRANSPORTS:
        raise ConfigurationError(f"TRANSPORT={text!r}: one of {', '.join(TRANSPORTS)} is needed")
    return text


def _statuses(text: str) -> frozenset[str]:
    names = frozenset(name.strip() for name in text.split(","))
    if not names <= TERMINAL:
        raise ConfigurationError(f"EVENT_STATUSES={text!r}: a list of {', '.join(sorted(TERMINAL))} is needed")
    return names


def _executors(text: str) -> dict[str, Executor]:
    try:
        profiles: dict[str, dict[str, Any]] = json.loads(text)
        return {name: _executor(name, profile) for name, profile in profiles.items()}
    except (ValueError, AttributeError, KeyError, TypeError) as error:
        raise ConfigurationError(f"EXECUTORS is not a JSON object of executor profiles: {error!r}") from error


def _executor(name: str, profile: Mapping[str, Any]) -> Executor:
    kind = profile.get("kind", "lambda")
    if kind not in KINDS:
        raise ConfigurationError(f"EXECUTORS: profile {name!r} has kind {kind!r}: one of {', '.join(KINDS)} is needed")
    return Executor(
        name=name,
        kind=kind,
        function=profile["function"] if kind == "lambda" else profile.get("function", ""),
        timeout_seconds=_at_least(1, profile, "timeoutSeconds", 900),
        threads=int(_at_least(1, profile, "threads", 10)),
        max_in_flight=int(_at_least(0, profile, "maxInFlight", 20)),
        lease_seconds=_at_least(10, profile, "leaseSeconds", 300),
    )


def _at_least(minimum: float, profile: Mapping[str, Any], name: str, default: float) -> float:
    value = float(profile.get(name, default))
    if not minimum <= value < 1e9:
        raise ValueError(f"{name} is {value:g}; at least {minimum:g} is needed")
    return value
