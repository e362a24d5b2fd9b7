"""How every function of the service is made."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

from aws_cdk import Duration, RemovalPolicy
from aws_cdk import aws_iam as iam
from aws_cdk import aws_kms as kms
from aws_cdk import aws_lambda as lambda_
from aws_cdk import aws_logs as logs
from constructs import Construct

from infra.acknowledge import acknowledge
from infra.assets import Project, staged
from infra.config import FunctionSize
from infra.constructs.encryption import grant_data_key
from infra.constructs.layers import RUNTIME
from infra.constructs.placement import Placement, grant_interfaces


@dataclass(frozen=True, kw_only=True)
class HouseDefaults:
    """What all functions of one service have in common.

    `key` encrypts what the service makes, `data_keys` are all keys of what its functions read and write.
    """

    project: Project
    layers: Sequence[lambda_.ILayerVersion]
    architecture: lambda_.Architecture
    environment: Mapping[str, str]
    tracing: bool
    key: kms.IKey | None
    data_keys: Sequence[kms.IKey]
    placement: Placement | None
    log_retention: logs.RetentionDays
    log_removal: RemovalPolicy

    def log_group(self, scope: Construct, id: str) -> logs.LogGroup:
        """A log group kept, removed and encrypted as all are."""
        return logs.LogGroup(
            scope, id, retention=self.log_retention, removal_policy=self.log_removal, encryption_key=self.key
        )


class ServiceFunction(Construct):
    """One function with its own log group and its own role, which may write that log group and nothing else yet."""

    def __init__(
        self,
        scope: Construct,
        id: str,
        *,
        house: HouseDefaults,
        description: str,
        parts: Mapping[str, Path],
        size: FunctionSize,
        timeout_seconds: int,
        environment: Mapping[str, str],
        handler: str = "handler.handler",
        layers: Sequence[lambda_.ILayerVersion] = (),
    ) -> None:
        super().__init__(scope, id)
        self.timeout_seconds = timeout_seconds
        self.log_group = house.log_group(self, "Logs")
        self.role = self._role()
        for key in house.data_keys:
            grant_data_key(key, self.role)
        placement = house.placement
        interfaces = grant_interfaces(self, self.role) if placement else None
        with staged(parts) as directory:
            self.function = lambda_.Function(
                self,
                "Function",
                description=description,
                code=lambda_.Code.from_asset(directory),
                handler=handler,
                runtime=RUNTIME,
                architecture=house.architecture,
                layers=[*house.layers, *layers],
                role=self.role,
                memory_size=size.memory_mib,
                timeout=Duration.seconds(timeout_seconds),
                reserved_concurrent_executions=size.reserved_concurrency,
                environment={**house.environment, **environment},
                log_group=self.log_group,
                # The library prints whole JSON lines; Lambda's own JSON format would wrap them a second time.
                logging_format=lambda_.LoggingFormat.TEXT,
                tracing=lambda_.Tracing.ACTIVE if house.tracing else lambda_.Tracing.DISABLED,
                vpc=placement.vpc if placement else None,
                vpc_subnets=placement.subnets if placement else None,
                security_groups=list(placement.security_groups) if placement else None,
            )
        if interfaces:
            self.function.node.add_dependency(interfaces)
        if house.tracing:
            acknowledge(self.role, {"IAM5[Resource::*]": "X-Ray takes segments without a name that could be granted."})
        acknowledge(self.function, {"L1": "One runtime is tested; a newer one is taken with a release, not by itself."})

    def _role(self) -> iam.Role:
        """Own policy instead of the managed one, which allows writing every log group of the account."""
        role = iam.Role(self, "Role", assumed_by=iam.ServicePrincipal("lambda.amazonaws.com"))
        role.add_to_policy(
            iam.PolicyStatement(
                actions=["logs:CreateLogStream", "logs:PutLogEvents"], resources=[self.log_group.log_group_arn]
            )
        )
        return role

    def invoke_once(self, *, max_event_age: Duration, on_failure: lambda_.IDestination | None = None) -> None:
        """No platform retries of asynchronous invocations: what is to be done again is decided by the table."""
        self.function.configure_async_invoke(retry_attempts=0, max_event_age=max_event_age, on_failure=on_failure)
