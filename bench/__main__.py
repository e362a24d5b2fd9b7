"""Runs the benches, one after another, and writes down what they measured and on what.

    python -m bench [--list] [--output FILE] [NAME ...]

Without names all are run. Each has its section of docs/performance.md, replaced as soon as it is measured: a bench that
fails keeps its old one, and costs the others nothing. Each bench that needs a stack gets one of its own, deployed and
empty.
"""

from __future__ import annotations

import argparse
import json
import subprocess
import sys
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from datetime import UTC, datetime
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

from bench.page import merged
from bench.report import body, conditions
from tests.support.local_stack import copy_up, deployed_state
from thunder.local.checkout import Checkout
from thunder.local.progress import SILENT, Progress

ROOT = Path(__file__).resolve().parent.parent
DOCUMENT = ROOT / "docs" / "performance.md"
IMPROVEMENTS = ROOT / "bench" / "improvements.md"  # kept by hand: what was before cannot be measured again


@dataclass(frozen=True)
class Bench:
    """One figure or some: a module of this package with the arguments it is run with for the record."""

    name: str
    measures: str
    module: str
    arguments: tuple[str, ...] = ()
    needs_stack: bool = True

    @property
    def command(self) -> str:
        return " ".join(("python -m", f"bench.{self.module}", *self.arguments))


BENCHES = (
    Bench(
        "submit",
        "How fast the API accepts tasks, one by one and in batches, and what a full queue does",
        "submit",
        ("--singles", "300", "--threads", "8", "--batches", "5", "--entries", "500"),
    ),
    Bench(
        "cost",
        "What a task costs, beside what people would use instead",
        "cost_per_task",
        needs_stack=False,
    ),
    Bench(
        "latency",
        "How long a task waits from its submit to its start, beside SQS and Lambda",
        "latency",
        needs_stack=False,
    ),
    Bench(
        "throughput",
        "How fast a backlog is worked off, beside what people would use instead",
        "throughput",
        ("--tasks", "10000"),
        needs_stack=False,
    ),
    Bench(
        "agents",
        "How evenly agents share the work, and how much of it they do twice",
        "agents",
        ("--tasks", "2000", "--agents", "4"),
        needs_stack=False,
    ),
    Bench(
        "claim-path",
        "What the library's requests cost in CPU time, over the SDK and without it",
        "claim_path",
        ("--rounds", "20", "--calls", "100"),
        needs_stack=False,
    ),
    Bench(
        "cold-start",
        "What a cold start of each function takes in CPU time",
        "cold_start",
        ("--runs", "5"),
        needs_stack=False,
    ),
    Bench(
        "growth",
        "What a look costs as the table grows",
        "growth",
        needs_stack=False,
    ),
    Bench(
        "scale",
        "How far it scales, by simulation",
        "scale.run",
        ("--most", "50000"),
        needs_stack=False,
    ),
    Bench(
        "console-list",
        "How quick the console is with 100,000 tasks in the table",
        "console_list",
        ("--tasks", "100000", "--asks", "20"),
    ),
)


@dataclass(frozen=True)
class Run:
    """What a bench printed, and the machine as it was when it began."""

    bench: Bench
    conditions: Mapping[str, Any]
    result: Mapping[str, Any]


class BenchFailed(Exception):
    """A bench ended with an error, which it has told."""


def main(arguments: Sequence[str] | None = None) -> None:
    parser = argparse.ArgumentParser(prog="bench", description="Measure, and write down on what.")
    parser.add_argument("names", nargs="*", metavar="NAME", help="which ones (default: all)")
    parser.add_argument("--list", action="store_true", help="say what there is, and measure nothing")
    parser.add_argument("--output", type=Path, help=f"where to write ({DOCUMENT.relative_to(ROOT)})")
    given = parser.parse_args(arguments)
    chosen = select(given.names, parser)
    if given.list:
        print("\n".join(f"{bench.name:<16}{bench.measures}" for bench in chosen))
        return
    failed = [bench.name for bench in chosen if not measured(bench, given.output or DOCUMENT)]
    if failed:
        raise SystemExit(f"failed: {', '.join(failed)}; their sections are as they were")


def measured(bench: Bench, output: Path) -> bool:
    """Runs one and replaces its section. False: it failed, and the page is as it was."""
    try:
        fresh = section(run(bench, Progress()), commit(), datetime.now(UTC))
    except BenchFailed as problem:
        print(problem, file=sys.stderr)
        return False
    page = output.read_text() if output.exists() else ""
    order = [each.measures for each in BENCHES]
    output.write_text(merged(page, {bench.measures: fresh}, order, last=IMPROVEMENTS.read_text()))
    print(f"written to {output}: {bench.name}", file=sys.stderr)
    return True


def select(names: Sequence[str], parser: argparse.ArgumentParser) -> list[Bench]:
    known = {bench.name: bench for bench in BENCHES}
    for name in names:
        if name not in known:
            parser.error(f"there is no bench {name!r}; there are {', '.join(known)}")
    return [known[name] for name in names] if names else list(BENCHES)


def run(bench: Bench, progress: Progress) -> Run:
    """Raises BenchFailed."""
    with _stack(bench, progress) as arguments, progress.step(bench.command):
        before = conditions()
        command = [sys.executable, "-m", f"bench.{bench.module}", *bench.arguments, *arguments]
        ended = subprocess.run(command, cwd=ROOT, stdout=subprocess.PIPE, text=True, check=False)
    if ended.returncode != 0:
        raise BenchFailed(f"{bench.command} failed with exit code {ended.returncode}")
    return Run(bench, before, json.loads(ended.stdout))


@contextmanager
def _stack(bench: Bench, progress: Progress) -> Iterator[tuple[str, ...]]:
    """The arguments that lead a bench to a fresh stack; none for one that brings its own."""
    if not bench.needs_stack:
        yield ()
        return
    deployed = deployed_state(Checkout.of_this_installation(), progress)
    with TemporaryDirectory(prefix="thunder-bench-") as directory:
        state = Path(directory) / "state"
        stack = copy_up(deployed, state, SILENT)
        try:
            yield ("--state-dir", str(state))
        finally:
            stack.local.down()


def commit() -> str:
    """Which sources were measured; `+` says that they were changed since."""
    described = subprocess.run(
        ["git", "describe", "--always", "--dirty=+", "--exclude=*"],
        cwd=ROOT,
        capture_output=True,
        text=True,
        check=False,
    )
    return described.stdout.strip() or "unknown"


def section(run: Run, commit: str, at: datetime) -> str:
    """One section of the page: what was measured, by which command, on what, and what it says."""
    machine = run.conditions
    taken = (
        f"Measured {at:%Y-%m-%d %H:%M} UTC, commit `{commit}`: {machine['cores']} cores ({machine['machine']}), load "
        f"{machine['loadOneMinute']} before it began, Python {machine['python']}."
    )
    return "\n\n".join([f"## {run.bench.measures}", f"`{run.bench.command}`", taken, *body(run.result)])


if __name__ == "__main__":
    main()
