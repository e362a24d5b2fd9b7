"""`thunder task`, as typed, over the API in memory."""

from __future__ import annotations

import json
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from tests.functions.test_api_list import ended
from tests.support.api import Api
from tests.support.cli import Terminal
from tests.support.fakes import START
from thunder.cli import task_wait, watch


def submitted(thunder: Terminal, *arguments: str, typed: str | None = None) -> dict[str, Any]:
    """The task as stored, of a submit that must succeed."""
    result = thunder.ok("task", "submit", *arguments, "--output", "json", typed=typed)
    task: dict[str, Any] = thunder.api.call("GET", f"/tasks/{json.loads(result.stdout)['taskId']}").json
    return task


def run(api: Api, task_id: str, **changes: Any) -> None:
    """Let a stored task be in another state."""
    api.table.put((api.table.item(task_id) or {}) | changes)


class TestSubmitMany:
    def test_each_line_is_a_task_and_may_wait_for_an_earlier_one(self, thunder: Terminal, tmp_path: Path) -> None:
        lines = [
            '{"type": "demo.echo", "payload": {"n": 1}, "queue": "reports", "tags": {"tenant": "a"}, "ref": "first"}',
            "",
            '{"type": "demo.echo", "dependsOn": ["@first"], "unique": {"windowSeconds": 60}, "maxRetryNumber": 0}',
        ]
        rows = self.rows(thunder, tmp_path, *lines)
        first, second = (thunder.api.call("GET", f"/tasks/{row['taskId']}").json for row in rows)

        assert [row["line"] for row in rows] == [1, 3]
        assert (first["payload"], first["queue"], first["tags"]) == ({"n": 1}, "reports", {"tenant": "a"})
        assert (second["dependsOn"], second["maxRetryNumber"]) == ([first["taskId"]], 0)
        assert second["unique"] == {"windowSeconds": 60}

    def test_more_than_a_batch_is_sent_with_progress(self, thunder: Terminal, tmp_path: Path) -> None:
        (tmp_path / "tasks").write_text('{"type": "demo.echo"}\n' * 501)
        done = thunder.ok("task", "submit-many", str(tmp_path / "tasks"), "--output", "json")

        assert len({row["taskId"] for row in json.loads(done.stdout)}) == 501
        assert "501 of 501 sent" in done.stderr

    def test_the_same_file_again_submits_nothing_twice_unless_asked_to(self, thunder: Terminal, tmp_path: Path) -> None:
        line = '{"type": "demo.echo"}'
        first = self.rows(thunder, tmp_path, line)[0]["taskId"]
        again = thunder.ok("task", "submit-many", "-", "--output", "json", typed=line + "\n")

        assert json.loads(again.stdout) == [{"line": 1, "taskId": first, "status": "PENDING", "duplicate": True}]
        assert "--idempotency-key" in again.stderr
        other = thunder.ok("task", "submit-many", "-", "--idempotency-key", "k", "--output", "text", typed=line + "\n")
        assert first not in other.stdout

    def test_a_line_that_is_refused_is_mended_and_the_others_are_not_sent_twice(
        self, thunder: Terminal, tmp_path: Path
    ) -> None:
        good, bad = '{"type": "demo.echo", "payload": 1}', '{"type": "demo.echo", "queue": "nope"}'
        file = tmp_path / "tasks"
        file.write_text(f"{good}\n{bad}\n")
        refused = thunder("task", "submit-many", str(file), "--output", "json")
        key = refused.stderr.split("--idempotency-key ")[1].split(":")[0]

        assert refused.exit_code == 1
        assert "1 of 2 were refused, the first in line 2" in refused.stderr
        assert "default, reports" in json.loads(refused.stdout)[1]["error"]
        file.write_text(f"{good}\n{good}\n")
        rows = json.loads(
            thunder.ok("task", "submit-many", str(file), "--idempotency-key", key, "--output", "json").stdout
        )
        assert rows[0] == {**json.loads(refused.stdout)[0], "duplicate": True}
        assert rows[1]["taskId"] != rows[0]["taskId"]

    @pytest.mark.parametrize(
        ("text", "says"),
        [
            ('{"type": "demo.echo"}\n{"type": "demo.echo", "a": 1, "a": 2}', "line 2: a"),
            ('{"type": "demo.echo"}\nnull', "line 2"),
            ('{"type": "demo.echo", "delay": 1}', "delay: unknown field; known: type, payload, queue"),
            ('{"type": "demo.echo", "unique": true}', "windowSeconds"),
            ('{"payload": 1}', "type"),
            ("{", "line 1"),
            ("\x00\xff", "line 1"),
            ("", "no task"),
        ],
    )
    def test_one_bad_line_and_nothing_is_submitted(self, thunder: Terminal, text: str, says: str) -> None:
        before = thunder.api.rows()
        refused = thunder("task", "submit-many", "-", typed=text)

        assert (refused.exit_code, refused.stdout) == (2, "")
        assert says in refused.stderr
        assert thunder.api.rows() == before

    def test_of_a_large_file_only_what_was_refused_is_to_be_sent_again(self, thunder: Terminal) -> None:
        """Batches are cut by bytes there: a line mended in place could move others to keys they never had."""
        large = f'{{"type": "demo.echo", "payload": "{"x" * 600_000}"}}\n'
        refused = thunder("task", "submit-many", "-", typed=large * 2 + '{"type": "demo.echo", "queue": "nope"}')

        assert refused.exit_code == 1
        assert "submit them alone" in refused.stderr
        assert "--idempotency-key" not in refused.stderr

    def test_a_file_that_is_not_there(self, thunder: Terminal) -> None:
        refused = thunder("task", "submit-many", "/no/such/file")
        assert (refused.exit_code, refused.stdout) == (2, "")
        assert "cannot be read" in refused.stderr

    @staticmethod
    def rows(thunder: Terminal, directory: Path, *lines: str) -> list[dict[str, Any]]:
        file = directory / "tasks.jsonl"
        file.write_text("".join(f"{line}\n" for line in lines))
        rows: list[dict[str, Any]] = json.loads(thunder.ok("task", "submit-many", str(file), "--output", "json").stdout)
        return rows


