"""The API as deployed: the client through the gateway, fifty submits at once, every odd request an answer of ours."""

from __future__ import annotations

import json
from collections import Counter
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import pytest
from botocore.credentials import Credentials

from examples.transactional_order import OrderExists, create_orders, place_order
from tests.support.local_stack import UpStack
from thunderagent.client import ApiError, ConflictError, NewTask, NotFoundError, ThunderClient

GOOD = b'{"type":"nobody.knows","payload":"\xc3\xa9"}'


@pytest.fixture(scope="module")
def thunder(stack: UpStack) -> ThunderClient:
    credentials = Credentials(stack.record["accessKeyId"], stack.record["secretAccessKey"])
    return ThunderClient(stack.record["apiUrl"], credentials=credentials, region=stack.record["region"])


def rows(stack: UpStack, prefix: str) -> list[str]:
    pages = stack.client("dynamodb").get_paginator("scan").paginate(TableName=stack.record["tableName"])
    ids = [item["taskId"]["S"] for page in pages for item in page["Items"]]
    return [task_id for task_id in ids if task_id.startswith(prefix)]


class TestTheClient:
    def test_a_task_from_submit_to_deletion(self, thunder: ThunderClient) -> None:
        payload = {"n": 10**40, "f": 1.0, "z": -0.0, "s": "é😀", "nil": None}
        task = thunder.submit("nobody.knows", payload, task_id="e2e:client.1", delay_seconds=3600, tags={"k": "é"})
        assert repr(thunder.get(task.task_id).payload) == repr(payload)
        assert thunder.why(task.task_id)["reason"] == "due_later"
        with pytest.raises(ConflictError):
            thunder.redrive(task.task_id)
        with pytest.raises(ConflictError):
            thunder.delete(task.task_id)
        assert thunder.cancel(task.task_id, reason="enough").outcome == "cancelled"
        thunder.delete(task.task_id)
        with pytest.raises(NotFoundError):
            thunder.get(task.task_id)

    def test_ta_35_a_payload_that_stands_in_s3_comes_back_whole(self, thunder: ThunderClient) -> None:
        payload = "中" * 300_000
        task = thunder.submit("nobody.knows", payload, delay_seconds=3600)
        assert thunder.get(task.task_id).fields["payloadBytes"] == 900_002
        assert thunder.payload(task.task_id) == payload

    def test_ta_17_fifty_submits_at_once_are_one_task(self, thunder: ThunderClient, stack: UpStack) -> None:
        def submit(number: int) -> str:
            return thunder.submit("nobody.knows", {"same": 1}, idempotency_key="e2e-50", delay_seconds=3600).task_id

        with ThreadPoolExecutor(16) as pool:
            ids = set(pool.map(submit, range(50)))
        assert len(ids) == 1
        assert len(rows(stack, ids.pop())) == 1

    def test_a_batch_with_bad_entries(self, thunder: ThunderClient) -> None:
        tasks = [
            NewTask("nobody.knows" if number % 20 else "Bad Type", number, {"delay_seconds": 3600})
            for number in range(500)
        ]
        report = thunder.submit_many(tasks)
        assert [index for index, _ in report.rejected] == list(range(0, 500, 20))
        assert thunder.get(report.accepted[-1].task_id).payload == 499

    def test_a_list_is_whole_and_repeats_nothing(self, thunder: ThunderClient) -> None:
        thunder.set_queue("e2e-list", {"paused": True})
        report = thunder.submit_many([NewTask("nobody.knows", n, {"queue": "e2e-list"}) for n in range(120)])
        listed = [task.task_id for task in thunder.list("PENDING", queue="e2e-list", page_size=17)]
        assert Counter(listed) == Counter(task.task_id for task in report.accepted)
        assert thunder.why(listed[0])["reason"] == "queue_paused"
        assert thunder.cancel_many(queue="e2e-list", limit=1000) == {"matched": 120, "done": 120, "failed": []}

    def test_schedules(self, thunder: ThunderClient) -> None:
        put = {"cron": "0 3 1 1 *", "timezone": "Europe/Berlin", "task": {"type": "nobody.knows"}}
        assert thunder.put_schedule("e2e-yearly", put)["next"] > 1.7e9
        task = thunder.run_schedule("e2e-yearly")
        assert thunder.cancel(task.task_id).outcome == "cancelled"
        thunder.delete_schedule("e2e-yearly")

    def test_an_order_and_its_task_are_written_together_or_not_at_all(
        self, thunder: ThunderClient, stack: UpStack
    ) -> None:
        dynamodb, tasks = stack.client("dynamodb"), stack.record["tableName"]
        create_orders(dynamodb, "e2e-orders")
        task_id = place_order(dynamodb, orders="e2e-orders", tasks=tasks, number=1)
        assert thunder.get(task_id).payload == {"order": 1}
        with pytest.raises(OrderExists):
            place_order(dynamodb, orders="e2e-orders", tasks=tasks, number=1)
        dynamodb.put_item(TableName="e2e-orders", Item={"id": {"S": "2"}})
        with pytest.raises(OrderExists):
            place_order(dynamodb, orders="e2e-orders", tasks=tasks, number=2)
        with pytest.raises(NotFoundError):
            thunder.get("order-2")

    def test_a_stranger_is_told_by_the_gateway(self, stack: UpStack) -> None:
        stranger = ThunderClient(
            stack.record["apiUrl"], credentials=Credentials("nobody", "x"), region="us-east-1", attempts=1
        )
        with pytest.raises(ApiError) as caught:
            stranger.health()
        assert (caught.value.status, caught.value.code) == (403, "forbidden")


