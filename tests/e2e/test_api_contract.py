"""Generated requests through the real gateway: every answer is one the OpenAPI document names, in the form it gives.

A few for each call; `tests/functions/test_api_contract.py` sends many more to the handler in process.
"""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import requests.auth
import schemathesis
from botocore.auth import SigV4Auth
from botocore.awsrequest import AWSRequest
from botocore.credentials import Credentials
from hypothesis import HealthCheck, Phase, given, settings
from requests import PreparedRequest
from schemathesis import Case
from schemathesis.checks import CHECKS
from schemathesis.specs.openapi.checks import response_schema_conformance, status_code_conformance

from tests.support.local_stack import UpStack, copy_up
from thunder.local.progress import SILENT
from thunderagent.validation import DOCUMENT_PATH, operations

EXAMPLES = 4
KNOWN_IDS = ("waiting", "with-a-body", "cancelled", "nobody")
CHECKED = [CHECKS.get_one("not_a_server_error"), status_code_conformance, response_schema_conformance]

DOCUMENT = json.loads(DOCUMENT_PATH.read_bytes()) | {"security": []}  # signing is ours to do
DOCUMENT["components"].pop("securitySchemes")
SCHEMA = schemathesis.openapi.from_dict(DOCUMENT)


@SCHEMA.hook
def map_path_parameters(context: Any, path_parameters: dict[str, Any] | None) -> dict[str, Any] | None:
    """Most generated ids name nothing; half of them are turned into those of tasks that are there."""
    if path_parameters and "taskId" in path_parameters:
        number = len(str(path_parameters["taskId"]))
        if number % 2:
            return {**path_parameters, "taskId": KNOWN_IDS[number // 2 % len(KNOWN_IDS)]}
    return path_parameters


class Signed(requests.auth.AuthBase):
    """Each request as it is sent, signed by the stack's root user."""

    def __init__(self, stack: UpStack) -> None:
        key = Credentials(stack.record["accessKeyId"], stack.record["secretAccessKey"])
        self._signer = SigV4Auth(key, "execute-api", stack.record["region"])

    def __call__(self, prepared: PreparedRequest) -> PreparedRequest:
        request = AWSRequest(prepared.method, prepared.url, data=prepared.body)
        self._signer.add_auth(request)
        prepared.headers.update(dict(request.headers.items()))
        return prepared


@pytest.fixture(scope="module")
def filled(deployed: Path, tmp_path_factory: pytest.TempPathFactory) -> Iterator[UpStack]:
    """A stack of this module's own: generated requests pause queues and cancel everything."""
    stack = copy_up(deployed, tmp_path_factory.mktemp("contract") / "state", SILENT)
    try:
        later = {"type": "nobody.knows", "delaySeconds": 3600}
        for task_id, payload in (("waiting", None), ("with-a-body", "x" * 400_000), ("cancelled", 1)):
            answer = stack.call("POST", "tasks", {**later, "taskId": task_id, "payload": payload})
            assert answer.status == 201
        assert stack.call("POST", "tasks/cancelled/cancel", {}).status == 200
        yield stack
    finally:
        stack.local.down()


@pytest.mark.parametrize("route", operations())
def test_generated_requests_get_documented_answers(filled: UpStack, route: str) -> None:
    method, _, path = route.partition(" ")
    statuses: Counter[int] = Counter()
    signed = Signed(filled)

    @given(case=SCHEMA[path][method].as_strategy())
    @settings(
        max_examples=EXAMPLES,
        deadline=None,
        derandomize=True,
        database=None,
        phases=[Phase.explicit, Phase.generate],
        suppress_health_check=list(HealthCheck),
    )
    def run(case: Case) -> None:
        response = case.call(base_url=filled.record["apiUrl"].rstrip("/"), auth=signed, allow_redirects=False)
        statuses[response.status_code] += 1
        case.validate_response(response, checks=CHECKED)

    run()
    assert statuses.total() >= 1
    assert statuses[403] <= statuses.total() // 2, "the signer and the gateway disagree"
