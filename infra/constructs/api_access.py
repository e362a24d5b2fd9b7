"""Who may call the API with IAM: policies that list exact methods and paths, on their own or on a grantee."""

from __future__ import annotations

from collections.abc import Iterable, Sequence

from aws_cdk import Stack
from aws_cdk import aws_apigatewayv2 as apigatewayv2
from aws_cdk import aws_iam as iam
from constructs import Construct

from infra.acknowledge import acknowledge
from infra.config import AccessRole
from infra.routes import SCOPES_OF_ROLE, Route, access_of

ACTION = "execute-api:Invoke"
REASON = "An id or a name stands in the path: `*` takes its place, and calls it covers beside the one meant are denied."


class Invocations:
    """The API's calls as IAM resources: statements for those that some scopes allow."""

    def __init__(self, http_api: apigatewayv2.IHttpApi, stage_name: str, routes: Sequence[Route]) -> None:
        self._routes = routes
        stack = Stack.of(http_api)
        self._parts = ("arn", stack.partition, "execute-api", stack.region, stack.account, http_api.api_id)
        self._stage_name = stage_name
        self._stack = stack

    def statements(self, scopes: Iterable[str]) -> list[iam.PolicyStatement]:
        """The calls of the scopes allowed; where IAM's wildcards reach further than the call meant, the rest denied."""
        access = access_of(self._routes, scopes)
        effects = ((iam.Effect.ALLOW, access.allowed), (iam.Effect.DENY, access.denied))
        base = ":".join(self._parts)
        return [
            iam.PolicyStatement(
                effect=effect,
                actions=[ACTION],
                resources=[f"{base}/{self._stage_name}/{resource}" for resource in resources],
            )
            for effect, resources in effects
            if resources
        ]

    def acknowledge(self, scope: Construct, scopes: Iterable[str]) -> None:
        """Accept what cdk-nag finds in the statements of these, as it writes it for policies of the API's stack."""
        base = ":".join(self._as_found(part) for part in self._parts)
        resources = {resource for resource in access_of(self._routes, scopes).allowed if "*" in resource}
        found = [f"IAM5[Resource::{base}/{self._stage_name}/{resource}]" for resource in sorted(resources)]
        acknowledge(scope, dict.fromkeys(found, REASON))

    def _as_found(self, part: str) -> str:
        resolved = self._stack.resolve(part)
        return f"<{resolved['Ref']}>" if isinstance(resolved, dict) else str(resolved)


class ManagedAccess(Construct):
    """A role of the API as a managed policy, to attach to users and roles, and, on request, as a role to assume."""

    def __init__(self, scope: Construct, id: str, *, access: AccessRole, invocations: Invocations) -> None:
        super().__init__(scope, id)
        scopes = SCOPES_OF_ROLE[access.name]
        self.policy = iam.ManagedPolicy(
            self,
            "Policy",
            description=f"What a {access.name} of ThunderAgent may call",
            statements=invocations.statements(scopes),
        )
        self.role = self._role(access) if access.assumed_by else None
        invocations.acknowledge(self.policy, scopes)

    def _role(self, access: AccessRole) -> iam.Role:
        principals = [_principal(arn) for arn in access.assumed_by]
        return iam.Role(
            self,
            "Role",
            description=f"A {access.name} of ThunderAgent",
            assumed_by=iam.CompositePrincipal(*principals),
            managed_policies=[self.policy],
        )


def _principal(arn: str) -> iam.PrincipalBase:
    return iam.AccountRootPrincipal() if arn == "account" else iam.ArnPrincipal(arn)
