"""GET /tasks/{taskId}/why: each reason, as the sweep would meet it."""

from __future__ import annotations

from typing import Any

import pytest

from tests.support.api import Api
from tests.support.fakes import START


def why(api: Api, task_id: str) -> dict[str, Any]:
    response = api.call("GET", f"/tasks/{task_id}/why")
    assert response.status == 200, response.text
    answer: dict[str, Any] = response.json
    return answer


def put(api: Api, task_id: str, **attributes: Any) -> str:
    api.table.put({**(api.table.item(task_id) or {}), **attributes})
    return task_id


def lease(api: Api, token: str = "l1", **attributes: Any) -> None:
    item = {"taskId": f"lease#{token}", "profile": "default", "lockTime": START + 300, "dueAt": START + 300}
    api.table.put(item | {"dispatchKey": "LEASE#default#0", "taskIds": []} | attributes)


def running(api: Api, **attributes: Any) -> str:
    task_id = api.submit()
    return put(api, task_id, **{"status": "RUNNING", "leaseToken": "l1", "fence": 1, **attributes})


class TestPending:
    def test_next_sweep(self, api: Api) -> None:
        assert why(api, api.submit())["reason"] == "next_sweep"

    def test_due_later(self, api: Api) -> None:
        assert why(api, api.submit(delaySeconds=60)) == {
            "reason": "due_later",
            "detail": "it is due in 60 s",
            "until": START + 60,
        }

    def test_backing_off(self, api: Api) -> None:
        error = {"type": "ValueError", "message": "no", "reason": "error", "at": START}
        task_id = put(api, api.submit(), dueAt=START + 9, exitedBy="l1:retry", error=error, retryCount=2)
        answer = why(api, task_id)
        assert (answer["reason"], answer["until"]) == ("backing_off", START + 9)
        assert answer["detail"] == "2 of 3 retries spent; it failed with ValueError"

    def test_queue_paused(self, api: Api) -> None:
        task_id = api.submit()
        api.call("PUT", "/queues/default", {"paused": True})
        assert why(api, task_id)["reason"] == "queue_paused"

    @pytest.mark.parametrize("limit", ["maxConcurrency", "ratePerSecond"])
    def test_a_limit_of_the_queue_that_nothing_was_written_about(self, api: Api, limit: str) -> None:
        task_id = api.submit()
        api.call("PUT", "/queues/default", {limit: 1})
        assert why(api, task_id)["reason"] == "next_sweep"
        holder = {"holder": running(api), "leaseToken": "l1", "fence": 0, "claimBy": START}
        api.table.put({"taskId": "slot#default##0", **holder})
        api.table.put({"taskId": "bucket#default#", "tokens": 0.25, "stamp": START, "takenBy": "x"})
        answer = why(api, task_id)
        if limit == "maxConcurrency":
            assert answer == {
                "reason": "concurrency_limit",
                "detail": "queue default is at its concurrency limit of 1",
            }
        else:
            assert answer == {
                "reason": "rate_limit",
                "detail": "queue default is at its rate limit of 1",
                "until": START + 0.75,
            }

    def test_no_handler(self, api: Api) -> None:
        assert why(api, api.submit(type="nobody.knows"))["reason"] == "no_handler"

    def test_no_handler_once_the_sweep_has_put_it_off(self, api: Api) -> None:
        task_id = put(api, api.submit(type="nobody.knows"), dueAt=START + 45, deferredFor="no_handler")
        answer = why(api, task_id)
        assert (answer["reason"], answer["until"]) == ("no_handler", START + 45)
        assert "nobody.knows" in answer["detail"]

    @pytest.mark.parametrize("reason", ["concurrency_limit", "rate_limit"])
    def test_limits(self, api: Api, reason: str) -> None:
        api.call("PUT", "/queues/default", {"maxConcurrency": 7, "ratePerSecond": 0.5})
        task_id = put(api, api.submit(), dueAt=START + 9, deferredFor=reason)
        answer = why(api, task_id)
        assert answer["reason"] == reason
        assert ("7" in answer["detail"]) or ("0.5" in answer["detail"])

    def test_executors_full(self, api: Api) -> None:
        task_id = api.submit()
        for number in range(20):
            lease(api, f"l{number}", dispatchKey=f"LEASE#default#{number % 4}")
        assert why(api, task_id)["reason"] == "executors_full"

    def test_blocked_names_the_blockers(self, api: Api) -> None:
        parents = [api.submit(taskId=f"p{number}") for number in range(7)]
        child = api.submit(dependsOn=parents)
        answer = why(api, child)
        assert answer["reason"] == "blocked"
        assert "p0, p1" in answer["detail"]
        assert "and 2 more" in answer["detail"]
        assert api.call("GET", f"/tasks/{child}").json["blockedBy"] == parents

    def test_an_expired_task(self, api: Api) -> None:
        task_id = api.submit(startWithinSeconds=5)
        api.clock.advance(6)
        assert why(api, task_id) == {
            "reason": "next_sweep",
            "detail": "its time to start has passed: the next sweep ends it as expired",
        }


class TestRunning:
    def test_running(self, api: Api) -> None:
        task_id = running(api)
        lease(api, started={task_id})
        assert why(api, task_id) == {"reason": "running", "detail": "attempt 1: running", "until": START + 300}

    def test_waiting_in_its_batch(self, api: Api) -> None:
        task_id = running(api)
        lease(api)
        assert "waiting for a thread" in why(api, task_id)["detail"]

    def test_cancelling(self, api: Api) -> None:
        task_id = running(api, cancelRequested=True)
        lease(api, started={task_id})
        assert "cancel was requested" in why(api, task_id)["detail"]

    @pytest.mark.parametrize("state", ["gone", "closed", "past"])
    def test_lease_expired(self, api: Api, state: str) -> None:
        task_id = running(api)
        if state != "gone":
            lease(api, **({"closed": START} if state == "closed" else {"lockTime": START - 10}))
        assert why(api, task_id)["reason"] == "lease_expired"


class TestTerminal:
    def test_failed(self, api: Api) -> None:
        error = {"type": "ValueError", "message": "no", "reason": "permanent", "at": START}
        answer = why(api, put(api, api.submit(), status="FAILED", error=error))
        assert (answer["reason"], answer["detail"]) == (
            "terminal",
            "FAILED: permanent, ValueError; redrive starts it anew",
        )

    def test_done(self, api: Api) -> None:
        task_id = api.submit()
        api.call("POST", f"/tasks/{task_id}/cancel")
        assert why(api, task_id) == {"reason": "terminal", "detail": "DONE: cancelled"}


def test_unknown_task(api: Api) -> None:
    assert api.call("GET", "/tasks/none/why").status == 404
