"""API Gateway events of both formats become one request; errors become the contract's answers."""

from __future__ import annotations

import base64
import json
from dataclasses import replace
from typing import Any

import pytest

from tests.support.events import v1_event, v2_event
from thunderagent import errors, http, jsontext
from thunderagent.http import BODY_BYTES, Answer, UnsupportedMediaType, answer_to, decode, encode

BODY = '{"type":"demo.echo","payload":"é😀"}'


class TestTa33OneRequestWhateverTheEvent:
    @pytest.mark.parametrize("make", [v1_event, v2_event])
    @pytest.mark.parametrize("as_base64", [False, True])
    @pytest.mark.parametrize("bom", ["", "\ufeff"])
    @pytest.mark.parametrize(
        "content_type",
        [
            None,
            "application/json",
            "application/json; charset=utf-8",
            "text/plain",
            "application/octet-stream",
            "a/b+json",
        ],
    )
    def test_body(self, make: Any, as_base64: bool, bom: str, content_type: str | None) -> None:
        headers = {} if content_type is None else {"Content-Type": content_type}
        request = decode(make("POST", "/tasks", body=bom + BODY, headers=headers, as_base64=as_base64))
        assert (request.route, request.json()) == ("POST /tasks", json.loads(BODY))

    @pytest.mark.parametrize("make", [v1_event, v2_event])
    @pytest.mark.parametrize("name", ["Idempotency-Key", "idempotency-key", "IDEMPOTENCY-KEY"])
    def test_header_names_in_any_case(self, make: Any, name: str) -> None:
        assert decode(make("POST", "/tasks", body=BODY, headers={name: "k1"})).headers["idempotency-key"] == "k1"

    @pytest.mark.parametrize("make", [v1_event, v2_event])
    @pytest.mark.parametrize("stage", ["$default", "prod"])
    def test_a_stage_prefix_changes_nothing(self, make: Any, stage: str) -> None:
        request = decode(make("GET", "/tasks/t1/why", stage=stage))
        assert (request.route, request.path, request.path_parameters) == (
            "GET /tasks/{taskId}/why",
            "/tasks/t1/why",
            {"taskId": "t1"},
        )

    def test_a_stage_that_is_named_like_a_path(self) -> None:
        assert decode(v2_event("GET", "/tasks/tasks", stage="tasks")).path == "/tasks/tasks"
        assert http._without_stage("/prod", {"stage": "prod"}) == "/"

    @pytest.mark.parametrize("make", [v1_event, v2_event])
    def test_no_body(self, make: Any) -> None:
        assert decode(make("POST", "/tasks")).json() is None

    @pytest.mark.parametrize("make", [v1_event, v2_event])
    @pytest.mark.parametrize("text", ["%%%", "abc", "YWJj\nYWJj", "é"])
    def test_invalid_base64(self, make: Any, text: str) -> None:
        event = make("POST", "/tasks") | {"body": text, "isBase64Encoded": True}
        with pytest.raises(errors.InvalidInput, match="base64"):
            decode(event)

    @pytest.mark.parametrize(
        "content_type", ["application/xml", "text/xml; charset=utf-8", "multipart/form-data; boundary=x", "image/png"]
    )
    def test_other_media_types(self, content_type: str) -> None:
        request = decode(v2_event("POST", "/tasks", body=BODY, headers={"content-type": content_type}))
        with pytest.raises(UnsupportedMediaType):
            request.json()

    @pytest.mark.parametrize("charset", ["latin-1", '"ISO-8859-1"', "utf-16", "windows-1252", ""])
    def test_other_charsets_where_they_would_matter(self, charset: str) -> None:
        headers = {"content-type": f"application/json; Charset={charset}"}
        assert decode(v2_event("POST", "/tasks", body='{"a": 1}', headers=headers)).json() == {"a": 1}
        request = decode(v2_event("POST", "/tasks", body='{"a": "\u00e9"}', headers=headers))
        with pytest.raises(UnsupportedMediaType, match="UTF-8"):
            request.json()
        with pytest.raises(UnsupportedMediaType):
            request.json_draft()

    @pytest.mark.parametrize("charset", ["utf-8", "UTF-8", '"utf8"'])
    def test_utf_8_by_any_name(self, charset: str) -> None:
        headers = {"content-type": f"application/json;charset={charset}; x=y"}
        assert decode(v2_event("POST", "/tasks", body='{"a": "é"}', headers=headers)).json() == {"a": "é"}

    def test_a_compressed_body(self) -> None:
        with pytest.raises(UnsupportedMediaType):
            decode(v2_event("POST", "/tasks", body=BODY, headers={"Content-Encoding": "gzip"})).json()

    def test_a_media_type_without_a_body_is_no_matter(self) -> None:
        assert decode(v2_event("POST", "/tasks/a/cancel", headers={"content-type": "application/xml"})).json() is None

    @pytest.mark.parametrize("make", [v1_event, v2_event])
    def test_query_and_path_are_decoded(self, make: Any) -> None:
        request = decode(make("GET", "/tasks/a%3Ab", query="status=FAILED&nextToken=a%2Bb+c&queue="))
        assert request.query == {"status": "FAILED", "nextToken": "a+b c", "queue": ""}
        assert request.path_parameters == {"taskId": "a:b"}

    @pytest.mark.parametrize("make", [v1_event, v2_event])
    def test_a_parameter_given_twice(self, make: Any) -> None:
        with pytest.raises(errors.InvalidInput) as caught:
            decode(make("GET", "/tasks", query="status=FAILED&status=DONE"))
        assert caught.value.path == "status"

    @pytest.mark.parametrize("make", [v1_event, v2_event])
    @pytest.mark.parametrize("path", ["/nothing", "/", "/tasks/", "/tasks/a/b/c", "//tasks", "/TASKS"])
    def test_unknown_paths_have_no_route(self, make: Any, path: str) -> None:
        assert decode(make("GET", path)).route == "$default"

    def test_the_default_route_is_never_matched_again(self) -> None:
        event = v2_event("POST", "/tasks/t1/redrive") | {"routeKey": "$default"}
        assert decode(event).route == "$default"

    def test_a_proxy_resource_is_matched_by_path(self) -> None:
        event = v1_event("POST", "/tasks/t1/redrive") | {"resource": "/{proxy+}", "pathParameters": {"proxy": "x"}}
        assert decode(event).path_parameters == {"taskId": "t1"}

    @pytest.mark.parametrize(
        "event", [{}, {"version": "2.0"}, {"version": "2.0", "requestContext": None, "headers": None}]
    )
    def test_an_event_with_nothing_in_it(self, event: dict[str, Any]) -> None:
        assert decode(event).route == "$default"


