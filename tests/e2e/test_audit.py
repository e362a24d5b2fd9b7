"""The auditor over the running stack: work in flight, crashes and retries are no findings, a broken row is one."""

from __future__ import annotations

import time
from typing import Any

from tests.support.local_stack import UpStack
from tests.support.stack_store import store_of
from thunderagent.audit import audit
from thunderagent.codec import to_item

PATIENCE_SECONDS = 60
WORK: list[dict[str, Any]] = [
    {"type": "demo.echo", "payload": "x" * 3000},
    {"type": "demo.sleep", "payload": {"seconds": 2}},
    {"type": "demo.flaky", "payload": {"failures": 1}},
    {"type": "demo.permanent"},
    {"type": "demo.echo", "ref": "parent"},
    {"type": "demo.echo", "dependsOn": ["@parent"]},
    {"type": "demo.echo", "unique": {"windowSeconds": 60}},
]


def test_ordinary_life_has_no_findings_and_a_broken_row_is_found(own_stack: UpStack) -> None:
    results = own_stack.call("POST", "tasks/batch", {"tasks": WORK * 3}).json["results"]
    ids = [result["taskId"] for result in results if "taskId" in result]
    store, until = store_of(own_stack), time.monotonic() + PATIENCE_SECONDS
    while any(status in {"PENDING", "RUNNING"} for status in statuses(own_stack, ids)):
        assert audit(store, settle_seconds=0.5, submitted=ids).findings == []
        assert time.monotonic() < until, "they did not end"
    result = audit(store, settle_seconds=0.5, submitted=ids)
    assert result.findings == []
    assert result.items >= len(ids)

    broken = {**(store.get_item(ids[0]) or {}), "dispatchKey": "OPEN#other#normal#0"}
    own_stack.client("dynamodb").put_item(TableName=own_stack.record["tableName"], Item=to_item(broken))
    assert [(each.invariant, each.item_id) for each in audit(store, settle_seconds=0.5).findings] == [(4, ids[0])]


def statuses(stack: UpStack, ids: list[str]) -> list[str]:
    return [stack.call("GET", f"tasks/{task_id}").json["status"] for task_id in ids]
