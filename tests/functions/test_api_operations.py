"""Cancel, redrive, ack, delete: what each does in each state, repeats, races, and who asked."""

from __future__ import annotations

from typing import Any

import pytest

from tests.support.api import Api
from tests.support.events import USER_ARN
from tests.support.fakes import START
from tests.support.memory_dynamodb import Fault
from thunderagent.schema import RETENTION_SECONDS
from thunderagent.states import Status

TOKEN = "token-1"


def place(api: Api, status: str, **attributes: Any) -> str:
    """A task in the given state, as the protocol leaves it."""
    task_id = api.submit(taskId=f"t-{status.lower()}", payload={"n": 1})
    item: dict[str, Any] = {**(api.table.item(task_id) or {}), "status": status, **attributes}
    if status == "RUNNING":
        item |= {"leaseToken": TOKEN, "lockTime": START + 300, "owner": "o", "fence": 1, "startedAt": START}
        api.table.put({"taskId": f"lease#{TOKEN}", "lockTime": START + 300, "dueAt": START + 300, "taskIds": [task_id]})
    if status in ("SUCCESS", "FAILED", "DONE"):
        end = START + RETENTION_SECONDS[Status(status)]
        item |= {"finishedAt": START, "expiresAt": end, "fence": 1, "dispatchKey": f"{status}#default#0"}
    if status == "FAILED":
        item |= {"error": {"type": "ValueError", "message": "no", "reason": "error", "at": START}, "retryCount": 3}
    api.table.put(item | attributes)
    api.log.seek(0)
    api.log.truncate()
    return task_id


def stored(api: Api, task_id: str) -> dict[str, Any]:
    return api.table.item(task_id) or {}


class TestCancel:
    def test_a_pending_task_is_done(self, api: Api) -> None:
        task_id = api.submit()
        response = api.call("POST", f"/tasks/{task_id}/cancel", {"reason": "wrong region"})
        assert (response.status, response.json["status"], response.json["outcome"]) == (200, "DONE", "cancelled")
        assert response.json["outcomeReason"] == "wrong region"
        assert response.json["operator"] == {
            "action": "cancel",
            "caller": USER_ARN,
            "reason": "wrong region",
            "at": START,
        }

    def test_a_running_task_is_asked_and_its_holder_told(self, api: Api) -> None:
        task_id = place(api, "RUNNING")
        response = api.call("POST", f"/tasks/{task_id}/cancel")
        assert (response.status, response.json["status"], response.json["cancelRequested"]) == (200, "RUNNING", True)
        assert stored(api, f"lease#{TOKEN}")["cancelled"] == {task_id}

    def test_a_running_task_whose_lease_is_gone(self, api: Api) -> None:
        task_id = place(api, "RUNNING")
        api.table.remove(f"lease#{TOKEN}")
        assert api.call("POST", f"/tasks/{task_id}/cancel").status == 200
        assert api.table.item(f"lease#{TOKEN}") is None

    @pytest.mark.parametrize("status", ["PENDING", "RUNNING"])
    def test_again_is_200_and_changes_nothing(self, api: Api, status: str) -> None:
        task_id = place(api, status) if status == "RUNNING" else api.submit()
        api.call("POST", f"/tasks/{task_id}/cancel")
        before = api.table.raw(task_id)
        assert api.call("POST", f"/tasks/{task_id}/cancel").status == 200
        assert api.table.raw(task_id) == before

    @pytest.mark.parametrize(
        ("status", "outcome"), [("SUCCESS", None), ("FAILED", None), ("DONE", "skipped"), ("DONE", "acknowledged")]
    )
    def test_ta_22_a_terminal_task_keeps_its_state(self, api: Api, status: str, outcome: str | None) -> None:
        task_id = place(api, status, **({"outcome": outcome} if outcome else {}))
        before = api.table.raw(task_id)
        response = api.call("POST", f"/tasks/{task_id}/cancel")
        assert (response.status, response.error["status"]) == (409, status)
        assert api.table.raw(task_id) == before

    def test_ta_22_a_claim_in_between(self, api: Api) -> None:
        task_id = api.submit()

        def claim() -> None:
            running = {"status": "RUNNING", "leaseToken": TOKEN, "fence": 1, "lockTime": START + 300}
            api.table.put(stored(api, task_id) | running)

        api.table.before(lambda call: call.operation == "UpdateItem", claim, times=1)
        response = api.call("POST", f"/tasks/{task_id}/cancel")
        assert (response.status, response.json["status"], response.json["cancelRequested"]) == (200, "RUNNING", True)

    def test_ta_22_the_end_in_between(self, api: Api) -> None:
        task_id = place(api, "RUNNING")

        def commit() -> None:
            api.table.put(stored(api, task_id) | {"status": "SUCCESS", "finishedAt": START, "expiresAt": START + 9})

        api.table.before(lambda call: call.operation == "UpdateItem", commit, times=1)
        response = api.call("POST", f"/tasks/{task_id}/cancel")
        assert (response.status, response.error["status"]) == (409, "SUCCESS")
        assert "cancelRequested" not in stored(api, task_id)

    def test_a_lost_reply_is_success(self, api: Api) -> None:
        task_id = api.submit()
        api.table.inject(Fault.LOST_REPLY, where=lambda call: call.operation == "UpdateItem")
        assert api.call("POST", f"/tasks/{task_id}/cancel").json["outcome"] == "cancelled"

    @pytest.mark.parametrize("body", [{"bogus": 1}, {"reason": 1}, {"reason": "é" * 501}, [], None])
    def test_bodies(self, api: Api, body: Any) -> None:
        task_id = api.submit()
        expected = 200 if body is None else 400
        assert api.call("POST", f"/tasks/{task_id}/cancel", body).status == expected


