"""Who may call the deployed API: users and roles with the policies the stack makes, IAM enforced by the embedded AWS.

Every call of the OpenAPI document is tried by each. The body of each is refused by the function: what is let through
does nothing, and what is not let through is the gateway's 403.
"""

from __future__ import annotations

import json
from collections.abc import Iterator, Sequence

import pytest
from botocore.credentials import Credentials

from infra.assets import Project
from infra.routes import OPERATE, READ, READ_PAYLOAD, SCOPES_OF_ROLE, SUBMIT, Route, access_of, read_routes
from tests.support.api_access import sample_path
from tests.support.local_stack import Answer, UpStack

ROUTES = read_routes(Project().openapi)
REFUSED_BODY = {"bogus": 1}
SCOPES_OF_GRANT = {
    "submit": (SUBMIT,),
    "read": (READ,),
    "read-payload": (READ, READ_PAYLOAD),
    "operate": (OPERATE,),
    "nothing": (),
}


def outputs(stack: UpStack) -> dict[str, str]:
    described = stack.client("cloudformation").describe_stacks(StackName="ThunderAgent-local")["Stacks"]
    return {output["OutputKey"]: output["OutputValue"] for output in described[0]["Outputs"]}


class User:
    """An IAM user of the embedded AWS for a while."""

    def __init__(self, stack: UpStack, name: str) -> None:
        self._iam = stack.client("iam")
        self._name = name
        self._iam.create_user(UserName=name)
        made = self._iam.create_access_key(UserName=name)["AccessKey"]
        self.key = Credentials(made["AccessKeyId"], made["SecretAccessKey"])

    def attach(self, policy_arn: str) -> None:
        self._iam.attach_user_policy(UserName=self._name, PolicyArn=policy_arn)

    def put(self, document: dict[str, object]) -> None:
        self._iam.put_user_policy(UserName=self._name, PolicyName="p", PolicyDocument=json.dumps(document))


def document_of(stack: UpStack, scopes: Sequence[str]) -> dict[str, object]:
    """What a grant of these scopes writes, with the deployed API's ARN."""
    api_id = stack.record["apiUrl"].rstrip("/").rpartition("/")[2]
    base = f"arn:aws:execute-api:{stack.record['region']}:000000000000:{api_id}/$default"
    access = access_of(ROUTES, scopes)
    effects = {"Allow": access.allowed, "Deny": access.denied}
    statements = [
        {"Effect": effect, "Action": "execute-api:Invoke", "Resource": [f"{base}/{resource}" for resource in resources]}
        for effect, resources in effects.items()
        if resources
    ]
    return {"Version": "2012-10-17", "Statement": statements}


def answers(stack: UpStack, key: Credentials | None, *, signed: bool = True) -> Iterator[tuple[Route, Answer]]:
    for route in ROUTES:
        body = None if route.method in ("GET", "DELETE") else REFUSED_BODY
        yield route, stack.call(route.method, sample_path(route), body, key=key, signed=signed)


def let_through(stack: UpStack, key: Credentials) -> set[Route]:
    allowed = set()
    for route, answer in answers(stack, key):
        assert answer.status < 500, (route, answer.body)
        if answer.status == 403:
            assert "error" not in answer.json, "a 403 that is not the gateway's"
        else:
            allowed.add(route)
    return allowed


def calls_for(scopes: Sequence[str]) -> set[Route]:
    return {route for route in ROUTES if set(scopes) & set(route.scopes)}


def test_no_call_is_answered_unsigned(stack: UpStack) -> None:
    assert {answer.status for _, answer in answers(stack, None, signed=False)} == {403}


def test_a_wrong_secret_is_refused(stack: UpStack) -> None:
    user = User(stack, "wrong-secret")
    user.put(document_of(stack, SCOPES_OF_GRANT["read"]))
    assert stack.call("GET", "health", key=user.key).status == 200
    assert stack.call("GET", "health", key=Credentials(user.key.access_key, "guessed")).status == 403


@pytest.mark.parametrize("role", SCOPES_OF_ROLE)
def test_a_user_with_a_managed_policy_may_do_its_calls_and_no_others(stack: UpStack, role: str) -> None:
    user = User(stack, f"managed-{role}")
    assert let_through(stack, user.key) == set()
    user.attach(outputs(stack)[f"{role.capitalize()}PolicyArn"])
    assert let_through(stack, user.key) == calls_for(SCOPES_OF_ROLE[role])


@pytest.mark.parametrize("grant", SCOPES_OF_GRANT)
def test_a_user_with_a_grant_may_do_its_calls_and_no_others(stack: UpStack, grant: str) -> None:
    user = User(stack, f"granted-{grant}")
    document = document_of(stack, SCOPES_OF_GRANT[grant])
    if document["Statement"]:
        user.put(document)
    assert let_through(stack, user.key) == calls_for(SCOPES_OF_GRANT[grant])


def test_the_operators_role_can_be_assumed_and_its_actions_bear_its_name(stack: UpStack) -> None:
    assumed = stack.client("sts").assume_role(RoleArn=outputs(stack)["OperatorRoleArn"], RoleSessionName="on-call")
    given = assumed["Credentials"]
    key = Credentials(given["AccessKeyId"], given["SecretAccessKey"], given["SessionToken"])
    submitted = stack.call("POST", "tasks", {"type": "nobody.knows", "delaySeconds": 3600})
    task_id = submitted.json["taskId"]
    assert stack.call("POST", "tasks", {"type": "nobody.knows"}, key=key).status == 403
    cancelled = stack.call("POST", f"tasks/{task_id}/cancel", {"reason": "enough"}, key=key)
    assert (cancelled.status, cancelled.json["outcome"]) == (200, "cancelled")
    row = stack.client("dynamodb").get_item(TableName=stack.record["tableName"], Key={"taskId": {"S": task_id}})["Item"]
    assert ":assumed-role/" in json.dumps(row)
    assert "/on-call" in json.dumps(row)


def test_a_submitter_submits_and_is_not_let_near_anything_else(stack: UpStack) -> None:
    user = User(stack, "one-submitter")
    user.attach(outputs(stack)["SubmitterPolicyArn"])
    answer = stack.call("POST", "tasks", {"type": "nobody.knows", "delaySeconds": 3600}, key=user.key)
    assert answer.status == 201
    task_id = answer.json["taskId"]
    for method, path in (
        ("GET", f"tasks/{task_id}"),
        ("POST", f"tasks/{task_id}/cancel"),
        ("POST", "redrive"),
        ("POST", "tasks/batch/redrive"),
        ("GET", "tasks?status=PENDING"),
        ("GET", "no/such/path"),
    ):
        assert stack.call(method, path, None if method == "GET" else {}, key=user.key).status == 403, (method, path)
    assert stack.call("POST", f"tasks/{task_id}/cancel", {}).status == 200


def test_the_stage_has_its_throttling_and_answers_no_browser(stack: UpStack) -> None:
    api_id = stack.record["apiUrl"].rstrip("/").rpartition("/")[2]
    stage = stack.client("apigatewayv2").get_stage(ApiId=api_id, StageName="$default")
    assert stage["DefaultRouteSettings"] == {"ThrottlingBurstLimit": 1000, "ThrottlingRateLimit": 500}
    headers = {"origin": "https://elsewhere.example", "access-control-request-method": "POST"}
    preflight = stack.call("OPTIONS", "tasks", headers=headers, signed=False)
    assert preflight.status == 403
    assert not [name for name in preflight.headers if name.lower().startswith("access-control")]
