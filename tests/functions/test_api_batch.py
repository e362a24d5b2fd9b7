"""POST /tasks/batch: one bad entry never sinks the rest, and entries may name each other."""

from __future__ import annotations

import json
from typing import Any

import pytest

from tests.support.api import Api
from tests.support.events import v2_event
from tests.support.memory_dynamodb import Fault

GOOD = {"type": "demo.echo"}


def batch(api: Api, *entries: Any, **options: Any) -> Any:
    return api.call("POST", "/tasks/batch", {"tasks": list(entries)}, **options)


def codes(response: Any) -> list[str]:
    return [result["error"]["code"] if "error" in result else "ok" for result in response.json["results"]]


class TestEntriesAlone:
    def test_five_hundred_with_twenty_five_bad_ones_in_order(self, api: Api) -> None:
        bad = [{"type": "Bad Type"}, {"type": "demo.echo", "bogus": 1}, 7, {"type": "demo.echo", "queue": "nowhere"}]
        entries = [
            bad[index // 20 % len(bad)] if index % 20 == 0 else {**GOOD, "payload": index} for index in range(500)
        ]
        response = batch(api, *entries)
        assert (response.status, response.json["accepted"], response.json["rejected"]) == (200, 475, 25)
        assert [code != "ok" for code in codes(response)] == [index % 20 == 0 for index in range(500)]
        assert len(api.rows()) == 475
        last = response.json["results"][499]["taskId"]
        assert api.call("GET", f"/tasks/{last}").json["payload"] == 499

    @pytest.mark.parametrize(
        ("entry", "code", "path"),
        [
            ('{"type":"demo.echo","payload":{"price":NaN}}', "validation_error", "tasks[1].payload.price"),
            ('{"type":"demo.echo","payload":1e400}', "validation_error", "tasks[1].payload"),
            (r'{"type":"demo.echo","payload":"\ud800"}', "validation_error", "tasks[1].payload"),
            ('{"type":"a","type":"b"}', "validation_error", "tasks[1].type"),
            (
                '{"type":"demo.echo","payload":' + "[" * 5000 + "]" * 5000 + "}",
                "validation_error",
                "tasks[1].payload[0][0]",
            ),
            (
                '{"type":"demo.echo","payload":' + "[" * 201 + "]" * 201 + "}",
                "validation_error",
                "tasks[1].payload[0][0][0]",
            ),
            ('{"type":"demo.echo","maxRetryNumber":"5"}', "validation_error", "tasks[1].maxRetryNumber"),
            ('{"payload":1}', "validation_error", "tasks[1].type"),
            ("null", "validation_error", "tasks[1]"),
            ("[]", "validation_error", "tasks[1]"),
            ('{"type":"demo.echo","queue":"nowhere"}', "unknown_queue", "tasks[1].queue"),
            ('{"type":"demo.echo","payload":"' + "a" * 1024 * 1024 + '"}', "too_large", "tasks[1].payload"),
        ],
    )
    def test_ta_34_a_bad_entry_is_named_and_alone(self, api: Api, entry: str, code: str, path: str) -> None:
        text = json.dumps({"tasks": [GOOD, "here", GOOD]}).replace('"here"', entry)
        response = api.send(v2_event("POST", "/tasks/batch", body=text))
        assert codes(response) == ["ok", code, "ok"], response.text
        error = response.json["results"][1]["error"]
        assert error["path"] == path
        assert error["message"].startswith(f"{path}: ")
        assert len(api.rows()) == 2

    def test_a_store_that_fails_for_one_entry(self, api: Api) -> None:
        api.table.inject(
            Fault.THROTTLED,
            where=lambda call: call.operation == "PutItem" and call.item_ids == ["second"],
            times=None,
        )
        response = batch(api, *({**GOOD, "taskId": name} for name in ("first", "second", "third")))
        assert codes(response) == ["ok", "unavailable", "ok"]

    @pytest.mark.parametrize(
        ("text", "path"),
        [
            ('{"tasks":[]}', "tasks"),
            ('{"tasks":{}}', "tasks"),
            ("[]", ""),
            ("{}", "tasks"),
            ('{"tasks":[{}],"tasks":[{}]}', "tasks"),
            ('{"tasks":[{}],"x":NaN}', "x"),
            ('{"tasks":[{}],"x":1}', "x"),
            ('{"tasks":[' + "{}," * 500 + "{}]}", "tasks"),
            ('{"tasks":[{', ""),
            ("", ""),
        ],
    )
    def test_what_is_no_batch_is_refused_whole(self, api: Api, text: str, path: str) -> None:
        response = api.send(v2_event("POST", "/tasks/batch", body=text))
        assert (response.status, response.error.get("path", "")) == (400, path)
        assert api.rows() == []

    def test_the_wrong_media_type(self, api: Api) -> None:
        assert batch(api, GOOD, headers={"content-type": "text/html"}).status == 415


class TestIdempotency:
    def test_the_same_key_gives_the_same_tasks(self, api: Api) -> None:
        entries = [{**GOOD, "payload": 1}, {**GOOD, "payload": 1}, {"type": "Bad"}]
        first = batch(api, *entries, headers={"Idempotency-Key": "k"}).json
        again = batch(api, *entries, headers={"Idempotency-Key": "k"}).json
        assert [result.get("taskId") for result in again["results"]] == [
            result.get("taskId") for result in first["results"]
        ]
        assert [result.get("duplicate") for result in again["results"]] == [True, True, None]
        assert first["results"][0]["taskId"] != first["results"][1]["taskId"]
        assert len(api.rows()) == 2

    def test_an_entry_that_changed_is_a_conflict(self, api: Api) -> None:
        batch(api, GOOD, GOOD, headers={"Idempotency-Key": "k"})
        response = batch(api, GOOD, {**GOOD, "payload": 1}, headers={"Idempotency-Key": "k"})
        assert codes(response) == ["ok", "idempotency_conflict"]

    def test_a_single_submit_never_meets_an_entry(self, api: Api) -> None:
        batch(api, GOOD, headers={"Idempotency-Key": "k"})
        assert api.call("POST", "/tasks", GOOD, headers={"Idempotency-Key": "k0"}).status == 201
        assert api.call("POST", "/tasks", GOOD, headers={"Idempotency-Key": "k"}).status == 201


class TestReferences:
    def test_entries_name_each_other_in_any_order(self, api: Api) -> None:
        parent = api.submit(taskId="before")
        response = batch(
            api,
            {**GOOD, "dependsOn": ["@b", "@c", parent]},
            {**GOOD, "ref": "b", "dependsOn": ["@c"]},
            {**GOOD, "ref": "c"},
        )
        assert codes(response) == ["ok", "ok", "ok"], response.text
        first, second, third = (result["taskId"] for result in response.json["results"])
        assert api.call("GET", f"/tasks/{first}").json["dependsOn"] == [second, third, parent]
        assert api.call("GET", f"/tasks/{second}").json["blockedBy"] == [third]
        assert "blockedBy" not in api.call("GET", f"/tasks/{third}").json

    def test_refs_that_cannot_be_resolved(self, api: Api) -> None:
        response = batch(
            api,
            {**GOOD, "dependsOn": ["@nobody"]},
            {"type": "Bad", "ref": "bad"},
            {**GOOD, "dependsOn": ["@bad"]},
            {**GOOD, "ref": "a"},
            {**GOOD, "ref": "a"},
            {**GOOD, "ref": "x", "dependsOn": ["@y"]},
            {**GOOD, "ref": "y", "dependsOn": ["@x"]},
            {**GOOD, "ref": "self", "dependsOn": ["@self"]},
        )
        assert codes(response) == [
            "unknown_dependency",
            "validation_error",
            "unknown_dependency",
            "ok",
            "validation_error",
            "dependency_cycle",
            "dependency_cycle",
            "dependency_cycle",
        ]
        assert response.json["results"][2]["error"]["message"] == "tasks[2].dependsOn: @bad was refused"
        assert len(api.rows()) == 1
