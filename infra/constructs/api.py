"""The HTTP API: its function, its routes, who may call them and how fast."""

from __future__ import annotations

import json
from collections.abc import Sequence

import jsii
from aws_cdk import Duration
from aws_cdk import aws_apigateway as apigateway
from aws_cdk import aws_apigatewayv2 as apigatewayv2
from aws_cdk import aws_apigatewayv2_authorizers as authorizers
from aws_cdk import aws_apigatewayv2_integrations as integrations
from aws_cdk import aws_dynamodb as dynamodb
from aws_cdk import aws_logs as logs
from aws_cdk import aws_s3 as s3
from constructs import Construct

from infra.config import FunctionSize, Throttling
from infra.constructs.service_function import HouseDefaults, ServiceFunction
from infra.constructs.task_bucket import BODIES, grant_lookup, grant_objects
from infra.constructs.task_table import grant_dispatch_index, grant_items
from infra.routes import Route

LOGICAL_ID = "HttpApi"
ITEM_ACTIONS = ("BatchGetItem", "ConditionCheckItem", "GetItem", "UpdateItem", "PutItem", "DeleteItem")
TIMEOUT_SECONDS = 27
INTEGRATION_TIMEOUT_SECONDS = 29  # API Gateway gives up at 30; the function has given up, and answered, before

# No path parameters beyond the path itself, no headers, no query: a log line holds no payload and no signature.
ACCESS_LOG_FORMAT = {
    "requestId": "$context.requestId",
    "time": "$context.requestTimeEpoch",
    "routeKey": "$context.routeKey",
    "path": "$context.path",
    "status": "$context.status",
    "bytes": "$context.responseLength",
    "latencyMs": "$context.responseLatency",
    "integrationLatencyMs": "$context.integrationLatency",
    "integrationError": "$context.integrationErrorMessage",
    "sourceIp": "$context.identity.sourceIp",
    "caller": "$context.identity.userArn",
    "error": "$context.error.messageString",
}


class Api(Construct):
    """One route per call, so that IAM policies and JWT scopes can name each; a signed `$default` answers the rest.

    No route is open: every one, `$default` included, has the authorizer (IAM unless another is given).
    """

    def __init__(
        self,
        scope: Construct,
        id: str,
        *,
        house: HouseDefaults,
        size: FunctionSize,
        throttling: Throttling,
        routes: Sequence[Route],
        table: dynamodb.ITableV2,
        bucket: s3.IBucket,
        executors_json: str,
        authorizer: apigatewayv2.IHttpRouteAuthorizer | None = None,
    ) -> None:
        super().__init__(scope, id)
        service_function = ServiceFunction(
            self,
            "Api",
            house=house,
            description="Submits, reads and operates tasks",
            parts=house.project.function_parts("api"),
            size=size,
            timeout_seconds=TIMEOUT_SECONDS,
            environment={"EXECUTORS": executors_json},
        )
        self.function = service_function.function
        self.role = service_function.role
        grant_items(table, self.role, ITEM_ACTIONS)
        grant_dispatch_index(table, self.role)
        grant_objects(bucket, self.role, BODIES, ("GetObject", "PutObject", "DeleteObject"))
        grant_lookup(bucket, self.role, BODIES)
        self.http_api = self._http_api(routes, authorizer or authorizers.HttpIamAuthorizer())
        self.access_logs = logs.LogGroup(
            self, "AccessLogs", retention=house.log_retention, removal_policy=house.log_removal
        )
        self.stage = apigatewayv2.HttpStage(
            self,
            "Stage",
            http_api=self.http_api,
            auto_deploy=True,
            throttle=apigatewayv2.ThrottleSettings(rate_limit=throttling.rate_per_second, burst_limit=throttling.burst),
            access_log_settings=_JsonAccessLog(self.access_logs),
        )

    def _http_api(self, routes: Sequence[Route], authorizer: apigatewayv2.IHttpRouteAuthorizer) -> apigatewayv2.HttpApi:
        integration = integrations.HttpLambdaIntegration(
            "Integration",
            self.function,
            timeout=Duration.seconds(INTEGRATION_TIMEOUT_SECONDS),
            payload_format_version=apigatewayv2.PayloadFormatVersion.VERSION_2_0,
            # One permission for the whole API: one per route would near the 20 KB limit of a function's policy.
            scope_permission_to_route=False,
        )
        http_api = apigatewayv2.HttpApi(
            self,
            "HttpApi",
            description="Tasks of ThunderAgent",
            create_default_stage=False,
            default_integration=integration,
            default_authorizer=authorizer,
        )
        for route in routes:
            http_api.add_routes(
                path=route.path, methods=[apigatewayv2.HttpMethod[route.method]], integration=integration
            )
        resource = http_api.node.default_child
        assert isinstance(resource, apigatewayv2.CfnApi)
        resource.override_logical_id(LOGICAL_ID)  # another one would be another URL
        return http_api


@jsii.implements(apigatewayv2.IAccessLogSettings)
class _JsonAccessLog:
    """Access log lines as JSON objects into a log group."""

    def __init__(self, log_group: logs.ILogGroup) -> None:
        self._destination = apigatewayv2.LogGroupLogDestination(log_group)
        self._format = apigateway.AccessLogFormat.custom(json.dumps(ACCESS_LOG_FORMAT))

    @property
    def destination(self) -> apigatewayv2.IAccessLogDestination:
        return self._destination

    @property
    def format(self) -> apigateway.AccessLogFormat:
        return self._format
