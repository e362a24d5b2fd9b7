"""Runs the faults and writes what they cost: `python -m drills.run_faults [--output FILE] [NAME ...]`.

Without names all are run, and docs/faults.md is written anew. Ends with 1 when something happened that must not.
"""

from __future__ import annotations

import argparse
import json
import os
import subprocess
import sys
import time
from collections.abc import Sequence
from dataclasses import dataclass
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

from bench.__main__ import commit
from bench.report import conditions
from drills.deployment import SHORT, Deployment, deployment
from drills.faults import FAULTS, RECOVERS_WITHIN, Fault
from drills.verdict import Verdict
from drills.work import NotInTime, Work, leases
from thunder.local.progress import Progress

ROOT = Path(__file__).resolve().parent.parent
DOCUMENT = ROOT / "docs" / "faults.md"
SETTLES_WITHIN = SHORT.lease_seconds + SHORT.grace_seconds + 3 * SHORT.reaper_every


@dataclass(frozen=True)
class Outcome:
    """What became of one fault. `recovered_after` is in seconds, from the moment the remark names."""

    fault: Fault
    verdict: Verdict
    recovered_after: float
    fired: int
    remark: str
    findings: int
    left_leases: int

    @property
    def problems(self) -> tuple[str, ...]:
        audit = (f"the auditor found {self.findings} rows that must not be",) if self.findings else ()
        left = (f"{self.left_leases} leases were left behind",) if self.left_leases else ()
        return (*self.verdict.problems, *audit, *left)


def main(arguments: Sequence[str] | None = None) -> int:
    parser = argparse.ArgumentParser(prog="drills.run_faults", description="Break the stack, and count what it costs.")
    parser.add_argument("names", nargs="*", metavar="NAME", help=f"of {', '.join(fault.name for fault in FAULTS)}")
    parser.add_argument("--output", type=Path, help=f"where to write (all: {DOCUMENT.relative_to(ROOT)})")
    given = parser.parse_args(arguments)
    chosen = [fault for fault in FAULTS if not given.names or fault.name in given.names]
    if unknown := set(given.names) - {fault.name for fault in FAULTS}:
        parser.error(f"there is no fault {', '.join(sorted(unknown))}")
    machine, progress = conditions(), Progress()
    with deployment(SHORT, progress) as stack:
        outcomes = [run(stack, fault, progress) for fault in chosen]
    text = document(outcomes, machine, commit())
    output = given.output or (None if given.names else DOCUMENT)
    print(text) if output is None else output.write_text(text)
    problems = [f"{outcome.fault.name}: {problem}" for outcome in outcomes for problem in outcome.problems]
    for problem in problems:
        print(problem, file=sys.stderr)
    return 1 if problems else 0


def run(stack: Deployment, fault: Fault, progress: Progress) -> Outcome:
    work = Work(stack, f"{fault.name}-{time.time_ns() % 10**9}")
    with progress.step(f"{fault.name}: {fault.broken.lower()}"):
        stack.proxy.forget()
        since, remark = fault.run(stack, work)
        work.wait_until_ended(RECOVERS_WITHIN)
        left = _leases_left(stack)
        return Outcome(
            fault=fault,
            verdict=work.verdict(),
            recovered_after=max(0.0, work.last_end() - since),
            fired=len(stack.proxy.fired()),
            remark=remark,
            findings=len(audit(stack)),
            left_leases=left,
        )


def _leases_left(stack: Deployment) -> int:
    """How many leases are there once every one of them should have ended or been closed."""
    deadline = time.monotonic() + SETTLES_WITHIN
    while (left := len(leases(stack))) and time.monotonic() < deadline:
        time.sleep(1)
    return left


