"""Runs the benches, one after another, and writes down what they measured and on what.

    python -m bench [--list] [--output FILE | --sections] [NAME ...]

Without names all are run, and docs/performance.md is written anew. With names the result is printed, or written where
`--output` says; with `--sections` it takes the place of the same sections of the page, which then say when that was.
Each bench that needs a stack gets one of its own, deployed and empty.
"""

from __future__ import annotations

import argparse
import json
import subprocess
import sys
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from datetime import UTC, datetime
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

from bench.report import conditions, table
from tests.support.local_stack import copy_up, deployed_state
from thunder.local.checkout import Checkout
from thunder.local.progress import SILENT, Progress

ROOT = Path(__file__).resolve().parent.parent
DOCUMENT = ROOT / "docs" / "performance.md"


IMPROVEMENTS = ROOT / "bench" / "improvements.md"  # kept by hand: what was before cannot be measured again
CAVEAT = """Every figure below was measured in
that run, unless its section names another one, on the embedded AWS: one Python process on one machine, which says how
much else it had to do by its load. The figures tell what a change of the code does to them, and how the parts compare;
not what AWS would do."""


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
        "latency",
        "How long a task waits from its acceptance to the start of its handler, in milliseconds",
        "latency",
        ("--rate", "10", "--seconds", "20"),
    ),
    Bench(
        "latency-sweep",
        "The same without the doorbell: what the sweep alone does",
        "latency",
        ("--rate", "10", "--seconds", "20", "--doorbell", "off"),
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


def main(arguments: Sequence[str] | None = None) -> None:
    parser = argparse.ArgumentParser(prog="bench", description="Measure, and write down on what.")
    parser.add_argument("names", nargs="*", metavar="NAME", help="which ones (default: all)")
    parser.add_argument("--list", action="store_true", help="say what there is, and measure nothing")
    parser.add_argument("--output", type=Path, help=f"where to write (all: {DOCUMENT.relative_to(ROOT)})")
    parser.add_argument("--sections", action="store_true", help="renew these sections of the page, leave the others")
    given = parser.parse_args(arguments)
    chosen = select(given.names, parser)
    if given.list:
        print("\n".join(f"{bench.name:<16}{bench.measures}" for bench in chosen))
        return
    if given.sections:
        runs = [run(bench, Progress()) for bench in chosen]
        DOCUMENT.write_text(renewed(DOCUMENT.read_text(), runs, commit()))
        return
    output = given.output or (None if given.names else DOCUMENT)
    text = document([run(bench, Progress()) for bench in chosen], commit())
    if output is None:
        print(text)
    else:
        output.write_text(text)
        print(f"written to {output}", file=sys.stderr)


def select(names: Sequence[str], parser: argparse.ArgumentParser) -> list[Bench]:
    known = {bench.name: bench for bench in BENCHES}
    for name in names:
        if name not in known:
            parser.error(f"there is no bench {name!r}; there are {', '.join(known)}")
    return [known[name] for name in names] if names else list(BENCHES)


def run(bench: Bench, progress: Progress) -> Run:
    """Raises SystemExit when the bench fails: half a document would look like a whole one."""
    with _stack(bench, progress) as arguments, progress.step(bench.command):
        before = conditions()
        command = [sys.executable, "-m", f"bench.{bench.module}", *bench.arguments, *arguments]
        ended = subprocess.run(command, cwd=ROOT, stdout=subprocess.PIPE, text=True, check=False)
    if ended.returncode != 0:
        raise SystemExit(f"{bench.command} failed with exit code {ended.returncode}")
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


def document(runs: Iterable[Run], commit: str) -> str:
    """The page, whole."""
    written = f"Written by `make bench` on {datetime.now(UTC):%Y-%m-%d %H:%M} UTC, commit `{commit}`."
    parts = ["# Performance, as measured", f"{written} {CAVEAT}", *(_section(run) for run in runs)]
    return "\n\n".join([*parts, IMPROVEMENTS.read_text().strip()]) + "\n"


def renewed(page: str, runs: Sequence[Run], commit: str) -> str:
    """The page with these sections put in the place of theirs, or behind the others when they are new."""
    head, *sections = page.split("\n## ")
    kept = {section.partition("\n")[0]: section.strip() for section in sections}
    before_and_after = IMPROVEMENTS.read_text().strip().removeprefix("## ")
    kept.pop(before_and_after.partition("\n")[0], None)
    when = f"Run by itself on {datetime.now(UTC):%Y-%m-%d %H:%M} UTC, commit `{commit}`."
    for each in runs:
        kept[each.bench.measures] = _section(each, when).removeprefix("## ")
    return "\n\n## ".join([head.strip(), *kept.values(), before_and_after]) + "\n"


def _section(run: Run, when: str = "") -> str:
    """What was measured, on what; the curves that the bench drew (`images`: caption → path below docs/) before it."""
    figures = {name: value for name, value in run.result.items() if name not in ("conditions", "images")}
    curves = "".join(f"![{caption}]({path})\n\n" for caption, path in run.result.get("images", {}).items())
    machine = run.conditions
    taken = (
        f"{machine['cores']} cores ({machine['machine']}), load {machine['loadOneMinute']} before it began, "
        f"Python {machine['python']}. {when}"
    ).strip()
    return f"## {run.bench.measures}\n\n`{run.bench.command}`\n\n{taken}\n\n{curves}{table(figures)}"


if __name__ == "__main__":
    main()
