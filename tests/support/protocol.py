"""Stored tasks in every state, and for every event of the transition table the write it stands for."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from tests.support.fakes import START
from thunderagent import expressions
from thunderagent.codec import Item
from thunderagent.conditions import Write
from thunderagent.expressions import Result
from thunderagent.model import Attempt, Failure, LeaseToken, Task
from thunderagent.schema import Layout, blocked_key, listed_key, open_key, running_key
from thunderagent.states import Event, Status

NOW = START
TOKEN = LeaseToken("token-mine")
NEW_TOKEN = LeaseToken("token-new")
OTHER_TOKEN = LeaseToken("token-of-another")
LAYOUT = Layout()
UNLISTED = Layout(list_completed=False)
ATTEMPT = Attempt(number=2, started_at=NOW - 40, ended_at=NOW, outcome="error", error_type="ValueError", message="no")
FAILURE = Failure("ValueError", "no")
OPERATOR = {"caller": "arn:aws:iam::1:user/a", "action": "test", "at": NOW}


def new_task(task_id: str, **changes: Any) -> Item:
    """A PENDING task that is due, whose second attempt failed: every attribute that an event may meet."""
    shard = LAYOUT.shard(task_id)
    item: Item = {
        "taskId": task_id,
        "type": "demo.echo",
        "queue": "default",
        "priority": "normal",
        "status": "PENDING",
        "payload": '{"a":1.0}',
        "retryCount": 1,
        "maxRetryNumber": 3,
        "timeoutSeconds": 60,
        "lost": 1,
        "fence": 4,
        "createdAt": NOW - 1000,
        "updatedAt": NOW - 30,
        "startedAt": NOW - 60.5,
        "dueAt": NOW - 10.25,
        "dispatchKey": open_key("default", "normal", shard),
        "deferredFor": "no_handler",
        "exitedBy": "token-old:retry",
        "error": {"type": "ValueError", "message": "no", "reason": "error", "at": NOW - 30},
        "attempts": [{"attempt": 1, "endedAt": NOW - 30, "outcome": "error"}],
        "homeRegion": "us-east-1",
        "formatVersion": 1,
    }
    return _changed(item, changes)


def stored_task(task_id: str, status: Status, **changes: Any) -> Item:
    """A task as the protocol leaves it in that state. A change of None takes the attribute away."""
    item = new_task(task_id, status=status.value)
    shard = LAYOUT.shard(task_id)
    leased = {"leaseToken": TOKEN, "fence": 5, "deferredFor": None, "startedAt": NOW - 60}
    ended = {"finishedAt": NOW - 20, "updatedAt": NOW - 20, "dueAt": NOW - 20, "expiresAt": int(NOW) + 1000}
    match status:
        case Status.RUNNING:
            item |= leased | {"lockTime": NOW + 100, "owner": "p1", "dispatchKey": running_key("default", shard)}
        case Status.SUCCESS:
            item |= leased | ended | {"result": "1"}
        case Status.FAILED:
            item |= leased | ended | {"deadline": NOW - 5, "redriveIds": ["2:r1"]}
            item |= {"error": {"type": "Fail", "message": "never", "reason": "permanent", "at": NOW - 20}}
        case Status.DONE:
            item |= ended | {"outcome": "skipped", "outcomeReason": "nothing to do"}
    if status in (Status.SUCCESS, Status.FAILED, Status.DONE):
        item["dispatchKey"] = listed_key(status, "default", shard)
    return _changed(item, changes)


def _changed(item: Item, changes: dict[str, Any]) -> Item:
    return {name: value for name, value in (item | changes).items() if value is not None}


def premises(event: Event) -> dict[str, Any]:
    """What must hold of the stored task besides its status for the event to be allowed; as changes to it."""
    blocked = {"blockedCount": 2, "dispatchKey": blocked_key("default", 0), "dueAt": NOW + 60}
    return {
        Event.MOVE_ASIDE: {"dispatchKey": open_key("default", "normal", 0)},
        Event.REPAIR: {"lockTime": None},
        Event.REAP: {"lockTime": NOW - 100},
        Event.REAP_FAILED: {"lockTime": NOW - 100, "retryCount": 3},
        Event.CANCEL: blocked,
        Event.CANCEL_END: {"cancelRequested": True},
        Event.EXPIRE: {"deadline": NOW - 1, "blockedCount": 1},
        Event.UNBLOCK: blocked,
        Event.PARENT_FAILED: blocked,
    }.get(event, {})


def write_of(event: Event, task: Task, *, layout: Layout = LAYOUT, now: float = NOW) -> Write:
    """The write the library would send for the event, decided on `task` as seen."""
    later = now + 7.5
    e = expressions
    held: dict[str, Any] = {"layout": layout, "now": now}
    writes: dict[Event, Callable[[], Write]] = {
        Event.SUBMIT: lambda: e.submit(task.item),
        Event.CLAIM: lambda: e.claim(
            task, token=NEW_TOKEN, lock_time=now + 300, owner="p2", now=now, region=layout.region
        ),
        Event.DEFER: lambda: e.defer(task, until=later, reason="rate_limit", now=now),
        Event.PARK: lambda: e.park(task.item, problem="payload is missing", **held),
        Event.STEP: lambda: e.step(task.task_id, TOKEN, steps={"load": {"n": 0, "result": "1"}}, now=now),
        Event.PROGRESS: lambda: e.progress(task.task_id, TOKEN, fraction=0.5, message="half", now=now),
        Event.MOVE_ASIDE: lambda: e.move_aside(task, TOKEN, layout=layout),
        Event.REPAIR: lambda: e.repair_lock(task.item, lock_time=later),
        Event.COMMIT: lambda: e.commit(task, TOKEN, result=Result(text='{"rows":3}'), attempt=ATTEMPT, **held),
        Event.FINISH: lambda: e.finish(task, TOKEN, reason="empty", attempt=ATTEMPT, **held),
        Event.RETRY: lambda: e.retry(task, TOKEN, due_at=later, failure=FAILURE, attempt=ATTEMPT, **held),
        Event.FAIL: lambda: e.fail(task, TOKEN, failure=FAILURE, attempt=ATTEMPT, **held),
        Event.RELEASE: lambda: e.release(task, TOKEN, due_at=later, **held),
        Event.SNOOZE: lambda: e.snooze(task, TOKEN, due_at=later, attempt=ATTEMPT, **held),
        Event.REAP: lambda: e.reap(task, charged=True, due_at=later, attempt=ATTEMPT, **held),
        Event.REAP_FAILED: lambda: e.reap_failed(task, failure=FAILURE, attempt=ATTEMPT, **held),
        Event.CANCEL: lambda: e.cancel(task, reason="not needed", operator=OPERATOR, **held),
        Event.CANCEL_REQUEST: lambda: e.cancel_request(task, reason="not needed", operator=OPERATOR, now=now),
        Event.CANCEL_END: lambda: e.cancel_end(task, attempt=ATTEMPT, **held),
        Event.EXPIRE: lambda: e.expire(task, **held),
        Event.UNBLOCK: lambda: e.unblock(task, due_at=now, **held),
        Event.PARENT_FAILED: lambda: e.parent_failed(task, failure=FAILURE, **held),
        Event.REDRIVE: lambda: e.redrive(task, redrive_id="5:r2", operator=OPERATOR, **held),
        Event.ACKNOWLEDGE: lambda: e.acknowledge(task, **held),
    }
    return writes[event]()
