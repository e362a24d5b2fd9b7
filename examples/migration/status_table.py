"""Move the open tasks of a hand-written DynamoDB agent here, while both run, each task exactly once.

    python -m examples.migration.status_table --table old-tasks --api-url https://… [--dry-run]

Expected of the old table: key `taskId`; `status` PENDING, RUNNING, SUCCESS or FAILED; `type`, `payload`, `retryCount`,
`maxRetryNumber`, `lockTime` (epoch seconds, of a RUNNING task). Rename in `as_task` what is called otherwise.

For each task: take it from the old workers by a conditional write (status as seen, and the lock over), submit it under
its own id, mark it moved. Stopped anywhere, it goes on when it is run again: a submit is repeated under the same
`Idempotency-Key`, so that it makes no second task. RUNNING tasks whose lock is not over are left to their workers.
"""

from __future__ import annotations

import argparse
import time
from collections import Counter
from collections.abc import Iterator, Mapping
from typing import Any

from botocore.exceptions import ClientError

from thunderagent.client import ThunderClient

MOVING, MOVED = "MOVING", "MOVED"

Row = Mapping[str, Any]


def open_rows(dynamodb: Any, table: str) -> Iterator[Row]:
    """What is still to be moved, as DynamoDB has it: a scan, once."""
    pages = dynamodb.get_paginator("scan").paginate(
        TableName=table,
        FilterExpression="#s IN (:p, :r, :m)",
        ExpressionAttributeNames={"#s": "status"},
        ExpressionAttributeValues={":p": {"S": "PENDING"}, ":r": {"S": "RUNNING"}, ":m": {"S": MOVING}},
    )
    for page in pages:
        yield from page["Items"]


def as_task(row: Row) -> dict[str, Any]:
    """The arguments of `submit` for an old row. Retries that were spent stay spent."""
    import json

    left = int(row.get("maxRetryNumber", {"N": "3"})["N"]) - int(row.get("retryCount", {"N": "0"})["N"])
    return {
        "type": row["type"]["S"],
        "payload": json.loads(row["payload"]["S"]) if "payload" in row else None,
        "task_id": row["taskId"]["S"],
        "max_retry_number": max(0, left),
    }


def take(dynamodb: Any, table: str, row: Row, now: float) -> bool:
    """Whether the row is ours: no old worker can claim or commit it any more. False: its worker is at work, or it
    changed since it was read."""
    if row["status"]["S"] == MOVING:
        return True
    lock_is_over = float(row.get("lockTime", {"N": "0"})["N"]) <= now
    if row["status"]["S"] == "RUNNING" and not lock_is_over:
        return False
    return _change(dynamodb, table, row, to=MOVING, seen=row["status"]["S"])


def _change(dynamodb: Any, table: str, row: Row, *, to: str, seen: str) -> bool:
    condition, values = "#s = :seen", {":to": {"S": to}, ":seen": {"S": seen}}
    if seen == "RUNNING" and "lockTime" in row:
        condition += " AND lockTime = :lock"  # renewed meanwhile: its worker is alive
        values[":lock"] = row["lockTime"]
    try:
        dynamodb.update_item(
            TableName=table,
            Key={"taskId": row["taskId"]},
            UpdateExpression="SET #s = :to",
            ConditionExpression=condition,
            ExpressionAttributeNames={"#s": "status"},
            ExpressionAttributeValues=values,
        )
    except ClientError as error:
        if error.response["Error"]["Code"] != "ConditionalCheckFailedException":
            raise
        return False
    return True


def move(
    dynamodb: Any, table: str, client: ThunderClient, *, dry_run: bool = False, now: float | None = None
) -> Counter[str]:
    """Move what can be moved now; how many were moved, and how many left to their workers."""
    at = time.time() if now is None else now
    counts: Counter[str] = Counter()
    for row in open_rows(dynamodb, table):
        if dry_run:
            counts["would move"] += 1
        elif not take(dynamodb, table, row, at):
            counts["left"] += 1
        else:
            task = as_task(row)
            client.submit(task.pop("type"), task.pop("payload"), idempotency_key=f"moved:{task['task_id']}", **task)
            _change(dynamodb, table, row, to=MOVED, seen=MOVING)
            counts["moved"] += 1
    return counts


def main() -> None:
    import botocore.session

    parser = argparse.ArgumentParser(prog="python -m examples.migration.status_table")
    parser.add_argument("--table", required=True, help="the old table")
    parser.add_argument("--api-url", required=True, help="output ApiUrl of the stack")
    parser.add_argument("--dry-run", action="store_true", help="count only")
    options = parser.parse_args()
    dynamodb = botocore.session.get_session().create_client("dynamodb")
    print(dict(move(dynamodb, options.table, ThunderClient(options.api_url), dry_run=options.dry_run)))


if __name__ == "__main__":
    main()
