"""ThunderAgent as a construct of your own CDK app. Not part of the layer: nothing here is there at run time.

tasks = ThunderAgent(stack, "Tasks", executors=[ExecutorProfile(name="default", handlers=("tasks",))], project=project)
tasks.grant_submit(order_function)
orders.grant_read_data(tasks.executors["default"].role)
"""

from __future__ import annotations

from collections.abc import Sequence

from aws_cdk import Duration, Stack
from aws_cdk import aws_apigatewayv2 as apigatewayv2
from aws_cdk import aws_cloudwatch as cloudwatch
from aws_cdk import aws_dynamodb as dynamodb
from aws_cdk import aws_iam as iam
from aws_cdk import aws_s3 as s3
from constructs import Construct

from infra.assets import AssetError, Project
from infra.config import (
    AccessRole,
    ConfigError,
    Cors,
    DataProtection,
    EnvironmentConfig,
    ExecutorProfile,
    JwtAuth,
    PollSettings,
    RecorderSettings,
    Throttling,
)
from infra.constructs.metrics import MINUTE, service_metric
from infra.constructs.service import Service
from infra.constructs.task_bucket import TaskBucket
from infra.constructs.task_table import TaskTable

__all__ = [
    "AccessRole",
    "AssetError",
    "ConfigError",
    "Cors",
    "DataProtection",
    "ExecutorProfile",
    "JwtAuth",
    "PollSettings",
    "Project",
    "RecorderSettings",
    "Throttling",
    "ThunderAgent",
]


class ThunderAgent(Construct):
    """A whole task service: table, bucket, functions, HTTP API, schedules, alarms.

    `environment` names the registry that `thunder registry build --env` wrote below the project. `table` and `bucket`
    are used where they are given, and made otherwise, to be kept when the stack goes (see `protection`). A table that
    is given has the key, index, TTL and stream of our own; of an imported one only the stream can be checked
    here (ValueError).

    The resources are attributes: `table`, `bucket`, `api`, `executors` (by profile), `poller`, `reaper`, `recorder`,
    `alarm_topic`, `dashboard`. Logical ids come from where the construct stands: move it, and the table is another one.
    """

    def __init__(
        self,
        scope: Construct,
        id: str,
        *,
        environment: str = "prod",
        project: Project | None = None,
        executors: Sequence[ExecutorProfile] = (ExecutorProfile(name="default"),),
        table: dynamodb.ITableV2 | None = None,
        bucket: s3.IBucket | None = None,
        protection: DataProtection | None = None,
        authorizer: apigatewayv2.IHttpRouteAuthorizer | None = None,
        jwt: JwtAuth | None = None,
        cors: Cors | None = None,
        roles: Sequence[AccessRole] = (),
        throttling: Throttling | None = None,
        poll: PollSettings | None = None,
        recording: RecorderSettings | None = None,
        alarm_email: str | None = None,
        log_retention_days: int = 30,
        log_level: str = "INFO",
        list_completed: bool = True,
        doorbell: bool = True,
        tracing: bool = False,
    ) -> None:
        super().__init__(scope, id)
        config = EnvironmentConfig(
            instance=Stack.of(self).stack_name,
            environment=environment,
            executors=tuple(executors),
            protection=protection or DataProtection(),
            jwt=jwt,
            cors=cors,
            roles=tuple(roles),
            throttling=throttling or Throttling(),
            poll=poll or PollSettings(),
            recording=recording or RecorderSettings(),
            alarm_email=alarm_email,
            log_retention_days=log_retention_days,
            log_level=log_level,
            list_completed=list_completed,
            doorbell=doorbell,
            tracing=tracing,
        )
        self.table = table or TaskTable(self, "TaskTable", protection=config.protection).table
        self.bucket = bucket or TaskBucket(self, "TaskBucket", protection=config.protection, enforce_tls=True).bucket
        if self.table.table_stream_arn is None:
            raise ValueError(f"{self.node.path}: the table has no stream; it needs NEW_AND_OLD_IMAGES, and its ARN")
        self.service = Service(
            self,
            "Service",
            name=f"{Stack.of(self).stack_name}-{id}",
            config=config,
            table=self.table,
            bucket=self.bucket,
            project=project or Project(),
            authorizer=authorizer,
        )
        self.api = self.service.api
        self.executors = self.service.executors
        self.poller = self.service.poller
        self.reaper = self.service.reaper
        self.recorder = self.service.recorder
        self.alarm_topic = self.service.alarm_topic
        self.dashboard = self.service.monitoring.dashboard

    @property
    def api_url(self) -> str:
        return self.api.http_api.api_endpoint

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

    # ---- metrics -----------------------------------------------------------------------------------------------------

    def metric(
        self, name: str, *, queue: str | None = None, statistic: str = "Sum", period: Duration = MINUTE
    ) -> cloudwatch.Metric:
        """A metric of this service by its name in the namespace `ThunderAgent`."""
        return service_metric(name, service=self.service.name, queue=queue, statistic=statistic, period=period)

    def metric_backlog(self, queue: str = "default") -> cloudwatch.Metric:
        """Tasks that wait."""
        return self.metric("Backlog", queue=queue, statistic="Maximum")

    def metric_oldest_due_age(self, queue: str = "default") -> cloudwatch.Metric:
        """For how long the task that waits longest has been due, in seconds."""
        return self.metric("OldestDueAge", queue=queue, statistic="Maximum")

    def metric_succeeded(self, queue: str = "default") -> cloudwatch.Metric:
        return self.metric("Succeeded", queue=queue)

    def metric_failed(self, queue: str = "default") -> cloudwatch.Metric:
        """Dead letters."""
        return self.metric("Failed", queue=queue)
