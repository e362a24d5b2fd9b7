"""Rehearses what an operator has to deal with: `python -m drills [NAME [--quick]]`; without a name, what there is.

Each drill brings up a stack of its own, causes the situation, shows what the operator sees and does, and ends with an
error unless the doing helps. What it measured comes last.
"""

from __future__ import annotations

import argparse
import sys
from collections.abc import Callable, Sequence
from dataclasses import dataclass

from bench.report import conditions, table
from drills import always_fails, backlog, clock_jump, flood, throttled
from drills.deployment import Rhythm, deployment
from drills.session import DoesNotHelp, Session
from drills.work import NotInTime
from thunder.local.progress import Progress


@dataclass(frozen=True)
class Drill:
    """One situation. Without a rhythm the stack has the one it was deployed with."""

    name: str
    situation: str
    rehearse: Callable[[Session], None]
    rhythm: Rhythm | None = None


DRILLS = (
    Drill("backlog", "a backlog that takes hours", backlog.rehearse),
    Drill("flood", "one tenant floods a shared queue", flood.rehearse),
    Drill("always-fails", "a handler that always fails", always_fails.rehearse),
    Drill("clock-jump", "the clock of an agent's machine jumps", clock_jump.rehearse, clock_jump.RHYTHM),
    Drill("throttled", "DynamoDB throttles the table", throttled.rehearse),
)


def main(arguments: Sequence[str] | None = None) -> int:
    parser = argparse.ArgumentParser(prog="drills", description="Rehearse what goes wrong in operation.")
    parser.add_argument("name", nargs="?", choices=[drill.name for drill in DRILLS])
    parser.add_argument("--quick", action="store_true", help="a small one, without waiting for alarms")
    parser.add_argument("--tasks", type=int, help="how large the backlog is (default: 20,000; quick: 2,000)")
    given = parser.parse_args(arguments)
    if given.name is None:
        print("\n".join(f"  make drill NAME={drill.name:<14}{drill.situation}" for drill in DRILLS))
        print("  QUICK=1 for a small one of a minute to three, TASKS=100000 for a larger backlog")
        return 0
    drill = next(each for each in DRILLS if each.name == given.name)
    return rehearse(drill, quick=given.quick, tasks=given.tasks)


def rehearse(drill: Drill, *, quick: bool, tasks: int | None) -> int:
    machine = conditions()
    with deployment(drill.rhythm, Progress()) as stack:
        session = Session(stack, quick=quick, tasks=tasks, write=lambda line: print(line, flush=True))
        try:
            drill.rehearse(session)
        except (DoesNotHelp, NotInTime) as failure:
            print(f"the drill failed: {failure}", file=sys.stderr)
            return 1
    print(f"\n{table({**session.figures, 'conditions': machine})}")
    return 0


if __name__ == "__main__":
    sys.exit(main())
