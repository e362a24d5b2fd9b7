"""A soak: in pieces and by several processes it comes to the same."""

from __future__ import annotations

import json
import os
import signal
from pathlib import Path
from typing import Any

import pytest

from tests.simulation import soak as soaking
from tests.simulation.__main__ import main
from tests.simulation.simulation import LIVES, Result
from tests.simulation.soak import Tally, blocks


def _last_line(capsys: pytest.CaptureFixture[str]) -> dict[str, Any]:
    told: dict[str, Any] = json.loads(capsys.readouterr().out.splitlines()[-1])
    told.pop("cpu_seconds")
    return told


def _quick(seed: int) -> Result:
    """What a run would say, without the run."""
    result = Result(seed, LIVES, "", digest=f"{seed:032x}", starts=60 + seed, again=seed % 5, repeats=seed % 2)
    result.faults["slow"] = seed
    return result


def test_a_soak_tells_its_totals(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["--soak", "--seed", "3", "--lives", "100"]) == 0
    told = _last_line(capsys)
    assert (told["lives"], told["seeds"], told["seed_ranges"]) == (100, 2, [[3, 4]])
    assert told["starts"] >= 100 * 0.8
    assert told["runs_again"] >= told["asked_for"] > 0
    assert (told["unexplained"], told["double_commits"], told["violations"]) == (0, 0, 0)
    assert sum(told["faults"].values()) > 0
    assert len(told["digest"]) == 32


def test_pieces_by_several_processes_add_up_to_the_whole(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(soaking, "run", _quick)
    one, two, lives = str(tmp_path / "one"), str(tmp_path / "two"), str(30 * LIVES)
    assert main(["--soak", "--seed", "1", "--lives", str(60 * LIVES)]) == 0
    whole = _last_line(capsys)
    assert main(["--soak", "--seed", "31", "--lives", lives, "--processes", "2", "--results", two]) == 0
    assert _last_line(capsys)["seed_ranges"] == [[31, 60]]
    assert main(["--soak", "--seed", "1", "--lives", lives, "--processes", "3", "--results", one]) == 0
    capsys.readouterr()
    assert main(["--add-up", one, two]) == 0
    assert _last_line(capsys) == whole
    assert main(["--add-up", one, one]) == 2
    assert "is there twice" in capsys.readouterr().err


def test_a_soak_goes_on_behind_what_its_file_has(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(soaking, "run", _quick)
    results = tmp_path / "results"
    asked = ["--soak", "--seed", "1", "--results", str(results), "--lives"]
    assert main([*asked, str(33 * LIVES)]) == 0
    assert main([*asked, str(70 * LIVES), "--seconds", "0"]) == 0  # one block all the same
    assert main([*asked, str(70 * LIVES)]) == 0
    assert _last_line(capsys)["seeds"] == 70
    with results.open("a") as file:
        file.write('{"first": 71, "se')  # ended hard in the middle of a line
    assert main([*asked, str(75 * LIVES)]) == 0
    assert main(["--add-up", str(results)]) == 0
    told = _last_line(capsys)
    assert (told["seeds"], told["seed_ranges"]) == (75, [[1, 75]])
    assert told["faults"] == {"slow": sum(range(1, 76))}
    monkeypatch.setattr(soaking, "code", lambda: "changed")
    assert main([*asked, str(80 * LIVES)]) == 2
    assert "different code" in capsys.readouterr().err


def test_a_signal_ends_a_soak_with_its_totals(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    parent = os.getpid()

    def ended(seed: int) -> Result:
        os.kill(parent, signal.SIGTERM)
        return _quick(seed)

    monkeypatch.setattr(soaking, "run", ended)
    assert main(["--soak", "--lives", str(1000 * LIVES)]) == 0
    assert 1 <= _last_line(capsys)["seeds"] <= 2 * soaking.BLOCK


def test_a_seed_that_fails_fails_the_soak(monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> None:
    def odd(seed: int) -> Result:
        if seed == 2:
            raise ZeroDivisionError("broken")
        result = _quick(seed)
        result.violation = "a second SUCCESS" if seed == 4 else None
        return result

    monkeypatch.setattr(soaking, "run", odd)
    assert main(["--soak", "--lives", str(5 * LIVES)]) == 1
    told = capsys.readouterr().out.splitlines()
    assert "seed 2: VIOLATION: the simulator failed: ZeroDivisionError: broken" in told
    assert "failed: make sim SEED=4" in told
    last = json.loads(told[-1])
    assert (last["violations"], last["failed_seeds"], last["lives"]) == (2, [2, 4], 4 * LIVES)


def test_blocks_leave_out_what_is_done() -> None:
    assert list(blocks(1, 50, {3, 30, 31})) == [range(1, 3), range(4, 24), range(24, 30), range(32, 51)]
    assert list(blocks(1, 3, {1, 2, 3})) == []


def test_a_tally_survives_its_line() -> None:
    tally = Tally()
    for seed in (7, 9):
        tally.count(_quick(seed), 0.25)
    assert Tally.read(json.loads(json.dumps(tally.told()))) == tally