class TestSubmit:
    PAYLOADS = ('{"a": [1, 2.0, null, {}]}', "null", "false", "0", '""', "[]", "123456789012345678901234567890", "1.0")

    @pytest.mark.parametrize("payload", PAYLOADS)
    def test_the_payload_comes_back_equal(self, thunder: Terminal, tmp_path: Path, payload: str) -> None:
        file = tmp_path / "payload.json"
        file.write_text(payload)
        for arguments, typed in (
            ((payload,), None),
            (("--payload", payload), None),
            ((f"@{file}",), None),
            (("--payload", f"file://{file}"), None),
            (("-",), payload),
        ):
            task = submitted(thunder, "demo.echo", *arguments, typed=typed)
            assert json.dumps(task["payload"]) == json.dumps(json.loads(payload))
            body = thunder.ok("task", "get", task["taskId"], "--payload").stdout
            assert json.dumps(json.loads(body)) == json.dumps(json.loads(payload))

    def test_without_a_payload_it_is_null(self, thunder: Terminal) -> None:
        assert submitted(thunder, "demo.echo")["payload"] is None

    def test_every_option_reaches_the_api(self, thunder: Terminal) -> None:
        parent = submitted(thunder, "demo.echo")["taskId"]
        task = submitted(
            thunder, "demo.echo", "{}", "--queue", "reports", "--priority", "high", "--delay-seconds", "1h",
            "--max-retry-number", "0", "--timeout-seconds", "90", "--start-within-seconds", "2h",
            "--depends-on", parent,
            "--unique-window-seconds", "60", "--tag", "tenant=a", "--tag", "x=y=z", "--task-id", "mine",
        )  # fmt: skip
        expected = {
            "taskId": "mine", "queue": "reports", "priority": "high", "maxRetryNumber": 0, "timeoutSeconds": 90,
            "startWithinSeconds": 7200, "dependsOn": [parent], "unique": {"windowSeconds": 60},
            "tags": {"tenant": "a", "x": "y=z"}, "runAt": START + 3600,
        }  # fmt: skip
        assert {name: task[name] for name in expected} == expected

    def test_at_a_time(self, thunder: Terminal) -> None:
        assert submitted(thunder, "demo.echo", "--run-at", "2027-02-01T00:00:00+01:00")["runAt"] == 1801436400

    def test_json_is_the_apis_answer(self, thunder: Terminal) -> None:
        answer = json.loads(thunder.ok("task", "submit", "demo.echo", "1", "--output", "json").stdout)

        assert answer == thunder.api.call("GET", f"/tasks/{answer['taskId']}").json

    def test_text_has_the_id_first(self, thunder: Terminal) -> None:
        task_id = thunder.ok("task", "submit", "demo.echo", "--output", "text").stdout.split("\t")[0]

        assert thunder.api.call("GET", f"/tasks/{task_id}").status == 200

    def test_the_same_key_is_the_same_task(self, thunder: Terminal) -> None:
        first, second = (thunder.ok("task", "submit", "demo.echo", "--idempotency-key", "k") for _ in range(2))

        assert second.stdout == first.stdout
        assert "was there before" in second.stderr
        assert thunder("task", "submit", "demo.echo", "1", "--idempotency-key", "k").exit_code == 4

    def test_unique_alone_has_no_window(self, thunder: Terminal) -> None:
        assert submitted(thunder, "demo.echo", "--unique")["unique"] == {"windowSeconds": 0}

    @pytest.mark.parametrize(
        ("arguments", "says"),
        [
            (["demo.echo", "hello"], "quotes"),
            (["demo.echo", '{"a": 1, "a": 2}'], "payload.a"),
            (["demo.echo", "NaN"], "payload"),
            (["demo.echo", "@/no/such/file"], "cannot be read"),
            (["demo.echo", "1", "--payload", "2"], "twice"),
            (["demo.echo", "--tag", "x"], "name=value"),
            (["demo.echo", "--priority", "urgent"], "urgent"),
            (["demo.echo", "--max-retry-number", "101"], "101"),
            (["demo.echo", "--delay-seconds", "soon"], "duration"),
            (["demo.echo", "--run-at", "2027-02-01"], "runAt"),
            (["BAD TYPE"], "type"),
            ([], "TYPE"),
        ],
    )
    def test_what_cannot_be_meant_is_a_usage_error(self, thunder: Terminal, arguments: list[str], says: str) -> None:
        before = thunder.api.rows()
        refused = thunder("task", "submit", *arguments)

        assert (refused.exit_code, refused.stdout) == (2, "")
        assert says in refused.stderr
        assert thunder.api.rows() == before

    def test_an_unknown_queue_fails_and_names_the_known(self, thunder: Terminal) -> None:
        refused = thunder("task", "submit", "demo.echo", "--queue", "nope")

        assert refused.exit_code == 1
        assert "default, reports" in refused.stderr
        assert "thunder queue set" in refused.stderr


