"""POST /tasks and GET /tasks/{taskId}: what is accepted, what comes back, and that refusals leave no row."""

from __future__ import annotations

import json
import threading
from collections import Counter
from typing import Any

import pytest
from hypothesis import HealthCheck, given, settings

from functions.api import handler
from tests.support.api import Api
from tests.support.events import v1_event, v2_event
from tests.support.fakes import START
from tests.support.memory_dynamodb import Fault
from tests.unit.test_jsontext import VALUES, typed
from thunderagent import jsontext
from thunderagent.validation import operations
from thunderagent.version import VERSION

KEY = {"Idempotency-Key": "key-1"}


class TestAccepted:
    def test_the_task_is_there_with_its_place(self, api: Api) -> None:
        response = api.call("POST", "/tasks", {"type": "demo.echo", "payload": {"n": 1}})
        task_id = response.json["taskId"]
        assert response.status == 201
        assert response.headers["location"] == f"/tasks/{task_id}"
        assert api.call("GET", f"/tasks/{task_id}").json == response.json
        assert response.json | {"taskId": ""} == {
            "taskId": "",
            "type": "demo.echo",
            "queue": "default",
            "priority": "normal",
            "status": "PENDING",
            "payload": {"n": 1},
            "retryCount": 0,
            "maxRetryNumber": 3,
            "timeoutSeconds": 300,
            "fence": 0,
            "createdAt": START,
            "updatedAt": START,
            "dueAt": START,
        }

    def test_defaults_come_from_the_declaration(self, api: Api) -> None:
        task = api.call("POST", "/tasks", {"type": "report.generate"}).json
        assert (task["queue"], task["priority"], task["timeoutSeconds"], task["maxRetryNumber"]) == (
            "reports",
            "low",
            120,
            5,
        )

    @pytest.mark.parametrize("retries", [0, 1])
    def test_ta_36_zero_is_a_number_of_retries(self, api: Api, retries: int) -> None:
        task = api.call("POST", "/tasks", {"type": "report.generate", "maxRetryNumber": retries}).json
        assert task["maxRetryNumber"] == retries

    def test_ta_36_absent_and_explicit_default_are_alike(self, api: Api) -> None:
        explicit = {"queue": "default", "priority": "normal", "delaySeconds": 0, "dependsOn": [], "tags": {}}
        one = api.call("POST", "/tasks", {"type": "demo.echo"}).json
        other = api.call("POST", "/tasks", {"type": "demo.echo", "payload": None, **explicit}).json
        assert one | {"taskId": ""} == other | {"taskId": ""}

    def test_times(self, api: Api) -> None:
        later = api.call("POST", "/tasks", {"type": "demo.echo", "delaySeconds": 60, "startWithinSeconds": 30}).json
        assert (later["dueAt"], later["runAt"], later["deadline"], later["startWithinSeconds"]) == (
            START + 60,
            START + 60,
            START + 90,
            30,
        )
        assert api.call("POST", "/tasks", {"type": "demo.echo", "runAt": "2001-01-01T00:00:00Z"}).json["dueAt"] == START
        future = api.call("POST", "/tasks", {"type": "demo.echo", "runAt": "2030-01-01T00:00:00+02:00"}).json
        assert future["dueAt"] == 1_893_448_800

    def test_all_that_was_submitted_comes_back(self, api: Api) -> None:
        sent = {
            "type": "demo.echo",
            "payload": [None],
            "queue": "reports",
            "priority": "high",
            "maxRetryNumber": 7,
            "timeoutSeconds": 12,
            "startWithinSeconds": 3600,
            "tags": {"tenant": "é"},
            "taskId": "my:own.id",
            "unique": {"windowSeconds": 600},
        }
        response = api.call("POST", "/tasks", sent)
        assert response.status == 201, response.text
        assert api.call("GET", "/tasks/my:own.id").json.items() >= sent.items()

    def test_whole_seconds_are_shown_as_they_were_sent(self, api: Api) -> None:
        response = api.call("POST", "/tasks", {"type": "demo.echo", "timeoutSeconds": 60, "startWithinSeconds": 5})
        for text in (response.text, api.call("GET", f"/tasks/{response.json['taskId']}").text):
            task = json.loads(text, parse_float=lambda digits: f"float {digits}")
            assert (task["timeoutSeconds"], task["startWithinSeconds"]) == (60, 5)

    def test_one_log_line_and_no_payload_in_it(self, api: Api) -> None:
        api.submit(payload={"secret": "hush"})
        assert api.events() == ["task.submitted"]
        assert "hush" not in api.log.getvalue()
        assert '"Submitted":1' in api.log.getvalue()

    @pytest.mark.parametrize("secret", ["leaseToken", "idempotencyHash", "dispatchKey", "owner"])
    def test_what_readers_never_see(self, api: Api, secret: str) -> None:
        task_id = api.submit(taskId="t")
        api.table.put(api.table.item(task_id) | {secret: "hidden"})  # type: ignore[operator]
        assert secret not in api.call("GET", f"/tasks/{task_id}").text

    @pytest.mark.parametrize("make", [v1_event, v2_event])
    @pytest.mark.parametrize("stage", ["$default", "prod"])
    @pytest.mark.parametrize("content_type", [None, "application/json; charset=utf-8", "text/plain"])
    @pytest.mark.parametrize("as_base64", [False, True])
    def test_ta_33_every_form_gives_one_and_the_same_task(
        self, api: Api, make: Any, stage: str, content_type: str | None, as_base64: bool
    ) -> None:
        first = api.send(v2_event("POST", "/tasks", body='{"type":"demo.echo","payload":"é"}', headers=KEY)).json
        headers = {"IDEMPOTENCY-KEY": "key-1", **({} if content_type is None else {"Content-Type": content_type})}
        body = '\ufeff{ "payload" : "\\u00e9", "type":"demo.echo" }'
        again = api.send(make("POST", "/tasks", body=body, headers=headers, stage=stage, as_base64=as_base64))
        assert (again.status, again.json) == (200, first | {"duplicate": True})


