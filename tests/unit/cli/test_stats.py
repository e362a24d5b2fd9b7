"""`thunder stats` and the screen of `thunder top`, over the API in memory; and looking again and again."""

from __future__ import annotations

import json
from types import SimpleNamespace
from typing import Any

import pytest

from tests.functions.test_api_list import ended
from tests.support.api import Api
from tests.support.cli import FakeTarget, Terminal
from tests.support.fakes import START
from thunder.cli import top, watch
from thunder.cli.figures import as_of_words, count


def test_json_is_the_apis_answer(thunder: Terminal) -> None:
    thunder.api.submit()

    assert json.loads(thunder.ok("stats", "--output", "json").stdout) == thunder.api.call("GET", "/stats").json


def test_a_row_for_each_queue_and_one_for_all(thunder: Terminal) -> None:
    thunder.api.submit()
    thunder.api.submit(queue="reports")
    rows = [line.split("\t") for line in thunder.ok("stats", "--output", "text").stdout.splitlines()]

    assert [row[:3] for row in rows] == [["default", "open", "1"], ["reports", "open", "1"], ["(all)", "", "2"]]


def test_a_count_that_stopped_at_its_bound_says_so() -> None:
    row = {"backlog": {"value": 1000, "asOf": 1, "atLeast": True}, "failed": {"value": None, "asOf": 1}}

    assert (count(row, "backlog"), count(row, "failed"), count(row, "absent")) == ("1000+", "-", "-")


def test_old_figures_are_called_old() -> None:
    rows: list[dict[str, Any]] = [{"backlog": {"value": 0, "asOf": START}}]

    assert as_of_words(rows, START + 30) == "counted 30s ago"
    assert "thunder doctor" in as_of_words(rows, START + 600)
    assert as_of_words([{}]) == "not counted yet"


def test_watching_goes_on_until_interrupted(thunder: Terminal, monkeypatch: pytest.MonkeyPatch) -> None:
    looks: list[float] = []

    def sleep(seconds: float) -> None:
        looks.append(seconds)
        if len(looks) == 3:
            raise KeyboardInterrupt

    monkeypatch.setattr(watch, "time", SimpleNamespace(sleep=sleep))
    result = thunder("stats", "--watch", "--interval", "0.5", "--output", "text")

    assert (result.exit_code, looks) == (130, [0.5] * 3)
    assert result.stdout.count("(all)") == 3
    assert "\x1b" not in result.stdout


class TestCost:
    def test_nothing_measured_yet(self, thunder: Terminal) -> None:
        result = thunder.ok("stats", "--cost", "--output", "json")

        assert json.loads(result.stdout)["types"] == []
        assert "list prices" in thunder.ok("stats", "--cost").stderr

    def test_days_belong_to_cost(self, thunder: Terminal) -> None:
        assert thunder("stats", "--days", "3").exit_code == 2


class TestTop:
    @pytest.fixture
    def look(self, api: Api) -> top.Look:
        api.submit()
        for number in range(9):
            message = "[bold]x[/bold]\x1b[2J\n" + "long " * 50
            api.table.put(ended(f"bad{number}", START + number, error={"type": "KeyError", "message": message}))
        return top._look(FakeTarget(api).client())

    @pytest.mark.parametrize(("width", "height"), [(80, 24), (120, 40), (60, 10)])
    def test_a_screen_fits(self, look: top.Look, width: int, height: int, monkeypatch: pytest.MonkeyPatch) -> None:
        monkeypatch.setenv("NO_COLOR", "1")
        lines = top.screen("stack", look, width=width, height=height, now=START)

        assert len(lines) <= height
        assert max(len(line) for line in lines[:2]) <= width
        assert all("\x1b" not in line for line in lines)

    def test_queues_and_the_newest_failures_are_on_it(self, look: top.Look, monkeypatch: pytest.MonkeyPatch) -> None:
        monkeypatch.setenv("NO_COLOR", "1")
        lines = "\n".join(top.screen("stack", look, width=120, height=40, now=START))

        assert "reports" in lines
        assert "Running now: nothing" in lines
        assert "bad8" in lines
        assert "bad3" not in lines
        assert r"KeyError: [bold]x[/bold]\x1b[2J\nlong" in lines

    def test_it_needs_a_terminal(self, thunder: Terminal) -> None:
        refused = thunder("top")

        assert refused.exit_code == 2
        assert "thunder stats --watch" in refused.stderr