class TestGet:
    def test_each_form(self, thunder: Terminal) -> None:
        task_id = thunder.api.submit(payload={"a": 1}, tags={"t": "x"})
        answer = thunder.api.call("GET", f"/tasks/{task_id}").json

        assert json.loads(thunder.ok("task", "get", task_id, "--output", "json").stdout) == answer
        text = dict(
            line.split("\t", 1) for line in thunder.ok("task", "get", task_id, "--output", "text").stdout.splitlines()
        )
        assert text["status"] == "PENDING"
        assert json.loads(text["payload"]) == {"a": 1}
        table = thunder.ok("task", "get", task_id).stdout
        assert task_id in table
        assert "default" in table
        assert "t=x" in table

    def test_a_failed_one_shows_its_error_and_attempts_inert(self, thunder: Terminal) -> None:
        attempt = {"attempt": 1, "startedAt": START, "endedAt": START + 2.5, "outcome": "failed", "errorType": "E"}
        error = {"type": "E", "message": "[bold]boom[/bold]\n\x1b[2Jnext", "reason": "error", "at": START}
        thunder.api.table.put(ended("t", START, error=error, attempts=[attempt | {"message": "\x1b[2J"}]))
        shown = thunder.ok("task", "get", "t").stdout

        assert r"E: [bold]boom[/bold]\n\x1b[2Jnext" in shown
        assert "2.5s" in shown
        assert "\x1b" not in shown

    def test_a_big_body_is_named_with_the_way_to_it(self, thunder: Terminal) -> None:
        big = ["x" * 1000] * 300
        task_id = thunder.api.submit(payload=big)

        assert f"thunder task get {task_id} --payload" in thunder.ok("task", "get", task_id).stdout
        assert json.loads(thunder.ok("task", "get", task_id, "--payload").stdout) == big

    @pytest.mark.parametrize("arguments", [["get", "nope"], ["why", "nope"], ["cancel", "nope"], ["delete", "nope"]])
    def test_an_unknown_task_is_not_found(self, thunder: Terminal, arguments: list[str]) -> None:
        missing = thunder("task", *arguments)

        assert (missing.exit_code, missing.stdout) == (3, "")
        assert missing.stderr == "Error: there is no task nope\n"

    def test_a_result_there_is_not_is_not_found(self, thunder: Terminal) -> None:
        assert thunder("task", "get", thunder.api.submit(), "--result").exit_code == 3

    def test_watching_ends_with_the_task(self, thunder: Terminal, monkeypatch: pytest.MonkeyPatch) -> None:
        task_id = thunder.api.submit()
        ending = SimpleNamespace(sleep=lambda seconds: run(thunder.api, task_id, status="SUCCESS"))
        monkeypatch.setattr(watch, "time", ending)
        shown = thunder.ok("task", "get", task_id, "--watch", "--output", "text").stdout

        assert [line for line in shown.splitlines() if line.startswith("status")] == [
            "status\tPENDING",
            "status\tSUCCESS",
        ]


