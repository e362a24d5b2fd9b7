"""A handler replayed, killed before and after each of its worker's writes: what happens more than once?"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from thunderagent.errors import ConfigurationError
from thunderagent.jsontext import dumps
from thunderagent.registry import Handler
from thunderagent.testing.fakes import FakeClock
from thunderagent.testing.faults import Call
from thunderagent.testing.rig import Life, Rig, Tables, with_function
from thunderagent.testing.runs import Rows

MOST_ATTEMPTS = 20  # of one replay: a handler that is still not done would go on for ever
WRITES = {"begun": "taking up its lease", "started": "recording its start", "progress": "its progress"}
WORDS = {"SUCCESS": "its commit", "PENDING": "its retry", "FAILED": "its failure", "DONE": "its end"}


@dataclass(frozen=True)
class Kill:
    """Where a worker died: before or after its write number `number`, in words `write`."""

    number: int
    write: str
    before: bool

    def __str__(self) -> str:
        return f"killed {'before' if self.before else 'after'} {self.write} (write {self.number})"


@dataclass(frozen=True)
class Repeat:
    """An effect that happened `times` times in all, and `expected` times when nobody was killed."""

    effect: str
    times: int
    expected: int
    kill: Kill

    def __str__(self) -> str:
        return f"{self.effect}: {self.times} times instead of {self.expected}, {self.kill}"


@dataclass(frozen=True)
class CrashReport:
    """What replaying showed. Effects are named `step <name>` (its function ran), `child <type> <payload>`, `item
    <table> <key>` (written with a commit), and whatever the test itself counts.

    `repeated` and `lost` compare each replay with the run that nobody disturbed; `different` are replays that ended
    with another status or result.
    """

    kills: tuple[Kill, ...]
    effects: Mapping[str, int]
    repeated: tuple[Repeat, ...]
    lost: tuple[Repeat, ...]
    different: tuple[tuple[Kill, str], ...]

    def check(self, *, may_repeat: Collection[str] = ()) -> None:
        """Raise AssertionError unless every replay came to the same end, with every effect once: but for those named,
        whose repetition the test vouches for."""
        problems = [str(repeat) for repeat in self.repeated if repeat.effect not in may_repeat]
        problems += [f"lost: {lost}" for lost in self.lost]
        problems += [f"ended {end}, {kill}" for kill, end in self.different]
        if problems:
            raise AssertionError("\n".join([f"differences ({len(problems)}) in {len(self.kills)} replays:", *problems]))


def crash_test(
    handler: Callable[..., Any],
    payload: Any = None,
    *,
    effects: Callable[[], Mapping[str, int]] = dict,
    reset: Callable[[], None] = lambda: None,
    tables: Tables | None = None,
    rows: Rows | None = None,
    queues: Sequence[str] = (),
    retries: int = 3,
) -> CrashReport:
    """Run a handler to its end, then again for each write its worker made, killed just before it, and killed just
    after it; each time the reaper takes the task back and it is tried again until it ends.

    `effects` counts what the handler did elsewhere, by name (calls of a fake gateway, say), `reset` brings that back to
    where it was before every replay. `retries` are what the task has: each kill costs one. A killed process still runs
    its `finally` blocks here; what those do to the table is refused. Raises ConfigurationError for a handler that does
    not end by itself.
    """

    def replay(kill: Kill | None) -> _Replay:
        reset()
        return _Replay(handler, payload, effects, tables=tables, rows=rows, queues=queues, retries=retries).run(kill)

    undisturbed = replay(None)
    kills = [
        Kill(number, _described(call), before)
        for number, call in enumerate(undisturbed.writes, start=1)
        for before in (True, False)
    ]
    replays = [(kill, replay(kill)) for kill in kills]
    expected = undisturbed.effects
    differences = [
        Repeat(effect, each.effects[effect], expected[effect], kill)
        for kill, each in replays
        for effect in {**expected, **each.effects}
    ]
    return CrashReport(
        kills=tuple(kills),
        effects=dict(expected),
        repeated=tuple(each for each in differences if each.times > each.expected),
        lost=tuple(each for each in differences if each.times < each.expected),
        different=tuple((kill, each.end) for kill, each in replays if each.end != undisturbed.end),
    )


class _Replay:
    """One task from submit to end, in a world of its own."""

    def __init__(
        self,
        handler: Callable[..., Any],
        payload: Any,
        elsewhere: Callable[[], Mapping[str, int]],
        *,
        tables: Tables | None,
        rows: Rows | None,
        queues: Sequence[str],
        retries: int,
    ) -> None:
        self.effects: Counter[str] = Counter()
        self._elsewhere = elsewhere
        self._before = Counter(elsewhere())
        self._rig = Rig(handler, tables=tables, queues=queues, clock=FakeClock(), wrap=self._watched)
        for table, found in (rows or {}).items():
            self._rig.db.fill(table, found)
        self._payload = dumps(payload, root="payload")
        self._retries = retries
        self.writes: list[Call] = []
        self.end = ""

    def run(self, kill: Kill | None) -> _Replay:
        rig = self._rig
        task_id = rig.submit(self._payload, max_retry_number=self._retries)
        life = Life(rig.db, kill_at=kill.number if kill else None, before=kill.before if kill else True)
        for _ in range(MOST_ATTEMPTS):
            rig.wait_until_due(task_id)
            rig.attempt(task_id, life=life)
            self.writes = self.writes or life.writes
            if life.is_over:
                rig.take_back()
            if (task := rig.task(task_id)).is_terminal:
                break
            life = Life(rig.db)
        else:
            raise ConfigurationError(f"{rig.type} has not ended after {MOST_ATTEMPTS} attempts")
        self.end = f"{task.status.value} with {rig.service.bodies.result(task)}"
        self._count(task_id)
        return self

    def _count(self, task_id: str) -> None:
        bodies = self._rig.service.bodies
        for child in self._rig.children(task_id):
            self.effects[f"child {child.type} {bodies.payload(child)}"] += 1
        for name in _committed(self._rig.db.calls):
            self.effects[f"item {name}"] += 1
        after = Counter(self._elsewhere())
        after.subtract(self._before)
        self.effects.update(after)

    def _watched(self, handler: Handler) -> Handler:
        def call(payload: Any, ctx: Any) -> Any:
            original = ctx.step

            def step(name: str, function: Callable[[], Any]) -> Any:
                def run() -> Any:
                    self.effects[f"step {name}"] += 1
                    return function()

                return original(name, run)

            ctx.step = step
            return handler.function(payload, ctx)

        return with_function(handler, call)


def _committed(calls: Sequence[Call]) -> list[str]:
    """The items of `commit_with`, as often as they were written; a repeat under one request token is no second time."""
    found: list[str] = []
    tokens: set[Any] = set()
    for call in calls:
        if call.operation != "TransactWriteItems" or call.outcome != "done" or _status_of(call) != "SUCCESS":
            continue
        if (token := call.arguments.get("ClientRequestToken")) not in tokens:
            tokens.add(token)
            found += call.item_ids[1:]
    return found


def _status_of(call: Call) -> Any:
    return call.sets.get("status")


def _described(call: Call) -> str:
    """A worker's write in the words of a handler's author."""
    sets = call.sets
    if call.operation == "TransactWriteItems":
        return "its commit with items" if _status_of(call) == "SUCCESS" else "a submit"
    if call.operation == "DeleteItem":
        return "giving up its lease"
    if call.operation == "PutItem":
        return f"submitting a {sets['type']}" if "type" in sets else "writing a body"
    if "steps" in sets:
        steps: Mapping[str, Any] = sets["steps"]
        return f"remembering step {max(steps, key=lambda name: int(steps[name]['n']))}"
    for attribute, words in WRITES.items():
        if attribute in sets:
            return words
    return WORDS.get(str(_status_of(call)), "a renewal of its lease")
