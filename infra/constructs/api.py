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
from aws_cdk import aws_iam as iam
from aws_cdk import aws_logs as logs
from aws_cdk import aws_s3 as s3
from constructs import Construct

from infra.acknowledge import acknowledge
from infra.config import AccessRole, Cors, FunctionSize, JwtAuth, Throttling
from infra.constructs.api_access import Invocations, ManagedAccess
from infra.constructs.service_function import HouseDefaults, ServiceFunction
from infra.constructs.task_bucket import BODIES, grant_lookup, grant_objects
from infra.constructs.task_table import grant_dispatch_index, grant_items
from infra.pin import pin
from infra.routes import OPERATE, READ, READ_PAYLOAD, SUBMIT, Route

LOGICAL_ID = "HttpApi"
ITEM_ACTIONS = ("BatchGetItem", "ConditionCheckItem", "GetItem", "UpdateItem", "PutItem", "DeleteItem")
TIMEOUT_SECONDS = 27
INTEGRATION_TIMEOUT_SECONDS = 29  # API Gateway gives up at 30; the function has given up, and answered, before

STAGE_NAME = "$default"

# What a browser must be let send and see to sign calls, repeat them safely and read their answers.
CORS_METHODS = ("GET", "PUT", "POST", "DELETE")
CORS_REQUEST_HEADERS = (
    "authorization",
    "content-type",
    "idempotency-key",
    "x-amz-content-sha256",
    "x-amz-date",
    "x-amz-security-token",
)
CORS_ANSWER_HEADERS = ("location", "retry-after", "x-request-id")

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
    "error": "$context.error.message",  # its `messageString` brings quotes of its own: no JSON
}


