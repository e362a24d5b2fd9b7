"""Small paths through the stack that need the functions' rights. Each fails when a right it needs is gone.

A probe prepares as the root user, lets the function act with its own role, and looks as the root user again. It leaves
nothing that the next one would count: the table is emptied between probes.
"""

from __future__ import annotations

import time
from collections.abc import Callable

from tests.least_privilege.driven import DrivenStack
from tests.least_privilege.grants import Grant
from thunderagent.codec import Item

Probe = Callable[[DrivenStack], None]

SIDE_ITEM = "x" * 5_000
OBJECT = "x" * 400_000
DAY = 86_400.0

PROBES: dict[str, list[Probe]] = {}
"""The probes of each function, in the order they are tried."""


def probe(*functions: str) -> Callable[[Probe], Probe]:
    def add(found: Probe) -> Probe:
        for function in functions:
            PROBES.setdefault(function, []).append(found)
        return found

    return add


# ---- the API ---------------------------------------------------------------------------------------------------------


@probe("Api")
def a_task_is_submitted_and_read(stack: DrivenStack) -> None:
    task_id = stack.submit()
    assert stack.call("GET", f"tasks/{task_id}").json["status"] == "PENDING"


@probe("Api")
def a_task_is_cancelled_and_listed(stack: DrivenStack) -> None:
    task_id = stack.submit(delaySeconds=3600)
    stack.call("POST", f"tasks/{task_id}/cancel", {})
    listed = stack.call("GET", "tasks?status=DONE").json["tasks"]
    assert [task["taskId"] for task in listed] == [task_id]


@probe("Api")
def an_erased_task_leaves_no_body(stack: DrivenStack) -> None:
    for payload in (SIDE_ITEM, OBJECT):
        task_id = stack.submit(payload=payload, delaySeconds=3600)
        stack.call("POST", f"tasks/{task_id}/cancel", {})
        stack.call("DELETE", f"tasks/{task_id}", expect=204)
    assert not stack.items("payload#")
    assert not stack.objects("bodies/")


@probe("Api")
def a_payload_in_the_bucket_is_fetched(stack: DrivenStack) -> None:
    task_id = stack.submit(payload=OBJECT, delaySeconds=3600)
    location = stack.call("GET", f"tasks/{task_id}/payload", expect=303).headers["location"]
    assert stack.fetch(location) == 200


@probe("Api")
def a_payload_that_is_gone_from_the_bucket_is_told_from_one_that_is_refused(stack: DrivenStack) -> None:
    task_id = stack.submit(payload=OBJECT, delaySeconds=3600)
    for key in stack.objects("bodies/"):
        stack.delete_object(key)
    location = stack.call("GET", f"tasks/{task_id}/payload", expect=303).headers["location"]
    assert stack.fetch(location) == 404


@probe("Api")
def equal_work_is_taken_again_after_its_end(stack: DrivenStack) -> None:
    first = stack.submit(payload=1, unique={"windowSeconds": 60}, delaySeconds=3600)
    stack.call("POST", f"tasks/{first}/cancel", {})
    stack.submit(payload=1, unique={"windowSeconds": 60}, delaySeconds=3600)


@probe("Api")
def the_children_of_a_cancelled_task_fail(stack: DrivenStack) -> None:
    parent = stack.submit(delaySeconds=3600)
    child = stack.submit(dependsOn=[parent])
    stack.call("POST", f"tasks/{parent}/cancel", {})
    assert stack.item(child)["status"] == "FAILED"


# ---- pollers ---------------------------------------------------------------------------------------------------------


@probe("Poller")
def a_due_task_is_swept_and_runs(stack: DrivenStack) -> None:
    task_id = stack.submit()
    stack.poll()
    stack.becomes(task_id, "SUCCESS")


@probe("Doorbell")
def a_new_task_is_rung_and_runs(stack: DrivenStack) -> None:
    task_id = stack.submit()
    stack.ring(task_id)
    stack.becomes(task_id, "SUCCESS")


def _refused_dispatch(stack: DrivenStack, function: str, act: Callable[[str], object]) -> None:
    task_id = stack.submit()
    with stack.roles.lacking(Grant(function, "lambda:InvokeFunction", "executor")):
        act(task_id)
    assert stack.item(task_id)["status"] == "PENDING"
    assert not stack.items("lease#")


@probe("Poller")
def a_lease_that_could_not_be_sent_is_taken_back(stack: DrivenStack) -> None:
    _refused_dispatch(stack, "Poller", lambda task_id: stack.poll())


@probe("Doorbell")
def a_rung_lease_that_could_not_be_sent_is_taken_back(stack: DrivenStack) -> None:
    _refused_dispatch(stack, "Doorbell", stack.ring)


def _under_limits(stack: DrivenStack, function: str) -> str:
    stack.call("PUT", "queues/limited", {"maxConcurrency": 2, "ratePerSecond": 10})
    stack.restart(function)  # it has read the settings of queues not long ago
    return stack.submit(queue="limited")


