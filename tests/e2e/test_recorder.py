"""The recorder behind the real stream: ends are told on the bus, an erased task leaves its tombstone in the archive.

The embedded AWS has no stream records for its own TTL removals: those are made up in the unit tests.
"""

from __future__ import annotations

import gzip
import json
import time
from collections.abc import Callable
from typing import Any, TypeVar

from tests.support.local_stack import UpStack

PATIENCE_SECONDS = 60

T = TypeVar("T")


def eventually(look: Callable[[], T]) -> T:
    until = time.monotonic() + PATIENCE_SECONDS
    while not (found := look()):
        assert time.monotonic() < until, "it did not come to be"
        time.sleep(0.3)
    return found


def bus_of(stack: UpStack) -> str:
    buses = stack.client("events").list_event_buses()["EventBuses"]
    (name,) = (bus["Name"] for bus in buses if bus["Name"] != "default")
    return str(name)


def listen_for(stack: UpStack, pattern: dict[str, Any]) -> Callable[[], list[dict[str, Any]]]:
    """A rule on the stack's bus and a queue behind it; the details of what came."""
    sqs, events = stack.client("sqs"), stack.client("events")
    url = sqs.create_queue(QueueName="completions")["QueueUrl"]
    arn = sqs.get_queue_attributes(QueueUrl=url, AttributeNames=["QueueArn"])["Attributes"]["QueueArn"]
    allowed = {"Effect": "Allow", "Principal": {"Service": "events.amazonaws.com"}, "Action": "sqs:SendMessage"}
    policy = {"Version": "2012-10-17", "Statement": [{**allowed, "Resource": arn}]}
    sqs.set_queue_attributes(QueueUrl=url, Attributes={"Policy": json.dumps(policy)})
    events.put_rule(Name="completions", EventBusName=bus_of(stack), EventPattern=json.dumps(pattern))
    events.put_targets(Rule="completions", EventBusName=bus_of(stack), Targets=[{"Id": "1", "Arn": arn}])

    def heard() -> list[dict[str, Any]]:
        messages = sqs.receive_message(QueueUrl=url, MaxNumberOfMessages=10).get("Messages", [])
        for message in messages:
            sqs.delete_message(QueueUrl=url, ReceiptHandle=message["ReceiptHandle"])
        return [json.loads(message["Body"])["detail"] for message in messages]

    return heard


def archived(stack: UpStack) -> list[dict[str, Any]]:
    s3, bucket = stack.client("s3"), stack.record["bucketName"]
    objects = s3.list_objects_v2(Bucket=bucket, Prefix="archive/").get("Contents", [])
    bodies = [s3.get_object(Bucket=bucket, Key=each["Key"])["Body"].read() for each in objects]
    return [json.loads(line) for body in bodies for line in gzip.decompress(body).splitlines()]


def submitted(stack: UpStack, type: str, payload: Any, **options: Any) -> str:
    answer = stack.call("POST", "tasks", {"type": type, "payload": payload, **options})
    assert answer.status == 201, answer.body
    return str(answer.json["taskId"])


def has_ended(stack: UpStack, task_id: str) -> bool:
    return stack.call("GET", f"tasks/{task_id}").json["status"] in {"SUCCESS", "FAILED", "DONE"}


def test_ends_are_told_and_an_erased_task_leaves_a_tombstone(own_stack: UpStack) -> None:
    heard = listen_for(own_stack, {"source": ["thunderagent"], "detail-type": ["Task Completed"]})
    good = submitted(own_stack, "demo.echo", "secret")
    bad = submitted(own_stack, "demo.permanent", {"why": "secret"})
    told: dict[str, dict[str, Any]] = {}

    def both() -> bool:
        told.update({detail["taskId"]: detail for detail in heard()})
        return {good, bad} <= set(told)

    eventually(both)
    assert told[good]["status"] == "SUCCESS"
    assert told[bad]["status"] == "FAILED"
    assert told[bad]["error"]["type"]
    assert "secret" not in json.dumps(told)

    assert own_stack.call("DELETE", f"tasks/{good}").status == 204
    (line,) = eventually(lambda: archived(own_stack))
    assert (line["taskId"], line["removedBy"], line["status"]) == (good, "user", "SUCCESS")
    assert not {"payload", "result"} & set(line)


def test_what_an_erased_task_left_in_the_table_goes_with_it(own_stack: UpStack) -> None:
    task_id = submitted(own_stack, "demo.echo", "x" * 2000, unique={"windowSeconds": 3600})
    eventually(lambda: has_ended(own_stack, task_id))
    assert own_stack.call("DELETE", f"tasks/{task_id}").status == 204
    table = own_stack.record["tableName"]

    def left() -> list[str]:
        items = own_stack.client("dynamodb").scan(TableName=table)["Items"]
        ids = [item["taskId"]["S"] for item in items if task_id in json.dumps(item)]
        return [item_id for item_id in ids if not item_id.startswith("lease#")]

    eventually(lambda: not left())


def test_a_row_that_somebody_broke_by_hand_does_not_stop_the_recorder(own_stack: UpStack) -> None:
    dynamodb, table = own_stack.client("dynamodb"), own_stack.record["tableName"]
    for number in range(3):
        item = {"taskId": {"S": f"t{number}"}, "status": {"S": "DONE"}}
        if number == 1:
            item |= {"unique": {"S": "f"}, "finishedAt": {"S": "not a number"}}
        dynamodb.put_item(TableName=table, Item=item)
        dynamodb.delete_item(TableName=table, Key={"taskId": {"S": f"t{number}"}})

    eventually(lambda: {"t0", "t2"} <= {line["taskId"] for line in archived(own_stack)})
    sqs = own_stack.client("sqs")
    (url,) = (each for each in sqs.list_queues()["QueueUrls"] if "RecorderFailures" in each)
    (message,) = eventually(lambda: sqs.receive_message(QueueUrl=url, MaxNumberOfMessages=10).get("Messages", []))
    assert json.loads(message["Body"])["taskId"] == "t1"