class Api(Construct):
    """One route per call, so that IAM policies and JWT scopes can name each; a signed `$default` answers the rest.

    No route is open: every one, `$default` included, has the authorizer: IAM, or `jwt`, or another that is given.
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
        jwt: JwtAuth | None = None,
        cors: Cors | None = None,
        roles: Sequence[AccessRole] = (),
        authorizer: apigatewayv2.IHttpRouteAuthorizer | None = None,
        pinned: bool = False,
    ) -> None:
        super().__init__(scope, id)
        self._routes, self._pinned = routes, pinned
        self._readers: dict[str, bool] = {}
        self.uses_iam = jwt is None and authorizer is None
        service_function = ServiceFunction(
            self,
            "Api",
            house=house,
            description="Submits, reads and operates tasks",
            parts=house.project.function_parts("api"),
            size=size,
            timeout_seconds=TIMEOUT_SECONDS,
            environment={},
        )
        self.function = service_function.function
        self.role = service_function.role
        grant_items(table, self.role, ITEM_ACTIONS)
        grant_dispatch_index(table, self.role)
        grant_objects(bucket, self.role, BODIES, ("GetObject", "PutObject", "DeleteObject"))
        grant_lookup(bucket, self.role, BODIES)
        self.http_api = self._http_api(cors, authorizer or _authorizer(jwt), with_scopes=jwt is not None)
        self.access_logs = house.log_group(self, "AccessLogs")
        self.stage = apigatewayv2.HttpStage(
            self,
            "Stage",
            http_api=self.http_api,
            stage_name=STAGE_NAME,
            auto_deploy=True,
            throttle=apigatewayv2.ThrottleSettings(rate_limit=throttling.rate_per_second, burst_limit=throttling.burst),
            access_log_settings=_JsonAccessLog(self.access_logs),
        )
        self.managed_access = {
            role.name: ManagedAccess(self, role.name.capitalize(), access=role, invocations=self._invocations())
            for role in roles
        }

    # ---- grants ------------------------------------------------------------------------------------------------------

    def grant_submit(self, grantee: iam.IGrantable) -> None:
        """Submit tasks, one by one and in batches; not read them, not redrive them."""
        self._grant(grantee, (SUBMIT,))

    def grant_read(self, grantee: iam.IGrantable) -> None:
        """Read tasks, lists, queues, schedules and figures; bodies only as far as they stand in a task as it is read.

        Payloads and results whole are denied, as IAM's `*` in a task's path would cover them. A denial is final:
        raises ValueError for a grantee that was given `grant_read_payload`.
        """
        self._reads(grantee, whole_bodies=False)
        self._grant(grantee, (READ,))

    def grant_read_payload(self, grantee: iam.IGrantable) -> None:
        """All of `grant_read`, payloads and results too. Raises ValueError where `grant_read` was given already."""
        self._reads(grantee, whole_bodies=True)
        self._grant(grantee, (READ, READ_PAYLOAD))

    def grant_operate(self, grantee: iam.IGrantable) -> None:
        """Cancel, redrive, acknowledge, erase; settings of queues; schedules. Not submit, not read."""
        self._grant(grantee, (OPERATE,))

    def _grant(self, grantee: iam.IGrantable, scopes: Sequence[str]) -> None:
        invocations = self._invocations()
        for statement in invocations.statements(scopes):
            grantee.grant_principal.add_to_principal_policy(statement)
        if isinstance(grantee, Construct):
            invocations.acknowledge(grantee, scopes)

    def _reads(self, grantee: iam.IGrantable, *, whole_bodies: bool) -> None:
        who = grantee.node.path if isinstance(grantee, Construct) else str(id(grantee))
        if self._readers.setdefault(who, whole_bodies) is not whole_bodies:
            raise ValueError(f"{who}: grant_read denies the bodies that grant_read_payload allows; grant one of them")

    def _invocations(self) -> Invocations:
        if not self.uses_iam:
            raise ValueError("the API does not ask IAM who may call it: its tokens' scopes decide")
        return Invocations(self.http_api, STAGE_NAME, self._routes)

    # ---- the gateway -------------------------------------------------------------------------------------------------

    def _http_api(
        self, cors: Cors | None, authorizer: apigatewayv2.IHttpRouteAuthorizer, *, with_scopes: bool
    ) -> apigatewayv2.HttpApi:
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
            cors_preflight=_preflight(cors) if cors else None,
        )
        for route in self._routes:
            http_api.add_routes(
                path=route.path,
                methods=[apigatewayv2.HttpMethod[route.method]],
                integration=integration,
                authorization_scopes=list(route.scopes) if with_scopes else None,
            )
        if cors:
            _open_preflights(http_api, integration)
        if self._pinned:
            pin(http_api, LOGICAL_ID)  # another one would be another URL
        return http_api


def _authorizer(jwt: JwtAuth | None) -> apigatewayv2.IHttpRouteAuthorizer:
    if jwt is None:
        return authorizers.HttpIamAuthorizer()
    return authorizers.HttpJwtAuthorizer("Jwt", jwt.issuer, jwt_audience=list(jwt.audience))


def _preflight(cors: Cors) -> apigatewayv2.CorsPreflightOptions:
    """Without credentials: a caller is known by a header, never by a cookie that any page of the origin would send."""
    return apigatewayv2.CorsPreflightOptions(
        allow_origins=list(cors.allow_origins),
        allow_methods=[apigatewayv2.CorsHttpMethod[method] for method in CORS_METHODS],
        allow_headers=list(CORS_REQUEST_HEADERS),
        expose_headers=list(CORS_ANSWER_HEADERS),
        max_age=Duration.seconds(cors.max_age_seconds),
    )


def _open_preflights(http_api: apigatewayv2.HttpApi, integration: apigatewayv2.HttpRouteIntegration) -> None:
    """A browser signs no preflight. The gateway answers it, but not past a `$default` route with an authorizer, unless
    a route without one stands before it (Amazon API Gateway, "Configuring CORS for an HTTP API").

    An OPTIONS that is no preflight reaches the function, which has no such call: 404.
    """
    routes = http_api.add_routes(
        path="/{proxy+}",
        methods=[apigatewayv2.HttpMethod.OPTIONS],
        integration=integration,
        authorizer=apigatewayv2.HttpNoneAuthorizer(),
    )
    reason = "Preflights cannot be signed; the gateway answers them, and the function serves no call of this method."
    acknowledge(routes[0], {"APIG4": reason})


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