@probe("Poller")
def a_task_under_limits_is_swept_and_runs(stack: DrivenStack) -> None:
    task_id = _under_limits(stack, "Poller")
    stack.poll()
    stack.becomes(task_id, "SUCCESS")


@probe("Doorbell")
def a_task_under_limits_is_rung_and_runs(stack: DrivenStack) -> None:
    task_id = _under_limits(stack, "Doorbell")
    stack.ring(task_id)
    stack.becomes(task_id, "SUCCESS")


@probe("Poller")
def the_children_of_an_expired_task_fail(stack: DrivenStack) -> None:
    parent = stack.submit(startWithinSeconds=60)
    child = stack.submit(dependsOn=[parent])
    stack.change(parent, deadline=time.time() - 1)
    stack.poll()
    assert (stack.item(parent)["outcome"], stack.item(child)["status"]) == ("expired", "FAILED")


@probe("Poller")
def a_due_schedule_fires(stack: DrivenStack) -> None:
    task = {"type": "demo.echo", "payload": 1, "unique": {"windowSeconds": 60}}
    stack.call("PUT", "schedules/hourly", {"cron": "0 * * * *", "timezone": "UTC", "task": task}, expect=201)
    before = stack.submit(payload=1, unique={"windowSeconds": 60}, delaySeconds=3600)
    stack.call("POST", f"tasks/{before}/cancel", {})
    stack.change("schedule#hourly", dueAt=time.time() - 3600)
    stack.poll()
    assert stack.items("cron.hourly.")


def _stray(stack: DrivenStack) -> str:
    """RUNNING, past its lock, and its lease is gone."""
    task_id = stack.submit()
    now = time.time()
    stack.change(task_id, status="RUNNING", leaseToken="gone", fence=1, lockTime=now - 600, startedAt=now - 900)
    return task_id


@probe("Poller")
def a_stray_task_is_taken_back_by_the_sweep(stack: DrivenStack) -> None:
    task_id = _stray(stack)
    stack.poll()
    assert stack.item(task_id).get("leaseToken") != "gone"


@probe("Doorbell")
def a_task_is_rung_beside_one_that_runs(stack: DrivenStack) -> None:
    """What stands before it in its partition is looked up: it runs, so the new one need not wait for the sweep."""
    now = time.time()
    first = stack.submit()
    stack.change(first, status="RUNNING", leaseToken="a", fence=1, lockTime=now + 600, dueAt=now - 60)
    task_id = stack.submit()
    stack.change(task_id, dispatchKey=stack.item(first)["dispatchKey"])
    stack.ring(task_id)
    stack.becomes(task_id, "SUCCESS")


# ---- executors -------------------------------------------------------------------------------------------------------


def _run(stack: DrivenStack, type: str, payload: object, status: str = "SUCCESS", **options: object) -> Item:
    task_id = stack.submit(type, payload, **options)
    stack.poll()
    return stack.becomes(task_id, status)


@probe("Executor")
def a_batch_runs_and_its_lease_is_settled(stack: DrivenStack) -> None:
    _run(stack, "demo.echo", 1)
    stack.until(lambda: not stack.items("lease#"), "the lease was not settled")


@probe("Executor")
def payload_and_result_in_side_items(stack: DrivenStack) -> None:
    assert "resultRef" in _run(stack, "demo.echo", SIDE_ITEM)


@probe("Executor")
def payload_and_result_in_the_bucket(stack: DrivenStack) -> None:
    assert str(_run(stack, "demo.echo", OBJECT)["resultRef"]).startswith("s3:")


@probe("Executor")
def a_payload_that_is_gone_from_the_bucket_fails_its_task_at_once(stack: DrivenStack) -> None:
    task_id = stack.submit("demo.echo", OBJECT)
    for key in stack.objects("bodies/"):
        stack.delete_object(key)
    stack.poll()
    assert stack.becomes(task_id, "FAILED")["retryCount"] == 0


@probe("Executor")
def a_task_that_succeeds_frees_its_child(stack: DrivenStack) -> None:
    parent = stack.submit()
    child = stack.submit(dependsOn=[parent], delaySeconds=3600)
    stack.poll()
    stack.becomes(parent, "SUCCESS")
    stack.until(lambda: not stack.items("edge#"), "the edge was not cut")
    assert str(stack.item(child)["dispatchKey"]).startswith("OPEN#")


@probe("Executor")
def the_children_of_a_task_that_fails_fail(stack: DrivenStack) -> None:
    parent = stack.submit("demo.permanent")
    child = stack.submit(dependsOn=[parent])
    stack.poll()
    stack.becomes(parent, "FAILED")
    stack.becomes(child, "FAILED")


@probe("Executor")
def a_task_submits_others(stack: DrivenStack) -> None:
    result = _run(stack, "demo.children", {"n": 2})
    assert len(stack.items()) >= 3, result


