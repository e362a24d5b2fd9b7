"""The OpenAPI document and the code, held to one another: generated requests, good and bad, get documented answers."""

from __future__ import annotations

import json
from collections.abc import Iterable
from typing import Any

import pytest
import schemathesis
from hypothesis import HealthCheck, settings
from schemathesis import Case
from schemathesis.checks import CHECKS
from schemathesis.specs.openapi.checks import (
    content_type_conformance,
    negative_data_rejection,
    response_headers_conformance,
    response_schema_conformance,
    status_code_conformance,
)

from functions.api import handler
from tests.functions.test_api_list import ended
from tests.support.api import Api
from tests.support.events import v2_event
from tests.support.fakes import START
from thunderagent.validation import DOCUMENT_PATH, operations

API = Api()
CHECKED = [
    CHECKS.get_one("not_a_server_error"),
    status_code_conformance,
    content_type_conformance,
    response_headers_conformance,
    response_schema_conformance,
    negative_data_rejection,
]


KNOWN_IDS = ["pending", "blocked", "large", "running", "success", "failed", "done", "unknown"]


def fill(api: Api) -> None:
    """A task in every state."""
    parent = api.submit(taskId="pending", tags={"tenant": "a"}, unique={"windowSeconds": 5}, startWithinSeconds=60)
    api.submit(taskId="blocked", dependsOn=[parent])
    api.submit(taskId="large", payload="x" * 400_000)
    api.submit(taskId="running")
    running = {
        "status": "RUNNING",
        "leaseToken": "l",
        "fence": 1,
        "lockTime": START + 300,
        "progress": {"fraction": 0.5},
    }
    api.table.put((api.table.item("running") or {}) | running)
    lease = {"taskId": "lease#l", "taskIds": ["running"], "lockTime": START + 300, "dueAt": START + 300}
    api.table.put(lease | {"dispatchKey": "LEASE#default#0", "profile": "default"})
    for status in ("SUCCESS", "FAILED", "DONE"):
        outcome = {"outcome": "skipped"} if status == "DONE" else {}
        api.table.put(ended(status.lower(), START, status=status, **outcome))


def app(environ: dict[str, Any], start_response: Any) -> Iterable[bytes]:
    """The handler as a WSGI application: what API Gateway would make of a request, and of the answer."""
    length = int(environ.get("CONTENT_LENGTH") or 0)
    body = environ["wsgi.input"].read(length).decode("utf-8", "replace") if length else None
    headers = {
        name.removeprefix("HTTP_").replace("_", "-").lower(): value
        for name, value in environ.items()
        if name.startswith("HTTP_")
    }
    if environ.get("CONTENT_TYPE"):
        headers["content-type"] = environ["CONTENT_TYPE"]
    path = environ["PATH_INFO"].encode("latin-1").decode("utf-8", "replace")
    event = v2_event(environ["REQUEST_METHOD"], path, body=body, headers=headers, query=environ.get("QUERY_STRING", ""))
    answer = handler.handler(event, None)
    start_response(f"{answer['statusCode']} -", list(answer["headers"].items()))
    return [answer["body"].encode()]


@pytest.fixture(autouse=True)
def one_api(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(handler, "service", lambda: API.service)
    for row in API.rows():
        API.table.remove(row)
    API.parts.queues.all(fresh=True)
    fill(API)


# Who may call is the gateway's to judge: the function is behind it.
DOCUMENT = json.loads(DOCUMENT_PATH.read_bytes()) | {"security": []}
DOCUMENT["components"].pop("securitySchemes")
schema = schemathesis.openapi.from_dict(DOCUMENT)
schema.app = app


@schema.hook
def map_path_parameters(context: Any, path_parameters: dict[str, Any] | None) -> dict[str, Any] | None:
    """Most generated ids name nothing; half of them are turned into those of tasks that are there."""
    if path_parameters and "taskId" in path_parameters:
        number = len(str(path_parameters["taskId"]))
        if number % 2:
            return {**path_parameters, "taskId": KNOWN_IDS[number // 2 % len(KNOWN_IDS)]}
    return path_parameters


@schema.parametrize()
@settings(
    max_examples=12,
    deadline=None,
    derandomize=True,
    suppress_health_check=[HealthCheck.function_scoped_fixture, HealthCheck.too_slow, HealthCheck.filter_too_much],
)
def test_every_generated_request_gets_a_documented_answer(case: Case) -> None:
    # A bad entry of a batch is reported in its place: to the checker the whole request looks accepted.
    is_batch = case.operation.path == "/tasks/batch"
    case.call_and_validate(checks=[check for check in CHECKED if not (is_batch and check is negative_data_rejection)])


def test_every_call_of_the_document_is_served_and_no_other() -> None:
    assert set(handler.CALLS) == set(operations())
