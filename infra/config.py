"""What is configured per environment: frozen values, read from CDK context here and nowhere else.

CDK is not imported, so that the CLI and the tests read the same configuration from `cdk.json`.
"""

from __future__ import annotations

import json
import re
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any, TypeVar

ROOT = Path(__file__).resolve().parent.parent

SCHEDULE_SECONDS = 60  # EventBridge's shortest rate
SHORTEST_LEASE_SECONDS = 60  # Lambda refuses a shorter maximum event age for asynchronous invocations
LONGEST_FUNCTION_SECONDS = 900
LONGEST_AGENT_SECONDS = 86_430  # a day for the task, and the executor's margin
KINDS = ("lambda", "agent")
LOG_RETENTION_DAYS = (1, 3, 5, 7, 14, 30, 60, 90, 120, 150, 180, 365, 400, 545, 731, 1827, 3653)
FUNCTION_NAMES = ("api", "poller", "reaper", "recorder")
TERMINAL_STATUSES = ("SUCCESS", "FAILED", "DONE")
NAME = re.compile(r"[a-z0-9][a-z0-9._-]{0,63}")
STACK_NAME = re.compile(r"[A-Za-z][A-Za-z0-9-]{0,79}")
EVENT_BUS = re.compile(r"[A-Za-z0-9._/-]{1,256}|arn:[a-z-]+:events:[a-z0-9-]+:[0-9]{12}:event-bus/[A-Za-z0-9._/-]+")
EMAIL = re.compile(r"[^@\s]+@[^@\s]+")
ISSUER = re.compile(r"https://[^\s?#]+")
ORIGIN = re.compile(r"https?://[A-Za-z0-9.-]+(:[0-9]{1,5})?")  # never `*`: who may script the API is named
PRINCIPAL = re.compile(r"account|arn:[a-z-]+:iam::[0-9]{12}:(root|role/[\w+=,.@/-]+|user/[\w+=,.@/-]+)")
ROLE_NAMES = ("submitter", "viewer", "operator")

T = TypeVar("T")


class ConfigError(ValueError):
    """A context value is missing or not allowed; the text names the key and what it may be."""


@dataclass(frozen=True, kw_only=True)
class ExecutorProfile:
    """One executor: which handlers it has, its size, and how much of it runs at once.

    One of kind `agent` has no function: its batches are run by `thunder agent` processes, wherever those are.

    `handlers` are directories relative to the project; each is staged beside the entry point under its own name.
    `queues` are those its types may name; the first one is their default.
    """

    name: str
    kind: str = "lambda"
    handlers: tuple[str, ...] = ("functions/executor/tasks",)
    code: str = "functions/executor"
    queues: tuple[str, ...] = ("default",)
    memory_mib: int = 512
    timeout_seconds: int = LONGEST_FUNCTION_SECONDS
    threads: int = 10
    max_in_flight: int = 20
    lease_seconds: int = 300
    reserved_concurrency: int | None = None

    @property
    def is_function(self) -> bool:
        return self.kind == "lambda"


@dataclass(frozen=True, kw_only=True)
class FunctionSize:
    """Memory (which also buys CPU) and, only where asked for, reserved concurrency."""

    memory_mib: int = 512
    reserved_concurrency: int | None = None


@dataclass(frozen=True, kw_only=True)
class DataProtection:
    """What happens to table, bucket and logs when they are deleted or replaced."""

    retain: bool = True
    deletion_protection: bool = True
    point_in_time_recovery: bool = True


@dataclass(frozen=True, kw_only=True)
class PollSettings:
    """The sweep's rhythm inside its minute, in seconds. A window of 0 is one pass a minute."""

    busy_seconds: float = 1
    idle_seconds: float = 5
    window_seconds: float = 50
    start_jitter_seconds: float = 3
    batch_size: int = 10


@dataclass(frozen=True, kw_only=True)
class Throttling:
    """Requests per second and burst that the API's stage lets through; beyond them it answers 429."""

    rate_per_second: int = 500
    burst: int = 1000


@dataclass(frozen=True, kw_only=True)
class JwtAuth:
    """Tokens instead of signatures: of this issuer, for one of these audiences, with a scope the route asks for."""

    issuer: str
    audience: tuple[str, ...]


