"""Seed after seed in several processes: up to so many lives, or until the time is over; in pieces that add up.

With a file of results every block of seeds is a line of it. The same soak begun again goes on behind what is there, and
`total` adds the files of several pieces up. Lines of other code are refused: they are not of one soak.
"""

from __future__ import annotations

import hashlib
import json
import math
import multiprocessing
import signal
import sys
import time
from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import FIRST_COMPLETED, Future, ProcessPoolExecutor, wait
from contextlib import contextmanager
from dataclasses import asdict, dataclass, field
from functools import cache
from itertools import islice
from pathlib import Path
from typing import Any

from tests.simulation.simulation import LIVES, Result, run

BLOCK = 20  # seeds, the most that are lost when a soak is ended hard
TOLD_EVERY_SECONDS = 10.0
SHOWN_SEEDS = 20
CODE = (Path(__file__).parent, Path(__file__).parents[2] / "layers/thunderagent/python/thunderagent")
DIGEST_BITS = 128


class NotOneSoak(Exception):
    """Results that do not belong together."""


@dataclass
class Tally:
    """What some seeds came to. Adds up in any order: the digest is a sum over the digests of the seeds.

    `runs_again` counts starts of a handler beyond the first of a life (a redrive begins a new one). Of these,
    `asked_for` were the handler's own doing (it failed, or asked to come later); the rest needs a fault, and
    `unexplained` found none. `worked_twice` are lives whose whole work was done more than once."""

    seeds: int = 0
    lives: int = 0
    starts: int = 0
    runs_again: int = 0
    asked_for: int = 0
    unexplained: int = 0
    worked_twice: int = 0
    double_commits: int = 0
    violations: int = 0
    failed_seeds: list[int] = field(default_factory=list)
    faults: Counter[str] = field(default_factory=Counter)
    cpu_seconds: float = 0
    digest: int = 0

    def count(self, result: Result, seconds: float) -> None:
        failed = result.violation is not None
        one = Tally(
            seeds=1,
            lives=result.lives,
            starts=result.starts,
            runs_again=result.again,
            asked_for=result.again - result.repeats,
            unexplained=result.unexplained,
            worked_twice=result.worked_twice,
            double_commits=result.double_commits,
            violations=int(failed),
            failed_seeds=[result.seed] if failed else [],
            faults=result.faults,
            cpu_seconds=seconds,
            digest=_digest_of(result),
        )
        self.add(one)

    def add(self, other: Tally) -> None:
        for name, value in vars(other).items():
            setattr(self, name, getattr(self, name) + value)
        self.digest %= 1 << DIGEST_BITS

    def told(self) -> dict[str, Any]:
        """For a line of JSON."""
        faults = {name: count for name, count in self.faults.most_common() if count}
        digest = f"{self.digest:0{DIGEST_BITS // 4}x}"
        changed = {"faults": faults, "failed_seeds": sorted(self.failed_seeds), "digest": digest}
        return asdict(self) | changed | {"cpu_seconds": round(self.cpu_seconds, 2)}

    @classmethod
    def read(cls, told: dict[str, Any]) -> Tally:
        changed = {"faults": Counter(told["faults"]), "digest": int(told["digest"], 16)}
        return cls(**{name: told[name] for name in vars(cls()) if name not in changed}, **changed)


