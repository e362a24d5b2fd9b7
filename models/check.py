"""Check the model of the lease protocol exhaustively for small sizes: with Spin, or, for smaller ones, without.

python models/check.py             every configuration must hold
python models/check.py --rules     each rule left out must be missed
python models/check.py --quick     the smaller ones of both
python models/check.py --python    the smallest ones of both, with nothing but Python (`explore.py`)

Spin needs a C compiler (Debian: apt install spin gcc). Where either is missing, `--python` is what is run.
"""

from __future__ import annotations

import argparse
import re
import shutil
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from pathlib import Path

if __name__ == "__main__":
    sys.path.insert(0, str(Path(__file__).parents[1]))

from models.explore import explore

MODEL = Path(__file__).with_name("lease.pml")
MEMORY_MIB = 3000
DEPTH = 100_000


@dataclass(frozen=True)
class Configuration:
    """Sizes as macros of the model. `quick` ones take seconds."""

    name: str
    sizes: str
    quick: bool = True
    smallest: bool = False  # what Python explores in seconds


CONFIGURATIONS = (
    Configuration("one lease, two faults", "TOKENS=1 EXECUTORS=2 FAULTS=2", smallest=True),
    Configuration("no fault", "TOKENS=2 EXECUTORS=2 FAULTS=0", smallest=True),
    Configuration("one fault", "TOKENS=2 EXECUTORS=2 FAULTS=1"),
    Configuration("two reapers", "TOKENS=2 EXECUTORS=2 FAULTS=0 REAPERS=2"),
    Configuration("two pollers", "TOKENS=2 EXECUTORS=2 FAULTS=0 POLLERS=2"),
    Configuration("cancel", "TOKENS=1 EXECUTORS=2 FAULTS=1 CANCELS=1", smallest=True),
    Configuration("redrive", "TOKENS=2 EXECUTORS=2 FAULTS=1 RETRIES=0 REDRIVES=1"),
    Configuration("two faults", "TOKENS=2 EXECUTORS=2 FAULTS=2", quick=False),
    Configuration("two reapers, one fault", "TOKENS=2 EXECUTORS=2 FAULTS=1 REAPERS=2", quick=False),
    Configuration("cancel, two leases", "TOKENS=2 EXECUTORS=2 FAULTS=1 CANCELS=1", quick=False),
)
RULES = {
    "NO_TOKEN": "TOKENS=2 EXECUTORS=2 FAULTS=1",
    "NO_BEGIN_ONCE": "TOKENS=1 EXECUTORS=2 FAULTS=1",
    "NO_LOOK": "TOKENS=2 EXECUTORS=2 FAULTS=1",
    "NO_RECORD": "TOKENS=1 EXECUTORS=1 FAULTS=1",
    "NO_RECORD_GUARD": "TOKENS=2 EXECUTORS=2 FAULTS=0",
    "NO_VOID_FIRST": "TOKENS=1 EXECUTORS=1 FAULTS=1",
    "NO_CLOSE": "TOKENS=1 EXECUTORS=1 FAULTS=0",
    "NO_CLOSE_SEEN": "TOKENS=1 EXECUTORS=1 FAULTS=0",
    "NO_REAP_TOKEN": "TOKENS=2 EXECUTORS=2 FAULTS=0",
    "NO_FINISH": "TOKENS=1 EXECUTORS=1 FAULTS=1",
    "NO_SURE_SETTLE": "TOKENS=1 EXECUTORS=1 FAULTS=1",
    "NO_SURE_BURY": "TOKENS=1 EXECUTORS=1 FAULTS=2",
    "NO_CLAIM_FENCE": "TOKENS=2 EXECUTORS=2 FAULTS=0 POLLERS=2",
    "NO_CANCEL_GUARD": "TOKENS=1 EXECUTORS=1 FAULTS=0 CANCELS=1",
    "NO_REDRIVE_FENCE": "TOKENS=2 EXECUTORS=2 FAULTS=0 RETRIES=0 REDRIVES=1",
}


@dataclass(frozen=True)
class Verdict:
    """What was found: whether all holds, over how many states, and whether it has seen them all."""

    holds: bool
    states: int
    complete: bool
    problem: str
    seconds: float