@dataclass(frozen=True, kw_only=True)
class Cors:
    """Pages of which origins may call the API from a browser. The calls themselves are authorised as all others are."""

    allow_origins: tuple[str, ...]
    max_age_seconds: int = 600


@dataclass(frozen=True, kw_only=True)
class AccessRole:
    """A role of the API to make: a managed policy, and, when somebody is named to assume it, an IAM role with it.

    `assumed_by` are ARNs of IAM principals, or `account` for whoever this account lets.
    """

    name: str
    assumed_by: tuple[str, ...] = ()


@dataclass(frozen=True, kw_only=True)
class RecorderSettings:
    """What becomes of ended and removed tasks.

    Ends in `event_statuses` (none: no events) are told on `event_bus` (a name or an ARN; None: a bus of the stack's
    own). A batch that cannot be recorded is held back for `patience_seconds`, while the stream still has it; 0 where a
    batch that is held back would block its shard for ever.
    """

    event_bus: str | None = None
    event_statuses: tuple[str, ...] = TERMINAL_STATUSES
    patience_seconds: int = 21_600


@dataclass(frozen=True, kw_only=True)
class AlarmSettings:
    """From when on it is an alarm, and where to read what to do: `runbook` is the address of docs/operations.md."""

    oldest_due_seconds: int = 300
    failure_rate: float = 0.1
    runbook: str = "docs/operations.md"

    def runbook_section(self, heading: str) -> str:
        """The address of a section, as GitHub and most renderers of Markdown make it from its heading."""
        return f"{self.runbook}#{heading.lower()}"


@dataclass(frozen=True, kw_only=True)
class EnvironmentConfig:
    """One deployment: an environment of a named instance."""

    instance: str
    environment: str
    executors: tuple[ExecutorProfile, ...] = (ExecutorProfile(name="default"),)
    api: FunctionSize = FunctionSize(memory_mib=1024)
    poller: FunctionSize = FunctionSize()
    reaper: FunctionSize = FunctionSize()
    recorder: FunctionSize = FunctionSize()
    recording: RecorderSettings = RecorderSettings()
    protection: DataProtection = DataProtection()
    throttling: Throttling = Throttling()
    jwt: JwtAuth | None = None
    cors: Cors | None = None
    roles: tuple[AccessRole, ...] = ()
    poll: PollSettings = PollSettings()
    lease_grace_seconds: int = 5
    dispatch_shards: int = 4
    list_completed: bool = True
    doorbell: bool = True
    log_retention_days: int = 30
    log_level: str = "INFO"
    log_debug_share: float = 0
    tracing: bool = False
    alarms: AlarmSettings = AlarmSettings()
    alarm_email: str | None = None
    enforce_tls: bool = True

    @property
    def service_stack_name(self) -> str:
        """The stateless stack; also the value of the metric dimension `Service`."""
        return f"{self.instance}-{self.environment}"

    @property
    def data_stack_name(self) -> str:
        return f"{self.service_stack_name}-Data"

    @property
    def queues(self) -> tuple[str, ...]:
        """Every declared queue once, in the order of the profiles."""
        return tuple(dict.fromkeys(queue for profile in self.executors for queue in profile.queues))

    def executor(self, name: str) -> ExecutorProfile:
        """The profile of that name. Raises ConfigError when there is none."""
        for profile in self.executors:
            if profile.name == name:
                return profile
        raise ConfigError(f"executors: no profile {name!r}; configured: {_listed(p.name for p in self.executors)}")


def read_context(root: Path = ROOT) -> dict[str, Any]:
    """The context of `cdk.json`, for callers that are not started by the CDK CLI."""
    document: dict[str, Any] = json.loads((root / "cdk.json").read_text())
    context: dict[str, Any] = document["context"]
    return context


def load_config(context: Mapping[str, Any], environment: str | None = None) -> EnvironmentConfig:
    """The configuration of one environment: the one given, else context key `env`.

    Raises ConfigError when no known environment is named, a key is unknown, or a value is not allowed.
    """
    environments = _mapping(context.get("environments"), "environments")
    name = environment if environment is not None else context.get("env")
    if not isinstance(name, str) or name not in environments:
        given = "is missing" if name is None else f"is {name!r}"
        raise ConfigError(f"context key 'env' {given}: it must be one of {_listed(environments)} (-c env=...)")
    instance = context.get("name", "ThunderAgent")
    if not isinstance(instance, str) or not STACK_NAME.fullmatch(instance):
        raise ConfigError(f"context key 'name' is {instance!r}: it must match {STACK_NAME.pattern}")
    return _environment(instance, name, _Section(environments[name], f"environments.{name}"))


