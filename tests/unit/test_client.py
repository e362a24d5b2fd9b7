"""The client: repeats that are safe, errors of API and gateway, batches, waiting; signatures as SigV4 wants them."""

from __future__ import annotations

import asyncio
import json
import socket
import subprocess
import sys
import traceback
from collections.abc import Mapping
from datetime import datetime, timedelta, timezone
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from threading import Thread
from typing import Any

import pytest
from botocore.auth import SigV4Auth
from botocore.awsrequest import AWSRequest
from botocore.credentials import Credentials

import thunderagent
from tests.support.fakes import FakeClock, FakeRandomness
from tests.support.http_server import answer, scripted_server
from thunderagent.client import (
    ApiError,
    AsyncThunderClient,
    ConflictError,
    NewTask,
    NotFoundError,
    TaskView,
    ThunderClient,
    Unreachable,
    WaitTimeout,
)
from thunderagent.errors import ConfigurationError, InvalidInput
from thunderagent.signed_http import region_of

Scripted = tuple[int, dict[str, str], Any] | Exception
TASK = {"taskId": "t1", "status": "PENDING", "type": "a", "queue": "default"}
OWN_ERROR = {"error": {"code": "conflict", "message": "is DONE", "status": "DONE"}, "requestId": "r-9"}


class Script:
    """The exchange seam: answers in order, the last one for ever, and records what was asked."""

    def __init__(self, *answers: Scripted) -> None:
        self.answers = list(answers)
        self.asked: list[tuple[str, str, Mapping[str, str], Any]] = []

    def __call__(
        self, method: str, url: str, headers: Mapping[str, str], body: bytes
    ) -> tuple[int, Mapping[str, str], bytes]:
        self.asked.append((method, url, headers, json.loads(body) if body else None))
        answer = self.answers.pop(0) if len(self.answers) > 1 else self.answers[0]
        if isinstance(answer, Exception):
            raise answer
        status, answered, content = answer
        return status, answered, content if isinstance(content, bytes) else json.dumps(content).encode()


def client(*answers: Scripted, **options: Any) -> tuple[ThunderClient, Script, FakeClock]:
    script, clock = Script(*answers), FakeClock()
    made = ThunderClient("http://api.test/base/", exchange=script, clock=clock, randomness=FakeRandomness(), **options)
    return made, script, clock


class TestSubmit:
    def test_a_task_and_its_options(self) -> None:
        thunder, script, _ = client((201, {}, TASK))
        at = datetime(2026, 12, 1, 9, tzinfo=timezone(timedelta(hours=2)))
        task = thunder.submit(
            "a", {"n": 1.0}, queue="q", run_at=at, depends_on=["p"], unique_window_seconds=5, tags={"t": "x"}
        )
        method, url, headers, body = script.asked[0]
        assert (task, method, url) == (TaskView.of(TASK), "POST", "http://api.test/base/tasks")
        assert headers["idempotency-key"] == "r000001"
        assert body == {
            "type": "a",
            "payload": {"n": 1.0},
            "queue": "q",
            "runAt": "2026-12-01T09:00:00+02:00",
            "dependsOn": ["p"],
            "unique": {"windowSeconds": 5},
            "tags": {"t": "x"},
        }

    def test_ta_17_repeats_carry_one_key(self) -> None:
        thunder, script, clock = client(
            ConnectionError("reset"), (503, {}, {"message": "Service Unavailable"}), (201, {}, TASK)
        )
        assert thunder.submit("a").task_id == "t1"
        assert {headers["idempotency-key"] for _, _, headers, _ in script.asked} == {"r000001"}
        assert len(script.asked) == 3
        assert len(clock.slept) == 2

    def test_two_submits_have_two_keys(self) -> None:
        thunder, script, _ = client((201, {}, TASK))
        thunder.submit("a")
        thunder.submit("a")
        assert len({headers["idempotency-key"] for _, _, headers, _ in script.asked}) == 2

    def test_an_unknown_option_never_leaves(self) -> None:
        thunder, script, _ = client((201, {}, TASK))
        with pytest.raises(InvalidInput, match="delay: unknown option"):
            thunder.submit("a", delay=3)  # type: ignore[call-arg]
        assert script.asked == []

    def test_a_payload_json_cannot_hold_never_leaves(self) -> None:
        thunder, script, _ = client((201, {}, TASK))
        with pytest.raises(InvalidInput, match=r"payload\.a: NaN is not JSON"):
            thunder.submit("a", {"a": float("nan")})
        assert script.asked == []


