"""Queues: settings that merge, figures with their time, and submits refused beyond maxBacklog."""

from __future__ import annotations

from typing import Any

import pytest

from tests.functions.test_api_list import ended
from tests.support.api import Api
from tests.support.events import USER_ARN
from tests.support.fakes import START


def figure(value: float, **more: Any) -> dict[str, Any]:
    return {"value": value, "asOf": START, **more}


class TestSettings:
    def test_declared_queues_are_there(self, api: Api) -> None:
        assert [queue["queue"] for queue in api.call("GET", "/queues").json["queues"]] == ["default", "reports"]

    def test_settings_merge_and_null_resets(self, api: Api) -> None:
        api.call("PUT", "/queues/default", {"paused": True, "maxConcurrency": 5, "ratePerSecond": 1.5})
        queue = api.call("PUT", "/queues/default", {"paused": None, "burst": 3, "reason": "incident over"}).json
        assert (queue["paused"], queue["maxConcurrency"], queue["ratePerSecond"], queue["burst"]) == (False, 5, 1.5, 3)
        assert api.call("GET", "/queues/default").json.items() >= queue.items()
        (item,) = api.table.items("control#queue#").values()
        assert (item["operator"]["caller"], item["operator"]["reason"]) == (USER_ARN, "incident over")

    def test_a_new_queue_is_declared_by_its_settings(self, api: Api) -> None:
        assert api.call("POST", "/tasks", {"type": "demo.echo", "queue": "fresh"}).status == 422
        queue = api.call("PUT", "/queues/fresh", {}).json
        assert (queue["queue"], queue["declared"]) == ("fresh", "api")
        assert api.call("POST", "/tasks", {"type": "demo.echo", "queue": "fresh"}).status == 201

    @pytest.mark.parametrize("name", ["Bad", "a b", "q" * 65, "a%23b"])
    def test_names(self, api: Api, name: str) -> None:
        assert api.call("PUT", f"/queues/{name}", {}).status == 400
        assert api.call("GET", f"/queues/{name}").status == 404
        assert api.rows() == []

    @pytest.mark.parametrize(
        ("body", "path"),
        [
            ({"paused": "yes"}, "paused"),
            ({"maxConcurrency": 1.5}, "maxConcurrency"),
            ({"ratePerSecond": 0}, "ratePerSecond"),
            ({"ratePerSecond": 5e-324}, "ratePerSecond"),
            ({"perKey": {"tag": "tenant", "ratePerSecond": 1e-200}}, "perKey.ratePerSecond"),
            ({"perKey": {"tag": ""}}, "perKey.tag"),
            ({"shards": 65}, "shards"),
            ({"limit": 3}, "limit"),
        ],
    )
    def test_bad_settings_change_nothing(self, api: Api, body: dict[str, Any], path: str) -> None:
        response = api.call("PUT", "/queues/default", body)
        assert (response.status, response.error["path"]) == (400, path)
        assert api.rows() == []

    def test_unknown_queue(self, api: Api) -> None:
        assert api.call("GET", "/queues/nowhere").status == 404


class TestFigures:
    def test_how_a_queue_stands(self, api: Api) -> None:
        api.submit()
        api.submit(delaySeconds=60)
        waiting = api.submit(taskId="parent", runAt="2030-01-01T00:00:00Z")
        api.submit(dependsOn=[waiting])
        api.submit(taskId="busy")
        api.table.put((api.table.item("busy") or {}) | {"status": "RUNNING", "leaseToken": "l", "fence": 1})
        api.table.put(
            {"taskId": "lease#l", "taskIds": ["busy"], "lockTime": START + 300, "dueAt": START + 300}
            | {"dispatchKey": "LEASE#default#0", "profile": "default"}
        )
        for number in range(3):
            api.table.put(ended(f"f{number}", START - 30 * number))
        api.clock.advance(7)
        queue = api.call("GET", "/queues/default").json
        names = ("backlog", "running", "blocked", "failed", "oldestDueAgeSeconds", "finishedPerSecond")
        assert [queue[name]["value"] for name in names] == [3, 1, 1, 3, 7, round(2 / 60, 3)]
        assert {queue[name]["asOf"] for name in names} == {START + 7}

    def test_stats_are_sums(self, api: Api) -> None:
        api.submit()
        api.submit(queue="reports")
        stats = api.call("GET", "/stats").json
        assert [queue["backlog"] for queue in stats["queues"]] == [figure(1), figure(1)]
        assert stats["totals"]["backlog"] == figure(2)


class TestMaxBacklog:
    def full(self, api: Api, limit: int) -> Any:
        api.call("PUT", "/queues/default", {"maxBacklog": limit})
        return [api.call("POST", "/tasks", {"type": "demo.echo"}).status for _ in range(limit + 1)]

    def test_beyond_it_a_submit_is_refused_and_leaves_no_row(self, api: Api) -> None:
        assert self.full(api, 3) == [201, 201, 201, 429]
        response = api.call("POST", "/tasks", {"type": "demo.echo", "payload": "x" * 400_000})
        assert (response.status, response.error["code"], response.headers["retry-after"]) == (429, "backlog_full", "5")
        assert len(api.rows()) == 4
        assert not api.objects.stored

    def test_zero_admits_nothing(self, api: Api) -> None:
        assert self.full(api, 0) == [429]

    def test_other_queues_are_not_touched(self, api: Api) -> None:
        self.full(api, 1)
        assert api.call("POST", "/tasks", {"type": "demo.echo", "queue": "reports"}).status == 201

    def test_room_is_seen_within_seconds(self, api: Api) -> None:
        self.full(api, 1)
        (task_id,) = [row for row in api.rows() if "#" not in row]
        api.call("POST", f"/tasks/{task_id}/cancel")
        api.clock.advance(4)
        assert api.call("POST", "/tasks", {"type": "demo.echo"}).status == 201

    def test_ta_17_a_repeat_is_answered_whatever_the_backlog(self, api: Api) -> None:
        headers = {"Idempotency-Key": "k"}
        body = {"type": "demo.echo"}
        first = api.call("POST", "/tasks", body, headers=headers).json
        self.full(api, 1)
        assert api.call("POST", "/tasks", body, headers=headers).json["taskId"] == first["taskId"]
        assert api.call("POST", "/tasks", body, headers={"Idempotency-Key": "new"}).status == 429

    def test_in_a_batch_the_rest_is_refused_one_by_one(self, api: Api) -> None:
        api.call("PUT", "/queues/default", {"maxBacklog": 2})
        answer = api.call("POST", "/tasks/batch", {"tasks": [{"type": "demo.echo"}] * 4}).json
        assert (answer["accepted"], answer["rejected"]) == (2, 2)
        assert answer["results"][3]["error"]["code"] == "backlog_full"

    def test_a_queue_without_it_is_not_counted(self, api: Api) -> None:
        api.submit()
        api.table.calls.clear()
        api.submit()
        assert [call.operation for call in api.table.calls] == ["PutItem"]
