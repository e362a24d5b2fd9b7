"""Requests judged by the OpenAPI document: exact paths, strict integers, no keyword that is not understood."""

from __future__ import annotations

import json
from collections.abc import Iterator
from typing import Any

import pytest

from thunderagent import validation
from thunderagent.errors import InvalidInput, NotFound
from thunderagent.validation import check_body, check_parameters, document, operations, parse_time

SUBMIT = "POST /tasks"


def refusal(body: Any, route: str = SUBMIT) -> InvalidInput:
    with pytest.raises(InvalidInput) as caught:
        check_body(operations()[route], body)
    return caught.value


def schemas(node: Any) -> Iterator[dict[str, Any]]:
    """Every schema of the document, inner ones included."""
    if isinstance(node, dict):
        for name, entry in node.items():
            if name == "schema" and isinstance(entry, dict):
                yield from inner(entry)
            else:
                yield from schemas(entry)
    elif isinstance(node, list):
        for entry in node:
            yield from schemas(entry)


def inner(schema: dict[str, Any]) -> Iterator[dict[str, Any]]:
    yield schema
    for entry in schema.get("properties", {}).values():
        yield from inner(entry)
    for name in ("items", "propertyNames", "additionalProperties"):
        if isinstance(schema.get(name), dict):
            yield from inner(schema[name])


class TestDocument:
    def test_it_uses_no_keyword_that_is_not_enforced(self) -> None:
        named = document()["components"]["schemas"].values()
        known = set(validation.RULES) | validation.ANNOTATIONS | {"type", "$ref"}
        used = {name for schema in [*named, *schemas(document())] for part in inner(schema) for name in part}
        assert used <= known

    def test_every_reference_resolves(self) -> None:
        def references(node: Any) -> Iterator[str]:
            if isinstance(node, dict):
                yield from ([node["$ref"]] if isinstance(node.get("$ref"), str) else [])
                for entry in node.values():
                    yield from references(entry)
            elif isinstance(node, list):
                for entry in node:
                    yield from references(entry)

        assert {type(validation.resolved({"$ref": reference})) for reference in references(document())} == {dict}

    def test_every_call_has_its_scopes_and_a_unique_name(self) -> None:
        scopes = {scope for operation in operations().values() for scope in operation.scopes}
        assert scopes == {"thunder/submit", "thunder/read", "thunder/read-payload", "thunder/operate"}
        assert all(operation.scopes for operation in operations().values())
        names = [operation.operation_id for operation in operations().values()]
        assert len(set(names)) == len(names)

    def test_every_path_parameter_is_declared(self) -> None:
        for operation in operations().values():
            in_path = {part[1:-1] for part in operation.route.split("/") if part.startswith("{")}
            assert {entry["name"] for entry in operation.parameters if entry["in"] == "path"} == in_path

    def test_every_request_schema_is_closed(self) -> None:
        for operation in operations().values():
            if operation.body is not None:
                assert validation.resolved(operation.body)["additionalProperties"] is False, operation.route

    def test_the_file_is_plain_json(self) -> None:
        assert json.loads(validation.DOCUMENT_PATH.read_bytes()) == document()