class TestRetries:
    @pytest.mark.parametrize("status", [429, 500, 502, 503, 504])
    def test_what_may_pass_is_repeated(self, status: int) -> None:
        thunder, script, _ = client((status, {}, {"message": "x"}), (200, {}, TASK))
        assert thunder.get("t1").task_id == "t1"
        assert len(script.asked) == 2

    @pytest.mark.parametrize("status", [400, 401, 403, 404, 409, 413, 415, 422])
    def test_what_will_not_pass_is_not(self, status: int) -> None:
        thunder, script, clock = client((status, {}, {"message": "x"}))
        with pytest.raises(ApiError) as caught:
            thunder.get("t1")
        assert (caught.value.status, len(script.asked), clock.slept) == (status, 1, [])

    def test_it_waits_at_least_as_long_as_it_is_told(self) -> None:
        thunder, _, clock = client((429, {"Retry-After": "7"}, OWN_ERROR), (200, {}, TASK))
        thunder.get("t1")
        assert 7 <= clock.slept[0] <= 8

    def test_without_advice_the_pauses_grow_and_are_bounded(self) -> None:
        thunder, _, clock = client((503, {}, {}), attempts=12)
        with pytest.raises(ApiError) as caught:
            thunder.get("t1")
        assert caught.value.attempts == 12
        assert clock.slept[:3] == [0.2, 0.4, 0.8]
        assert max(clock.slept) <= 20

    def test_no_answer_at_all(self) -> None:
        thunder, script, _ = client(ConnectionError("refused"), attempts=3)
        with pytest.raises(Unreachable, match="refused"):
            thunder.get("t1")
        assert len(script.asked) == 3

    def test_a_delete_that_finds_its_own_work_done(self) -> None:
        thunder, _, _ = client(ConnectionError("reset"), (404, {}, {"message": "Not Found"}))
        thunder.delete("t1")
        thunder, _, _ = client((404, {}, {"message": "Not Found"}))
        with pytest.raises(NotFoundError):
            thunder.delete("t1")

    def test_a_redrive_and_its_repeats_are_one(self) -> None:
        thunder, script, _ = client((503, {}, {}), (200, {}, TASK))
        thunder.redrive("t1", cascade=True, reason="deployed a fix")
        assert script.asked[0][3] == {"cascade": True, "reason": "deployed a fix"}
        assert len({headers["idempotency-key"] for _, _, headers, _ in script.asked}) == 1


class TestErrors:
    def test_our_own_form(self) -> None:
        thunder, _, _ = client((409, {}, OWN_ERROR))
        with pytest.raises(ConflictError) as caught:
            thunder.cancel("t1")
        error = caught.value
        assert (error.status, error.code, error.task_status, error.request_id) == (409, "conflict", "DONE", "r-9")
        assert str(error) == "409 conflict: is DONE"

    @pytest.mark.parametrize(
        ("status", "content", "code", "message"),
        [
            (403, {"message": "Forbidden"}, "forbidden", "Forbidden"),
            (403, {"Message": "User is not authorized"}, "forbidden", "User is not authorized"),
            (413, {"message": "Request Too Long"}, "too_large", "Request Too Long"),
            (404, b"<html>", "not_found", "<html>"),
            (418, b"", "refused", ""),
            (400, b"[1]", "refused", "[1]"),
            (400, {"error": "x"}, "refused", '{"error": "x"}'),
        ],
    )
    def test_the_gateways_form_and_none(self, status: int, content: Any, code: str, message: str) -> None:
        thunder, _, _ = client((status, {"apigw-requestid": "g-1"}, content))
        with pytest.raises(ApiError) as caught:
            thunder.get("t1")
        assert (caught.value.code, caught.value.message, caught.value.request_id) == (code, message, "g-1")


