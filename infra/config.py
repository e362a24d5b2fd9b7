"""The keys of `environments` in the CDK's context, read here and nowhere else into the values of `infra.environment`.

CDK is not imported, so that the CLI and the tests read the same configuration from `cdk.json`.
"""

from __future__ import annotations

import json
import re
from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any

from infra.environment import (
    ARM_64,
    AT_ONCE,
    LAMBDA,
    LONGEST_FUNCTION_SECONDS,
    ROLLOUTS,
    TERMINAL_STATUSES,
    THIS_MACHINE,
    X86_64,
    AccessRole,
    AlarmSettings,
    Cors,
    DataProtection,
    Encryption,
    EnvironmentConfig,
    ExecutorProfile,
    FunctionSize,
    JwtAuth,
    Network,
    PollSettings,
    RecorderSettings,
    Throttling,
)
from infra.section import ConfigError, Section, listed

__all__ = [
    "AccessRole",
    "AlarmSettings",
    "ConfigError",
    "Cors",
    "DataProtection",
    "Encryption",
    "EnvironmentConfig",
    "ExecutorProfile",
    "FunctionSize",
    "JwtAuth",
    "Network",
    "PollSettings",
    "RecorderSettings",
    "Throttling",
    "load_config",
    "read_context",
]

ROOT = Path(__file__).resolve().parent.parent

SCHEDULE_SECONDS = 60  # EventBridge's shortest rate
SHORTEST_LEASE_SECONDS = 60  # Lambda refuses a shorter maximum event age for asynchronous invocations
LONGEST_AGENT_SECONDS = 86_430  # a day for the task, and the executor's margin
KINDS = ("lambda", "agent")
TRANSPORTS = ("auto", "direct", "boto")
LOG_RETENTION_DAYS = (1, 3, 5, 7, 14, 30, 60, 90, 120, 150, 180, 365, 400, 545, 731, 1827, 3653)
FUNCTION_NAMES = ("api", "poller", "reaper", "recorder")
NAME = re.compile(r"[a-z0-9][a-z0-9._-]{0,63}")
STACK_NAME = re.compile(r"[A-Za-z][A-Za-z0-9-]{0,79}")
EVENT_BUS = re.compile(r"[A-Za-z0-9._/-]{1,256}|arn:[a-z-]+:events:[a-z0-9-]+:[0-9]{12}:event-bus/[A-Za-z0-9._/-]+")
EMAIL = re.compile(r"[^@\s]+@[^@\s]+")
ISSUER = re.compile(r"https://[^\s?#]+")
ORIGIN = re.compile(r"https?://[A-Za-z0-9.-]+(:[0-9]{1,5})?")  # never `*`: who may script the API is named
PRINCIPAL = re.compile(r"account|arn:[a-z-]+:iam::[0-9]{12}:(root|role/[\w+=,.@/-]+|user/[\w+=,.@/-]+)")
KEY_ARN = re.compile(r"arn:[a-z-]+:kms:[a-z0-9-]+:[0-9]{12}:key/[A-Za-z0-9-]+")
VPC_ID = re.compile(r"vpc-[0-9a-f]+")
SUBNET_ID = re.compile(r"subnet-[0-9a-f]+")
SECURITY_GROUP_ID = re.compile(r"sg-[0-9a-f]+")
TAG_KEY = re.compile(r"(?!aws:)[\w .:/=+@-]{1,128}")
TAG_VALUE = re.compile(r"[\w .:/=+@-]{0,256}")
ROLE_NAMES = ("submitter", "viewer", "operator")
ENCRYPTION_KINDS = ("aws", "own", "given")
EMBEDDED_KEY = "thunder:embedded"
TAGS_MAX = 40  # AWS takes 50 on a resource; some are the CDK's, ours and yours elsewhere


def project_root() -> Path:
    """Where handlers and `cdk.json` are unless somebody says: this checkout, or, without one, where we are."""
    return ROOT if (ROOT / "cdk.json").is_file() else Path.cwd()


def read_context(root: Path | None = None) -> dict[str, Any]:
    """The context of `cdk.json`, for callers that are not started by the CDK CLI."""
    root = root or project_root()
    document: dict[str, Any] = json.loads((root / "cdk.json").read_text())
    context: dict[str, Any] = document["context"]
    return context


def is_for_embedded_aws(context: object) -> bool:
    """The context key EMBEDDED_KEY of an app that is to be deployed to the embedded AWS; the CLI gives it as a text."""
    return context is True or context == "true"


def for_embedded_aws(config: EnvironmentConfig) -> EnvironmentConfig:
    """The same service as the embedded AWS can run it: without TLS and CodeDeploy, on this machine's interpreter, and
    with a recorder that holds nothing back, since there a batch that is held back blocks its shard for ever."""
    return replace(
        config,
        enforce_tls=False,
        bundle_for=THIS_MACHINE,
        rollout=AT_ONCE,
        recording=replace(config.recording, patience_seconds=0),
    )


