"""What an agent works with: its stack's settings, its profile's handlers, and the registry of all types.

An agent's process has the environment an executor function has, so that handlers find the same names in it: TABLE_NAME,
BUCKET_NAME, AWS_REGION; on this machine also the endpoint and the keys of the local stack. What the shell says of these
holds, except where another stack was asked for.
"""

from __future__ import annotations

import json
import os
from collections.abc import Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Any, TextIO

from infra.config import (
    LONGEST_AGENT_SECONDS,
    ConfigError,
    EnvironmentConfig,
    ExecutorProfile,
    load_config,
    read_context,
)
from thunder.cli import target
from thunder.cli.errors import Failed, Refused
from thunder.cli.options import Options
from thunderagent.errors import ConfigurationError
from thunderagent.registry import REGISTRY_FILE, REGISTRY_PACKAGE, Registry
from thunderagent.registry_build import ProfileSource, build_registry
from thunderagent.telemetry import Telemetry

if TYPE_CHECKING:
    from thunderagent.settings import Settings

BUILT = "build/registry"
FOREIGN = ("AWS_PROFILE", "AWS_DEFAULT_PROFILE", "AWS_SESSION_TOKEN", "AWS_SECURITY_TOKEN")


# ---- where ----------------------------------------------------------------------------------------------------------


def stack_environment(options: Options, environ: Mapping[str, str]) -> dict[str, str]:
    """The variables that say which stack: from the shell when it names a table and the options name no stack, else from
    the stack. Raises Refused when none is meant, NotFound when it is not there."""
    if environ.get("TABLE_NAME") and not (options.local or options.stack or options.api_url):
        return _of_options(options)
    found = target.locate(options)
    return _of_record(found) if found.is_local else {**_of_options(options), **_of_stack(found)}


def _of_options(options: Options) -> dict[str, str]:
    said = {
        "AWS_PROFILE": options.profile,
        "AWS_REGION": options.region,
        "AWS_DEFAULT_REGION": options.region,
        "AWS_ENDPOINT_URL": options.endpoint_url,
    }
    return {name: value for name, value in said.items() if value}


def _of_record(stack: target.Target) -> dict[str, str]:
    record = stack.record or {}
    return {
        **dict.fromkeys(FOREIGN, ""),
        "TABLE_NAME": str(record["tableName"]),
        "BUCKET_NAME": str(record["bucketName"]),
        "SERVICE_NAME": stack.service or "",
        "AWS_REGION": str(record["region"]),
        "AWS_DEFAULT_REGION": str(record["region"]),
        "AWS_ENDPOINT_URL": stack.options.endpoint_url or str(record["endpoint"]),
        "AWS_ACCESS_KEY_ID": str(record["accessKeyId"]),
        "AWS_SECRET_ACCESS_KEY": str(record["secretAccessKey"]),
    }


def _of_stack(stack: target.Target) -> dict[str, str]:
    if stack.service is None or stack.table_name is None:
        raise Refused("an agent works on the table itself: name the stack with --stack, or the table in TABLE_NAME")
    outputs = target.stack_outputs(stack.aws("cloudformation"), stack.service)
    region = stack.region or ""
    return {
        "TABLE_NAME": stack.table_name,
        "BUCKET_NAME": outputs.get("ArchiveBucketName", ""),
        "SERVICE_NAME": stack.service,
        "AWS_REGION": region,
        "AWS_DEFAULT_REGION": region,
    }


def apply(variables: Mapping[str, str]) -> None:
    """Put them into this process's environment; an empty one is taken out of it."""
    for name, value in variables.items():
        if value:
            os.environ[name] = value
        else:
            os.environ.pop(name, None)


# ---- how ------------------------------------------------------------------------------------------------------------


def project_config(root: Path, environment: str | None, service: str) -> EnvironmentConfig | None:
    """The configuration of the stack in a project's cdk.json: of the environment named, else of the one whose stack has
    that name. None where there is no project, or no name to go by. Raises Refused when it cannot be told which."""
    if not (root / "cdk.json").is_file() or not (environment or service):
        return None
    try:
        context = read_context(root)
        if environment is not None:
            return load_config(context, environment)
        every = [load_config(context, name) for name in context["environments"]]
    except (ConfigError, KeyError, ValueError) as error:
        raise Failed(f"{root / 'cdk.json'}: {error}") from error
    for config in every:
        if config.service_stack_name == service:
            return config
    raise Refused(f"no environment of cdk.json makes the stack {service}: name one with --env")


