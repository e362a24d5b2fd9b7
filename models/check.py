"""Check the model of the lease protocol with Spin (Debian: apt install spin gcc), exhaustively for small sizes.

python models/check.py             every configuration must hold
python models/check.py --rules     each rule left out must be missed
python models/check.py --quick     the smaller ones of both
"""

from __future__ import annotations

import argparse
import re
import shutil
import subprocess
import sys
import tempfile
import time
from dataclasses import dataclass
from pathlib import Path

MODEL = Path(__file__).with_name("lease.pml")
MEMORY_MIB = 3000
DEPTH = 100_000


@dataclass(frozen=True)
class Configuration:
    """Sizes as macros of the model. `quick` ones take seconds."""

    name: str
    sizes: str
    quick: bool = True


CONFIGURATIONS = (
    Configuration("no fault", "TOKENS=2 EXECUTORS=2 FAULTS=0"),
    Configuration("one fault", "TOKENS=2 EXECUTORS=2 FAULTS=1"),
    Configuration("two reapers", "TOKENS=2 EXECUTORS=2 FAULTS=0 REAPERS=2"),
    Configuration("two pollers", "TOKENS=2 EXECUTORS=2 FAULTS=0 POLLERS=2"),
    Configuration("cancel", "TOKENS=1 EXECUTORS=2 FAULTS=1 CANCELS=1"),
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
    """What Spin says: whether all holds, over how many states, and whether it has seen them all."""

    holds: bool
    states: int
    complete: bool
    problem: str
    seconds: float


def main() -> int:
    parser = argparse.ArgumentParser(description="Check the model of the lease protocol.")
    parser.add_argument("--rules", action="store_true", help="leave each rule out once")
    parser.add_argument("--quick", action="store_true", help="what takes seconds, of both")
    options = parser.parse_args()
    missing = [tool for tool in ("spin", "gcc") if shutil.which(tool) is None]
    if missing:
        print(f"{' and '.join(missing)} not found (on Debian: apt install spin gcc)", file=sys.stderr)
        return 2
    chosen = [each for each in CONFIGURATIONS if each.quick or not options.quick]
    fine = True
    if not options.rules:
        fine &= all(list(map(_holds, chosen)))
    if options.rules or options.quick:
        fine &= all(list(map(_is_missed, RULES, RULES.values())))
    return 0 if fine else 1


def _holds(configuration: Configuration) -> bool:
    verdict = check(configuration.sizes)
    word = "holds" if verdict.holds else f"FAILS: {verdict.problem}"
    extent = "all" if verdict.complete else "NOT ALL"
    print(f"{configuration.name:26} {word}, {extent} {verdict.states:,} states, {verdict.seconds:.0f} s", flush=True)
    return verdict.holds and verdict.complete


def _is_missed(rule: str, sizes: str) -> bool:
    verdict = check(sizes, rule)
    print(f"{rule:26} {'NOT MISSED' if verdict.holds else verdict.problem[:90]}", flush=True)
    return not verdict.holds


def check(sizes: str, *rules: str) -> Verdict:
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