def load_config(context: Mapping[str, Any], environment: str | None = None) -> EnvironmentConfig:
    """The configuration of one environment: the one given, else context key `env`.

    Raises ConfigError when no known environment is named, or, telling all at once, for keys that are unknown and
    values that are not allowed.
    """
    environments = context.get("environments")
    if not isinstance(environments, Mapping):
        raise ConfigError(f"environments is {environments!r}: it must be an object")
    name = environment if environment is not None else context.get("env")
    if not isinstance(name, str) or name not in environments:
        given = "is missing" if name is None else f"is {name!r}"
        raise ConfigError(f"context key 'env' {given}: it must be one of {listed(environments)} (-c env=...)")
    instance = context.get("name", "ThunderAgent")
    if not isinstance(instance, str) or not STACK_NAME.fullmatch(instance):
        raise ConfigError(f"context key 'name' is {instance!r}: it must match {STACK_NAME.pattern}")
    return read_environment(instance, name, Section(environments[name], f"environments.{name}"))


def read_environment(instance: str, name: str, section: Section) -> EnvironmentConfig:
    """Raises ConfigError, telling all at once, for keys that are unknown and values that are not allowed."""
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
        transport=section.choice("transport", base.transport, TRANSPORTS),
        tracing=section.flag("tracing", base.tracing),
        alarms=_alarms(section.section("alarms"), base.alarms),
        alarm_emails=_emails(section),
        enforce_tls=section.flag("enforceTls", base.enforce_tls),
        encryption=_encryption(section.section("encryption")),
        network=_network(section.optional_section("vpc")),
        architecture=section.choice("architecture", base.architecture, (ARM_64, X86_64)),
        bundle_for=section.choice("bundleFor", base.bundle_for, (LAMBDA, THIS_MACHINE)),
        queue_limits=_queue_limits(section.section("queues")),
        tags=_tags(section),
        rollout=section.choice("rollout", base.rollout, ROLLOUTS),
    )
    if not config.enforce_tls and config.bundle_for != THIS_MACHINE:
        section.complain(f"enforceTls: only an AWS on this machine has no TLS (bundleFor: {THIS_MACHINE})")
    unserved = sorted(set(config.queue_limits) - set(config.queues))
    if unserved:
        section.complain(f"queues: no executor serves {listed(unserved)}; served: {listed(config.queues)}")
    section.refuse_unknown()
    section.raise_complaints()
    return config


def _emails(section: Section) -> tuple[str, ...]:
    """`alarmEmail` is one, `alarmEmails` are several; both together are all of them."""
    one = section.optional_text("alarmEmail", EMAIL)
    several = section.texts("alarmEmails", (), EMAIL, may_be_empty=True)
    return tuple(dict.fromkeys((*((one,) if one else ()), *several)))


def _encryption(section: Section) -> Encryption | None:
    """None: keys of AWS's own, which cost nothing and have no policy."""
    kind = section.choice("kind", "aws", ENCRYPTION_KINDS)
    key_arn = section.required_text("keyArn", KEY_ARN) if kind == "given" else None
    section.refuse_unknown()
    return None if kind == "aws" else Encryption(key_arn=key_arn)


def _network(section: Section | None) -> Network | None:
    if section is None:
        return None
    network = Network(
        vpc_id=section.required_text("vpcId", VPC_ID),
        subnet_ids=section.texts("subnetIds", (), SUBNET_ID),
        security_group_ids=section.texts("securityGroupIds", (), SECURITY_GROUP_ID, may_be_empty=True),
    )
    section.refuse_unknown()
    return network


def _queue_limits(section: Section) -> dict[str, dict[str, Any]]:
    return {name: _limits_of(name, section.section(name)) for name in section.keys}


def _limits_of(name: str, section: Section) -> dict[str, Any]:
    """A queue's deployed limits, by the names that `PUT /queues/{queue}` gives them."""
    if not NAME.fullmatch(name):
        section.complain(f"a queue's name must match {NAME.pattern}")
    limits = {
        "maxConcurrency": section.optional_integer("maxConcurrency", at_least=0, at_most=100_000),
        "ratePerSecond": section.optional_number("ratePerSecond", at_least=0.001, at_most=100_000),
        "burst": section.optional_integer("burst", at_least=1, at_most=100_000),
        "maxBacklog": section.optional_integer("maxBacklog", at_least=1, at_most=1_000_000_000),
    }
    section.refuse_unknown()
    return {limit: value for limit, value in limits.items() if value is not None}


def _tags(section: Section) -> dict[str, str]:
    tags = section.text_map("tags", TAG_KEY, TAG_VALUE)
    if len(tags) > TAGS_MAX:
        section.complain(f"tags: there are {len(tags)}; at most {TAGS_MAX}")
    return tags


def _executors(section: Section, base: EnvironmentConfig) -> tuple[ExecutorProfile, ...]:
    profiles = section.section("executors")
    if not profiles.keys:
        return base.executors
    return tuple(_executor(name, profiles.section(name)) for name in profiles.keys)


def _executor(name: str, section: Section) -> ExecutorProfile:
    if not NAME.fullmatch(name):
        section.complain(f"a profile's name must match {NAME.pattern}")
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


