"""API Gateway events as the gateway builds them, for one call in either payload format."""

from __future__ import annotations

import base64
from collections.abc import Mapping
from typing import Any
from urllib.parse import parse_qsl

from thunderagent.http import match

REQUEST_ID = "request-1"
USER_ARN = "arn:aws:iam::123456789012:user/tester"


def v2_event(
    method: str,
    path: str,
    *,
    body: str | None = None,
    headers: Mapping[str, str] | None = None,
    query: str = "",
    stage: str = "$default",
    as_base64: bool = False,
) -> dict[str, Any]:
    """An HTTP API's event: header names in lower case, the route found by the gateway."""
    route, placeholders = match(method, path)
    event: dict[str, Any] = {
        "version": "2.0",
        "routeKey": route,
        "rawPath": path if stage == "$default" else f"/{stage}{path}",
        "rawQueryString": query,
        "headers": {name.lower(): value for name, value in (headers or {}).items()},
        "requestContext": {
            "requestId": REQUEST_ID,
            "stage": stage,
            "http": {"method": method, "path": path},
            "authorizer": {"iam": {"userArn": USER_ARN}},
        },
        "isBase64Encoded": as_base64,
    }
    if placeholders:
        event["pathParameters"] = placeholders
    return event if body is None else event | {"body": _encoded(body, as_base64)}


def v1_event(
    method: str,
    path: str,
    *,
    body: str | None = None,
    headers: Mapping[str, str] | None = None,
    query: str = "",
    stage: str = "prod",
    as_base64: bool = False,
) -> dict[str, Any]:
    """A REST API's event: header names as sent, single and multiple values side by side."""
    route, placeholders = match(method, path)
    pairs = parse_qsl(query, keep_blank_values=True)
    return {
        "httpMethod": method,
        "resource": route.partition(" ")[2] if route != "$default" else "/{proxy+}",
        "path": path,
        "pathParameters": placeholders or None,
        "headers": dict(headers or {}),
        "multiValueHeaders": {name: [value] for name, value in (headers or {}).items()},
        "queryStringParameters": dict(pairs) or None,
        "multiValueQueryStringParameters": {
            name: [value for other, value in pairs if other == name] for name, _ in pairs
        }
        or None,
        "requestContext": {"requestId": REQUEST_ID, "stage": stage, "identity": {"userArn": USER_ARN}},
        "body": None if body is None else _encoded(body, as_base64),
        "isBase64Encoded": as_base64,
    }


def _encoded(body: str, as_base64: bool) -> str:
    return base64.b64encode(body.encode()).decode() if as_base64 else body
