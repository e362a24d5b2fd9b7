"""The Lambda function behind the queue: one message is one task, its state a row of the status table.

The message carries the payload; the row carries the state. The queue delivers at least once, so the change to RUNNING
is conditional: a task that has ended is not run again. Failures are reported one by one (`batchItemFailures`), so that
the rest of the batch is not repeated; a failure for good is recorded, and its message is done with.
"""

import json
import os
import time
from typing import Any

import boto3
from botocore.exceptions import ClientError

TABLE = os.environ["STATUS_TABLE"]
MARKS_RUNNING = os.environ["MARKS_RUNNING"] == "yes"

dynamodb = boto3.client("dynamodb")


def handler(event: dict[str, Any], context: Any) -> dict[str, Any]:
    failed = [record["messageId"] for record in event["Records"] if not succeeded(record)]
    return {"batchItemFailures": [{"itemIdentifier": message_id} for message_id in failed]}


def succeeded(record: dict[str, Any]) -> bool:
    """Whether the message is done with."""
    task, attempt = json.loads(record["body"]), int(record["attributes"]["ApproximateReceiveCount"])
    started = time.time()
    if MARKS_RUNNING and not change(task["taskId"], "RUNNING", attempts=attempt, startedAt=started):
        return True
    if task["work"] == "once" and attempt == 1:
        print(json.dumps({"event": "task.retried", "taskId": task["taskId"]}))
        return False
    if task["work"] == "never":
        print(json.dumps({"event": "task.failed", "taskId": task["taskId"]}))
        change(task["taskId"], "FAILED", finishedAt=time.time(), error="never")
    else:
        start = {} if MARKS_RUNNING else {"startedAt": started}
        change(task["taskId"], "SUCCESS", finishedAt=time.time(), result="null", **start)
    return True


def change(task_id: str, status: str, **more: Any) -> bool:
    """One conditional write. False: the task has ended already, and this is a message's second delivery."""
    values = {"status": status, "updatedAt": time.time(), **more}
    try:
        dynamodb.update_item(
            TableName=TABLE,
            Key={"taskId": {"S": task_id}},
            UpdateExpression="SET " + ", ".join(f"#{name} = :{name}" for name in values),
            ConditionExpression="#status IN (:pending, :running)",
            ExpressionAttributeNames={f"#{name}": name for name in values},
            ExpressionAttributeValues={
                ":pending": {"S": "PENDING"},
                ":running": {"S": "RUNNING"},
                **{f":{name}": attribute(value) for name, value in values.items()},
            },
        )
    except ClientError as error:
        if error.response["Error"]["Code"] == "ConditionalCheckFailedException":
            return False
        raise
    return True


def attribute(value: Any) -> dict[str, str]:
    return {"S": value} if isinstance(value, str) else {"N": f"{value:.3f}"}