class TestRefused:
    @pytest.mark.parametrize(
        ("text", "status", "path"),
        [
            ("", 400, None),
            ("[]", 400, ""),
            ('"x"', 400, ""),
            ("{", 400, ""),
            ('{"type":"a","payload":NaN}', 400, "payload"),
            ('{"type":"a","payload":{"price":1e400}}', 400, "payload.price"),
            (r'{"type":"a","payload":{"s":"\ud800"}}', 400, "payload.s"),
            ('{"type":"a","type":"b"}', 400, "type"),
            ('{"payload":1}', 400, "type"),
            ('{"type":"a","bogus":1}', 400, "bogus"),
            ('{"type":"a","payload":' + "[" * 5000 + "]" * 5000 + "}", 400, "payload[0][0]"),
            ('{"type":"a","payload":' + "[" * 201 + "]" * 201 + "}", 400, "payload[0][0][0]"),
            ('{"type":"a","queue":"nowhere"}', 422, "queue"),
            ('{"type":"a","timeoutSeconds":871}', 400, "timeoutSeconds"),
            ('{"type":"a","payload":"' + "a" * (1024 * 1024 - 1) + '"}', 413, "payload"),
            ('{"type":"a","payload":"' + "a" * (2 * 1024 * 1024) + '"}', 413, None),
        ],
    )
    def test_ta_34_bad_input_is_named_and_leaves_no_row(
        self, api: Api, text: str, status: int, path: str | None
    ) -> None:
        response = api.send(v2_event("POST", "/tasks", body=text))
        assert (response.status, response.error.get("path")) == (status, path)
        assert response.json["requestId"] == "request-1"
        assert api.table.items() == {}
        assert not api.objects.stored

    def test_ta_34_two_hundred_levels_are_accepted(self, api: Api) -> None:
        payload = "[" * 200 + "]" * 200
        response = api.send(v2_event("POST", "/tasks", body='{"type":"demo.echo","payload":' + payload + "}"))
        assert response.status == 201
        assert api.call("GET", f"/tasks/{response.json['taskId']}/payload").text == payload

    def test_the_wrong_media_type(self, api: Api) -> None:
        response = api.call("POST", "/tasks", {"type": "demo.echo"}, headers={"Content-Type": "application/xml"})
        assert (response.status, response.error["code"]) == (415, "unsupported_media_type")
        assert api.rows() == []

    def test_invalid_base64(self, api: Api) -> None:
        event = v2_event("POST", "/tasks") | {"body": "%%%", "isBase64Encoded": True}
        assert api.send(event).status == 400

    def test_an_own_id_twice(self, api: Api) -> None:
        api.submit(taskId="mine")
        response = api.call("POST", "/tasks", {"type": "demo.echo", "taskId": "mine"})
        assert (response.status, response.error["status"]) == (409, "PENDING")

    def test_unknown_paths(self, api: Api) -> None:
        assert (api.call("GET", "/nothing").status, api.call("PATCH", "/tasks").status) == (404, 404)

    @pytest.mark.parametrize("path", ["/tasks/none", "/tasks/lease%23x", "/tasks/none/payload", "/tasks/none/result"])
    def test_unknown_tasks(self, api: Api, path: str) -> None:
        response = api.call("GET", path)
        assert (response.status, response.error["code"]) == (404, "not_found")

    def test_a_throttled_store_says_when_to_come_back(self, api: Api) -> None:
        api.table.inject(Fault.THROTTLED, where=lambda call: call.operation == "PutItem", times=None)
        response = api.call("POST", "/tasks", {"type": "demo.echo"})
        assert (response.status, response.error["code"], response.headers["retry-after"]) == (503, "unavailable", "1")
        assert api.rows() == []

    def test_a_defect_of_ours_is_logged_and_not_told(self, api: Api, monkeypatch: pytest.MonkeyPatch) -> None:
        monkeypatch.setattr(type(api.parts.submitter), "submit", lambda *a, **k: 1 / 0)
        response = api.call("POST", "/tasks", {"type": "demo.echo"})
        assert (response.status, response.error["code"]) == (500, "internal_error")
        assert "division" not in response.text
        logged = api.log.getvalue()
        assert "ZeroDivisionError" in logged, "its kind and place"
        assert "test_api_submit.py" in logged
        assert "division by zero" not in logged, "its text may quote what a caller sent"

    def test_a_function_without_its_environment_still_answers(
        self, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
    ) -> None:
        monkeypatch.delenv("TABLE_NAME", raising=False)
        answer = handler.handler(v2_event("GET", "/health"), None)
        assert (answer["statusCode"], json.loads(answer["body"])["error"]["code"]) == (500, "internal_error")
        assert "TABLE_NAME is not set" in capsys.readouterr().out