class TestSubmitBody:
    @pytest.mark.parametrize(
        "fields",
        [{"payload": value} for value in (0, False, "", None, {}, [], 1.0, -0.0, 10**30, {"a": [None]})]
        + [
            {"delaySeconds": 0},
            {"delaySeconds": 31_536_000},
            {"maxRetryNumber": 0},
            {"maxRetryNumber": 1},
            {"maxRetryNumber": 100},
            {"dependsOn": []},
            {"unique": {}},
            {"unique": {"windowSeconds": 0}},
            {"tags": {}},
            {"tags": {"t" * 128: "é" * 64}},
            {"tags": {str(number): "" for number in range(10)}},
            {"runAt": "2026-12-01T09:00:00+02:00"},
            {"runAt": "2026-12-01t09:00:00.123456789z"},
            {"taskId": "A" + "._:-" + "z" * 123},
            {"taskId": "cronos"},
        ],
    )
    def test_ta_36_values_are_values(self, fields: dict[str, Any]) -> None:
        check_body(operations()[SUBMIT], {"type": "a", **fields})

    @pytest.mark.parametrize(
        ("fields", "path"),
        [
            ({"maxRetryNumber": True}, "maxRetryNumber"),
            ({"maxRetryNumber": "5"}, "maxRetryNumber"),
            ({"maxRetryNumber": 2.5}, "maxRetryNumber"),
            ({"maxRetryNumber": 2.0}, "maxRetryNumber"),
            ({"maxRetryNumber": -1}, "maxRetryNumber"),
            ({"maxRetryNumber": 101}, "maxRetryNumber"),
            ({"maxRetryNumber": None}, "maxRetryNumber"),
            ({"delaySeconds": -1}, "delaySeconds"),
            ({"delaySeconds": 31_536_001}, "delaySeconds"),
            ({"delaySeconds": 10**400}, "delaySeconds"),
            ({"timeoutSeconds": 0}, "timeoutSeconds"),
            ({"startWithinSeconds": 0}, "startWithinSeconds"),
            ({"priority": 0}, "priority"),
            ({"priority": "urgent"}, "priority"),
            ({"queue": ""}, "queue"),
            ({"queue": None}, "queue"),
            ({"queue": "Upper"}, "queue"),
            ({"queue": "q" * 65}, "queue"),
            ({"type": ""}, "type"),
            ({"type": "a\n"}, "type"),
            ({"type": ["a"]}, "type"),
            ({"taskId": "cron.daily"}, "taskId"),
            ({"taskId": "a/b"}, "taskId"),
            ({"taskId": "a#b"}, "taskId"),
            ({"taskId": ".."}, "taskId"),
            ({"taskId": "a" * 2049}, "taskId"),
            ({"taskId": ""}, "taskId"),
            ({"dependsOn": "a"}, "dependsOn"),
            ({"dependsOn": ["ok", "lease#1"]}, "dependsOn[1]"),
            ({"dependsOn": ["@a"]}, "dependsOn[0]"),
            ({"dependsOn": ["a"] * 1001}, "dependsOn"),
            ({"unique": True}, "unique"),
            ({"unique": {"windowSeconds": 1.5}}, "unique.windowSeconds"),
            ({"unique": {"window": 1}}, "unique.window"),
            ({"tags": {"a": 1}}, "tags.a"),
            ({"tags": {"": "x"}}, 'tags[""]'),
            ({"tags": {"a": "é" * 65}}, "tags.a"),
            ({"tags": {str(number): "" for number in range(11)}}, "tags"),
            ({"runAt": "2026-12-01T09:00:00"}, "runAt"),
            ({"runAt": "2026-02-30T09:00:00Z"}, "runAt"),
            ({"runAt": "tomorrow"}, "runAt"),
            ({"runAt": 1_796_108_400}, "runAt"),
            ({"runAt": "2026-12-01T09:00:00Z", "delaySeconds": 0}, "runAt"),
            ({"ref": "a"}, "ref"),
            ({"timeoutSecond": 3}, "timeoutSecond"),
            ({"": 3}, '[""]'),
        ],
    )
    def test_ta_34_and_36_what_is_refused_is_named(self, fields: dict[str, Any], path: str) -> None:
        error = refusal({"type": "a", **fields})
        assert (error.path, error.code) == (path, "validation_error")
        assert error.message.startswith(path)

    def test_only_the_type_is_required(self) -> None:
        assert refusal({}).message == "type: is required"
        check_body(operations()[SUBMIT], {"type": "a"})

    @pytest.mark.parametrize("body", [[], "x", None, 0, True, 1.5])
    def test_ta_34_a_body_that_is_no_object(self, body: Any) -> None:
        assert refusal(body).message.startswith("the body must be an object, not ")

    def test_a_misspelt_field_is_told_what_it_may_have_meant(self) -> None:
        assert (
            refusal({"type": "a", "maxRetries": 1}).message == "maxRetries: unknown field; did you mean maxRetryNumber?"
        )

    def test_a_batch_is_judged_without_its_entries(self) -> None:
        check_body(operations()["POST /tasks/batch"], {"tasks": [1, {"type": 2}]})
        assert refusal({"tasks": []}, "POST /tasks/batch").path == "tasks"
        assert refusal({"tasks": [{}] * 501}, "POST /tasks/batch").path == "tasks"

    @pytest.mark.parametrize(
        ("body", "path"),
        [
            ({"paused": None, "maxConcurrency": None, "perKey": None}, None),
            ({"ratePerSecond": 0.5, "burst": 1, "maxBacklog": 0}, None),
            ({"perKey": {"tag": "tenant", "maxConcurrency": 2}}, None),
            ({"ratePerSecond": 0}, "ratePerSecond"),
            ({"ratePerSecond": True}, "ratePerSecond"),
            ({"paused": 1}, "paused"),
            ({"perKey": {}}, "perKey.tag"),
            ({"maxConcurrency": -1}, "maxConcurrency"),
        ],
    )
    def test_queue_settings(self, body: dict[str, Any], path: str | None) -> None:
        route = "PUT /queues/{queue}"
        if path is None:
            check_body(operations()[route], body)
        else:
            assert refusal(body, route).path == path


