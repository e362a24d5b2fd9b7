"""`python -m bench`: what is listed exists, and what is written says on what it was measured."""

from __future__ import annotations

import importlib
import subprocess
from typing import Any

import pytest

from bench import __main__ as bench
from bench.report import conditions, table

MACHINE = {"cores": 2, "loadOneMinute": 3.5, "loadFiveMinutes": 2.0, "python": "3.11.7", "machine": "Linux x86_64"}


def test_a_table_names_nested_figures_by_their_path() -> None:
    text = table({"single": {"perSecond": 1234.5, "shares": [1, 2]}, "ok": True})
    rows = [tuple(cell.strip() for cell in line.strip("|").split("|")) for line in text.splitlines()]
    assert rows[0] == ("figure", "value")
    assert rows[2:] == [("single.perSecond", "1,234.5"), ("single.shares", "1, 2"), ("ok", "True")]


def test_the_machine_is_described_by_cores_and_load() -> None:
    found = conditions()
    assert set(found) == set(MACHINE)
    assert found["cores"] >= 1


def test_each_bench_is_a_module_that_takes_its_arguments() -> None:
    names = [each.name for each in bench.BENCHES]
    assert len(set(names)) == len(names)
    for each in bench.BENCHES:
        module = importlib.import_module(f"bench.{each.module}")
        assert callable(module.main)
        with pytest.raises(SystemExit) as ended:
            module.main([*each.arguments, "--help"])
        assert ended.value.code == 0


def test_the_page_holds_command_conditions_and_figures() -> None:
    result = {"conditions": MACHINE, "perSecond": 87.3}
    text = bench.document([bench.Run(bench.BENCHES[0], MACHINE, result)], "abc123")
    assert "commit `abc123`" in text
    assert f"`{bench.BENCHES[0].command}`" in text
    assert "2 cores (Linux x86_64), load 3.5 before it began, Python 3.11.7." in text
    assert text.count("87.3") == 1
    assert "loadOneMinute" not in text


def test_curves_stand_before_the_figures() -> None:
    result = {"images": {"How it grows": "images/growth.svg"}, "perSecond": 87.3}
    text = bench.document([bench.Run(bench.BENCHES[0], MACHINE, result)], "abc123")
    assert text.index("![How it grows](images/growth.svg)") < text.index("| perSecond")
    assert text.count("images/growth.svg") == 1


def test_a_bench_that_fails_ends_the_run(monkeypatch: pytest.MonkeyPatch) -> None:
    def failing(command: Any, **options: Any) -> Any:
        return subprocess.CompletedProcess(command, 1, "")

    monkeypatch.setattr(bench.subprocess, "run", failing)
    alone = bench.Bench("alone", "Nothing", "latency", needs_stack=False)
    with pytest.raises(SystemExit, match="failed with exit code 1"):
        bench.run(alone, bench.Progress(lambda line: None))


def test_an_unknown_name_is_refused_with_those_there_are(capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit):
        bench.main(["speed"])
    assert "there is no bench 'speed'; there are submit" in capsys.readouterr().err


def test_listing_measures_nothing(capsys: pytest.CaptureFixture[str]) -> None:
    bench.main(["--list", "submit"])
    assert capsys.readouterr().out.startswith("submit ")


def test_a_section_is_renewed_in_its_place_and_says_when() -> None:
    first, second, other = bench.BENCHES[:3]
    page = bench.document([bench.Run(each, MACHINE, {"perSecond": 1}) for each in (first, second)], "abc123")
    runs = [bench.Run(first, MACHINE, {"perSecond": 2}), bench.Run(other, MACHINE, {"perSecond": 3})]
    text = bench.renewed(page, runs, "def456")
    headings = [line for line in text.splitlines() if line.startswith("#")]
    titles = ["# Performance, as measured", *(f"## {each.measures}" for each in (first, second, other))]
    assert headings == [*titles, "## Before and after"]
    assert [line.split()[-2] for line in text.splitlines() if line.startswith("| perSecond")] == ["2", "1", "3"]
    assert text.count("commit `abc123`") == 1
    assert text.count("commit `def456`") == 2
    assert bench.renewed(text, [], "") == text
