"""What is configured per environment, as frozen values. `infra.config` reads them from the context and offers them."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

from infra.section import ConfigError, listed

LONGEST_FUNCTION_SECONDS = 900
TERMINAL_STATUSES = ("SUCCESS", "FAILED", "DONE")
ARM_64, X86_64 = "arm64", "x86_64"
LAMBDA, THIS_MACHINE = "lambda", "this-machine"
AT_ONCE = "allAtOnce"
ROLLOUTS = (
    AT_ONCE,
    "canary10Percent5Minutes",
    "canary10Percent30Minutes",
    "linear10PercentEvery1Minute",
    "linear10PercentEvery10Minutes",
)
"""How new code of executors comes: see infra/constructs/gradual.py."""


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
class Encryption:
    """A KMS key for table, bucket, queues, alarm topic and logs: the one of this ARN, or else one of the stack's own.

    Of a key that is given, its owner sees to the policy: see docs/environments.md.
    """

    key_arn: str | None = None


@dataclass(frozen=True, kw_only=True)
class Network:
    """An existing VPC for the functions. Nothing is looked up: ids are taken as they are.

    Without security groups the stack makes one, which lets everything out and nothing in. The subnets must lead to
    DynamoDB, S3, Lambda, SQS, EventBridge and CloudWatch Logs: by a NAT, or by endpoints.
    """

    vpc_id: str
    subnet_ids: tuple[str, ...]
    security_group_ids: tuple[str, ...] = ()


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
    transport: str = "auto"
    tracing: bool = False
    alarms: AlarmSettings = AlarmSettings()
    alarm_emails: tuple[str, ...] = ()
    enforce_tls: bool = True
    encryption: Encryption | None = None
    network: Network | None = None
    architecture: str = ARM_64
    bundle_for: str = LAMBDA
    queue_limits: Mapping[str, Mapping[str, Any]] = field(default_factory=dict)
    tags: Mapping[str, str] = field(default_factory=dict)
    rollout: str = AT_ONCE

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

    @property
    def is_protected(self) -> bool:
        """Whether a deletion of its stacks would leave data behind, or be refused."""
        return self.protection.retain or self.protection.deletion_protection

    def executor(self, name: str) -> ExecutorProfile:
        """The profile of that name. Raises ConfigError when there is none."""
        for profile in self.executors:
            if profile.name == name:
                return profile
        raise ConfigError(f"executors: no profile {name!r}; configured: {listed(p.name for p in self.executors)}")