class TestParameters:
    LIST = "GET /tasks"

    def test_integers_are_read_and_defaults_filled_in(self) -> None:
        values = check_parameters(operations()[self.LIST], {"query": {"status": "FAILED", "limit": "7"}})
        assert values == {"status": "FAILED", "queue": None, "type": None, "limit": 7, "nextToken": None}
        assert check_parameters(operations()[self.LIST], {"query": {"status": "FAILED"}})["limit"] == 25

    @pytest.mark.parametrize(
        ("query", "path"),
        [
            ({}, "status"),
            ({"status": "failed"}, "status"),
            ({"status": "FAILED,DONE"}, "status"),
            ({"status": "FAILED", "limit": "0"}, "limit"),
            ({"status": "FAILED", "limit": "101"}, "limit"),
            ({"status": "FAILED", "limit": "1.0"}, "limit"),
            ({"status": "FAILED", "limit": "٣"}, "limit"),
            ({"status": "FAILED", "limit": ""}, "limit"),
            ({"status": "FAILED", "limit": "9" * 5000}, "limit"),
            ({"status": "FAILED", "queue": ""}, "queue"),
            ({"status": "FAILED", "nextToken": ""}, "nextToken"),
            ({"status": "FAILED", "statsu": "x"}, "statsu"),
        ],
    )
    def test_what_is_refused_is_named(self, query: dict[str, str], path: str) -> None:
        with pytest.raises(InvalidInput) as caught:
            check_parameters(operations()[self.LIST], {"query": query})
        assert caught.value.path == path

    def test_a_presigned_query_is_not_unknown(self) -> None:
        check_parameters(operations()[self.LIST], {"query": {"status": "DONE", "X-Amz-Signature": "abc"}})

    @pytest.mark.parametrize("task_id", ["lease#1", "", "a/b", "é", "a" * 129])
    def test_ta_34_an_id_no_task_can_have_names_nothing(self, task_id: str) -> None:
        with pytest.raises(NotFound):
            check_parameters(operations()["GET /tasks/{taskId}"], {"path": {"taskId": task_id}})

    def test_a_name_that_would_be_created_is_invalid(self) -> None:
        with pytest.raises(InvalidInput):
            check_parameters(operations()["PUT /queues/{queue}"], {"path": {"queue": "Bad Name"}})

    @pytest.mark.parametrize(("key", "fits"), [("k", True), ("k" * 255, True), ("k" * 256, False), ("", False)])
    def test_idempotency_keys(self, key: str, fits: bool) -> None:
        given = {"header": {"idempotency-key": key}}
        if fits:
            assert check_parameters(operations()[SUBMIT], given)["Idempotency-Key"] == key
        else:
            with pytest.raises(InvalidInput):
                check_parameters(operations()[SUBMIT], given)


class TestTimes:
    @pytest.mark.parametrize(
        ("text", "epoch"),
        [
            ("1970-01-01T00:00:00Z", 0),
            ("2026-12-01T09:00:00+02:00", 1_796_108_400),
            ("2026-12-01T09:00:00-00:00", 1_796_115_600),
            ("2026-12-01 09:00:00Z", 1_796_115_600),
            ("2026-12-01T09:00:00.25Z", 1_796_115_600.25),
            ("2026-12-01T09:00:00.1234567890123Z", 1_796_115_600.123456),
            ("2016-12-31T23:59:60Z", 1_483_228_800),
        ],
    )
    def test_rfc_3339(self, text: str, epoch: float) -> None:
        assert parse_time(text) == epoch

    @pytest.mark.parametrize(
        "text",
        [
            "", "2026-12-01", "2026-12-01T09:00Z", "2026-12-01T09:00:00", "2026-12-01T24:00:00Z",
            "2026-13-01T09:00:00Z",
            "2026-12-01T09:00:00+24:00", "2026-12-01T09:00:00+0200", "20261201T090000Z", "0000-01-01T00:00:00Z",
            "9999-12-31T23:59:60Z", "٢٠٢٦-12-01T09:00:00Z", "2026-12-01T09:00:00Z\n", "2026-W01-1T00:00:00Z",
        ],
    )  # fmt: skip
    def test_what_is_not(self, text: str) -> None:
        with pytest.raises(ValueError, match=r"RFC 3339|offset|not a time"):
            parse_time(text)
