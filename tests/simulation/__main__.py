"""Run simulations: one seed, or seed after seed until so many lives are lived or the time is over.

    python -m tests.simulation --seed 7                 one seed; its digest is the last line
    python -m tests.simulation --seed 7 --history       the same, with everything that happened
    python -m tests.simulation --soak --lives 1000000 --seconds 3600
    python -m tests.simulation --mutations              every rule left out once: is it noticed?

Exits 1 on a violation. A seed that fails is run again with its history, which is printed as far as it concerns the
tasks and leases of the violation.
"""

from __future__ import annotations

import argparse
import hashlib
import re
import sys
import time
from collections import Counter

from tests.simulation.mutations import MUTATIONS, Mutation
from tests.simulation.simulation import LIVES, Result, run

FIRST_SEED = 1
NEAR_LINES = 40  # before the violation, whatever they are about


def main(arguments: list[str] | None = None) -> int:
    options = _options(arguments)
    if options.mutations:
        return mutations(options.only, seeds=options.seeds)
    if options.soak:
        return soak(options.seed, lives=options.lives, seconds=options.seconds)
    return single(options.seed, lives=options.lives, history=options.history, mutation=options.mutation)


def _options(arguments: list[str] | None) -> argparse.Namespace:
    parser = argparse.ArgumentParser(prog="python -m tests.simulation", description="Simulate whole deployments.")
    parser.add_argument("--seed", type=int, default=FIRST_SEED)
    parser.add_argument("--lives", type=int, help=f"tasks submitted (of one seed: {LIVES})")
    parser.add_argument("--history", action="store_true", help="print all that happened")
    parser.add_argument("--mutation", choices=[each.name for each in MUTATIONS], help="leave this rule out")
    parser.add_argument("--soak", action="store_true", help="one seed after the other")
    parser.add_argument("--seconds", type=float, default=float("inf"), help="of a soak")
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


# ---- many seeds -----------------------------------------------------------------------------------------------------


def soak(first: int, *, lives: int | None, seconds: float) -> int:
    """Seeds from `first` on. The headline says how often work was done twice: never without a fault."""
    wanted, until = lives or 1_000_000, time.monotonic() + seconds
    lived = starts = repeats = twice = 0
    failed: list[int] = []
    faults: Counter[str] = Counter()
    all_digests = hashlib.sha256()
    seed, began = first, time.monotonic()
    while lived < wanted and time.monotonic() < until:
        result = _attempt(seed)
        all_digests.update(result.digest.encode())
        lived, starts = lived + result.lives, starts + result.starts
        repeats, twice = repeats + result.repeats, twice + result.worked_twice
        faults += result.faults
        if result.violation is not None:
            failed.append(seed)
            print(f"seed {seed}: VIOLATION: {result.violation}", flush=True)
        seed += 1
        if (seed - first) % 100 == 0:
            print(f"{lived} lives in {seed - first} seeds, {len(failed)} violations", file=sys.stderr, flush=True)
    spent = max(0.001, time.monotonic() - began)
    print(f"{lived} lives in {seed - first} seeds ({first} to {seed - 1}), {lived / spent:.0f} lives/s")
    print(f"faults: {', '.join(f'{name} {count}' for name, count in faults.most_common() if count)}")
    print(
        f"{starts} starts; {repeats} again after a fault; whole work done twice: {twice} ({twice / max(1, lived):.4%})"
    )
    print("the headline to compare with: 5 agents, 1,000,000 tasks, less than 0.01 % executed twice")
    print(f"committed twice: {'none' if not failed else 'see the violations'}; violations: {len(failed)} {failed[:20]}")
    print(all_digests.hexdigest()[:32])
    return 1 if failed else 0


def _attempt(seed: int) -> Result:
    """A seed at which the simulator itself fails is a failing seed too."""
    try:
        return run(seed)
    except Exception as error:  # noqa: BLE001  the others are run all the same
        return Result(seed, 0, "", violation=f"the simulator failed: {type(error).__name__}: {error}")


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
