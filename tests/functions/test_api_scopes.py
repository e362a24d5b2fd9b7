"""Tokens: each call asks for one of its scopes, and bodies for one of their own, whatever the gateway let through."""

from __future__ import annotations

from typing import Any

import pytest

from tests.support.api import Api
from tests.support.events import v1_event, v2_event
from thunderagent.validation import Operation, operations

SCOPES = ("thunder/submit", "thunder/read", "thunder/read-payload", "thunder/operate")


def by_token(event: dict[str, Any], **claims: Any) -> dict[str, Any]:
    """The event as a JWT authorizer makes it; its own list of scopes says more than the token does."""
    jwt = {"claims": {"iss": "https://issuer.example", "sub": "user-1", **claims}, "scopes": list(SCOPES)}
    event["requestContext"]["authorizer"] = {"jwt": jwt}
    return event


def request_of(operation: Operation) -> dict[str, Any]:
    method, _, template = operation.route.partition(" ")
    path = template.replace("{taskId}", "t").replace("{queue}", "default").replace("{name}", "nightly")
    return v2_event(method, path, body="{}" if operation.body else None)


@pytest.mark.parametrize("operation", operations().values(), ids=lambda operation: operation.operation_id)
@pytest.mark.parametrize("scope", [*SCOPES, "openid", "thunder", "thunder/submit2", None])
def test_a_call_is_refused_without_one_of_its_scopes(api: Api, operation: Operation, scope: str | None) -> None:
    claims = {} if scope is None else {"scope": f"openid {scope}"}
    response = api.send(by_token(request_of(operation), **claims))
    assert (response.status == 403) is (scope not in operation.scopes)
    if response.status == 403:
        assert response.error["code"] == "forbidden"


def test_what_is_refused_leaves_nothing(api: Api) -> None:
    event = v2_event("POST", "/tasks", body='{"type":"demo.echo"}')
    assert api.send(by_token(event, scope="thunder/read thunder/operate")).status == 403
    assert api.rows() == []


@pytest.mark.parametrize(
    "claims",
    [
        {"scope": "thunder/read thunder/read-payload"},
        {"scp": ["thunder/read", "thunder/read-payload"]},
        {"scp": "[thunder/read thunder/read-payload]"},
        {"scope": "thunder/read", "scp": "thunder/read-payload"},
    ],
    ids=["a text", "a list", "a list as the gateway passes it on", "both claims"],
)
def test_issuers_write_scopes_in_several_ways(api: Api, claims: dict[str, Any]) -> None:
    task_id = api.submit(payload={"secret": 1})
    response = api.send(by_token(v2_event("GET", f"/tasks/{task_id}"), **claims))
    assert response.json["payload"] == {"secret": 1}


class TestBodies:
    def test_a_reader_sees_how_long_they_are(self, api: Api) -> None:
        task_id = api.submit(payload={"secret": 1})
        response = api.send(by_token(v2_event("GET", f"/tasks/{task_id}"), scope="thunder/read"))
        assert response.status == 200
        assert "payload" not in response.json
        assert response.json["payloadBytes"] == 12
        assert "secret" not in response.text

    def test_an_operator_without_the_scope_does_not_see_them_in_answers(self, api: Api) -> None:
        task_id = api.submit(payload={"secret": 1})
        event = v2_event("POST", f"/tasks/{task_id}/cancel", body="{}")
        response = api.send(by_token(event, scope="thunder/operate"))
        assert response.json["outcome"] == "cancelled"
        assert "secret" not in response.text

    def test_who_submits_sees_the_payload_sent_and_not_that_of_another_task(self, api: Api) -> None:
        def submit(payload: str) -> str:
            body = f'{{"type":"demo.echo","payload":"{payload}","unique":{{}}}}'
            return api.send(by_token(v2_event("POST", "/tasks", body=body), scope="thunder/submit")).text

        assert "secret" in submit("secret")
        repeated = submit("secret")
        assert '"duplicate":true' in repeated
        assert "secret" not in repeated

    def test_running_a_schedule_does_not_show_its_payload(self, api: Api) -> None:
        task = {"type": "demo.echo", "payload": {"secret": 1}}
        api.call("PUT", "/schedules/nightly", {"cron": "0 3 * * *", "timezone": "UTC", "task": task})
        response = api.send(by_token(v2_event("POST", "/schedules/nightly/run"), scope="thunder/operate"))
        assert response.status == 201
        assert "secret" not in response.text


def test_the_token_names_the_operator(api: Api) -> None:
    task_id = api.submit()
    event = v2_event("POST", f"/tasks/{task_id}/cancel", body='{"reason":"enough"}')
    api.send(by_token(event, scope="thunder/operate"))
    stored = str(api.table.item(task_id))
    assert "user-1" in stored


def test_a_signed_call_needs_no_scope(api: Api) -> None:
    assert api.call("GET", f"/tasks/{api.submit(payload=1)}").json["payload"] == 1


def test_a_rest_apis_cognito_authorizer_is_a_token_too(api: Api) -> None:
    """An identity token has claims and no scope: it may nothing."""
    event = v1_event("GET", "/stats")
    event["requestContext"]["authorizer"] = {"claims": {"sub": "user-1"}}
    assert api.send(event).status == 403
    event["requestContext"]["authorizer"]["claims"]["scope"] = "thunder/read"
    assert api.send(event).status == 200
