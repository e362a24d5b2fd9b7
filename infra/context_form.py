"""A configuration in the form of the context it could be read from: values made in Python obey the same rules."""

from __future__ import annotations

from typing import Any

from infra.config import (
    FUNCTION_NAMES,
    Encryption,
    EnvironmentConfig,
    ExecutorProfile,
    FunctionSize,
    read_environment,
)
from infra.section import Section


def as_section(config: EnvironmentConfig) -> dict[str, Any]:
    """The configuration as an object of the context that would be read as it."""
    return {
        "executors": {profile.name: _profile_section(profile) for profile in config.executors},
        "retainData": config.protection.retain,
        "deletionProtection": config.protection.deletion_protection,
        "pointInTimeRecovery": config.protection.point_in_time_recovery,
        "throttling": {"ratePerSecond": config.throttling.rate_per_second, "burst": config.throttling.burst},
        "auth": {"kind": "jwt", "issuer": config.jwt.issuer, "audience": list(config.jwt.audience)}
        if config.jwt
        else {"kind": "iam"},
        "cors": {"allowOrigins": list(config.cors.allow_origins), "maxAgeSeconds": config.cors.max_age_seconds}
        if config.cors
        else None,
        "roles": {role.name: {"assumedBy": list(role.assumed_by)} for role in config.roles},
        "poll": {
            "busySeconds": config.poll.busy_seconds,
            "idleSeconds": config.poll.idle_seconds,
            "windowSeconds": config.poll.window_seconds,
            "startJitterSeconds": config.poll.start_jitter_seconds,
            "batchSize": config.poll.batch_size,
        },
        "recording": {
            "eventBus": config.recording.event_bus,
            "eventStatuses": list(config.recording.event_statuses),
            "patienceSeconds": config.recording.patience_seconds,
        },
        "functions": {name: _size_section(getattr(config, name)) for name in FUNCTION_NAMES},
        "leaseGraceSeconds": config.lease_grace_seconds,
        "dispatchShards": config.dispatch_shards,
        "listCompleted": config.list_completed,
        "doorbell": config.doorbell,
        "logRetentionDays": config.log_retention_days,
        "logLevel": config.log_level,
        "logDebugShare": config.log_debug_share,
        "tracing": config.tracing,
        "alarms": {
            "oldestDueSeconds": config.alarms.oldest_due_seconds,
            "failureRate": config.alarms.failure_rate,
            "runbook": config.alarms.runbook,
        },
        "alarmEmails": list(config.alarm_emails),
        "enforceTls": config.enforce_tls,
        "encryption": _encryption_section(config.encryption),
        "vpc": {
            "vpcId": config.network.vpc_id,
            "subnetIds": list(config.network.subnet_ids),
            "securityGroupIds": list(config.network.security_group_ids),
        }
        if config.network
        else None,
        "architecture": config.architecture,
        "bundleFor": config.bundle_for,
        "queues": {name: dict(limits) for name, limits in config.queue_limits.items()},
        "tags": dict(config.tags),
        "rollout": config.rollout,
    }


def _profile_section(profile: ExecutorProfile) -> dict[str, Any]:
    section: dict[str, Any] = {
        "kind": profile.kind,
        "handlers": list(profile.handlers),
        "queues": list(profile.queues),
        "timeoutSeconds": profile.timeout_seconds,
        "threads": profile.threads,
        "maxInFlight": profile.max_in_flight,
        "leaseSeconds": profile.lease_seconds,
    }
    if profile.is_function:
        size = FunctionSize(memory_mib=profile.memory_mib, reserved_concurrency=profile.reserved_concurrency)
        section |= {"code": profile.code, **_size_section(size)}
    return section


def _size_section(size: FunctionSize) -> dict[str, Any]:
    return {"memoryMiB": size.memory_mib, "reservedConcurrency": size.reserved_concurrency}


def _encryption_section(encryption: Encryption | None) -> dict[str, Any]:
    if encryption is None:
        return {"kind": "aws"}
    return {"kind": "own"} if encryption.key_arn is None else {"kind": "given", "keyArn": encryption.key_arn}


def check_config(config: EnvironmentConfig) -> None:
    """Hold values that were not read from a context to the same rules. Raises ConfigError, with the context's names."""
    read_environment(config.instance, config.environment, Section(as_section(config), config.environment))