class TestRedrive:
    def test_a_failed_task_starts_anew(self, api: Api) -> None:
        task_id = place(api, "FAILED")
        response = api.call("POST", f"/tasks/{task_id}/redrive", {"reason": "fixed"})
        assert response.status == 200
        item = stored(api, task_id)
        assert (item["status"], item["retryCount"], item["fence"], item["dueAt"]) == ("PENDING", 0, 2, START)
        assert item["dispatchKey"].startswith("OPEN#default#normal#")
        assert not {"expiresAt", "finishedAt", "leaseToken", "outcome"} & set(item)
        assert item["operator"]["reason"] == "fixed"

    @pytest.mark.parametrize("keys", [(None, None), ("k", "k"), ("k", "other"), (None, "k")])
    def test_two_requests_have_one_effect(self, api: Api, keys: tuple[str | None, str | None]) -> None:
        task_id = place(api, "FAILED")
        statuses = []
        for key in keys:
            headers = {} if key is None else {"Idempotency-Key": key}
            statuses.append(api.call("POST", f"/tasks/{task_id}/redrive", headers=headers).status)
        assert statuses == [200, 200]
        assert stored(api, task_id)["fence"] == 2

    def test_two_at_once_have_one_effect(self, api: Api) -> None:
        task_id = place(api, "FAILED")
        other: list[int] = []

        def second() -> None:
            headers = {"Idempotency-Key": "other"}
            other.append(api.call("POST", f"/tasks/{task_id}/redrive", headers=headers).status)

        api.table.before(lambda call: call.operation == "UpdateItem" and call.item_ids == [task_id], second, times=1)
        first = api.call("POST", f"/tasks/{task_id}/redrive", headers={"Idempotency-Key": "k"}).status
        assert (first, other, stored(api, task_id)["fence"]) == (200, [200], 2)

    def test_a_late_repeat_does_not_redrive_a_second_failure(self, api: Api) -> None:
        task_id = place(api, "FAILED")
        headers = {"Idempotency-Key": "k"}
        api.call("POST", f"/tasks/{task_id}/redrive", headers=headers)
        api.table.put(stored(api, task_id) | {"status": "FAILED", "fence": 3, "finishedAt": START})
        before = api.table.raw(task_id)
        assert api.call("POST", f"/tasks/{task_id}/redrive", headers=headers).status == 200
        assert api.table.raw(task_id) == before
        assert api.call("POST", f"/tasks/{task_id}/redrive", headers={"Idempotency-Key": "new"}).status == 200
        assert stored(api, task_id)["fence"] == 4

    @pytest.mark.parametrize("status", ["PENDING", "RUNNING", "SUCCESS", "DONE"])
    def test_only_failed_tasks(self, api: Api, status: str) -> None:
        task_id = place(api, status)
        before = api.table.raw(task_id)
        response = api.call("POST", f"/tasks/{task_id}/redrive")
        assert (response.status, response.error["status"]) == (409, status)
        assert api.table.raw(task_id) == before

    def test_the_body_lives_on(self, api: Api) -> None:
        task_id = api.submit(payload="x" * 5000, taskId="big")
        api.table.put(stored(api, task_id) | {"status": "FAILED", "finishedAt": START, "expiresAt": START + 90 * 86400})
        api.clock.advance(80 * 86400)
        api.call("POST", f"/tasks/{task_id}/redrive")
        (body,) = api.table.items("payload#").values()
        assert body["expiresAt"] >= START + 480 * 86400