@probe("Executor")
def a_report_is_published_once(stack: DrivenStack) -> None:
    for key in stack.objects("reports/"):
        stack.delete_object(key)
    request = {"station": "seattle", "period": "2012-03"}
    _run(stack, "report.generate", request)
    (chart,) = [key for key in stack.objects("reports/") if key.endswith(".svg")]
    stack.delete_object(chart)
    _run(stack, "report.generate", request)
    assert chart not in stack.objects("reports/"), "it was made again: the summary that is there was not seen"


# ---- the reaper ------------------------------------------------------------------------------------------------------


def _lapsed(stack: DrivenStack, *, parent: bool = False) -> tuple[str, str | None]:
    """A task whose executor died a while ago after its last start, under a lease that ran out."""
    task_id = stack.submit(maxRetryNumber=0 if parent else 3)
    child = stack.submit(dependsOn=[task_id]) if parent else None
    past = time.time() - 600
    stack.change(task_id, status="RUNNING", leaseToken="lapsed", fence=1, lockTime=past, startedAt=past - 300)
    lease: Item = {
        "taskId": "lease#lapsed",
        "taskIds": [task_id],
        "started": frozenset({task_id}),
        "profile": "default",
        "lockTime": past,
        "dueAt": past,
        "dispatchKey": "LEASE#default#0",
        "createdAt": past - 300,
        "begun": "nonce",
    }
    stack.put(lease)
    return task_id, child


@probe("Reaper")
def a_lapsed_lease_is_closed_and_its_task_taken_back(stack: DrivenStack) -> None:
    task_id, _ = _lapsed(stack)
    stack.reap()
    task = stack.item(task_id)
    assert (task["status"], task["retryCount"]) == ("PENDING", 1)
    assert not stack.items("lease#")


@probe("Reaper")
def every_part_of_the_reaper_goes_well(stack: DrivenStack) -> None:
    stack.submit()
    assert stack.reap()["well"] is True


@probe("Reaper")
def the_children_of_a_lost_task_fail(stack: DrivenStack) -> None:
    task_id, child = _lapsed(stack, parent=True)
    stack.reap()
    assert stack.item(task_id)["status"] == "FAILED"
    assert stack.item(str(child))["status"] == "FAILED"


@probe("Reaper")
def a_blocked_task_whose_parent_ended_unnoticed_is_mended(stack: DrivenStack) -> None:
    parent = stack.submit(delaySeconds=3600)
    child = stack.submit(dependsOn=[parent], delaySeconds=3600)
    now = time.time()
    stack.change(parent, status="SUCCESS", finishedAt=now, result="1", dispatchKey="SUCCESS#default#0", dueAt=now)
    stack.change(child, dueAt=now - 60)
    assert stack.reap()["well"] is True
    assert str(stack.item(child)["dispatchKey"]).startswith("OPEN#")


@probe("Reaper")
def what_was_not_delivered_is_read_and_deleted(stack: DrivenStack) -> None:
    message = '{"requestContext": {"condition": "RetriesExhausted"}}'
    stack.up.client("sqs").send_message(QueueUrl=stack.queue("Undelivered"), MessageBody=message)
    assert stack.reap()["well"] is True
    assert stack.messages("Undelivered") == 0


# ---- the recorder ----------------------------------------------------------------------------------------------------


def _ended(stack: DrivenStack, payload: object) -> Item:
    task_id = stack.submit(payload=payload)
    now = time.time()
    item = stack.change(task_id, status="SUCCESS", finishedAt=now, dispatchKey="SUCCESS#default#0", dueAt=now)
    stack.remove(task_id)
    return item


@probe("Recorder")
def an_end_is_told_on_the_bus(stack: DrivenStack) -> None:
    new = _ended(stack, 1)
    old = {**new, "status": "RUNNING"}
    assert stack.record(old=old, new=new)["events"] == 1


@probe("Recorder")
def a_task_removed_by_its_time_is_archived_with_its_body(stack: DrivenStack) -> None:
    item = _ended(stack, SIDE_ITEM)
    body = stack.item(item["payloadRef"])
    assert stack.record(old=item, by_ttl=True)["archived"] == 1
    assert stack.item(item["payloadRef"])["expiresAt"] < body["expiresAt"]


@probe("Recorder")
def the_bodies_of_an_erased_task_go(stack: DrivenStack) -> None:
    for payload in (SIDE_ITEM, OBJECT):
        assert stack.record(old=_ended(stack, payload))["erased"] == 1
    assert not stack.items("payload#")
    assert not stack.objects("bodies/")


@probe("Recorder")
def what_cannot_be_recorded_is_kept(stack: DrivenStack) -> None:
    stack.invoke("Recorder", {"Records": [{"eventID": "1", "dynamodb": {"Keys": {"taskId": {"S": "bad"}}}}]})
    assert stack.messages("Failures") == 1