class TestList:
    def test_json_of_one_status_is_the_apis_answer(self, thunder: Terminal) -> None:
        for _ in range(3):
            thunder.api.submit()
        printed = json.loads(
            thunder.ok("task", "list", "--status", "pending", "--limit", "2", "--output", "json").stdout
        )

        assert printed == thunder.api.call("GET", "/tasks", query="status=PENDING&limit=2").json
        rest = thunder.ok(
            "task", "list", "--status", "PENDING", "--next-token", printed["nextToken"], "--output", "json"
        )
        assert len(json.loads(rest.stdout)["tasks"]) == 1

    def test_without_a_status_it_lists_what_is_open_and_what_failed(self, thunder: Terminal) -> None:
        thunder.api.submit(taskId="open")
        thunder.api.table.put(ended("bad", START))
        thunder.api.table.put(ended("good", START, status="SUCCESS"))
        lines = thunder.ok("task", "list", "--output", "text").stdout.splitlines()

        assert [line.split("\t")[:2] for line in lines] == [["open", "PENDING"], ["bad", "FAILED"]]

    def test_all_follows_every_page(self, thunder: Terminal) -> None:
        for number in range(130):
            thunder.api.table.put(ended(f"t{number:03}", START + number))
        few = thunder.ok("task", "list", "--status", "FAILED")
        everything = thunder.ok("task", "list", "--status", "FAILED", "--all", "--output", "text")

        assert len(few.stdout.splitlines()) == 1 + 25
        assert "--next-token" in few.stderr
        assert len(everything.stdout.splitlines()) == 130
        assert everything.stderr == ""

    def test_filters(self, thunder: Terminal) -> None:
        thunder.api.submit(taskId="a", queue="reports")
        thunder.api.submit(taskId="b", type="report.generate", queue="default")
        listed = ["task", "list", "--status", "PENDING", "--output", "text"]

        assert thunder.ok(*listed, "--queue", "reports").stdout.startswith("a\t")
        assert thunder.ok(*listed, "--type", "report.generate").stdout.startswith("b\t")
        assert thunder.ok(*listed, "--queue", "reports", "--type", "report.generate").stdout == ""

    def test_nothing_is_said_on_stderr(self, thunder: Terminal) -> None:
        nothing = thunder.ok("task", "list")

        assert (nothing.stdout, nothing.stderr) == ("", "no tasks\n")
        assert json.loads(thunder.ok("task", "list", "--output", "json").stdout) == {"tasks": []}

    @pytest.mark.parametrize(
        "arguments", [["--status", "nope"], ["--limit", "0"], ["--next-token", "x"], ["--queue", "A B"]]
    )
    def test_bad_filters_are_usage_errors(self, thunder: Terminal, arguments: list[str]) -> None:
        assert thunder("task", "list", *arguments).exit_code == 2