class TestAck:
    def test_a_success_is_done(self, api: Api) -> None:
        task_id = place(api, "SUCCESS", result="1")
        response = api.call("POST", f"/tasks/{task_id}/ack")
        assert (response.status, response.json["status"], response.json["outcome"], response.json["result"]) == (
            200,
            "DONE",
            "acknowledged",
            1,
        )
        assert api.call("POST", f"/tasks/{task_id}/ack").status == 200

    @pytest.mark.parametrize("status", ["PENDING", "RUNNING", "FAILED", "DONE"])
    def test_only_successes(self, api: Api, status: str) -> None:
        assert api.call("POST", f"/tasks/{place(api, status)}/ack").status == 409


class TestDelete:
    @pytest.mark.parametrize("status", ["SUCCESS", "FAILED", "DONE"])
    def test_a_terminal_task_goes_with_its_bodies(self, api: Api, status: str) -> None:
        task_id = place(api, status)
        api.table.put({"taskId": f"result#{task_id}#1", "body": "1", "expiresAt": START + 9})
        api.table.put(stored(api, task_id) | {"resultRef": f"result#{task_id}#1", "resultBytes": 1})
        response = api.call("DELETE", f"/tasks/{task_id}")
        assert (response.status, response.text) == (204, "")
        assert api.rows() == []
        assert api.call("DELETE", f"/tasks/{task_id}").status == 404

    def test_what_a_damaged_row_names_as_its_own_stays(self, api: Api) -> None:
        api.submit(payload="x" * 5_000, taskId="other")
        api.submit(payload="x" * 400_000, taskId="large")
        for reference in (stored(api, "other")["payloadRef"], stored(api, "large")["payloadRef"], "other"):
            task_id = place(api, "FAILED", payloadRef=reference)
            assert api.call("DELETE", f"/tasks/{task_id}").status == 204
        assert len(api.call("GET", "/tasks/other/payload").json) == 5_000
        assert api.objects.stored

    def test_bodies_in_s3_go_too(self, api: Api) -> None:
        task_id = api.submit(payload="x" * 400_000, taskId="big")
        api.call("POST", f"/tasks/{task_id}/cancel")
        assert api.objects.stored
        assert api.call("DELETE", f"/tasks/{task_id}").status == 204
        assert not api.objects.stored

    @pytest.mark.parametrize("status", ["PENDING", "RUNNING"])
    def test_open_tasks_stay(self, api: Api, status: str) -> None:
        task_id = place(api, status)
        assert api.call("DELETE", f"/tasks/{task_id}").status == 409
        assert api.table.item(task_id) is not None

    def test_a_redrive_in_between_saves_it(self, api: Api) -> None:
        task_id = place(api, "FAILED")
        api.table.before(
            lambda call: call.operation == "DeleteItem",
            lambda: api.table.put(stored(api, task_id) | {"status": "PENDING", "fence": 2}),
            times=1,
        )
        assert api.call("DELETE", f"/tasks/{task_id}").status == 409
        assert stored(api, task_id)["status"] == "PENDING"


@pytest.mark.parametrize("call", ["cancel", "redrive", "ack"])
def test_unknown_tasks(api: Api, call: str) -> None:
    assert api.call("POST", f"/tasks/none/{call}").status == 404
    assert api.table.items() == {}


def test_a_task_past_its_time_to_live_is_gone(api: Api) -> None:
    task_id = place(api, "SUCCESS")
    api.clock.advance(8 * 86400)
    assert api.call("GET", f"/tasks/{task_id}").status == 404
    assert api.call("POST", f"/tasks/{task_id}/ack").status == 404


def test_results(api: Api) -> None:
    for value in ("0", "null", "false", '""', "[1.0]"):
        task_id = place(api, "SUCCESS", result=value)
        assert api.call("GET", f"/tasks/{task_id}/result").text == value
        assert "result" in api.call("GET", f"/tasks/{task_id}").json
        api.table.remove(task_id)


def test_a_body_that_has_expired_is_not_found(api: Api) -> None:
    task_id = place(api, "SUCCESS", resultRef="result#gone#1", resultBytes=5)
    assert api.call("GET", f"/tasks/{task_id}/result").status == 404
    task = api.call("GET", f"/tasks/{task_id}")
    assert (task.status, task.json["resultBytes"]) == (200, 5)
    assert "result" not in task.json


def test_state_changes_are_logged_with_their_caller(api: Api) -> None:
    api.call("POST", f"/tasks/{place(api, 'FAILED')}/redrive")
    assert api.events() == ["task.redriven"]
    assert USER_ARN in api.log.getvalue()