class TestReading:
    def test_ids_are_quoted_in_paths(self) -> None:
        thunder, script, _ = client((200, {}, TASK))
        thunder.get("a:b/c")
        assert script.asked[0][1] == "http://api.test/base/tasks/a:b%2Fc"

    def test_a_list_is_followed_past_empty_pages(self) -> None:
        thunder, script, _ = client(
            (200, {}, {"tasks": [TASK], "nextToken": "a b"}),
            (200, {}, {"tasks": [], "nextToken": "c"}),
            (200, {}, {"tasks": [TASK | {"taskId": "t2"}]}),
        )
        assert [task.task_id for task in thunder.list("FAILED", queue="q")] == ["t1", "t2"]
        assert script.asked[0][1] == "http://api.test/base/tasks?status=FAILED&queue=q&limit=100"
        assert "nextToken=a+b" in script.asked[1][1]

    def test_a_body_that_stands_in_s3_is_fetched_without_our_headers(self) -> None:
        thunder, script, _ = client((303, {"Location": "https://s3.test/x?sig"}, b""), (200, {}, b"[1.0]"))
        assert thunder.result("t1") == [1.0]
        assert script.asked[1][:3] == ("GET", "https://s3.test/x?sig", {})

    def test_waiting_ends_with_the_task(self) -> None:
        thunder, _, clock = client((200, {}, TASK), (200, {}, TASK), (200, {}, TASK | {"status": "FAILED"}))
        task = thunder.wait("t1")
        assert (task.status, task.succeeded, task.is_terminal) == ("FAILED", False, True)
        assert clock.slept == [0.25, 0.375]

    @pytest.mark.parametrize(
        ("status", "outcome", "succeeded"),
        [
            ("SUCCESS", None, True),
            ("DONE", "skipped", True),
            ("DONE", "acknowledged", True),
            ("DONE", "cancelled", False),
            ("DONE", "expired", False),
            ("FAILED", None, False),
            ("RUNNING", None, False),
        ],
    )
    def test_what_is_a_success_for_parents_is_one_for_those_who_wait(
        self, status: str, outcome: str | None, succeeded: bool
    ) -> None:
        assert TaskView.of(TASK | {"status": status, "outcome": outcome}).succeeded is succeeded

    def test_waiting_has_an_end(self) -> None:
        thunder, _, clock = client((200, {}, TASK))
        with pytest.raises(WaitTimeout) as caught:
            thunder.wait("t1", timeout_seconds=10)
        assert caught.value.task.status == "PENDING"
        assert sum(clock.slept) <= 10

    def test_the_same_calls_for_asyncio(self) -> None:
        async def run() -> list[Any]:
            thunder, _, _ = client(
                (201, {}, TASK), (200, {}, TASK | {"status": "SUCCESS", "result": 1}), (200, {}, {"tasks": [TASK]})
            )
            own = AsyncThunderClient(thunder)
            submitted = await own.submit("a", {"n": 1})
            done = await own.wait(submitted.task_id, timeout_seconds=5)
            return [done.result, [task.task_id async for task in own.list("FAILED")]]

        assert asyncio.run(run()) == [1, ["t1"]]


class TestSubmitMany:
    @staticmethod
    def batch_answer(*results: Any) -> Scripted:
        return 200, {}, {"results": list(results), "accepted": 0, "rejected": 0}

    def test_each_task_is_reported_in_order(self) -> None:
        refused = {"error": {"code": "validation_error", "message": "tasks[1].type: …", "path": "tasks[1].type"}}
        thunder, _, _ = client(self.batch_answer({"taskId": "t1", "status": "PENDING"}, refused))
        report = thunder.submit_many([NewTask("a"), NewTask("B")])
        assert [task.task_id for task in report.accepted] == ["t1"]
        assert [(index, error.code, error.path) for index, error in report.rejected] == [
            (1, "validation_error", "tasks[1].type")
        ]

    def test_it_is_split_by_number(self) -> None:
        ids = [{"taskId": f"t{number}", "status": "PENDING"} for number in range(1001)]
        thunder, script, _ = client(*(self.batch_answer(*ids[start : start + 500]) for start in (0, 500, 1000)))
        report = thunder.submit_many((NewTask("a") for _ in range(1001)), idempotency_key="k")
        assert [len(body["tasks"]) for _, _, _, body in script.asked] == [500, 500, 1]
        assert [headers["idempotency-key"] for _, _, headers, _ in script.asked] == ["k-0", "k-1", "k-2"]
        assert [task.task_id for task in report.accepted] == [f"t{number}" for number in range(1001)]

    def test_it_is_split_by_size(self) -> None:
        thunder, script, _ = client(
            self.batch_answer(*[{"taskId": "t", "status": "PENDING"}] * 2),
            self.batch_answer({"taskId": "t", "status": "PENDING"}),
        )
        thunder.submit_many([NewTask("a", "中" * 300_000) for _ in range(3)])
        assert [len(body["tasks"]) for _, _, _, body in script.asked] == [2, 1]

    def test_a_ref_of_an_earlier_batch_becomes_its_id(self) -> None:
        ids = [{"taskId": f"t{number}", "status": "PENDING"} for number in range(501)]
        thunder, script, _ = client(self.batch_answer(*ids[:500]), self.batch_answer(ids[500]))
        tasks = [NewTask("a", options={"ref": "first"})] + [NewTask("a")] * 499
        thunder.submit_many([*tasks, NewTask("a", options={"depends_on": ["@first", "x"]})])
        assert script.asked[1][3]["tasks"][0]["dependsOn"] == ["t0", "x"]

    def test_nothing_to_submit_is_no_call(self) -> None:
        thunder, script, _ = client((500, {}, {}))
        assert thunder.submit_many([]).results == ()
        assert script.asked == []


