"""Explore a model exhaustively with nothing but Python: for small sizes, where Spin is not installed.

As with Spin an atomic sequence is one step, and `timeout` is when nothing else can happen.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from typing import Any

from models.promela import Code, Model, Step, expanded

State = tuple[int, ...]


class Broken(Exception):
    """An assertion does not hold."""


@dataclass(frozen=True)
class Exploration:
    """All states were seen unless `limited`. `problem`: an assertion that fails; `trace`: the fewest steps to it."""

    states: int
    problem: str = ""
    trace: tuple[str, ...] = ()
    limited: bool = False


def explore(source: str, macros: Mapping[str, str], *, most: int = 10_000_000) -> Exploration:
    """Every reachable state, nearest first, up to `most`."""
    return _explore(Model(expanded(source, macros)), most)


@dataclass
class _Move:
    line: int
    guard: Callable[[Any], Any] | None
    kind: str
    effect: Callable[[Any, Any], None] | None
    target: int


class _Process:
    """One running process: its moves from each place, compiled."""

    def __init__(self, code: Code) -> None:
        self.name, self.base = code.name, code.base
        self.is_inside = [node.is_inside for node in code.nodes]
        self.moves = [[_move(step) for step in node.all_steps()] for node in code.nodes]

    def after(self, state: list[int], runs: list[tuple[str, int]], *, timeout: bool) -> Iterator[tuple[list[int], int]]:
        """The states one step away, an atomic sequence being one, each with the line it began at."""
        fallen = True
        chosen = []
        for move in self.moves[state[self.base]]:
            if move.kind == "else":
                continue
            if move.kind == "timeout":
                if timeout:
                    chosen.append(move)
            elif move.guard is None or move.guard(state):
                chosen.append(move)
                fallen = False
        if fallen:
            chosen += [move for move in self.moves[state[self.base]] if move.kind == "else"]
        for move in chosen:
            new = state.copy()
            if move.effect is not None:
                move.effect(new, runs)
            new[self.base] = move.target
            if not self.is_inside[move.target]:
                yield new, move.line
                continue
            went_on = False
            for later, _ in self.after(new, runs, timeout=False):
                went_on = True
                yield later, move.line
            if not went_on:
                yield new, move.line


def _move(step: Step) -> _Move:
    kind = step.guard if step.guard in ("else", "timeout") else ""
    guard = eval(f"lambda s: {step.guard}") if step.guard and not kind else None
    effect = None
    if step.effect:
        names: dict[str, Any] = {"Broken": Broken}
        exec(f"def effect(s, runs):\n    {step.effect}", names)
        effect = names["effect"]
    return _Move(step.line, guard, kind, effect, step.target.number)


def _explore(model: Model, most: int) -> Exploration:
    state, processes = _started(model)
    parents: dict[State, tuple[State, str] | None] = {tuple(state): None}
    waiting = deque([tuple(state)])
    while waiting:
        now = waiting.popleft()
        here = list(now)
        moved = False
        for timeout in (False, True):
            if timeout and moved:
                break
            for process in processes:
                try:
                    for new, line in process.after(here, [], timeout=timeout):
                        moved = True
                        key = tuple(new)
                        if key not in parents:
                            parents[key] = (now, f"{process.name}, line {line}")
                            waiting.append(key)
                except Broken as broken:
                    return Exploration(len(parents), str(broken), (*_trace(parents, now), f"{process.name}: broken"))
        if len(parents) > most:
            return Exploration(len(parents), limited=True)
    return Exploration(len(parents))


def _started(model: Model) -> tuple[list[int], list[_Process]]:
    """The state once `init` has run what it runs."""
    code = Code(model, "init", len(model.initial))
    runs: list[tuple[str, int]] = []
    state = [*model.initial, code.start.number, *code.local_values]
    starter = _Process(code)
    while (new := next(starter.after(state, runs, timeout=False), None)) is not None:
        state = new[0]
    state = state[: len(model.initial)]
    processes = []
    for name, argument in runs:
        code = Code(model, name, len(state))
        values = list(code.local_values)
        if model.bodies[name][0] is not None:
            values[0] = argument
        state += [code.start.number, *values]
        processes.append(_Process(code))
    return state, processes


def _trace(parents: Mapping[State, tuple[State, str] | None], state: State) -> tuple[str, ...]:
    told: list[str] = []
    while (came := parents[state]) is not None:
        state, step = came
        told.append(step)
    return tuple(reversed(told))