class TestOddRequests:
    @pytest.mark.parametrize(
        "content_type",
        [
            "application/json; charset=utf-8",
            "text/plain",
            "application/octet-stream",
            "application/x-www-form-urlencoded",
        ],
    )
    def test_ta_33_forms_of_one_request(self, stack: UpStack, content_type: str) -> None:
        key = {"Idempotency-Key": "e2e-forms"}
        plain = stack.call("POST", "/tasks", GOOD, headers=key).json["taskId"]
        headers = {"IDEMPOTENCY-KEY": "e2e-forms", "content-type": content_type}
        answer = stack.call("POST", "/tasks", b"\xef\xbb\xbf" + GOOD, headers=headers)
        assert (answer.status, answer.json["taskId"]) == (200, plain)

    @pytest.mark.parametrize(
        ("method", "path", "body", "status"),
        [
            ("POST", "/tasks", b"", 400),
            ("POST", "/tasks", b"[]", 400),
            ("POST", "/tasks", b'{"type":"a","payload":NaN}', 400),
            ("POST", "/tasks", b'{"type":"a","payload":' + b"[" * 5000 + b"]" * 5000 + b"}", 400),
            ("POST", "/tasks", b'{"type":"a","bogus":1}', 400),
            ("POST", "/tasks", b'{"type":"a","queue":"nowhere"}', 422),
            ("POST", "/tasks", b'{"type":"a","payload":"' + b"a" * 1_048_576 + b'"}', 413),
            ("POST", "/tasks", b'{"type":"a","payload":"' + b"a" * 2_097_152 + b'"}', 413),
            ("GET", "/tasks", None, 400),
            ("GET", "/tasks?status=FAILED&limit=0", None, 400),
            ("GET", "/tasks?status=FAILED&nextToken=x", None, 400),
            ("GET", "/tasks/none", None, 404),
            ("GET", "/tasks/lease%23x", None, 404),
            ("POST", "/tasks/none/cancel", None, 404),
            ("PATCH", "/tasks", None, 404),
            ("GET", "/nothing/here", None, 404),
        ],
    )
    def test_ta_34_each_has_an_answer_in_our_form(
        self, stack: UpStack, method: str, path: str, body: bytes | None, status: int
    ) -> None:
        answer = stack.call(method, path, body)
        assert answer.status == status, answer.body
        assert set(answer.json) == {"error", "requestId"}
        assert answer.json["requestId"]

    def test_the_document_is_served(self, stack: UpStack) -> None:
        document: dict[str, Any] = json.loads(stack.call("GET", "/openapi.json").body)
        assert document["openapi"] == "3.1.0"
