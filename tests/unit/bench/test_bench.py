"""`python -m bench`: what is listed exists, and what is written says on what it was measured."""

from __future__ import annotations

import importlib
import subprocess
from datetime import datetime
from pathlib import Path
from typing import Any

import pytest

from bench import __main__ as bench
from bench.page import sections
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


def test_a_section_holds_command_conditions_and_figures() -> None:
    result = {"conditions": MACHINE, "perSecond": 87.3}
    text = bench.section(bench.Run(bench.BENCHES[0], MACHINE, result), "abc123", datetime(2026, 11, 30, 4, 5))
    assert text.startswith(f"## {bench.BENCHES[0].measures}\n")
    assert "Measured 2026-11-30 04:05 UTC, commit `abc123`" in text
    assert f"`{bench.BENCHES[0].command}`" in text
    assert "2 cores (Linux x86_64), load 3.5 before it began, Python 3.11.7." in text
    assert text.count("87.3") == 1
    assert "loadOneMinute" not in text


def test_curves_stand_before_the_figures() -> None:
    result = {"images": {"How it grows": "images/growth.svg"}, "perSecond": 87.3}
    text = bench.section(bench.Run(bench.BENCHES[0], MACHINE, result), "abc123", datetime(2026, 11, 30, 4, 5))
    assert text.index("![How it grows](images/growth.svg)") < text.index("87.3")


def test_a_bench_that_fails_keeps_its_section_and_costs_the_others_nothing(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    benches = tuple(bench.Bench(name, name.title(), "latency", needs_stack=False) for name in ("first", "second"))
    codes = iter([1, 0])

    def ended(command: Any, **options: Any) -> Any:
        return subprocess.CompletedProcess(command, next(codes), '{"perSecond": 2}')

    monkeypatch.setattr(bench, "BENCHES", benches)
    monkeypatch.setattr(bench, "commit", lambda: "abc123")
    monkeypatch.setattr(bench.subprocess, "run", ended)
    page = tmp_path / "page.md"
    page.write_text("# Page\n\n## First\n\nold\n\n## Second\n\nold\n")
    with pytest.raises(SystemExit, match="failed: first; their sections are as they were"):
        bench.main(["--output", str(page)])
    found = sections(page.read_text())
    assert found["First"] == "## First\n\nold"
    assert "perSecond" in found["Second"]
    assert "failed with exit code 1" in capsys.readouterr().err


def test_an_unknown_name_is_refused_with_those_there_are(capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit):
        bench.main(["speed"])
    assert "there is no bench 'speed'; there are submit" in capsys.readouterr().err


def test_listing_measures_nothing(capsys: pytest.CaptureFixture[str]) -> None:
    bench.main(["--list", "submit"])
    assert capsys.readouterr().out.startswith("submit ")