def _function_only(section: Section, base: ExecutorProfile) -> dict[str, Any]:
    """What an agent's profile may not say."""
    return {
        "code": section.text("code", base.code),
        "memory_mib": _memory(section, base.memory_mib),
        "reserved_concurrency": _reserved(section),
    }


def _functions(section: Section, base: EnvironmentConfig) -> dict[str, Any]:
    sizes = {name: _function(section.section(name), getattr(base, name)) for name in FUNCTION_NAMES}
    section.refuse_unknown()
    return sizes


def _function(section: Section, base: FunctionSize) -> FunctionSize:
    size = FunctionSize(memory_mib=_memory(section, base.memory_mib), reserved_concurrency=_reserved(section))
    section.refuse_unknown()
    return size


def _protection(section: Section, base: DataProtection) -> DataProtection:
    retain = section.flag("retainData", base.retain)
    return DataProtection(
        retain=retain,
        deletion_protection=section.flag("deletionProtection", retain),
        point_in_time_recovery=section.flag("pointInTimeRecovery", base.point_in_time_recovery),
    )


def _throttling(section: Section, base: Throttling) -> Throttling:
    throttling = Throttling(
        rate_per_second=section.integer("ratePerSecond", base.rate_per_second, at_least=1, at_most=10_000),
        burst=section.integer("burst", base.burst, at_least=1, at_most=10_000),
    )
    section.refuse_unknown()
    return throttling


def _jwt(section: Section) -> JwtAuth | None:
    """None: IAM, which has no settings."""
    kind = section.choice("kind", "iam", ("iam", "jwt"))
    if kind == "iam":
        section.refuse_unknown()
        return None
    jwt = JwtAuth(issuer=section.required_text("issuer", ISSUER), audience=section.texts("audience", ()))
    section.refuse_unknown()
    return jwt


def _cors(section: Section | None) -> Cors | None:
    if section is None:
        return None
    cors = Cors(
        allow_origins=section.texts("allowOrigins", (), ORIGIN),
        max_age_seconds=section.integer("maxAgeSeconds", 600, at_least=0, at_most=86_400),
    )
    section.refuse_unknown()
    return cors


def _roles(section: Section, jwt: JwtAuth | None) -> tuple[AccessRole, ...]:
    if section.keys and jwt is not None:
        section.complain("with auth.kind jwt the token's scopes decide; roles are for auth.kind iam")
    roles = tuple(_role(name, section.section(name)) for name in section.keys if name in ROLE_NAMES)
    for name in ROLE_NAMES:
        section.section(name)  # known, whether asked for or not
    section.refuse_unknown()
    return roles


def _role(name: str, section: Section) -> AccessRole:
    role = AccessRole(name=name, assumed_by=section.texts("assumedBy", (), PRINCIPAL, may_be_empty=True))
    section.refuse_unknown()
    return role


def _poll(section: Section, base: PollSettings) -> PollSettings:
    poll = PollSettings(
        busy_seconds=section.number("busySeconds", base.busy_seconds, at_least=0, at_most=60),
        idle_seconds=section.number("idleSeconds", base.idle_seconds, at_least=0, at_most=60),
        window_seconds=section.number("windowSeconds", base.window_seconds, at_least=0, at_most=SCHEDULE_SECONDS),
        start_jitter_seconds=section.number("startJitterSeconds", base.start_jitter_seconds, at_least=0, at_most=30),
        batch_size=section.integer("batchSize", base.batch_size, at_least=1, at_most=100),
    )
    if poll.window_seconds + poll.start_jitter_seconds > SCHEDULE_SECONDS:
        section.complain(f"windowSeconds + startJitterSeconds must be at most {SCHEDULE_SECONDS}, else pollers pile up")
    section.refuse_unknown()
    return poll


def _alarms(section: Section, base: AlarmSettings) -> AlarmSettings:
    alarms = AlarmSettings(
        oldest_due_seconds=section.integer("oldestDueSeconds", base.oldest_due_seconds, at_least=1, at_most=604_800),
        failure_rate=section.number("failureRate", base.failure_rate, at_least=0.001, at_most=1),
        runbook=section.text("runbook", base.runbook),
    )
    section.refuse_unknown()
    return alarms


def _recording(section: Section, base: RecorderSettings) -> RecorderSettings:
    recording = RecorderSettings(
        event_bus=section.optional_text("eventBus", EVENT_BUS),
        event_statuses=section.texts(
            "eventStatuses", base.event_statuses, re.compile("|".join(TERMINAL_STATUSES)), may_be_empty=True
        ),
        patience_seconds=section.integer("patienceSeconds", base.patience_seconds, at_least=0, at_most=72_000),
    )
    section.refuse_unknown()
    return recording


def _memory(section: Section, default: int) -> int:
    return section.integer("memoryMiB", default, at_least=128, at_most=10_240)


def _reserved(section: Section) -> int | None:
    return section.optional_integer("reservedConcurrency", at_least=1, at_most=10_000)
