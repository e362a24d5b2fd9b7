"""Failures say what to do next, and carry the exit code of their kind."""

from __future__ import annotations

import json

import botocore.exceptions
import pytest

from thunder.cli.explain import explained
from thunder.local.errors import LocalError
from thunderagent.errors import ConfigurationError, StoreThrottled
from thunderagent.signed_http import ApiError, Unreachable, error_of


def api_error(status: int, body: str) -> ApiError:
    return error_of(status, {"x-amzn-requestid": "req-1"}, body.encode(), attempts=3)


def own(code: str, message: str = "m", **more: str) -> str:
    return json.dumps({"error": {"code": code, "message": message, **more}})


@pytest.mark.parametrize(
    ("status", "body", "code", "says"),
    [
        (400, own("validation_error", "limit: too small"), 2, "limit: too small"),
        (400, own("listing_disabled"), 2, "thunder task get"),
        (404, own("not_found", "there is no task x"), 3, "there is no task x"),
        (409, own("conflict", status="RUNNING"), 4, "thunder task wait"),
        (409, own("conflict", status="FAILED"), 4, "thunder task redrive"),
        (422, own("unknown_queue"), 1, "thunder queue list"),
        (429, own("backlog_full"), 1, "--max-backlog"),
        (429, '{"message":"Too Many Requests"}', 1, "3 times"),
        (503, own("unavailable"), 1, "req-1"),
        (403, '{"message":"The security token included in the request is expired"}', 1, "aws sso login"),
        (403, '{"message":"Signature expired: 2026… is now earlier"}', 1, "thunder doctor"),
        (403, '{"message":"Forbidden"}', 1, "execute-api:Invoke"),
        (403, '{"message":"The security token included in the request is invalid."}', 1, "not valid here"),
        (500, own("internal"), 1, "req-1"),
    ],
)
def test_answers_of_the_api(status: int, body: str, code: int, says: str) -> None:
    failure = explained(api_error(status, body))

    assert failure is not None
    assert failure.exit_code == code
    assert says in failure.message


def test_no_answer_warns_that_the_call_may_have_had_its_effect() -> None:
    failure = explained(Unreachable(0, "unreachable", "refused"))

    assert failure is not None
    assert failure.exit_code == 1
    assert "thunder local status" in failure.message
    assert "may or may not" in failure.message


@pytest.mark.parametrize(
    ("error", "code", "says"),
    [
        (botocore.exceptions.NoCredentialsError(), 1, "--profile"),
        (botocore.exceptions.NoRegionError(), 1, "--region"),
        (botocore.exceptions.UnauthorizedSSOTokenError(), 1, "aws sso login"),
        (botocore.exceptions.EndpointConnectionError(endpoint_url="https://x"), 1, "Check the network"),
        (LocalError("node is missing: run `make setup` first"), 1, "make setup"),
        (ConfigurationError("no region"), 1, "no region"),
        (StoreThrottled("Scan", "Throttling"), 1, "DynamoDB"),
        (ConnectionError("reset"), 1, "network"),
        (PermissionError(13, "denied", "local.json"), 1, "local.json"),
    ],
)
def test_what_fails_on_the_way(error: Exception, code: int, says: str) -> None:
    failure = explained(error)

    assert failure is not None
    assert failure.exit_code == code
    assert says in failure.message


@pytest.mark.parametrize(
    ("aws_code", "code", "says"),
    [
        ("ExpiredToken", 1, "aws sso login"),
        ("AccessDenied", 1, "lacks the right for DescribeStacks"),
        ("InvalidClientTokenId", 1, "not valid"),
        ("ResourceNotFoundException", 3, "said so"),
        ("Throttling", 1, "said so"),
    ],
)
def test_refusals_of_aws(aws_code: str, code: int, says: str) -> None:
    response = {"Error": {"Code": aws_code, "Message": "said so"}}
    failure = explained(botocore.exceptions.ClientError(response, "DescribeStacks"))  # type: ignore[arg-type]

    assert failure is not None
    assert failure.exit_code == code
    assert says in failure.message


def test_a_message_cannot_act_on_the_terminal() -> None:
    failure = explained(api_error(404, own("not_found", "no task \x1b[2J")))

    assert failure is not None
    assert failure.message == r"no task \x1b[2J"


def test_a_defect_of_ours_is_not_explained_away() -> None:
    assert explained(TypeError("x")) is None