def _digest_of(result: Result) -> int:
    return int(hashlib.sha256(f"{result.seed} {result.digest}".encode()).hexdigest()[: DIGEST_BITS // 4], 16)


@cache
def code() -> str:
    """What tells this code from any other."""
    seen = hashlib.sha256()
    for folder in CODE:
        for path in sorted(folder.rglob("*.py")):
            seen.update(f"{path.relative_to(folder)}\n".encode() + path.read_bytes())
    return seen.hexdigest()[:16]


# ---- blocks ---------------------------------------------------------------------------------------------------------


def blocks(first: int, seeds: int, done: set[int]) -> Iterator[range]:
    """The seeds that are left, in runs of neighbours."""
    start = first
    while start < first + seeds:
        if start in done:
            start += 1
            continue
        end = start + 1
        while end < min(first + seeds, start + BLOCK) and end not in done:
            end += 1
        yield range(start, end)
        start = end


def lived(seeds: range) -> tuple[range, Tally, list[str]]:
    """One block, and what its failing seeds say."""
    tally, problems = Tally(), []
    for seed in seeds:
        began = time.process_time()
        result = _attempt(seed)
        tally.count(result, time.process_time() - began)
        if result.violation is not None:
            problems.append(f"seed {seed}: VIOLATION: {result.violation}")
    return seeds, tally, problems


def _attempt(seed: int) -> Result:
    """A seed at which the simulator itself fails is a failing seed too."""
    try:
        return run(seed)
    except Exception as error:  # noqa: BLE001  the others are run all the same
        return Result(seed, 0, "", violation=f"the simulator failed: {type(error).__name__}: {error}")


# ---- files ----------------------------------------------------------------------------------------------------------


def read(paths: Sequence[Path], *, codes: frozenset[str] = frozenset()) -> tuple[Tally, set[int]]:
    """All of these files, and their seeds. Raises NotOneSoak when a seed is there twice, or several kinds of code are
    (those of `codes` among them)."""
    total, done = Tally(), set[int]()
    for path in paths:
        for line in path.read_text().splitlines():
            try:
                told = json.loads(line)
            except ValueError:  # cut off when the soak was ended hard
                continue
            seeds = set(range(told["first"], told["first"] + told["seeds"]))
            if done & seeds:
                raise NotOneSoak(f"{path}: seed {min(done & seeds)} is there twice")
            done |= seeds
            codes |= {told["code"]}
            total.add(Tally.read(told))
    if len(codes) > 1:
        raise NotOneSoak(f"{paths[-1]}: made by different code ({', '.join(sorted(codes))})")
    return total, done


def totals(paths: Sequence[Path]) -> int:
    """Print what these pieces add up to."""
    total, done = read(paths)
    print(headline(total, done))
    return 1 if total.violations else 0


def headline(total: Tally, done: set[int]) -> str:
    """A line of JSON."""
    return json.dumps({"seed_ranges": _ranges(done), **total.told()})


def _ranges(done: set[int]) -> list[list[int]]:
    starts = sorted(seed for seed in done if seed - 1 not in done)
    ends = sorted(seed for seed in done if seed + 1 not in done)
    return [[start, end] for start, end in zip(starts, ends, strict=True)]


# ---- the soak -------------------------------------------------------------------------------------------------------


class Soak:
    """So many lives, in seeds from `first` on. No block is begun once `seconds` are over or a signal asks to end."""

    def __init__(self, first: int, *, lives: int, seconds: float, processes: int, results: Path | None) -> None:
        self._first = first
        self._seeds = math.ceil(lives / LIVES)
        self._until = time.monotonic() + seconds
        self._processes = processes
        self._results = results
        self._began = self._told_at = time.monotonic()
        self.total, self.done = Tally(), set[int]()
        if results is not None and results.exists():
            self.total, self.done = read([results], codes=frozenset([code()]))
            if not results.read_text().endswith("\n"):
                results.write_text(results.read_text() + "\n")
        self._lived_before = self.total.lives

    def run(self) -> None:
        left = blocks(self._first, self._seeds, self.done)
        with ProcessPoolExecutor(self._processes, multiprocessing.get_context("fork"), _ignore_interrupts) as pool:
            running = {pool.submit(lived, block) for block in islice(left, self._processes)}
            with _told_by_signals(self._end):
                while running:
                    over, running = wait(running, return_when=FIRST_COMPLETED)
                    for each in over:
                        self._take(each)
                        block = next(left, None) if time.monotonic() < self._until else None
                        if block is not None:
                            running.add(pool.submit(lived, block))
        self._tell()

    def _take(self, block: Future[tuple[range, Tally, list[str]]]) -> None:
        seeds, tally, problems = block.result()
        self.total.add(tally)
        self.done |= set(seeds)
        for problem in problems:
            print(problem, flush=True)
        if self._results is not None:
            with self._results.open("a") as file:
                file.write(json.dumps({"first": seeds.start, "code": code(), **tally.told()}) + "\n")
        if time.monotonic() > self._told_at + TOLD_EVERY_SECONDS:
            self._tell()

    def _tell(self) -> None:
        self._told_at = now = time.monotonic()
        total = self.total
        speed = (total.lives - self._lived_before) / max(0.001, now - self._began)
        print(
            f"{total.lives:,} of {self._seeds * LIVES:,} lives, {speed:.0f}/s, {total.runs_again:,} runs again, "
            f"{total.unexplained} unexplained, {total.double_commits} double commits, {total.violations} violations",
            file=sys.stderr,
            flush=True,
        )

    def _end(self) -> None:
        self._until = -math.inf


@contextmanager
def _told_by_signals(end: Callable[[], None]) -> Iterator[None]:
    """SIGTERM and SIGINT let what runs come to its end, and the totals be told."""
    before = {each: signal.signal(each, lambda *_: end()) for each in (signal.SIGTERM, signal.SIGINT)}
    try:
        yield
    finally:
        for each, handler in before.items():
            signal.signal(each, handler)


def _ignore_interrupts() -> None:
    """A keyboard's reaches every process of its group: it is the first one's to end the soak."""
    signal.signal(signal.SIGINT, signal.SIG_IGN)


def soak(first: int, *, lives: int, seconds: float, processes: int, results: Path | None) -> int:
    """Run, and print the totals. 1 when anything broke a rule."""
    ran = Soak(first, lives=lives, seconds=seconds, processes=processes, results=results)
    ran.run()
    for seed in ran.total.failed_seeds[:SHOWN_SEEDS]:
        print(f"failed: make sim SEED={seed}")
    print(headline(ran.total, ran.done))
    return 1 if ran.total.violations else 0
