"""The construct `ThunderAgent`."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, cast

import jsii
from aws_cdk import Aspects, IAspect, Stack
from aws_cdk import aws_apigatewayv2 as apigatewayv2
from aws_cdk import aws_cloudwatch as cloudwatch
from aws_cdk import aws_dynamodb as dynamodb
from aws_cdk import aws_ec2 as ec2
from aws_cdk import aws_events as events
from aws_cdk import aws_iam as iam
from aws_cdk import aws_kms as kms
from aws_cdk import aws_lambda as lambda_
from aws_cdk import aws_s3 as s3
from aws_cdk import aws_sns as sns
from constructs import Construct, IConstruct

from infra.assets import Project
from infra.config import (
    EMBEDDED_KEY,
    AccessRole,
    AlarmSettings,
    Cors,
    DataProtection,
    EnvironmentConfig,
    ExecutorProfile,
    FunctionSize,
    JwtAuth,
    PollSettings,
    RecorderSettings,
    Throttling,
    for_embedded_aws,
    is_for_embedded_aws,
)
from infra.constructs.executor import Executor
from infra.constructs.given_table import check_table
from infra.constructs.placement import placement_in
from infra.constructs.service import Service
from infra.constructs.task_bucket import TaskBucket
from infra.constructs.task_table import TaskTable
from infra.context_form import check_config
from infra.declared import declared
from thunderagent.cdk.metrics import ServiceMetrics

DEFAULT_EXECUTOR = ExecutorProfile(name="default", handlers=("tasks",))


class ThunderAgent(ServiceMetrics, Construct):
    """A whole task service: table, bucket, functions, HTTP API, schedules, alarms. `docs/construct.md` has every prop.

    `project` is the directory the executors' `handlers` are named from (where the app runs, unless given); they are
    imported at synthesis to learn what they declare, or else `registry` is the `registry.json` that
    `thunder registry build` made of them.

    `table`, `bucket`, `event_bus` and `alarm_topic` are used where they are given, and made otherwise; the first two to
    be kept when the stack goes (see `protection`). A table that is given is checked as far as synthesis can know it.
    With `key`, what is made here is encrypted by it.

    Raises ConfigError for values that are not allowed, telling all of them; AssetError for handlers or requirements
    that cannot be packaged; ValueError for a table that cannot hold tasks.

    Logical ids come from where the construct stands: move it, and the table is another one.
    """

    def __init__(
        self,
        scope: Construct,
        id: str,
        *,
        environment: str = "prod",
        project: Path | Project | None = None,
        executors: Sequence[ExecutorProfile] = (DEFAULT_EXECUTOR,),
        registry: Path | None = None,
        table: dynamodb.ITable | dynamodb.ITableV2 | None = None,
        bucket: s3.IBucket | None = None,
        protection: DataProtection | None = None,
        key: kms.IKey | None = None,
        vpc: ec2.IVpc | None = None,
        vpc_subnets: ec2.SubnetSelection | None = None,
        security_groups: Sequence[ec2.ISecurityGroup] = (),
        event_bus: events.IEventBus | None = None,
        recording: RecorderSettings | None = None,
        authorizer: apigatewayv2.IHttpRouteAuthorizer | None = None,
        jwt: JwtAuth | None = None,
        cors: Cors | None = None,
        roles: Sequence[AccessRole] = (),
        throttling: Throttling | None = None,
        poll: PollSettings | None = None,
        api: FunctionSize | None = None,
        poller: FunctionSize | None = None,
        reaper: FunctionSize | None = None,
        recorder: FunctionSize | None = None,
        architecture: str = "arm64",
        rollout: str = "allAtOnce",
        alarm_topic: sns.ITopic | None = None,
        alarm_emails: Sequence[str] = (),
        alarms: AlarmSettings | None = None,
        log_retention_days: int = 30,
        log_level: str = "INFO",
        log_debug_share: float = 0,
        lease_grace_seconds: int = 5,
        dispatch_shards: int = 4,
        list_completed: bool = True,
        doorbell: bool = True,
        tracing: bool = False,
    ) -> None:
        super().__init__(scope, id)
        base = EnvironmentConfig(instance="ThunderAgent", environment=environment)
        config = EnvironmentConfig(
            instance=base.instance,
            environment=environment,
            executors=tuple(executors),
            protection=protection or base.protection,
            jwt=jwt,
            cors=cors,
            roles=tuple(roles),
            throttling=throttling or base.throttling,
            poll=poll or base.poll,
            recording=recording or base.recording,
            api=api or base.api,
            poller=poller or base.poller,
            reaper=reaper or base.reaper,
            recorder=recorder or base.recorder,
            architecture=architecture,
            rollout=rollout,
            alarm_emails=tuple(alarm_emails),
            alarms=alarms or base.alarms,
            log_retention_days=log_retention_days,
            log_level=log_level,
            log_debug_share=log_debug_share,
            lease_grace_seconds=lease_grace_seconds,
            dispatch_shards=dispatch_shards,
            list_completed=list_completed,
            doorbell=doorbell,
            tracing=tracing,
        )
        check_config(config)
        if is_for_embedded_aws(self.node.try_get_context(EMBEDDED_KEY)):
            config = for_embedded_aws(config)
        self._project = project if isinstance(project, Project) else Project(own=project or Path.cwd())
        self._registry = registry
        self._queue_limits: dict[str, dict[str, Any]] = {}
        self._completed = False
        if table is not None:
            check_table(table, self.node.path)
        self.key = key
        # Name, ARNs and key are all that is asked of a table: a `Table` has them as a `TableV2` does.
        given = cast(dynamodb.ITableV2 | None, table)
        self.table = given or TaskTable(self, "TaskTable", protection=config.protection, key=key).table
        self.bucket = (
            bucket
            or TaskBucket(
                self, "TaskBucket", protection=config.protection, enforce_tls=config.enforce_tls, key=key
            ).bucket
        )
        self.service = Service(
            self,
            "Service",
            name=self._service_name(),
            config=config,
            table=self.table,
            bucket=self.bucket,
            project=self._project,
            key=key,
            placement=placement_in(self, vpc=vpc, subnets=vpc_subnets, security_groups=security_groups)
            if vpc
            else None,
            bus=event_bus,
            alarm_topic=alarm_topic,
            authorizer=authorizer,
        )
        self.api = self.service.api
        self.executors = self.service.executors
        self.poller = self.service.poller
        self.doorbell = self.service.doorbell
        self.reaper = self.service.reaper
        self.recorder = self.service.recorder
        self.event_bus = self.service.recorder.bus
        self.alarm_topic = self.service.alarm_topic
        self.dashboard = self.service.monitoring.dashboard
        Aspects.of(self).add(_Completion())

    @property
    def api_url(self) -> str:
        return self.api.http_api.api_endpoint

    @property
    def service_name(self) -> str:
        """The value of the metric dimension `Service`: the stack's name, and the construct's place in it."""
        return self.service.name

    @property
    def functions(self) -> Mapping[str, lambda_.Function]:
        """api, poller, doorbell, reaper, recorder, and `executor-<profile>` for each."""
        return self.service.functions

    @property
    def alarms(self) -> Mapping[str, cloudwatch.Alarm]:
        """By their sections in the runbook; those of a queue, a function or an executor end with `-` and its name."""
        return self.service.monitoring.alarms

    # ---- more of it --------------------------------------------------------------------------------------------------

    def add_executor(
        self,
        name: str,
        *,
        handlers: Sequence[str],
        queues: Sequence[str] = ("default",),
        memory_mib: int = 512,
        timeout_seconds: int = 900,
        threads: int = 10,
        max_in_flight: int = 20,
        lease_seconds: int = 300,
        reserved_concurrency: int | None = None,
    ) -> Executor:
        """One more executor; its `role` is where its handlers' permissions go. Raises ValueError for a name that is
        taken, and as the constructor does."""
        profile = ExecutorProfile(
            name=name,
            handlers=tuple(handlers),
            queues=tuple(queues),
            memory_mib=memory_mib,
            timeout_seconds=timeout_seconds,
            threads=threads,
            max_in_flight=max_in_flight,
            lease_seconds=lease_seconds,
            reserved_concurrency=reserved_concurrency,
        )
        check_config(EnvironmentConfig(instance="ThunderAgent", environment=self.node.path, executors=(profile,)))
        added = self.service.add_executor(profile)
        assert added is not None
        return added

    def add_queue(
        self,
        name: str,
        *,
        executor: str = "default",
        max_concurrency: int | None = None,
        rate_per_second: float | None = None,
        burst: int | None = None,
        max_backlog: int | None = None,
    ) -> None:
        """A queue that types of this executor may name, with its own alarm and graphs, and the limits it has until
        operators set others. Raises ValueError for an unknown executor, ConfigError for a limit that is not allowed."""
        self.service.add_queue(name, executor=executor)
        limits = {
            "maxConcurrency": max_concurrency,
            "ratePerSecond": rate_per_second,
            "burst": burst,
            "maxBacklog": max_backlog,
        }
        self._queue_limits[name] = {limit: value for limit, value in limits.items() if value is not None}
        check_config(
            EnvironmentConfig(
                instance="ThunderAgent",
                environment=self.node.path,
                executors=tuple(self.service.profiles.values()),
                queue_limits=self._queue_limits,
            )
        )

    # ---- who may call the API ----------------------------------------------------------------------------------------

    def grant_submit(self, grantee: iam.IGrantable) -> None:
        """Submit tasks, one by one and in batches; not read them, not redrive them."""
        self.api.grant_submit(grantee)

    def grant_read(self, grantee: iam.IGrantable) -> None:
        """Read, but for payloads and results whole. Raises ValueError together with `grant_read_payload`."""
        self.api.grant_read(grantee)

    def grant_read_payload(self, grantee: iam.IGrantable) -> None:
        """All of `grant_read`, payloads and results too."""
        self.api.grant_read_payload(grantee)

    def grant_operate(self, grantee: iam.IGrantable) -> None:
        """Cancel, redrive, acknowledge, erase; settings of queues; schedules."""
        self.api.grant_operate(grantee)

    # ---- at synthesis ------------------------------------------------------------------------------------------------

    def complete(self) -> None:
        """Called by synthesis, once: what is known only when everything has been added."""
        if self._completed:
            return
        self._completed = True
        with declared(
            self.service.profiles.values(),
            self._project.home,
            queue_limits=self._queue_limits,
            built=self._registry,
        ) as (registry, parts):
            self.service.complete(registry, parts)

    def _service_name(self) -> str:
        stack = Stack.of(self)
        below = self.node.path.removeprefix(f"{stack.node.path}/").replace("/", "-")
        return f"{stack.stack_name}-{below}"


@jsii.implements(IAspect)
class _Completion:
    """Completes a service when synthesis visits it, before its children are visited."""

    def visit(self, node: IConstruct) -> None:
        if isinstance(node, ThunderAgent):
            node.complete()