def _environment(instance: str, name: str, section: _Section) -> EnvironmentConfig:
    base = EnvironmentConfig(instance=instance, environment=name)
    jwt = _jwt(section.section("auth"))
    config = EnvironmentConfig(
        instance=instance,
        environment=name,
        executors=_executors(section, base),
        protection=_protection(section, base.protection),
        throttling=_throttling(section.section("throttling"), base.throttling),
        jwt=jwt,
        cors=_cors(section.optional_section("cors")),
        roles=_roles(section.section("roles"), jwt),
        poll=_poll(section.section("poll"), base.poll),
        recording=_recording(section.section("recording"), base.recording),
        **_functions(section.section("functions"), base),
        lease_grace_seconds=section.integer("leaseGraceSeconds", base.lease_grace_seconds, at_least=0, at_most=30),
        dispatch_shards=section.integer("dispatchShards", base.dispatch_shards, at_least=1, at_most=64),
        list_completed=section.flag("listCompleted", base.list_completed),
        doorbell=section.flag("doorbell", base.doorbell),
        log_retention_days=section.choice("logRetentionDays", base.log_retention_days, LOG_RETENTION_DAYS),
        log_level=section.choice("logLevel", base.log_level, ("DEBUG", "INFO", "WARNING", "ERROR")),
        log_debug_share=section.number("logDebugShare", base.log_debug_share, at_least=0, at_most=1),
        tracing=section.flag("tracing", base.tracing),
        alarms=_alarms(section.section("alarms"), base.alarms),
        alarm_email=section.optional_text("alarmEmail", EMAIL),
        enforce_tls=section.flag("enforceTls", base.enforce_tls),
    )
    section.refuse_unknown()
    return config


def _executors(section: _Section, base: EnvironmentConfig) -> tuple[ExecutorProfile, ...]:
    profiles = section.section("executors")
    if not profiles.keys:
        return base.executors
    return tuple(_executor(name, profiles.section(name)) for name in profiles.keys)


def _executor(name: str, section: _Section) -> ExecutorProfile:
    if not NAME.fullmatch(name):
        raise ConfigError(f"{section.path}: a profile's name must match {NAME.pattern}")
    kind = section.choice("kind", "lambda", KINDS)
    longest = LONGEST_FUNCTION_SECONDS if kind == "lambda" else LONGEST_AGENT_SECONDS
    base = ExecutorProfile(name=name, timeout_seconds=longest)
    profile = ExecutorProfile(
        name=name,
        kind=kind,
        handlers=section.texts("handlers", base.handlers),
        queues=section.texts("queues", base.queues, NAME),
        # The shortest task timeout is one second, and it ends 30 s before its executor's.
        timeout_seconds=section.integer("timeoutSeconds", base.timeout_seconds, at_least=31, at_most=longest),
        threads=section.integer("threads", base.threads, at_least=1, at_most=100),
        max_in_flight=section.integer("maxInFlight", base.max_in_flight, at_least=1, at_most=1000),
        lease_seconds=section.integer(
            "leaseSeconds", base.lease_seconds, at_least=SHORTEST_LEASE_SECONDS, at_most=21600
        ),
        **(_function_only(section, base) if kind == "lambda" else {}),
    )
    section.refuse_unknown()
    return profile


def _function_only(section: _Section, base: ExecutorProfile) -> dict[str, Any]:
    """What an agent's profile may not say."""
    return {
        "code": section.text("code", base.code),
        "memory_mib": _memory(section, base.memory_mib),
        "reserved_concurrency": _reserved(section),
    }


def _functions(section: _Section, base: EnvironmentConfig) -> dict[str, Any]:
    sizes = {name: _function(section.section(name), getattr(base, name)) for name in FUNCTION_NAMES}
    section.refuse_unknown()
    return sizes


