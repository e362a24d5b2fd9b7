"""The move of a hand-written agent's tasks: each once, whenever it is stopped, and none from under a worker."""

from __future__ import annotations

import json
from collections.abc import Iterator
from typing import Any

import pytest

from examples.migration.status_table import MOVED, MOVING, move
from functions.api import handler
from tests.support.api import Api
from tests.support.cli import API_URL, exchange_with
from tests.support.fakes import FakeRandomness
from thunderagent.client import ThunderClient
from thunderagent.transport import boto_client

TABLE, NOW = "old-tasks", 1_000.0


class Old:
    """The old table."""

    def __init__(self, dynamodb: Any) -> None:
        self.dynamodb = dynamodb

    def put(self, task_id: str, status: str, **more: Any) -> None:
        item = {
            "taskId": {"S": task_id},
            "status": {"S": status},
            "type": {"S": "demo.echo"},
            "payload": {"S": json.dumps({"of": task_id})},
            "retryCount": {"N": "1"},
            "maxRetryNumber": {"N": "3"},
            **more,
        }
        self.dynamodb.put_item(TableName=TABLE, Item=item)

    def status(self, task_id: str) -> str:
        found = self.dynamodb.get_item(TableName=TABLE, Key={"taskId": {"S": task_id}})["Item"]
        return str(found["status"]["S"])


@pytest.fixture
def old() -> Iterator[Old]:
    from moto import mock_aws

    with mock_aws():
        dynamodb = boto_client("dynamodb", region="us-east-1")
        dynamodb.create_table(
            TableName=TABLE,
            KeySchema=[{"AttributeName": "taskId", "KeyType": "HASH"}],
            AttributeDefinitions=[{"AttributeName": "taskId", "AttributeType": "S"}],
            BillingMode="PAY_PER_REQUEST",
        )
        yield Old(dynamodb)
        dynamodb.close()


@pytest.fixture
def api(monkeypatch: pytest.MonkeyPatch) -> Api:
    made = Api()
    monkeypatch.setattr(handler, "service", lambda: made.service)
    return made


@pytest.fixture
def client(api: Api) -> ThunderClient:
    return ThunderClient(
        API_URL, exchange=exchange_with(api), clock=api.clock, randomness=FakeRandomness(prefix="k"), attempts=1
    )


def test_open_tasks_come_with_their_ids_payloads_and_what_is_left_of_their_retries(
    old: Old, client: ThunderClient
) -> None:
    old.put("a", "PENDING")
    old.put("done", "SUCCESS")
    assert move(old.dynamodb, TABLE, client, now=NOW) == {"moved": 1}
    task = client.get("a")
    assert (task.status, task.payload, task.fields["maxRetryNumber"]) == ("PENDING", {"of": "a"}, 2)
    assert (old.status("a"), old.status("done")) == (MOVED, "SUCCESS")


def test_a_worker_at_work_keeps_its_task_and_one_that_is_lost_does_not(old: Old, client: ThunderClient) -> None:
    old.put("working", "RUNNING", lockTime={"N": str(NOW + 10)})
    old.put("lost", "RUNNING", lockTime={"N": str(NOW - 10)})
    assert move(old.dynamodb, TABLE, client, now=NOW) == {"moved": 1, "left": 1}
    assert (old.status("working"), old.status("lost")) == ("RUNNING", MOVED)


def test_stopped_between_taking_and_marking_it_goes_on_and_makes_no_second_task(
    old: Old, client: ThunderClient, api: Api
) -> None:
    old.put("a", "PENDING")
    move(old.dynamodb, TABLE, client, now=NOW)
    old.put("a", MOVING)  # as if the process had ended before it marked the row
    assert move(old.dynamodb, TABLE, client, now=NOW) == {"moved": 1}
    assert old.status("a") == MOVED
    assert [task.task_id for task in client.list(status="PENDING")] == ["a"]


def test_a_dry_run_changes_nothing(old: Old, client: ThunderClient) -> None:
    old.put("a", "PENDING")
    assert move(old.dynamodb, TABLE, client, dry_run=True, now=NOW) == {"would move": 1}
    assert old.status("a") == "PENDING"