class TestExactness:
    @given(value=VALUES)
    @settings(
        max_examples=60,
        deadline=None,
        suppress_health_check=[HealthCheck.function_scoped_fixture, HealthCheck.too_slow],
    )
    def test_any_json_value_comes_back_equal(self, api: Api, value: Any) -> None:
        body = json.dumps({"type": "demo.echo", "payload": value})
        response = api.send(v2_event("POST", "/tasks", body=body))
        got = api.call("GET", f"/tasks/{response.json['taskId']}")
        assert typed(jsontext.loads(got.text, max_depth=210)["payload"]) == typed(value)

    @pytest.mark.parametrize("size", [100, 5_000, 200_000])
    def test_ta_35_every_tier_is_read_back(self, api: Api, size: int) -> None:
        task_id = api.submit(payload="é" * (size // 2))
        assert api.call("GET", f"/tasks/{task_id}").json["payload"] == "é" * (size // 2)
        assert api.call("GET", f"/tasks/{task_id}/payload").json == "é" * (size // 2)

    def test_ta_35_beyond_256_kib_the_size_is_told(self, api: Api) -> None:
        task_id = api.submit(payload="a" * (256 * 1024 - 1))
        task = api.call("GET", f"/tasks/{task_id}").json
        assert "payload" not in task
        assert task["payloadBytes"] == 256 * 1024 + 1
        assert api.call("GET", f"/tasks/{task_id}/payload").status == 200

    @pytest.mark.parametrize("unit", ["a", "é", "中"])
    def test_ta_35_one_limit_in_bytes_of_the_stored_form(self, api: Api, unit: str) -> None:
        limit = 1024 * 1024
        units, rest = divmod(limit - 2, len(unit.encode()))
        payload = unit * units + "a" * rest
        task_id = api.submit(payload=payload) if unit == "a" else self.submit_unescaped(api, payload)
        response = api.call("GET", f"/tasks/{task_id}/payload")
        assert (response.status, response.headers["location"][:23]) == (303, "https://bucket.example/")
        assert [len(data) for data in api.objects.stored.values()] == [limit]
        too_long = json.dumps({"type": "demo.echo", "payload": payload + "a"}, ensure_ascii=False)
        assert api.send(v2_event("POST", "/tasks", body=too_long)).status == 413

    @staticmethod
    def submit_unescaped(api: Api, payload: str) -> str:
        body = json.dumps({"type": "demo.echo", "payload": payload}, ensure_ascii=False)
        response = api.send(v2_event("POST", "/tasks", body=body))
        assert response.status == 201, response.text
        return str(response.json["taskId"])

    def test_ta_35_escapes_are_not_what_counts(self, api: Api) -> None:
        task_id = api.submit(payload="é" * 51_200)  # sent as é: 300 KB of text, 100 KB stored
        assert len(api.call("GET", f"/tasks/{task_id}").json["payload"]) == 51_200


class TestIdempotency:
    def test_ta_17_the_same_key_and_body_is_the_same_task(self, api: Api) -> None:
        first = api.call("POST", "/tasks", {"type": "demo.echo", "payload": {"a": 1, "b": 2.0}}, headers=KEY)
        again = api.call("POST", "/tasks", {"payload": {"b": 2, "a": 1}, "type": "demo.echo"}, headers=KEY)
        assert (first.status, again.status) == (201, 200)
        assert again.json == first.json | {"duplicate": True}
        assert len(api.rows()) == 1

    def test_ta_17_another_body_is_refused(self, api: Api) -> None:
        api.call("POST", "/tasks", {"type": "demo.echo", "payload": 1}, headers=KEY)
        response = api.call("POST", "/tasks", {"type": "demo.echo", "payload": 2}, headers=KEY)
        assert (response.status, response.error["code"]) == (409, "idempotency_conflict")
        assert len(api.rows()) == 1

    def test_ta_17_integers_no_double_tells_apart_are_different_bodies(self, api: Api) -> None:
        api.call("POST", "/tasks", {"type": "demo.echo", "payload": 2**60}, headers=KEY)
        assert api.call("POST", "/tasks", {"type": "demo.echo", "payload": 2**60 + 1}, headers=KEY).status == 409

    def test_ta_17_fifty_at_once_are_one(self, api: Api) -> None:
        answers: list[Any] = []
        body = {"type": "demo.echo", "payload": {"n": 1}}
        threads = [
            threading.Thread(target=lambda: answers.append(api.call("POST", "/tasks", body, headers=KEY)))
            for _ in range(50)
        ]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
        assert Counter(answer.status for answer in answers) == {201: 1, 200: 49}
        assert len({answer.json["taskId"] for answer in answers}) == 1
        assert len(api.rows()) == 1

    def test_ta_17_a_lost_reply_is_no_duplicate(self, api: Api) -> None:
        api.table.inject(Fault.LOST_REPLY, where=lambda call: call.operation == "PutItem")
        assert api.call("POST", "/tasks", {"type": "demo.echo"}, headers=KEY).status == 201
        assert len(api.rows()) == 1

    def test_a_key_that_is_too_long(self, api: Api) -> None:
        response = api.call("POST", "/tasks", {"type": "demo.echo"}, headers={"Idempotency-Key": "k" * 256})
        assert (response.status, response.error["path"]) == (400, "Idempotency-Key")


class TestService:
    def test_health(self, api: Api) -> None:
        assert api.call("GET", "/health").json == {
            "status": "ok",
            "service": "ThunderAgent",
            "environment": "local",
            "version": VERSION,
        }

    def test_the_document(self, api: Api) -> None:
        served = api.call("GET", "/openapi.json").json
        assert {f"{method.upper()} {path}" for path, calls in served["paths"].items() for method in calls} == set(
            operations()
        )

    def test_a_token_without_the_right_gets_no_bodies(self, api: Api) -> None:
        task_id = api.submit(payload="secret")
        event = v2_event("GET", f"/tasks/{task_id}")
        event["requestContext"]["authorizer"] = {"jwt": {"claims": {"scope": "thunder/read"}}}
        assert "secret" not in api.send(event).text
        assert api.send(event).json["payloadBytes"] == 8
        event["requestContext"]["authorizer"] = {"jwt": {"claims": {"scope": "thunder/read thunder/read-payload"}}}
        assert api.send(event).json["payload"] == "secret"
