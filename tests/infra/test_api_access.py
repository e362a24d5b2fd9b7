"""Who may call the API: IAM policies and JWT scopes, each held to the OpenAPI document call by call."""

from __future__ import annotations

import json
import re
from pathlib import Path
from typing import Any

import pytest

from infra.assets import Project
from infra.config import load_config, read_context
from infra.routes import SCOPES_OF_ROLE, Route, access_of, read_routes
from tests.infra.templates import Synthesise, Synthesised, of_type, properties, readable
from tests.support.api_access import allows, sample_path

ROUTES = read_routes(Project().openapi)
JWT = {"kind": "jwt", "issuer": "https://issuer.example/pool", "audience": ["console", "ci"]}
GRANTS = {
    "grant_submit": ("thunder/submit",),
    "grant_read": ("thunder/read",),
    "grant_read_payload": ("thunder/read", "thunder/read-payload"),
    "grant_operate": ("thunder/operate",),
}


def with_section(**section: Any) -> dict[str, Any]:
    return {"environments": {"dev": section}}


def calls_for(*scopes: str) -> set[Route]:
    return {route for route in ROUTES if set(scopes) & set(route.scopes)}


# ---- IAM -------------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("role", SCOPES_OF_ROLE)
def test_each_role_is_allowed_all_its_calls_and_no_other(role: str) -> None:
    access = access_of(ROUTES, SCOPES_OF_ROLE[role])
    document = {
        "Statement": [
            {"Effect": "Allow", "Action": "execute-api:Invoke", "Resource": list(access.allowed)},
            {"Effect": "Deny", "Action": "execute-api:Invoke", "Resource": list(access.denied)},
        ]
    }
    allowed = {route for route in ROUTES if allows([document], f"{route.method}{sample_path(route)}")}
    assert allowed == calls_for(*SCOPES_OF_ROLE[role])


def test_submit_does_not_include_redrive() -> None:
    assert access_of(ROUTES, ["thunder/submit"]).allowed == ("POST/tasks", "POST/tasks/batch")


def test_only_a_reader_of_tasks_needs_a_denial() -> None:
    """The one place where IAM's `*`, which goes past slashes, covers calls of another scope."""
    assert access_of(ROUTES, ["thunder/operate"]).denied == ()
    assert access_of(ROUTES, ["thunder/read"]).denied == ("GET/tasks/*/payload", "GET/tasks/*/result")


@pytest.fixture(scope="module")
def granted(project: Project, tmp_path_factory: pytest.TempPathFactory) -> dict[str, Any]:
    """A template with one role for each grant, named for it."""
    from aws_cdk import App
    from aws_cdk import aws_iam as iam

    from infra.application import build

    assembly = tmp_path_factory.mktemp("granted")
    app = App(context=read_context(), outdir=str(assembly))
    service = build(app, load_config(read_context(), "prod"), project).service
    for grant in GRANTS:
        role = iam.Role(service, f"Role-{grant}", assumed_by=iam.AccountRootPrincipal())
        getattr(service.api, grant)(role)
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("CDK_VALIDATION", "false")
        app.synth()
    template: dict[str, Any] = json.loads((assembly / "ThunderAgent-prod.template.json").read_text())
    return template


@pytest.mark.parametrize("grant", GRANTS)
def test_a_grant_is_exactly_the_calls_of_its_scope(granted: dict[str, Any], grant: str) -> None:
    (policy,) = [
        policy["PolicyDocument"]
        for policy in properties(granted, "AWS::IAM::Policy")
        if re.fullmatch(f"Role{grant.replace('_', '')}[0-9A-F]{{8}}", policy["Roles"][0]["Ref"])
    ]
    document = readable_document(policy)
    base = "arn:{AWS::Partition}:execute-api:{AWS::Region}:{AWS::AccountId}:{HttpApi}/$default"
    allowed = {route for route in ROUTES if allows([document], f"{base}/{route.method}{sample_path(route)}")}
    assert allowed == calls_for(*GRANTS[grant])
    others = (base.replace("{HttpApi}", "another"), base.replace("$default", "test"))
    assert not [route for route in ROUTES for other in others if allows([document], f"{other}/{route.method}/tasks")]


def readable_document(policy: dict[str, Any]) -> dict[str, Any]:
    def resources(statement: dict[str, Any]) -> list[str]:
        given = statement["Resource"]
        return [readable(resource) for resource in (given if isinstance(given, list) else [given])]

    return {"Statement": [{**statement, "Resource": resources(statement)} for statement in policy["Statement"]]}


def test_the_denial_of_bodies_and_their_grant_do_not_go_together(project: Project, tmp_path: Path) -> None:
    from aws_cdk import App
    from aws_cdk import aws_iam as iam

    from infra.application import build

    app = App(context=read_context(), outdir=str(tmp_path))
    service = build(app, load_config(read_context(), "dev"), project).service
    role = iam.Role(service, "Reader", assumed_by=iam.AccountRootPrincipal())
    service.api.grant_read(role)
    service.api.grant_read(role)
    with pytest.raises(Exception, match="grant one of them"):
        service.api.grant_read_payload(role)