class TestSigning:
    CREDENTIALS = Credentials("AKIDEXAMPLE", "secret", "session-token")

    @pytest.mark.parametrize(
        ("url", "region"),
        [
            ("https://abc.execute-api.eu-central-1.amazonaws.com", "eu-central-1"),
            ("https://abc.execute-api.cn-north-1.amazonaws.com.cn/prod", "cn-north-1"),
            ("http://127.0.0.1:4566/_aws/execute-api/abc", None),
            ("https://abc.execute-api.eu-central-1.amazonaws.com.evil.test", None),
        ],
    )
    def test_the_region_of_a_host(self, url: str, region: str | None) -> None:
        assert region_of(url) == region

    def test_requests_over_a_kept_connection_carry_valid_signatures(self) -> None:
        received: list[tuple[str, str, dict[str, str], bytes]] = []
        connections: set[Any] = set()

        class Gateway(BaseHTTPRequestHandler):
            protocol_version = "HTTP/1.1"

            def answer(self) -> None:
                body = self.rfile.read(int(self.headers.get("content-length") or 0))
                received.append((self.command, self.path, {k.lower(): v for k, v in self.headers.items()}, body))
                connections.add(self.client_address)
                content = json.dumps(TASK).encode()
                self.send_response(200)
                self.send_header("content-length", str(len(content)))
                self.end_headers()
                self.wfile.write(content)

            do_GET = do_POST = answer

            def log_message(self, format: str, *args: Any) -> None:
                return

        server = ThreadingHTTPServer(("127.0.0.1", 0), Gateway)
        server.daemon_threads = True
        thread = Thread(target=server.serve_forever)
        thread.start()
        try:
            base = f"http://127.0.0.1:{server.server_port}/_aws/execute-api/abc"
            thunder = ThunderClient(base, credentials=self.CREDENTIALS, region="eu-west-1")
            thunder.submit("a", "é", idempotency_key="k")
            thunder.get("a:b")
            with pytest.raises(KeyError):
                thunder.list_page("FAILED", next_token="a+b/c=")
        finally:
            server.shutdown()
            thread.join()
            server.server_close()
        assert len(connections) == 1
        assert [path for _, path, _, _ in received] == [
            "/_aws/execute-api/abc/tasks",
            "/_aws/execute-api/abc/tasks/a:b",
            "/_aws/execute-api/abc/tasks?status=FAILED&limit=100&nextToken=a%2Bb%2Fc%3D",
        ]
        for method, path, headers, body in received:
            assert headers["authorization"] == self.expected(base, method, path, headers, body)
            assert headers["x-amz-security-token"] == "session-token"

    def expected(self, base: str, method: str, path: str, headers: dict[str, str], body: bytes) -> str:
        """What a verifier computes from the request as it arrived."""
        signed = headers["authorization"].split("SignedHeaders=")[1].split(",")[0].split(";")
        origin = base.split("/_aws")[0]
        request = AWSRequest(method, origin + path, headers={name: headers[name] for name in signed}, data=body)
        request.context["timestamp"] = headers["x-amz-date"]
        auth = SigV4Auth(Credentials("AKIDEXAMPLE", "secret"), "execute-api", "eu-west-1")
        canonical = auth.canonical_request(request)
        signature = auth.signature(auth.string_to_sign(request, canonical), request)
        scope = f"AKIDEXAMPLE/{headers['x-amz-date'][:8]}/eu-west-1/execute-api/aws4_request"
        return f"AWS4-HMAC-SHA256 Credential={scope}, SignedHeaders={';'.join(signed)}, Signature={signature}"

    def test_no_credentials_is_said_at_once(self) -> None:
        class Empty:
            def get_credentials(self) -> None:
                return None

        with pytest.raises(ConfigurationError, match="no AWS credentials"):
            ThunderClient("http://x", session=Empty(), region="eu-west-1")

    def test_no_region_is_said_at_once(self) -> None:
        class NoRegion:
            region_name = None

            def get_config_variable(self, name: str) -> None:
                return None

        with pytest.raises(ConfigurationError, match="no region"):
            ThunderClient("http://x", credentials=self.CREDENTIALS, session=NoRegion())


