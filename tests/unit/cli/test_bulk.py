"""Many tasks by filter: a count and a question first, then page by page; and dead letters by their error."""

from __future__ import annotations

import json
from typing import Any

import pytest

from tests.functions.test_api_bulk import failed, statuses
from tests.support.api import Api
from tests.support.cli import Terminal
from tests.support.fakes import START
from thunder.cli import values


@pytest.fixture
def letters(api: Api) -> Api:
    """250 dead letters: 150 KeyError, 100 ValueError."""
    for number in range(250):
        failed(api, number, error={"type": "KeyError" if number < 150 else "ValueError", "message": f"\x1b[2J{number}"})
    return api


@pytest.fixture
def at_a_terminal(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(values, "is_interactive", lambda: True)


def pending(api: Api) -> int:
    return sum(status == "PENDING" for status in statuses(api).values())


@pytest.mark.usefixtures("letters")
class TestRedrive:
    @pytest.mark.parametrize("noun", ["dlq", "task"])
    def test_yes_redrives_all_pages(self, thunder: Terminal, noun: str) -> None:
        result = thunder.ok(noun, "redrive", "--all", "--yes", "--reason", "fixed", "--output", "json")

        assert json.loads(result.stdout) == {"matched": 250, "done": 250, "failed": []}
        assert pending(thunder.api) == 250
        assert (thunder.api.table.item("t000") or {})["operator"]["reason"] == "fixed"

    def test_a_dry_run_counts_and_changes_nothing(self, thunder: Terminal) -> None:
        result = thunder.ok("dlq", "redrive", "--error-type", "KeyError", "--dry-run", "--output", "text")

        assert result.stdout == "matched\t150\ndone\t0\nfailed\t0\n"
        assert "nothing was changed" in result.stderr
        assert pending(thunder.api) == 0

    def test_without_a_terminal_it_refuses_and_tells_how_many_there_are(self, thunder: Terminal) -> None:
        refused = thunder("dlq", "redrive", "--error-type", "KeyError", typed="y\n")

        assert (refused.exit_code, refused.stdout) == (2, "")
        assert "150 tasks with error KeyError" in refused.stderr
        assert "--yes" in refused.stderr
        assert pending(thunder.api) == 0

    @pytest.mark.usefixtures("at_a_terminal")
    @pytest.mark.parametrize(("typed", "code", "redriven"), [("y\n", 0, 150), ("n\n", 1, 0), ("\n", 1, 0), ("", 1, 0)])
    def test_it_asks(self, thunder: Terminal, typed: str, code: int, redriven: int) -> None:
        result = thunder("dlq", "redrive", "--error-type", "KeyError", typed=typed)

        assert result.exit_code == code
        assert "Redrive 150 tasks with error KeyError? [y/N]" in result.stderr
        assert pending(thunder.api) == redriven

    def test_a_limit_holds_across_pages(self, thunder: Terminal) -> None:
        thunder.ok("dlq", "redrive", "--all", "--yes", "--limit", "120")

        assert pending(thunder.api) == 120

    def test_since(self, thunder: Terminal) -> None:
        thunder.ok("dlq", "redrive", "--since", str(START + 240), "--yes")

        assert pending(thunder.api) == 10

    @pytest.mark.parametrize("arguments", [[], ["--yes"], ["--dry-run"]])
    def test_all_has_to_be_said(self, thunder: Terminal, arguments: list[str]) -> None:
        refused = thunder("dlq", "redrive", *arguments)

        assert refused.exit_code == 2
        assert "--all" in refused.stderr
        assert pending(thunder.api) == 0

    def test_what_could_not_be_is_told_and_fails(self, thunder: Terminal) -> None:
        def acknowledge() -> None:
            thunder.api.table.put((thunder.api.table.item("t249") or {}) | {"status": "DONE", "outcome": "skipped"})

        thunder.api.table.before(lambda call: call.operation == "UpdateItem", acknowledge, times=1)
        result = thunder("dlq", "redrive", "--all", "--yes", "--output", "json")

        assert result.exit_code == 1
        assert json.loads(result.stdout)["done"] == 249
        assert "t249: " in result.stderr
        assert "1 refused" in result.stderr

    @pytest.mark.usefixtures("at_a_terminal")
    def test_nothing_to_do_asks_nothing(self, thunder: Terminal) -> None:
        result = thunder.ok("dlq", "redrive", "--queue", "reports")

        assert "no task matches" in result.stderr
        assert "?" not in result.stderr


class TestCancel:
    def test_by_filter(self, thunder: Terminal) -> None:
        thunder.api.submit(taskId="keep")
        thunder.api.submit(taskId="go", queue="reports")
        result = thunder.ok("task", "cancel", "--queue", "reports", "--yes", "--reason", "r", "--output", "json")

        assert json.loads(result.stdout) == {"matched": 1, "done": 1, "failed": []}
        assert statuses(thunder.api) == {"keep": "PENDING", "go": "DONE"}
        assert (thunder.api.table.item("go") or {})["operator"]["reason"] == "r"


@pytest.mark.usefixtures("letters")
class TestList:
    def groups(self, thunder: Terminal, *arguments: str) -> dict[str, Any]:
        answer: dict[str, Any] = json.loads(thunder.ok("dlq", "list", *arguments, "--output", "json").stdout)
        return answer

    def test_groups_by_error_the_largest_first(self, thunder: Terminal) -> None:
        answer = self.groups(thunder)

        assert [(group["errorType"], group["count"]) for group in answer["groups"]] == [
            ("KeyError", 150),
            ("ValueError", 100),
        ]
        assert (answer["read"], answer["complete"]) == (250, True)
        assert answer["groups"][1]["example"] == {"taskId": "t249", "message": "\x1b[2J249"}
        assert (answer["groups"][1]["oldest"], answer["groups"][1]["newest"]) == (START + 150, START + 249)

    def test_a_table_shows_messages_inert(self, thunder: Terminal) -> None:
        lines = thunder.ok("dlq", "list").stdout.splitlines()

        assert lines[2].split()[:2] == ["100", "ValueError"]
        assert lines[2].endswith(r"\x1b[2J249")

    def test_a_limit_is_told(self, thunder: Terminal) -> None:
        result = thunder.ok("dlq", "list", "--limit", "120", "--output", "json")

        assert json.loads(result.stdout)["complete"] is False
        assert [group["count"] for group in json.loads(result.stdout)["groups"]] == [100, 20]
        assert "there are more" in result.stderr

    def test_filters(self, thunder: Terminal) -> None:
        assert [group["count"] for group in self.groups(thunder, "--error-type", "KeyError")["groups"]] == [150]
        assert self.groups(thunder, "--queue", "reports")["groups"] == []
        assert self.groups(thunder, "--since", str(START + 245))["read"] == 5

    def test_the_tasks_themselves(self, thunder: Terminal) -> None:
        text = thunder.ok("dlq", "list", "--tasks", "--error-type", "KeyError", "--output", "text").stdout

        assert len(text.splitlines()) == 150


def test_no_dead_letters(thunder: Terminal) -> None:
    nothing = thunder.ok("dlq", "list")

    assert (nothing.stdout, nothing.stderr) == ("", "no dead letters\n")
