"""Some thousand task lives in bad weather, every seed the same each time."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

from tests.simulation.__main__ import main
from tests.simulation.simulation import run
from tests.simulation.weather import Weather

ROOT = Path(__file__).resolve().parents[2]
SEEDS, BLOCK = 48, 8  # of 50 lives each


@pytest.mark.parametrize("first", range(1, SEEDS + 1, BLOCK))
def test_lives_in_bad_weather_keep_every_rule_and_come_to_rest(first: int) -> None:
    results = [run(seed) for seed in range(first, first + BLOCK)]
    assert [(result.seed, result.violation) for result in results if result.violation] == []
    assert sum(result.starts for result in results) > BLOCK * 25, "hardly anything happened"


def test_in_fair_weather_nothing_starts_again_that_did_not_ask_for_it() -> None:
    result = run(7, lives=100, weather=Weather())
    assert (result.violation, result.repeats, result.worked_twice) == (None, 0, 0)


def test_a_seed_replays_exactly_whatever_the_process() -> None:
    """Also with another hash seed: no set's order may decide anything."""
    here = run(11, lives=20)
    command = [sys.executable, "-m", "tests.simulation", "--seed", "11", "--lives", "20"]
    library = str(ROOT / "layers/thunderagent/python")
    for hash_seed in ("1", "2"):
        clean = {**os.environ, "PYTHONHASHSEED": hash_seed, "PYTHONPATH": library}
        there = subprocess.run(command, cwd=ROOT, env=clean, capture_output=True, text=True, check=True)
        assert there.stdout.splitlines()[-1] == here.digest
    assert run(11, lives=20, keep=True).digest == here.digest
    assert run(12, lives=20).digest != here.digest


def test_a_violation_is_told_with_its_history_and_a_failing_exit(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["--seed", "1", "--mutation", "start-unrecorded"]) == 1
    lines = capsys.readouterr().out.splitlines()
    assert any("without a record" in line for line in lines if line.startswith("VIOLATION"))
    assert any(" -> RUNNING" in line for line in lines)
    assert len(lines[-1]) == 32
    assert main(["--seed", "1", "--mutation", "start-unrecorded"]) == 1
    assert capsys.readouterr().out.splitlines()[-1] == lines[-1]