class TestWait:
    @pytest.fixture(autouse=True)
    def fake_time(self, api: Api, monkeypatch: pytest.MonkeyPatch) -> None:
        clock = SimpleNamespace(monotonic=api.clock.monotonic, sleep=api.clock.sleep)
        monkeypatch.setattr(task_wait, "time", clock)

    def ends_as(self, api: Api, task_id: str, **changes: Any) -> None:
        api.clock.on_sleep = lambda _: run(api, task_id, **changes) if api.clock.now() > START + 2 else None

    @pytest.mark.parametrize(
        ("changes", "code"),
        [
            ({"status": "SUCCESS"}, 0),
            ({"status": "DONE", "outcome": "skipped"}, 0),
            ({"status": "DONE", "outcome": "acknowledged"}, 0),
            ({"status": "DONE", "outcome": "cancelled"}, 1),
            ({"status": "DONE", "outcome": "expired"}, 1),
            ({"status": "FAILED", "error": {"type": "E", "message": "boom"}}, 1),
        ],
    )
    def test_the_exit_code_tells_how_it_ended(self, thunder: Terminal, changes: dict[str, Any], code: int) -> None:
        task_id = thunder.api.submit()
        self.ends_as(thunder.api, task_id, **changes)
        result = thunder("task", "wait", task_id, "--output", "json")

        assert result.exit_code == code
        assert json.loads(result.stdout)["status"] == changes["status"]
        assert f"{task_id} PENDING" in result.stderr
        assert ("boom" in result.stderr) == ("error" in changes)

    def test_in_vain(self, thunder: Terminal) -> None:
        task_id = thunder.api.submit()
        result = thunder("task", "wait", task_id, "--timeout", "1m")

        assert result.exit_code == 1
        assert "had not ended after 1m; it goes on" in result.stderr
        assert thunder.api.clock.now() == pytest.approx(START + 60, abs=0.1)

    def test_several(self, thunder: Terminal) -> None:
        first, second = thunder.api.submit(), thunder.api.submit()
        run(thunder.api, first, status="SUCCESS")
        self.ends_as(thunder.api, second, status="SUCCESS")
        tasks = json.loads(thunder.ok("task", "wait", first, second, "--output", "json").stdout)["tasks"]

        assert [task["taskId"] for task in tasks] == [first, second]

    def test_submit_can_wait(self, thunder: Terminal) -> None:
        self.ends_as(thunder.api, "mine", status="FAILED", error={"type": "E", "message": "boom"})
        result = thunder("task", "submit", "demo.echo", "--task-id", "mine", "--wait", "--output", "json")

        assert result.exit_code == 1
        assert json.loads(result.stdout)["status"] == "FAILED"


class TestChange:
    def test_each_action_prints_the_task_as_it_is_then(self, thunder: Terminal) -> None:
        api = thunder.api
        pending = api.submit()
        api.table.put(ended("failed", START))
        api.table.put(ended("good", START, status="SUCCESS"))
        cancelled = json.loads(thunder.ok("task", "cancel", pending, "--reason", "r", "--output", "json").stdout)
        redriven = json.loads(thunder.ok("task", "redrive", "failed", "--reason", "r", "--output", "json").stdout)
        acked = json.loads(thunder.ok("task", "ack", "good", "--output", "json").stdout)

        assert (cancelled["status"], cancelled["outcome"], cancelled["operator"]["reason"]) == (
            "DONE",
            "cancelled",
            "r",
        )
        assert (redriven["status"], redriven["operator"]["reason"]) == ("PENDING", "r")
        assert (acked["status"], acked["outcome"]) == ("DONE", "acknowledged")
        assert thunder.ok("task", "delete", pending).stdout == ""
        assert api.call("GET", f"/tasks/{pending}").status == 404

    def test_what_does_not_fit_the_state_is_a_conflict_that_says_what_would(self, thunder: Terminal) -> None:
        task_id = thunder.api.submit()
        for verb in ("redrive", "ack", "delete"):
            refused = thunder("task", verb, task_id)
            assert (refused.exit_code, refused.stdout) == (4, "")
            assert "thunder task" in refused.stderr

    def test_one_bad_id_does_not_stop_the_rest(self, thunder: Terminal) -> None:
        first, second = thunder.api.submit(), thunder.api.submit()
        result = thunder("task", "cancel", first, "nope", second, "--output", "json")

        assert result.exit_code == 3
        assert [task["taskId"] for task in json.loads(result.stdout)["tasks"]] == [first, second]
        assert "nope: there is no task nope" in result.stderr

    def test_cascade_is_for_ids(self, thunder: Terminal) -> None:
        parent = thunder.api.submit()
        child = thunder.api.submit(dependsOn=[parent])
        thunder.ok("task", "cancel", parent)
        assert thunder.api.call("GET", f"/tasks/{child}").json["status"] == "FAILED"
        assert thunder("task", "redrive", "--all", "--cascade", "--yes").exit_code == 2

    @pytest.mark.parametrize("more", [["--queue", "default"], ["--all"], ["--dry-run"], ["--limit", "1"]])
    def test_ids_or_a_filter(self, thunder: Terminal, more: list[str]) -> None:
        task_id = thunder.api.submit()

        assert thunder("task", "cancel", task_id, *more).exit_code == 2
        assert thunder.api.call("GET", f"/tasks/{task_id}").json["status"] == "PENDING"


def test_why(thunder: Terminal) -> None:
    task_id = thunder.api.submit(delaySeconds=60)
    answer = thunder.api.call("GET", f"/tasks/{task_id}/why").json

    assert json.loads(thunder.ok("task", "why", task_id, "--output", "json").stdout) == answer
    assert thunder.ok("task", "why", task_id).stdout.startswith("reason  due_later\n")
    assert f"until\t{answer['until']}" in thunder.ok("task", "why", task_id, "--output", "text").stdout
