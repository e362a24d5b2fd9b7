"""The stack of everything that can be thrown away and deployed again."""

from __future__ import annotations

from aws_cdk import CfnOutput, Stack
from aws_cdk import aws_apigatewayv2 as apigatewayv2
from aws_cdk import aws_dynamodb as dynamodb
from aws_cdk import aws_kms as kms
from aws_cdk import aws_s3 as s3
from constructs import Construct

from infra.assets import Project
from infra.config import EnvironmentConfig
from infra.constructs.placement import placement_of
from infra.constructs.service import Service


class ServiceStack(Stack):
    """The running service on a table and a bucket given to it, as `service`.

    An `authorizer` that is given takes the place of the one that the configuration asks for.
    """

    def __init__(
        self,
        scope: Construct,
        id: str,
        *,
        config: EnvironmentConfig,
        table: dynamodb.ITableV2,
        bucket: s3.IBucket,
        key: kms.IKey | None = None,
        project: Project | None = None,
        authorizer: apigatewayv2.IHttpRouteAuthorizer | None = None,
    ) -> None:
        super().__init__(scope, id, description=f"ThunderAgent ({config.environment}): functions, API and alarms")
        project = project or Project()
        self.service = Service(
            self,
            "Default",  # no part of logical ids: those of deployed stacks stay
            name=self.stack_name,
            config=config,
            table=table,
            bucket=bucket,
            project=project,
            key=key,
            placement=placement_of(self, config.network) if config.network else None,
            authorizer=authorizer,
            pinned=True,
        )
        self.service.complete(project.read_registry(config.environment), project.registry_parts(config.environment))
        self._outputs(table, bucket)

    def _outputs(self, table: dynamodb.ITableV2, bucket: s3.IBucket) -> None:
        dashboard = self.service.monitoring.dashboard.dashboard_name
        console = f"https://{self.region}.console.aws.amazon.com/cloudwatch/home?region={self.region}"
        for name, value, description in (
            ("ApiUrl", self.service.api.http_api.api_endpoint, "Base URL of the HTTP API"),
            ("TableName", table.table_name, "The task table"),
            ("DashboardUrl", f"{console}#dashboards/dashboards/{dashboard}", "The dashboard"),
            ("AlarmTopicArn", self.service.alarm_topic.topic_arn, "Subscribe here to hear alarms"),
            ("ArchiveBucketName", bucket.bucket_name, "Bodies, archive and reports"),
        ):
            CfnOutput(self, name, value=value, description=description)
        for name, access in self.service.api.managed_access.items():
            policy, role = access.policy, access.role
            CfnOutput(self, f"{name.capitalize()}PolicyArn", value=policy.managed_policy_arn)
            if role is not None:
                CfnOutput(self, f"{name.capitalize()}RoleArn", value=role.role_arn)