def audit(stack: Deployment) -> list[Any]:
    """The findings of `thunder doctor --audit`. Raises NotInTime when it could not look."""
    command = [sys.executable, "-m", "thunder.cli", "--output", "json", "doctor", "--audit"]
    env = {**os.environ, "THUNDER_STATE_DIR": str(stack.record["stateDir"]), "PYTHONWARNINGS": ""}
    ended = subprocess.run(command, cwd=ROOT, env=env, capture_output=True, text=True, check=False)
    try:
        findings: list[Any] = json.loads(ended.stdout)["findings"]
    except (ValueError, KeyError) as error:
        raise NotInTime(f"thunder doctor --audit said: {ended.stderr or ended.stdout}") from error
    return findings


HEAD = """# Faults, as they were survived

Written by `make faults` on {when} UTC, commit `{commit}`. It deploys the real stack to an embedded AWS, puts
a fault proxy between its functions and DynamoDB and Lambda, breaks one thing after another while tasks run that were
submitted through the API, and judges by four things:

- **Nothing is lost**: every accepted task is in the table and has ended as it should.
- **No double commit**: each task adds one to a counter in the transaction of its commit (`commit_with`). It is 1.
- **Duplicates only where forced**: each run adds one to another counter. It may exceed 1 only by the runs the task was
  charged for: its worker was lost, or its handler failed.
- **Clean afterwards**: no lease is left, and `thunder doctor --audit` finds nothing.

Recovery is the time from the fault's moment, or from its end where it lasts, to the end of the last task. It is made of
the lease, so leases are short here: {lease} s instead of 300, grace {grace} s instead of 5, the reaper every {reaper} s
and the poller every {poller} s instead of every minute. With the defaults a killed executor's tasks are taken back
within 300 + 5 + 60 s. What comes on top is the running: a task that lost its worker travels alone, and each batch may
need a process of its own. Conditions: {cores} cores ({machine}), load {load} before it began and {after} at its end,
Python {python}, all on one machine. A `+` behind the commit says that sources were changed since.
"""


def document(outcomes: Sequence[Outcome], machine: dict[str, Any], sources: str) -> str:
    """The page, whole."""
    head = HEAD.format(
        when=f"{datetime.now(UTC):%Y-%m-%d %H:%M}",
        commit=sources,
        lease=SHORT.lease_seconds,
        grace=SHORT.grace_seconds,
        reaper=f"{SHORT.reaper_every:g}",
        poller=f"{SHORT.poller_every:g}",
        cores=machine["cores"],
        machine=machine["machine"],
        load=machine["loadOneMinute"],
        after=conditions()["loadOneMinute"],
        python=machine["python"],
    )
    columns = ("fault", "tasks", "as they should", "retried", "duplicates", "double commits", "recovered", "by design")
    rows = [columns, ("---",) + ("---:",) * 6 + ("---",), *(_row(outcome) for outcome in outcomes)]
    table = "\n".join("| " + " | ".join(row) + " |" for row in rows)
    details = "\n".join(_detail(outcome) for outcome in outcomes)
    return f"{head}\n{table}\n\n## What was done\n\n{details}\n\n{TAIL}"


TAIL = """## Run it

    make faults                        # all of them, and this page anew; some minutes
    make faults FAULTS="executor reaper"   # some, printed

The scenarios are `drills/faults.py`. A SIGKILL of the whole embedded AWS is none of them: it keeps tasks in memory and
writes them down when it ends, which DynamoDB does not.
"""


def _row(outcome: Outcome) -> tuple[str, ...]:
    verdict = outcome.verdict
    wrong = len({problem.split()[0] for problem in verdict.problems})
    doubled = sum("was committed" in problem for problem in verdict.problems)
    return (
        outcome.fault.broken,
        str(verdict.tasks),
        str(verdict.tasks - wrong),
        str(verdict.retried),
        str(verdict.duplicates),
        str(doubled),
        f"{outcome.recovered_after:.1f} s",
        outcome.fault.bound,
    )


def _detail(outcome: Outcome) -> str:
    proxied = f" The proxy interfered {outcome.fired} times." if outcome.fired else ""
    problems = "".join(f" **{problem}.**" for problem in outcome.problems)
    return f"- **{outcome.fault.name}**: {outcome.remark}.{proxied}{problems}"


if __name__ == "__main__":
    sys.exit(main())
