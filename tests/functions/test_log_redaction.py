"""What callers, handlers and rows hold never reaches a log, on any path. Each path is given secrets of its own.

Identifiers are logged: task id, queue, type, the caller's ARN, an operator's reason, error classes, a trace parent.
What a handler itself logs through `ctx.logger` is the handler's affair.
"""

from __future__ import annotations

import base64
import json
from typing import Any

import pytest

from functions.api import handler as api_handler
from tests.support.api import Api
from tests.support.events import v2_event
from tests.support.fakes import START
from tests.support.recording import Rig, batch, ending, removal
from tests.support.upkeep import Minute
from tests.support.world import World
from thunderagent import Fail, RetryLater, task
from thunderagent.codec import Item
from thunderagent.errors import StoreRefused

SECRET = "hunter2-plant"
"""Part of everything that must not be logged."""
ENCODED = base64.b64encode(SECRET.encode()).decode().rstrip("=")[:12]


def assert_clean(*logs: str) -> None:
    assert any(logs), "nothing was logged: nothing was shown"
    for log in logs:
        assert SECRET not in log
        assert ENCODED not in log


def planted(where: str) -> str:
    return f"{SECRET} in {where} \u202e\x1b[31m\n{{}}"


# ---- the API ---------------------------------------------------------------------------------------------------------


@pytest.fixture
def api(monkeypatch: pytest.MonkeyPatch) -> Api:
    own = Api()
    monkeypatch.setattr(api_handler, "service", lambda: own.service)
    return own


HEADERS = {
    "authorization": f"AWS4-HMAC-SHA256 Signature={SECRET}",
    "x-amz-security-token": SECRET,
    "cookie": f"session={SECRET}",
    "idempotency-key": f"key-{SECRET}",
    "x-forwarded-for": SECRET,
}


def bodies() -> list[tuple[str, str, Any]]:
    task = {"type": "demo.echo", "payload": {"password": planted("payload")}, "tags": {"card": SECRET}}
    return [
        ("POST", "/tasks", task),
        ("POST", "/tasks", {**task, "payload": [planted("large")] * 20_000}),
        ("POST", "/tasks", {**task, "unique": {"windowSeconds": 60}, "startWithinSeconds": 5}),
        ("POST", "/tasks", {**task, "type": f"{SECRET} is no type"}),
        ("POST", "/tasks", {**task, SECRET: 1}),
        ("POST", "/tasks/batch", {"tasks": [task, {"type": SECRET + "!"}, SECRET]}),
        ("PUT", "/schedules/nightly", {"cron": "0 0 * * *", "task": task}),
        ("PUT", "/schedules/nightly", {"cron": SECRET, "task": task}),
        ("POST", "/schedules/nightly/run", None),
        ("POST", "/redrive", {"errorType": SECRET, "nextToken": SECRET}),
    ]


def test_no_call_logs_a_body_a_header_or_a_token(api: Api) -> None:
    for number, (method, path, body) in enumerate(bodies()):
        text = None if body is None else json.dumps(body)
        headers = {**HEADERS, "idempotency-key": f"{SECRET}{number}"}
        for each in (text, None if text is None else text[:-1]):
            answer = api.send(v2_event(method, path, body=each, headers=headers, query="" if number else f"x={SECRET}"))
            assert answer.status < 500
    assert_clean(api.log.getvalue())


def test_no_defect_of_ours_logs_what_it_was_working_on(api: Api, monkeypatch: pytest.MonkeyPatch) -> None:
    """An error whose text quotes the item, as botocore's validation does, is logged without its text."""
    real = api.parts.store.apply

    def broken(write: Any) -> Any:
        raise RuntimeError(f"cannot handle {SECRET} of {write.event}")

    monkeypatch.setattr(type(api.parts.store), "apply", lambda self, write: broken(write))
    answer = api.call("POST", "/tasks", {"type": "demo.echo", "payload": planted("payload")}, headers=HEADERS)
    monkeypatch.setattr(type(api.parts.store), "apply", lambda self, write: real(write))
    assert answer.status == 500
    assert '"errorType":"RuntimeError","where":"' in api.log.getvalue()
    assert_clean(api.log.getvalue(), answer.text)


def test_no_refusal_of_the_store_logs_the_item(api: Api, monkeypatch: pytest.MonkeyPatch) -> None:
    def refusing(self: Any, write: Any) -> Any:
        raise StoreRefused(write.operation, "ValidationException", f"bad value {SECRET}")

    monkeypatch.setattr(type(api.parts.store), "apply", refusing)
    answer = api.call("POST", "/tasks", {"type": "demo.echo", "payload": planted("payload")}, headers=HEADERS)
    assert answer.status >= 500
    assert_clean(api.log.getvalue(), answer.text)


# ---- executors, pollers, the reaper ----------------------------------------------------------------------------------