def default_variables(config: EnvironmentConfig | None, profile: str) -> dict[str, str]:
    """What the functions of the stack are told, for whatever the shell does not say."""
    if config is None:
        return {"EXECUTORS": json.dumps({profile: _executor(_of_no_project(profile))})}
    poll = config.poll
    return {
        "ENVIRONMENT": config.environment,
        "EXECUTORS": json.dumps({each.name: _executor(each) for each in config.executors}),
        "LEASE_GRACE_SECONDS": str(config.lease_grace_seconds),
        "DISPATCH_SHARDS": str(config.dispatch_shards),
        "LIST_COMPLETED": "true" if config.list_completed else "false",
        "LOG_LEVEL": config.log_level,
        "POLL_BUSY_SECONDS": f"{poll.busy_seconds:g}",
        "POLL_IDLE_SECONDS": f"{poll.idle_seconds:g}",
        "POLL_START_JITTER_SECONDS": f"{poll.start_jitter_seconds:g}",
        "POLL_BATCH_SIZE": str(poll.batch_size),
    }


def _of_no_project(profile: str) -> ExecutorProfile:
    return ExecutorProfile(name=profile, kind="agent", timeout_seconds=LONGEST_AGENT_SECONDS)


def _executor(profile: ExecutorProfile) -> dict[str, Any]:
    return {
        "kind": profile.kind,
        "function": "",
        "timeoutSeconds": profile.timeout_seconds,
        "threads": profile.threads,
        "maxInFlight": profile.max_in_flight,
        "leaseSeconds": profile.lease_seconds,
    }


def served_by(settings: Settings, profile: str, threads: int | None) -> Settings:
    """The settings of an agent of that profile. Raises Refused when the stack has none of that name."""
    if profile not in settings.executors:
        known = ", ".join(sorted(settings.executors)) or "none"
        raise Refused(f"there is no executor profile {profile!r}; configured: {known}")
    executor = settings.executors[profile]
    own = replace(executor, threads=threads or executor.threads)
    return replace(settings, serves=profile, executors={**settings.executors, profile: own})


def telemetry_of(settings: Settings, registry: Registry, *, stream: TextIO, with_metrics: bool) -> Telemetry:
    """Log lines for people and log stores; metrics only for a log store that reads them out of the lines."""
    made = Telemetry if with_metrics else LinesOnly
    return made(service=settings.service_name, level=settings.log_level, types=registry.types, stream=stream)


class LinesOnly(Telemetry):
    """Keeps no metrics: the counts that matter are in the agent's own lines."""

    def measure(self, metric: str, value: float = 1, *, queue: str | None = None, type: str | None = None) -> None:
        return None


# ---- with what ------------------------------------------------------------------------------------------------------


def handler_directories(
    given: Sequence[Path], config: EnvironmentConfig | None, root: Path, profile: str
) -> list[Path]:
    """Where the profile's handlers stand: as given, else as cdk.json says; none: modules of the installed registry."""
    if given or config is None:
        return list(given)
    try:
        return [root / handlers for handlers in config.executor(profile).handlers]
    except ConfigError as error:
        raise Refused(str(error)) from error


def read_registry(
    directories: Sequence[Path], config: EnvironmentConfig | None, root: Path, profile: str, file: Path | None
) -> Registry:
    """What all types are, as it was deployed (children are submitted by it); the profile's own as its handlers declare
    them now. Raises ConfigurationError for handlers that cannot be."""
    deployed = _deployed(file, config, root)
    if directories:
        own = build_registry({profile: _source(directories, config, profile)})
        deployed = _with_own(deployed, own, profile) if deployed is not None else own
    if deployed is None:
        raise Refused("which handlers? Name their directories with --handlers, or a registry.json with --registry")
    return Registry.from_dict(deployed)


def _source(directories: Sequence[Path], config: EnvironmentConfig | None, profile: str) -> ProfileSource:
    known = {each.name: each for each in (config.executors if config else ())}
    own = known.get(profile) or _of_no_project(profile)
    return ProfileSource(handlers=directories, queues=own.queues, timeout_seconds=own.timeout_seconds)


def _deployed(file: Path | None, config: EnvironmentConfig | None, root: Path) -> Mapping[str, Any] | None:
    if file is None and config is not None:
        built = root / BUILT / config.environment / "python" / REGISTRY_PACKAGE / REGISTRY_FILE
        file = built if built.is_file() else None
    if file is None:
        return _installed()
    try:
        document: Mapping[str, Any] = json.loads(file.read_text(encoding="utf-8"))
    except ValueError as error:
        raise ConfigurationError(f"{file} is not JSON: {error}") from error
    return document


def _installed() -> Mapping[str, Any] | None:
    from thunderagent.registry import load_registry

    try:
        return load_registry().document
    except ConfigurationError:
        return None


def _with_own(deployed: Mapping[str, Any], own: Mapping[str, Any], profile: str) -> dict[str, Any]:
    others = {name: entry for name, entry in deployed["types"].items() if entry["profile"] != profile}
    return {
        **deployed,
        "types": {**others, **own["types"]},
        "profiles": {**deployed["profiles"], **own["profiles"]},
        "queues": {**own["queues"], **deployed["queues"]},
    }