def _function(section: _Section, base: FunctionSize) -> FunctionSize:
    size = FunctionSize(memory_mib=_memory(section, base.memory_mib), reserved_concurrency=_reserved(section))
    section.refuse_unknown()
    return size


def _protection(section: _Section, base: DataProtection) -> DataProtection:
    retain = section.flag("retainData", base.retain)
    return DataProtection(
        retain=retain,
        deletion_protection=section.flag("deletionProtection", retain),
        point_in_time_recovery=section.flag("pointInTimeRecovery", base.point_in_time_recovery),
    )


def _throttling(section: _Section, base: Throttling) -> Throttling:
    throttling = Throttling(
        rate_per_second=section.integer("ratePerSecond", base.rate_per_second, at_least=1, at_most=10_000),
        burst=section.integer("burst", base.burst, at_least=1, at_most=10_000),
    )
    section.refuse_unknown()
    return throttling


def _jwt(section: _Section) -> JwtAuth | None:
    """None: IAM, which has no settings."""
    kind = section.choice("kind", "iam", ("iam", "jwt"))
    if kind == "iam":
        section.refuse_unknown()
        return None
    jwt = JwtAuth(issuer=section.required_text("issuer", ISSUER), audience=section.texts("audience", ()))
    section.refuse_unknown()
    return jwt


def _cors(section: _Section | None) -> Cors | None:
    if section is None:
        return None
    cors = Cors(
        allow_origins=section.texts("allowOrigins", (), ORIGIN),
        max_age_seconds=section.integer("maxAgeSeconds", 600, at_least=0, at_most=86_400),
    )
    section.refuse_unknown()
    return cors


def _roles(section: _Section, jwt: JwtAuth | None) -> tuple[AccessRole, ...]:
    if section.keys and jwt is not None:
        raise ConfigError(f"{section.path}: with auth.kind jwt the token's scopes decide; roles are for auth.kind iam")
    roles = tuple(_role(name, section.section(name)) for name in section.keys if name in ROLE_NAMES)
    for name in ROLE_NAMES:
        section.section(name)  # known, whether asked for or not
    section.refuse_unknown()
    return roles


def _role(name: str, section: _Section) -> AccessRole:
    role = AccessRole(name=name, assumed_by=section.texts("assumedBy", (), PRINCIPAL, may_be_empty=True))
    section.refuse_unknown()
    return role


def _poll(section: _Section, base: PollSettings) -> PollSettings:
    poll = PollSettings(
        busy_seconds=section.number("busySeconds", base.busy_seconds, at_least=0, at_most=60),
        idle_seconds=section.number("idleSeconds", base.idle_seconds, at_least=0, at_most=60),
        window_seconds=section.number("windowSeconds", base.window_seconds, at_least=0, at_most=SCHEDULE_SECONDS),
        start_jitter_seconds=section.number("startJitterSeconds", base.start_jitter_seconds, at_least=0, at_most=30),
        batch_size=section.integer("batchSize", base.batch_size, at_least=1, at_most=100),
    )
    if poll.window_seconds + poll.start_jitter_seconds > SCHEDULE_SECONDS:
        raise ConfigError(
            f"{section.path}: windowSeconds + startJitterSeconds must be at most {SCHEDULE_SECONDS}, "
            "else pollers pile up"
        )
    section.refuse_unknown()
    return poll


def _alarms(section: _Section, base: AlarmSettings) -> AlarmSettings:
    alarms = AlarmSettings(
        oldest_due_seconds=section.integer("oldestDueSeconds", base.oldest_due_seconds, at_least=1, at_most=604_800),
        failure_rate=section.number("failureRate", base.failure_rate, at_least=0.001, at_most=1),
        runbook=section.text("runbook", base.runbook),
    )
    section.refuse_unknown()
    return alarms


def _recording(section: _Section, base: RecorderSettings) -> RecorderSettings:
    recording = RecorderSettings(
        event_bus=section.optional_text("eventBus", EVENT_BUS),
        event_statuses=section.texts(
            "eventStatuses", base.event_statuses, re.compile("|".join(TERMINAL_STATUSES)), may_be_empty=True
        ),
        patience_seconds=section.integer("patienceSeconds", base.patience_seconds, at_least=0, at_most=72_000),
    )
    section.refuse_unknown()
    return recording