class TestCallers:
    def test_iam(self) -> None:
        event = v2_event("GET", "/tasks")
        event["requestContext"]["authorizer"] = {"iam": {"userArn": "arn:aws:iam::1:user/ann"}}
        assert (decode(event).caller, decode(event).scopes) == ("arn:aws:iam::1:user/ann", None)

    def test_jwt(self) -> None:
        event = v2_event("GET", "/tasks")
        jwt = {"claims": {"sub": "ann", "scope": "thunder/read openid"}, "scopes": None}
        event["requestContext"]["authorizer"] = {"jwt": jwt}
        assert (decode(event).caller, decode(event).scopes) == ("ann", {"thunder/read", "openid"})

    def test_format_1(self) -> None:
        event = v1_event("GET", "/tasks")
        event["requestContext"]["identity"] = {"userArn": "arn:aws:iam::1:user/ann"}
        assert decode(event).caller == "arn:aws:iam::1:user/ann"


class TestTa35Sizes:
    @pytest.mark.parametrize("as_base64", [False, True])
    @pytest.mark.parametrize("unit", ["a", "é", "中"])
    def test_the_body_counts_in_bytes_as_received(self, unit: str, as_base64: bool) -> None:
        units, rest = divmod(BODY_BYTES - 2, len(unit.encode()))
        fitting = '"' + unit * units + "a" * rest + '"'
        assert len(decode(v2_event("POST", "/tasks", body=fitting, as_base64=as_base64)).body) == BODY_BYTES
        with pytest.raises(errors.TooLarge):
            decode(v2_event("POST", "/tasks", body=fitting + " ", as_base64=as_base64))

    def test_the_escaped_event_is_counted_too(self) -> None:
        with pytest.raises(errors.TooLarge, match="escaped"):
            decode(v2_event("POST", "/tasks", body="\x01" * (BODY_BYTES - 2)))

    def test_the_most_any_json_text_grows_by_escaping_fits(self) -> None:
        text = '"' + '\\"' * (BODY_BYTES // 2 - 1) + '"'
        assert decode(v2_event("POST", "/tasks", body=text)).json() == '"' * (BODY_BYTES // 2 - 1)


class TestAnswers:
    def test_an_answer_carries_the_request_id_and_exact_json(self) -> None:
        value = {"n": 10**40, "f": 1.0, "s": "é"}
        encoded = encode(http.created(value, location="/tasks/t"), "r-1")
        assert encoded["statusCode"] == 201
        assert encoded["body"] == '{"n":1' + "0" * 40 + ',"f":1.0,"s":"é"}'
        assert encoded["headers"] == {
            "content-type": "application/json",
            "cache-control": "no-store",
            "x-request-id": "r-1",
            "location": "/tasks/t",
        }

    @pytest.mark.parametrize("answer", [http.no_content(), http.see_other("https://s3/x")])
    def test_answers_without_a_body(self, answer: Answer) -> None:
        encoded = encode(answer, "r")
        assert encoded["body"] == ""
        assert "content-type" not in encoded["headers"]

    def test_stored_text_goes_out_as_it_is(self) -> None:
        assert encode(http.ok_text("[1.0, -0.0]"), "r")["body"] == "[1.0, -0.0]"

    @pytest.mark.parametrize(
        ("error", "status", "code"),
        [
            (errors.InvalidInput("x: bad", path="x"), 400, "validation_error"),
            (errors.InvalidInput("off", code="listing_disabled"), 400, "listing_disabled"),
            (errors.NotFound("gone"), 404, "not_found"),
            (errors.BodyMissing("payload#x"), 404, "not_found"),
            (errors.Conflict("is DONE", status="DONE"), 409, "conflict"),
            (errors.TooLarge("big"), 413, "too_large"),
            (UnsupportedMediaType("xml"), 415, "unsupported_media_type"),
            (errors.Unprocessable("no queue", code="unknown_queue"), 422, "unknown_queue"),
            (errors.Backlogged("full", retry_after_seconds=7), 429, "backlog_full"),
            (errors.StoreThrottled("PutItem", "Throttling"), 503, "unavailable"),
            (errors.OutcomeUnknown("PutItem", "ReadTimeout"), 503, "unavailable"),
            (errors.StoreRefused("PutItem", "ValidationException", "secret"), 500, "internal_error"),
            (KeyError("secret"), 500, "internal_error"),
        ],
    )
    def test_every_error_has_its_status_and_code(self, error: Exception, status: int, code: str) -> None:
        answer = answer_to(error, "r-1")
        assert (answer.status, answer.value["error"]["code"], answer.value["requestId"]) == (status, code, "r-1")
        assert ("retry-after" in answer.headers) is (status in (429, 503))
        assert "secret" not in jsontext.dumps(answer.value)

    def test_details_where_there_are_some(self) -> None:
        assert answer_to(errors.InvalidInput("x: bad", path="x"), "r").value["error"] == {
            "code": "validation_error",
            "message": "x: bad",
            "path": "x",
        }
        assert answer_to(errors.Conflict("ended", status="DONE"), "r").value["error"]["status"] == "DONE"
        assert answer_to(errors.Backlogged("full", retry_after_seconds=7), "r").headers["retry-after"] == "7"


def test_a_request_is_a_plain_value() -> None:
    request = decode(v2_event("POST", "/tasks", body=BODY))
    assert replace(request, body=b"") != request
    assert "demo.echo" not in repr(request)


def test_base64_of_nothing_is_nothing() -> None:
    event = v2_event("POST", "/tasks") | {"body": base64.b64encode(b"").decode(), "isBase64Encoded": True}
    assert decode(event).json() is None