Check = Callable[..., Verdict]


def main() -> int:
    parser = argparse.ArgumentParser(description="Check the model of the lease protocol.")
    parser.add_argument("--rules", action="store_true", help="leave each rule out once")
    parser.add_argument("--quick", action="store_true", help="what takes seconds, of both")
    parser.add_argument("--python", action="store_true", help="the smallest of both, without Spin")
    options = parser.parse_args()
    missing = [tool for tool in ("spin", "gcc") if shutil.which(tool) is None]
    if missing:
        print(
            f"no {' and no '.join(missing)} here (Debian: apt install spin gcc): the smallest sizes, with Python alone"
        )
    if missing or options.python:
        return 0 if _all(_holds, _smallest(), explored) & _all(_is_missed, RULES.items(), explored) else 1
    chosen = [each for each in CONFIGURATIONS if each.quick or not options.quick]
    fine = options.rules or _all(_holds, [(each.name, each.sizes) for each in chosen], verified)
    if options.rules or options.quick:
        fine &= _all(_is_missed, RULES.items(), verified)
    return 0 if fine else 1


def _smallest() -> list[tuple[str, str]]:
    return [(each.name, each.sizes) for each in CONFIGURATIONS if each.smallest]


def _all(judge: Callable[[str, str, Check], bool], cases: Iterable[tuple[str, str]], check: Check) -> bool:
    """Whether all are as they should be. Every one is looked at."""
    verdicts = [judge(name, sizes, check) for name, sizes in cases]
    return all(verdicts)


def _holds(name: str, sizes: str, check: Check) -> bool:
    verdict = check(sizes)
    word = "holds" if verdict.holds else f"FAILS: {verdict.problem}"
    extent = "all" if verdict.complete else "NOT ALL"
    print(f"{name:26} {word}, {extent} {verdict.states:,} states, {verdict.seconds:.0f} s", flush=True)
    return verdict.holds and verdict.complete


def _is_missed(rule: str, sizes: str, check: Check) -> bool:
    verdict = check(sizes, rule)
    print(f"{rule:26} {'NOT MISSED' if verdict.holds else verdict.problem[:90]}", flush=True)
    return not verdict.holds


def explored(sizes: str, *rules: str) -> Verdict:
    """One search with Python."""
    began = time.monotonic()
    macros = {name: value for name, _, value in (each.partition("=") for each in sizes.split())}
    found = explore(MODEL.read_text(), {**macros, **dict.fromkeys(rules, "")})
    return Verdict(not found.problem, found.states, True, found.problem, time.monotonic() - began)


def verified(sizes: str, *rules: str) -> Verdict:
    """One run of Spin's verifier over the model."""
    began = time.monotonic()
    macros = [f"-D{each}" for each in (*sizes.split(), *rules)]
    with tempfile.TemporaryDirectory() as directory:
        _run(["spin", *macros, "-a", str(MODEL)], directory)
        flags = ["-O2", "-w", "-DSAFETY", "-DCOLLAPSE", "-DVECTORSZ=2048", f"-DMEMLIM={MEMORY_MIB}"]
        _run(["gcc", *flags, "-o", "pan", "pan.c"], directory)
        told = _run(["./pan", "-E", f"-m{DEPTH}", "-w22"], directory)  # Rest says what a good end is
    states = re.search(r"([\d.e+]+) states, stored", told)
    errors = re.search(r"errors: (\d+)", told)
    problem = re.search(r"pan:\d+: (.*)", told)
    return Verdict(
        holds=errors is not None and errors[1] == "0" and problem is None,
        states=int(float(states[1])) if states else 0,
        complete="not completed" not in told and "max search depth too small" not in told,
        problem=problem[1] if problem else "",
        seconds=time.monotonic() - began,
    )


def _run(command: list[str], directory: str) -> str:
    done = subprocess.run(command, cwd=directory, capture_output=True, text=True, check=False)
    if done.returncode != 0 and command[0] != "./pan":
        raise RuntimeError(f"{' '.join(command)}: {done.stdout}{done.stderr}")
    return done.stdout


if __name__ == "__main__":
    sys.exit(main())