class TestBearerTokens:
    """A JWT in place of a signature: sent to the API with each call, and told to nobody else."""

    SECRETS = ("first.secret-token", "second.secret-token")

    def test_it_is_asked_for_and_sent_with_every_call(self) -> None:
        tokens = iter(self.SECRETS)
        with scripted_server(answer(201, TASK), answer(200, TASK)) as server:
            thunder = ThunderClient(server.url, bearer_token=lambda: next(tokens))
            thunder.submit("a", {"x": 1}, idempotency_key="k")
            thunder.get("t1")
        assert [each.headers["authorization"] for each in server.requests] == [
            f"Bearer {each}" for each in self.SECRETS
        ]
        assert not [name for each in server.requests for name in each.headers if name.startswith("x-amz-")]

    def test_a_repeated_call_carries_the_token_of_then(self) -> None:
        tokens = iter(self.SECRETS)
        with scripted_server(answer(503), answer(200, TASK)) as server:
            ThunderClient(
                server.url, bearer_token=lambda: next(tokens), clock=FakeClock(), randomness=FakeRandomness()
            ).get("t1")
        assert [each.headers["authorization"] for each in server.requests] == [
            f"Bearer {each}" for each in self.SECRETS
        ]

    def test_the_bucket_a_body_is_fetched_from_does_not_see_it(self) -> None:
        with scripted_server(answer(200, b"[1]")) as bucket:
            url = f"{bucket.url}/bodies/x?X-Amz-Signature=s"
            with scripted_server(answer(303, b"", location=url)) as server:
                body = ThunderClient(server.url, bearer_token=lambda: self.SECRETS[0]).payload("t1")
        assert body == [1]
        assert [each.line for each in bucket.requests] == ["GET /bodies/x?X-Amz-Signature=s HTTP/1.1"]
        assert "authorization" not in bucket.requests[0].headers

    def test_it_stands_in_no_log_and_no_error(self, caplog: pytest.LogCaptureFixture) -> None:
        refused = answer(401, {"message": "Unauthorized"})
        with caplog.at_level("DEBUG"), scripted_server(answer(200, TASK), refused, None) as server:
            thunder = ThunderClient(server.url, bearer_token=lambda: self.SECRETS[0], attempts=1, clock=FakeClock())
            thunder.get("t1")
            told = [repr(thunder), repr(vars(thunder))]
            for _ in range(2):
                with pytest.raises(ApiError) as raised:
                    thunder.get("t1")
                told += traceback.format_exception(raised.value)
        assert len(server.requests) == 3
        assert any("GET /tasks/t1" in record.getMessage() for record in caplog.records), "nothing was logged at all"
        told += [f"{record.getMessage()} {vars(record)}" for record in caplog.records]
        assert not [text for text in told if "secret_token" in text]

    def test_the_end_of_a_files_line_is_no_part_of_it(self) -> None:
        with scripted_server(answer(200, TASK)) as server:
            ThunderClient(server.url, bearer_token=lambda: f" {self.SECRETS[0]}\r\n").get("t1")
        assert server.requests[0].headers["authorization"] == f"Bearer {self.SECRETS[0]}"

    @pytest.mark.parametrize(
        "token",
        ["", " ", "secret\r\nx-other: 1", "secret token", "sécret", "secret\0", "Bearer secret", None, b"secret"],
    )
    def test_what_is_no_token_is_not_sent_and_not_quoted(self, token: Any) -> None:
        with scripted_server() as server:
            with pytest.raises(ConfigurationError) as raised:
                ThunderClient(server.url, bearer_token=lambda: token).get("t1")
            assert "cret" not in "".join(traceback.format_exception(raised.value))
        assert server.requests == []


def test_a_port_where_nobody_listens_is_unreachable_and_tried_again() -> None:
    with socket.socket() as reserved:
        reserved.bind(("127.0.0.1", 0))  # bound and not listening: connections are refused
        url = f"http://127.0.0.1:{reserved.getsockname()[1]}"
        made = ThunderClient(
            url, credentials=Credentials("a", "b"), region="us-east-1", clock=FakeClock(), randomness=FakeRandomness()
        )
        with pytest.raises(Unreachable) as raised:
            made.health()
    assert raised.value.attempts == 6


def test_asyncio_is_imported_by_those_who_use_it() -> None:
    """Handlers submit with the client, and commands are short: both would pay for it at every start."""
    code = """
import sys, thunderagent.client, thunderagent.outbox
assert "asyncio" not in sys.modules
from thunderagent.client import AsyncThunderClient
assert "asyncio" in sys.modules and not hasattr(thunderagent.client, "NoSuchName")
"""
    path = {"PYTHONPATH": str(Path(thunderagent.__file__).parents[1])}
    subprocess.run([sys.executable, "-c", code], env=path, check=True)