@task("leaky.value", max_retries=1)
def leaky_value(payload: Any, ctx: Any) -> Any:
    ctx.progress(0.5, planted("progress"))
    ctx.step("load", lambda: planted("step"))
    return {"token": planted("result")}


@task("leaky.error", max_retries=1)
def leaky_error(payload: Any, ctx: Any) -> Any:
    raise ValueError(f"bad card {payload} {planted('error')}")


@task("leaky.fail")
def leaky_fail(payload: Any, ctx: Any) -> Any:
    raise Fail(f"refused {payload}")


@task("leaky.later")
def leaky_later(payload: Any, ctx: Any) -> Any:
    raise RetryLater(60)


@task("leaky.unusual")
def leaky_unusual(payload: Any, ctx: Any) -> Any:
    return {planted("a set")}


@task("leaky.chain", max_retries=0)
def leaky_chain(payload: Any, ctx: Any) -> Any:
    try:
        raise KeyError(payload)
    except KeyError as error:
        raise RuntimeError(str(error)) from error


LEAKY = {
    "leaky.value": leaky_value,
    "leaky.error": leaky_error,
    "leaky.fail": leaky_fail,
    "leaky.later": leaky_later,
    "leaky.unusual": leaky_unusual,
    "leaky.chain": leaky_chain,
}


def test_no_batch_logs_payload_result_error_step_or_progress() -> None:
    world = World(*LEAKY.values())
    for name in LEAKY:
        for payload in (planted("payload"), [planted("payload")] * 500):
            world.submit(name, payload=json.dumps(payload), tags={"card": SECRET})
    for _ in range(4):
        world.run()
        world.advance(120)
    world.reap()
    statuses = {item["status"] for item_id, item in world.db.items().items() if "#" not in item_id}
    assert statuses >= {"SUCCESS", "FAILED"}
    assert SECRET in json.dumps(world.db.items(), default=str), "the secrets were stored"
    assert_clean(json.dumps(world.notes.events, default=str))


def test_no_poison_row_is_quoted() -> None:
    world = World()
    for number, broken in enumerate(
        (
            {"retryCount": SECRET},
            {"tags": SECRET},
            {"attempts": SECRET},
            {"payload": None},
            {"dueAt": START - 5, "fence": SECRET},
        )
    ):
        task_id = world.submit(payload=json.dumps(planted("payload")), tags={"card": SECRET})
        row = world.item(task_id) | broken | {"error": {"message": SECRET}}
        world.db.put({name: value for name, value in row.items() if value is not None})
        if number % 2:
            world.db.put(world.item(task_id) | {"status": "RUNNING", "leaseToken": SECRET, "lockTime": START - 900})
    for _ in range(3):
        world.run()
        world.lapse()
        world.reap()
    assert_clean(json.dumps(world.notes.events, default=str))


def test_no_undelivered_event_is_quoted() -> None:
    minute = Minute()
    for condition in ("EventAgeExceeded", "RetriesExhausted", SECRET, None):
        context = {"condition": condition, "functionArn": "arn:aws:lambda:eu-west-1:1:function:executor"}
        tasks = [{"taskId": "a", "payload": planted("payload")}]
        minute.queue.put({"requestContext": context, "requestPayload": {"tasks": tasks, "token": SECRET}})
    minute.queue.put(SECRET)
    minute.run()
    assert_clean(minute.log.getvalue())


# ---- the recorder ----------------------------------------------------------------------------------------------------


def stored(**attributes: Any) -> Item:
    item: Item = {
        "taskId": "t1",
        "type": "demo.echo",
        "queue": "default",
        "priority": "normal",
        "status": "FAILED",
        "fence": 1,
        "createdAt": START - 60,
        "finishedAt": START - 1,
        "payload": planted("payload"),
        "result": planted("result"),
        "leaseToken": SECRET,
        "tags": {"card": SECRET},
        "error": {"type": "ValueError", "message": planted("error"), "reason": "error", "at": START},
    }
    return item | attributes


def test_neither_the_archive_nor_a_failure_to_archive_is_logged() -> None:
    for patience, down in ((0.0, True), (3600.0, False)):
        rig = Rig(patience_seconds=patience)
        rig.objects.down = down
        rig.bus.judge = lambda detail: "InternalFailure"
        running = stored(status="RUNNING")
        event = batch(
            ending(running, stored(), at=START - 9),
            removal(stored(), at=START - 9),
            removal(stored(), ttl=False, at=START - 9),
        )
        event["Records"].append(
            {"eventID": SECRET, "eventName": SECRET, "dynamodb": {"NewImage": {"a": {"Z": SECRET}}}}
        )
        event["Records"].append(ending(stored(fence=SECRET), stored(fence=SECRET, status="RUNNING")))
        try:
            rig.recording.recorder.record(event)
        except Exception as error:  # noqa: BLE001  # a batch that is to come again: its text reaches the log too
            assert_clean(f"{type(error).__name__}: {error}")
        assert_clean(rig.log.getvalue())