def test_roles_are_made_on_request_only(synthesise: Synthesise, prod: Synthesised) -> None:
    assert not of_type(prod.service, "AWS::IAM::ManagedPolicy")
    trusted = "arn:aws:iam::111122223333:role/ci"
    asked = {"submitter": {"assumedBy": [trusted]}, "viewer": {}}
    service = synthesise("dev", with_section(roles=asked)).service
    policies = of_type(service, "AWS::IAM::ManagedPolicy")
    assert len(policies) == 2
    (role,) = [role for id, role in of_type(service, "AWS::IAM::Role").items() if "Submitter" in id]
    assert role["Properties"]["AssumeRolePolicyDocument"]["Statement"][0]["Principal"] == {"AWS": trusted}
    assert [arn["Ref"] for arn in role["Properties"]["ManagedPolicyArns"]] == [id for id in policies if "Submit" in id]
    added = set(service["Outputs"]) - set(prod.service["Outputs"])
    assert added == {"SubmitterPolicyArn", "SubmitterRoleArn", "ViewerPolicyArn"}


@pytest.mark.parametrize("name", ["submitter", "viewer", "operator"])
def test_a_managed_policy_is_the_calls_of_its_role(local: Synthesised, name: str) -> None:
    (policy,) = [
        resource["Properties"]["PolicyDocument"]
        for id, resource in of_type(local.service, "AWS::IAM::ManagedPolicy").items()
        if id.startswith(f"Api{name.capitalize()}")
    ]
    document = readable_document(policy)
    base = "arn:{AWS::Partition}:execute-api:{AWS::Region}:{AWS::AccountId}:{HttpApi}/$default"
    allowed = {route for route in ROUTES if allows([document], f"{base}/{route.method}{sample_path(route)}")}
    assert allowed == calls_for(*SCOPES_OF_ROLE[name])


# ---- JWT -------------------------------------------------------------------------------------------------------------


def test_with_a_jwt_authorizer_each_route_has_its_scopes_and_none_is_open(synthesise: Synthesise) -> None:
    service = synthesise("dev", with_section(auth=JWT)).service
    (authorizer,) = properties(service, "AWS::ApiGatewayV2::Authorizer")
    assert authorizer["AuthorizerType"] == "JWT"
    assert authorizer["IdentitySource"] == ["$request.header.Authorization"]
    assert authorizer["JwtConfiguration"] == {"Audience": ["console", "ci"], "Issuer": "https://issuer.example/pool"}
    routes = {route["RouteKey"]: route for route in properties(service, "AWS::ApiGatewayV2::Route")}
    assert {route["AuthorizationType"] for route in routes.values()} == {"JWT"}
    assert len({route["AuthorizerId"]["Ref"] for route in routes.values()}) == 1
    scopes = {key: tuple(route.get("AuthorizationScopes", ())) for key, route in routes.items()}
    assert scopes == {"$default": (), **{f"{route.method} {route.path}": route.scopes for route in ROUTES}}


def test_grants_are_refused_where_iam_is_not_asked(project: Project, tmp_path: Path) -> None:
    from aws_cdk import App
    from aws_cdk import aws_iam as iam

    from infra.application import build

    context = {**read_context(), **with_section(auth=JWT)}
    app = App(context=context, outdir=str(tmp_path))
    service = build(app, load_config(context, "dev"), project).service
    with pytest.raises(Exception, match="its tokens' scopes decide"):
        service.api.grant_submit(iam.Role(service, "R", assumed_by=iam.AccountRootPrincipal()))


# ---- CORS ------------------------------------------------------------------------------------------------------------


def test_cors_is_off_unless_asked_for(synthesised: Synthesised) -> None:
    (api,) = properties(synthesised.service, "AWS::ApiGatewayV2::Api")
    assert "CorsConfiguration" not in api


@pytest.mark.parametrize("auth", [{"kind": "iam"}, JWT], ids=["iam", "jwt"])
def test_cors_opens_preflights_and_nothing_else(synthesise: Synthesise, auth: dict[str, Any]) -> None:
    service = synthesise("dev", with_section(auth=auth, cors={"allowOrigins": ["https://ops.example"]})).service
    (api,) = properties(service, "AWS::ApiGatewayV2::Api")
    cors = api["CorsConfiguration"]
    assert cors["AllowOrigins"] == ["https://ops.example"]
    assert not cors.get("AllowCredentials")
    assert {"authorization", "idempotency-key", "x-amz-date"} <= set(cors["AllowHeaders"])
    assert set(cors["AllowMethods"]) == {route.method for route in ROUTES}
    open_routes = [
        route["RouteKey"]
        for route in properties(service, "AWS::ApiGatewayV2::Route")
        if route["AuthorizationType"] == "NONE"
    ]
    assert open_routes == ["OPTIONS /{proxy+}"]