def _memory(section: _Section, default: int) -> int:
    return section.integer("memoryMiB", default, at_least=128, at_most=10_240)


def _reserved(section: _Section) -> int | None:
    return section.optional_integer("reservedConcurrency", at_least=1, at_most=10_000)


class _Section:
    """One object of the context: typed reads that name the key when a value is not allowed, and what it may be."""

    def __init__(self, value: object, path: str) -> None:
        self.path = path
        self._values = _mapping(value, path)
        self._read: set[str] = set()

    @property
    def keys(self) -> tuple[str, ...]:
        return tuple(self._values)

    def section(self, key: str) -> _Section:
        return _Section(self._get(key, {}), self._at(key))

    def optional_section(self, key: str) -> _Section | None:
        return None if self._get(key, None) is None else self.section(key)

    def required_text(self, key: str, pattern: re.Pattern[str]) -> str:
        value = self._get(key, None)
        if not isinstance(value, str) or not pattern.fullmatch(value):
            raise self._refused(key, value, f"a text matching {pattern.pattern}")
        return value

    def text(self, key: str, default: str) -> str:
        value = self._get(key, default)
        if not isinstance(value, str) or not value:
            raise self._refused(key, value, "a non-empty text")
        return value

    def optional_text(self, key: str, pattern: re.Pattern[str]) -> str | None:
        value = self._get(key, None)
        if value is not None and not (isinstance(value, str) and pattern.fullmatch(value)):
            raise self._refused(key, value, f"a text matching {pattern.pattern}, or null")
        return value

    def texts(
        self,
        key: str,
        default: tuple[str, ...],
        pattern: re.Pattern[str] = re.compile(".+"),
        *,
        may_be_empty: bool = False,
    ) -> tuple[str, ...]:
        value = self._get(key, list(default))
        if not isinstance(value, list) or not (value or may_be_empty) or len(set(map(str, value))) < len(value):
            raise self._refused(key, value, "a list of different texts, at least one")
        for text in value:
            if not isinstance(text, str) or not pattern.fullmatch(text):
                raise self._refused(key, text, f"texts matching {pattern.pattern}")
        return tuple(value)

    def flag(self, key: str, default: bool) -> bool:
        value = self._get(key, default)
        if not isinstance(value, bool):
            raise self._refused(key, value, "true or false")
        return value

    def number(self, key: str, default: float, *, at_least: float, at_most: float) -> float:
        value = self._get(key, default)
        if isinstance(value, bool) or not isinstance(value, int | float) or not at_least <= value <= at_most:
            raise self._refused(key, value, f"a number from {at_least:g} to {at_most:g}")
        return value

    def integer(self, key: str, default: int, *, at_least: int, at_most: int) -> int:
        value = self._get(key, default)
        if type(value) is not int or not at_least <= value <= at_most:
            raise self._refused(key, value, f"an integer from {at_least} to {at_most}")
        return value

    def optional_integer(self, key: str, *, at_least: int, at_most: int) -> int | None:
        if self._get(key, None) is None:
            return None
        return self.integer(key, at_least, at_least=at_least, at_most=at_most)

    def choice(self, key: str, default: T, allowed: tuple[T, ...]) -> T:
        value = self._get(key, default)
        for candidate in allowed:
            if type(value) is type(candidate) and value == candidate:
                return candidate
        raise self._refused(key, value, f"one of {_listed(allowed)}")

    def refuse_unknown(self) -> None:
        """Call after the last read: a key nobody read is a misspelling."""
        for key in self._values:
            if key not in self._read:
                raise ConfigError(f"{self._at(key)} is not a known key; known: {_listed(sorted(self._read))}")

    def _get(self, key: str, default: Any) -> Any:
        self._read.add(key)
        return self._values.get(key, default)

    def _at(self, key: str) -> str:
        return f"{self.path}.{key}"

    def _refused(self, key: str, value: object, allowed: str) -> ConfigError:
        return ConfigError(f"{self._at(key)} is {value!r}: it must be {allowed}")


def _mapping(value: object, path: str) -> Mapping[str, Any]:
    if not isinstance(value, Mapping):
        raise ConfigError(f"{path} is {value!r}: it must be an object")
    return value


def _listed(values: Any) -> str:
    return ", ".join(str(value) for value in values) or "none"
