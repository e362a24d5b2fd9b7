"""SQS, a Lambda function behind it and a table of statuses: deployed with the AWS calls a template would make.

What is written for a task: its row, PENDING, before the message is sent; RUNNING with the attempt, when the function
has it; SUCCESS or FAILED. Three writes of one unit each: the table has no index, so tasks cannot be listed by status.
`marks_running=False` leaves the middle one out, for those who do without: a task delivered twice then runs twice.
"""

from __future__ import annotations

import io
import json
import time
import zipfile
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from thunder.local.aws import client

SOURCE = Path(__file__).with_name("queue_worker") / "handler.py"
FUNCTION_SECONDS = 30
VISIBLE_AGAIN_SECONDS = 180  # six times the function's time-out, as AWS advises
MEMORY_MIB = 512  # as our executor has
SEND_ENTRIES = 10
PUT_ITEMS = 25
MAPPING_BATCH = 10
BATCH_WINDOW_SECONDS = 1  # Lambda asks for one where a batch has more than ten messages
TRUST = {
    "Version": "2012-10-17",
    "Statement": [{"Effect": "Allow", "Principal": {"Service": "lambda.amazonaws.com"}, "Action": "sts:AssumeRole"}],
}


@dataclass(frozen=True)
class QueueStack:
    """One deployed instance, its event source mapping switched off."""

    endpoint: str
    name: str
    queue_url: str
    mapping: str

    @property
    def table(self) -> str:
        return self.name

    @staticmethod
    def deploy(endpoint: str, name: str, *, batch: int = MAPPING_BATCH, marks_running: bool = True) -> QueueStack:
        sqs, dynamodb = client("sqs", endpoint), client("dynamodb", endpoint)
        dynamodb.create_table(
            TableName=name,
            BillingMode="PAY_PER_REQUEST",
            KeySchema=[{"AttributeName": "taskId", "KeyType": "HASH"}],
            AttributeDefinitions=[{"AttributeName": "taskId", "AttributeType": "S"}],
        )
        attributes = {"VisibilityTimeout": str(VISIBLE_AGAIN_SECONDS)}
        queue_url = sqs.create_queue(QueueName=name, Attributes=attributes)["QueueUrl"]
        arn = sqs.get_queue_attributes(QueueUrl=queue_url, AttributeNames=["QueueArn"])["Attributes"]["QueueArn"]
        _create_function(endpoint, name, arn, marks_running=marks_running)
        window = {"MaximumBatchingWindowInSeconds": BATCH_WINDOW_SECONDS} if batch > MAPPING_BATCH else {}
        mapping = client("lambda", endpoint).create_event_source_mapping(
            FunctionName=name,
            EventSourceArn=arn,
            BatchSize=batch,
            Enabled=False,
            FunctionResponseTypes=["ReportBatchItemFailures"],
            **window,
        )
        return QueueStack(endpoint, name, queue_url, mapping["UUID"])

    def switch(self, *, on: bool) -> None:
        client("lambda", self.endpoint).update_event_source_mapping(UUID=self.mapping, Enabled=on)

    def resize(self, batch: int) -> None:
        window = {"MaximumBatchingWindowInSeconds": BATCH_WINDOW_SECONDS} if batch > MAPPING_BATCH else {}
        client("lambda", self.endpoint).update_event_source_mapping(UUID=self.mapping, BatchSize=batch, **window)

    def retry_after(self, seconds: int) -> None:
        """When a message that failed is delivered again."""
        attributes = {"VisibilityTimeout": str(seconds)}
        client("sqs", self.endpoint).set_queue_attributes(QueueUrl=self.queue_url, Attributes=attributes)

    def submit_all(self, ids: Sequence[str], work: str, pad: str) -> None:
        """In batches of the SDK: rows first, then messages; a message without its row would be refused."""
        sqs, dynamodb, now = client("sqs", self.endpoint), client("dynamodb", self.endpoint), time.time()
        for first in range(0, len(ids), PUT_ITEMS):
            entries = [{"PutRequest": {"Item": _row(task_id, now)}} for task_id in ids[first : first + PUT_ITEMS]]
            answer = dynamodb.batch_write_item(RequestItems={self.table: entries})
            assert not answer.get("UnprocessedItems")
        for first in range(0, len(ids), SEND_ENTRIES):
            messages = [
                {"Id": str(number), "MessageBody": _message(task_id, work, pad)}
                for number, task_id in enumerate(ids[first : first + SEND_ENTRIES])
            ]
            assert not sqs.send_message_batch(QueueUrl=self.queue_url, Entries=messages).get("Failed")


@dataclass(frozen=True)
class Submits:
    """Single submits over clients that are kept: the row, then the message."""

    stack: QueueStack
    dynamodb: Any
    sqs: Any

    @staticmethod
    def to(stack: QueueStack) -> Submits:
        return Submits(stack, client("dynamodb", stack.endpoint), client("sqs", stack.endpoint))

    def submit(self, task_id: str, work: str = "nothing", pad: str = "") -> None:
        self.dynamodb.put_item(
            TableName=self.stack.table,
            Item=_row(task_id, time.time()),
            ConditionExpression="attribute_not_exists(taskId)",
        )
        self.sqs.send_message(QueueUrl=self.stack.queue_url, MessageBody=_message(task_id, work, pad))


def _row(task_id: str, now: float) -> dict[str, Any]:
    at = {"N": f"{now:.3f}"}
    return {"taskId": {"S": task_id}, "status": {"S": "PENDING"}, "createdAt": at, "updatedAt": at}


def _message(task_id: str, work: str, pad: str) -> str:
    return json.dumps({"taskId": task_id, "work": work, "pad": pad})


def _create_function(endpoint: str, name: str, queue_arn: str, *, marks_running: bool) -> None:
    iam = client("iam", endpoint)
    role = iam.create_role(RoleName=name, AssumeRolePolicyDocument=json.dumps(TRUST))["Role"]["Arn"]
    receives = ["sqs:ReceiveMessage", "sqs:DeleteMessage", "sqs:GetQueueAttributes"]
    allowed = [
        {"Effect": "Allow", "Action": receives, "Resource": queue_arn},
        {"Effect": "Allow", "Action": ["dynamodb:UpdateItem"], "Resource": f"arn:aws:dynamodb:*:*:table/{name}"},
        {"Effect": "Allow", "Action": ["logs:CreateLogStream", "logs:PutLogEvents"], "Resource": "*"},
    ]
    document = json.dumps({"Version": "2012-10-17", "Statement": allowed})
    iam.put_role_policy(RoleName=name, PolicyName="worker", PolicyDocument=document)
    packed = io.BytesIO()
    with zipfile.ZipFile(packed, "w") as archive:
        archive.write(SOURCE, "handler.py")
    functions = client("lambda", endpoint)
    functions.create_function(
        FunctionName=name,
        Runtime="python3.13",
        Architectures=["arm64"],
        Role=role,
        Handler="handler.handler",
        Code={"ZipFile": packed.getvalue()},
        MemorySize=MEMORY_MIB,
        Timeout=FUNCTION_SECONDS,
        Environment={"Variables": {"STATUS_TABLE": name, "MARKS_RUNNING": "yes" if marks_running else "no"}},
    )
    functions.get_waiter("function_active_v2").wait(FunctionName=name)
