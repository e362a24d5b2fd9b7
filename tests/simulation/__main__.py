"""Run simulations: one seed, or seed after seed until so many lives are lived or the time is over.

    python -m tests.simulation --seed 7                 one seed; its digest is the last line
    python -m tests.simulation --seed 7 --history       the same, with everything that happened
    python -m tests.simulation --soak --lives 1000000 --seconds 3600 --processes 2 --results soak.jsonl
    python -m tests.simulation --add-up one.jsonl two.jsonl     what the pieces of a soak come to, as JSON
    python -m tests.simulation --mutations              every rule left out once: is it noticed?

Exits 1 on a violation, 2 on results that do not belong together. A seed that fails is run again with its history, which
is printed as far as it concerns the tasks and leases of the violation.
"""

from __future__ import annotations

import argparse
import re
import sys
from pathlib import Path

from tests.simulation.mutations import MUTATIONS, Mutation
from tests.simulation.simulation import LIVES, Result, run
from tests.simulation.soak import NotOneSoak, soak, totals

FIRST_SEED = 1
SOAK_LIVES = 1_000_000
NEAR_LINES = 40  # before the violation, whatever they are about


def main(arguments: list[str] | None = None) -> int:
    options = _options(arguments)
    if options.mutations:
        return mutations(options.only, seeds=options.seeds)
    if options.soak or options.add_up:
        try:
            return _soak(options)
        except NotOneSoak as problem:
            print(problem, file=sys.stderr)
            return 2
    return single(options.seed, lives=options.lives, history=options.history, mutation=options.mutation)


def _soak(options: argparse.Namespace) -> int:
    if options.add_up:
        return totals(options.add_up)
    return soak(
        options.seed,
        lives=options.lives or SOAK_LIVES,
        seconds=options.seconds,
        processes=options.processes,
        results=options.results,
    )


def _options(arguments: list[str] | None) -> argparse.Namespace:
    parser = argparse.ArgumentParser(prog="python -m tests.simulation", description="Simulate whole deployments.")
    parser.add_argument("--seed", type=int, default=FIRST_SEED)
    parser.add_argument("--lives", type=int, help=f"tasks submitted (of one seed: {LIVES})")
    parser.add_argument("--history", action="store_true", help="print all that happened")
    parser.add_argument("--mutation", choices=[each.name for each in MUTATIONS], help="leave this rule out")
    parser.add_argument("--soak", action="store_true", help="one seed after the other")
    parser.add_argument("--seconds", type=float, default=float("inf"), help="of a soak: then no new seeds are begun")
    parser.add_argument("--processes", type=int, default=1, help="of a soak")
    parser.add_argument("--results", type=Path, help="of a soak: a file, to go on behind what is there")
    parser.add_argument("--add-up", type=Path, nargs="+", metavar="RESULTS", help="print what these come to")
    parser.add_argument("--mutations", action="store_true", help="leave every rule out once")
    parser.add_argument("--seeds", type=int, default=150, help="tried for each rule left out")
    parser.add_argument("only", nargs="*", help="names of mutations")
    return parser.parse_args(arguments)


# ---- one seed -------------------------------------------------------------------------------------------------------


def single(seed: int, *, lives: int | None, history: bool, mutation: str | None) -> int:
    chosen = next((each for each in MUTATIONS if each.name == mutation), None)
    result = _run(seed, lives or LIVES, keep=history, mutation=chosen)
    if result.violation is not None and not history:
        result = _run(seed, lives or LIVES, keep=True, mutation=chosen)
    if history:
        print("\n".join(result.history))
    elif result.violation is not None:
        print("\n".join(concerned(result)))
    print(f"seed {seed}: {result.weather}")
    print(f"{result.lives} lives, {result.starts} starts, {result.repeats} repeated, {result.steps} steps")
    if result.violation is not None:
        print(f"VIOLATION: {result.violation}")
    print(result.digest)
    return 1 if result.violation is not None else 0


def _run(seed: int, lives: int, *, keep: bool = False, mutation: Mutation | None = None) -> Result:
    if mutation is None:
        return run(seed, lives=lives, keep=keep)
    return run(seed, lives=lives, keep=keep, weather=mutation.weather, mutation=mutation.applied)


def concerned(result: Result) -> list[str]:
    """The lines that tell of the violation's tasks and leases, and the last ones before it."""
    ids = set(re.findall(r"[0-9a-f]{32}|cron\.[a-z]+\.\d+|[a-z-]+\d+\.\d{4}", result.violation or ""))
    for line in list(result.history):
        if any(each in line for each in ids):
            ids |= set(re.findall(r"[a-z-]+\d+\.\d{4}", line)) if " -> RUNNING" in line else set()
    last = len(result.history) - NEAR_LINES
    return [line for place, line in enumerate(result.history) if place >= last or any(each in line for each in ids)]


# ---- mutations -----------------------------------------------------------------------------------------------------


def mutations(only: list[str], *, seeds: int) -> int:
    """Each rule left out, seed after seed until the simulation notices."""
    missed = []
    for mutation in MUTATIONS:
        if only and mutation.name not in only:
            continue
        found = caught(mutation, range(FIRST_SEED, FIRST_SEED + seeds))
        if found is None:
            missed.append(mutation.name)
            print(f"{mutation.name:26} NOT CAUGHT in {seeds} seeds", flush=True)
        else:
            print(
                f"{mutation.name:26} seed {found.seed:4}  {(found.violation or '').splitlines()[0][:110]}", flush=True
            )
    return 1 if missed else 0


def caught(mutation: Mutation, seeds: range) -> Result | None:
    """The first of these seeds that shows the rule is missing: with it, the very same weather breaks nothing."""
    for seed in seeds:
        result = run(seed, weather=mutation.weather, mutation=mutation.applied)
        if result.violation is not None and run(seed, weather=mutation.weather).violation is None:
            return result
    return None


if __name__ == "__main__":
    sys.exit(main())
