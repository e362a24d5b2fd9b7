"""POST /redrive and POST /cancel: filters, dry runs, pages, and tasks that change under the page."""

from __future__ import annotations

from typing import Any

import pytest

from tests.functions.test_api_list import ended
from tests.support.api import Api
from tests.support.fakes import START
from thunderagent.codec import Item


def failed(api: Api, number: int, **attributes: Any) -> None:
    api.table.put(ended(f"t{number:03}", START + number, **attributes))


def bulk(api: Api, call: str, **body: Any) -> dict[str, Any]:
    response = api.call("POST", f"/{call}", body)
    assert response.status == 200, response.text
    answer: dict[str, Any] = response.json
    return answer


def statuses(api: Api) -> dict[str, str]:
    tasks = {task_id: item for task_id, item in api.table.items().items() if "status" in item}
    return {task_id: item["status"] for task_id, item in tasks.items()}


class TestRedrive:
    def test_everything(self, api: Api) -> None:
        for number in range(5):
            failed(api, number)
        assert bulk(api, "redrive", reason="fixed") == {"matched": 5, "done": 5, "failed": []}
        assert set(statuses(api).values()) == {"PENDING"}
        assert (api.table.item("t000") or {})["operator"]["reason"] == "fixed"

    @pytest.mark.parametrize(
        ("filters", "matched"),
        [
            ({"queue": "reports"}, {"t001"}),
            ({"type": "report.generate"}, {"t002"}),
            ({"errorType": "KeyError"}, {"t003"}),
            ({"since": START + 3}, {"t003", "t004"}),
            ({"queue": "reports", "type": "report.generate"}, set()),
        ],
    )
    def test_filters(self, api: Api, filters: dict[str, Any], matched: set[str]) -> None:
        failed(api, 0)
        failed(api, 1, queue="reports")
        failed(api, 2, type="report.generate")
        failed(api, 3, error={"type": "KeyError"})
        failed(api, 4)
        assert bulk(api, "redrive", **filters)["done"] == len(matched)
        assert {task_id for task_id, status in statuses(api).items() if status == "PENDING"} == matched

    def test_a_dry_run_changes_nothing(self, api: Api) -> None:
        for number in range(3):
            failed(api, number)
        before = {task_id: api.table.raw(task_id) for task_id in statuses(api)}
        assert bulk(api, "redrive", dryRun=True) == {"matched": 3, "done": 0, "failed": []}
        assert {task_id: api.table.raw(task_id) for task_id in statuses(api)} == before

    def test_page_after_page(self, api: Api) -> None:
        for number in range(25):
            failed(api, number)
        token: dict[str, str] = {}
        counts = []
        for _ in range(10):
            answer = bulk(api, "redrive", limit=10, **token)
            counts.append(answer["done"])
            if "nextToken" not in answer:
                break
            token = {"nextToken": answer["nextToken"]}
        assert counts == [10, 10, 5]
        assert set(statuses(api).values()) == {"PENDING"}

    def test_the_default_page_is_a_hundred(self, api: Api) -> None:
        for number in range(101):
            failed(api, number)
        answer = bulk(api, "redrive")
        assert (answer["matched"], "nextToken" in answer) == (100, True)

    def test_a_task_that_changes_under_the_page_is_reported(self, api: Api) -> None:
        for number in range(2):
            failed(api, number)

        def acknowledge() -> None:
            api.table.put((api.table.item("t001") or {}) | {"status": "DONE", "outcome": "skipped"})

        api.table.before(lambda call: call.operation == "UpdateItem", acknowledge, times=1)
        answer = bulk(api, "redrive")
        assert (answer["matched"], answer["done"]) == (2, 1)
        assert [(entry["taskId"], entry["error"]["code"], entry["error"]["status"]) for entry in answer["failed"]] == [
            ("t001", "conflict", "DONE")
        ]

    def test_one_log_line_for_a_page(self, api: Api) -> None:
        failed(api, 0)
        bulk(api, "redrive")
        assert api.events() == ["tasks.redriven"]


class TestCancel:
    def place_running(self, api: Api, task_id: str) -> None:
        api.submit(taskId=task_id)
        api.table.put((api.table.item(task_id) or {}) | {"status": "RUNNING", "leaseToken": "l", "fence": 1})
        lease: Item = {"taskId": "lease#l", "taskIds": [task_id], "lockTime": START + 300, "dueAt": START + 300}
        api.table.put(lease | {"dispatchKey": "LEASE#default#0", "profile": "default"})

    def test_pending_first_then_running(self, api: Api) -> None:
        self.place_running(api, "running")
        for number in range(3):
            api.submit(taskId=f"p{number}")
        assert bulk(api, "cancel") == {"matched": 4, "done": 4, "failed": []}
        assert statuses(api) == {"p0": "DONE", "p1": "DONE", "p2": "DONE", "running": "RUNNING"}
        assert (api.table.item("running") or {})["cancelRequested"] is True

    def test_a_token_leads_from_one_state_to_the_next(self, api: Api) -> None:
        self.place_running(api, "running")
        for number in range(2):
            api.submit(taskId=f"p{number}")
        first = bulk(api, "cancel", limit=2)
        assert (first["done"], statuses(api)["running"]) == (2, "RUNNING")
        second = bulk(api, "cancel", limit=2, nextToken=first["nextToken"])
        assert (second["done"], "nextToken" in second) == (1, False)

    def test_by_queue(self, api: Api) -> None:
        api.submit(taskId="keep")
        api.submit(taskId="go", queue="reports")
        assert bulk(api, "cancel", queue="reports")["done"] == 1
        assert statuses(api) == {"keep": "PENDING", "go": "DONE"}


@pytest.mark.parametrize(
    ("body", "path"),
    [
        ({"limit": 0}, "limit"),
        ({"limit": 1001}, "limit"),
        ({"limit": True}, "limit"),
        ({"queue": ""}, "queue"),
        ({"since": "yesterday"}, "since"),
        ({"dryRun": 1}, "dryRun"),
        ({"nextToken": "x"}, "nextToken"),
        ({"everything": True}, "everything"),
    ],
)
@pytest.mark.parametrize("call", ["redrive", "cancel"])
def test_bad_filters_touch_nothing(api: Api, call: str, body: dict[str, Any], path: str) -> None:
    failed(api, 0)
    api.submit(taskId="p")
    response = api.call("POST", f"/{call}", body)
    assert (response.status, response.error["path"]) == (400, path)
    assert statuses(api) == {"t000": "FAILED", "p": "PENDING"}
