"""A whole small deployment in one process: API, pollers, executors and reapers over one table in memory.

Each `process` is one container with its own caches and tokens. Events wait until a test delivers them: late, twice, or
never. `Died`, raised by a hook of the table, ends a process at that very request.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping
from contextlib import suppress
from typing import Any, cast

from tests.support.batches import Objects, handlers_of
from tests.support.fakes import FakeClock, FakeRandomness, InlineThreads, Recorder
from tests.support.memory_dynamodb import Call, MemoryDynamoDB
from thunderagent.codec import Item
from thunderagent.errors import DispatchError
from thunderagent.leased_batch import Batch, Summary
from thunderagent.model import Lease, Task
from thunderagent.registry import Registry
from thunderagent.runner import Runner
from thunderagent.settings import Executor, Settings
from thunderagent.submit import Submission
from thunderagent.wiring import Parts, Seams

LEASE_SECONDS = 60.0
GRACE_SECONDS = 5.0


class Died(BaseException):
    """The process ended here, without a word."""


class World:
    """`echo` is declared; `handlers` add their own types."""

    def __init__(
        self,
        *handlers: Callable[..., Any],
        lease_seconds: float = LEASE_SECONDS,
        batch: int = 10,
        shards: int = 1,
        max_in_flight: int = 20,
        concurrency: int = 10,
        list_completed: bool = True,
        send: Any = None,
        table: str = "tasks",
    ) -> None:
        self.db = MemoryDynamoDB()
        self.send = send or self.db
        self.clock = FakeClock()
        self.notes = Recorder()
        self.events: list[dict[str, Any]] = []
        self.answers: list[bool | None] = []  # to the next invokes: False refused, None lost, True accepted
        self.objects = Objects()
        self.handlers = {handler.declaration.name: handler for handler in handlers_of(*handlers)}
        self.registry = _registry({"echo", *self.handlers})
        self.settings = Settings(
            table_name=table,
            list_completed=list_completed,
            executors={
                "default": Executor(
                    "default",
                    "executor",
                    max_in_flight=max_in_flight,
                    lease_seconds=lease_seconds,
                    threads=concurrency,
                )
            },
            lease_seconds=lease_seconds,
            lease_grace_seconds=GRACE_SECONDS,
            poll_batch_size=batch,
            dispatch_shards=shards,
        )
        self._processes = 0
        self._lives: dict[int, _Life] = {}
        self.api = self.process("api")
        self.poller = self.process("poller")
        self.reaper = self.process("reaper")

    def process(self, name: str, *, clock_offset: float = 0, fraction: float = 0.5) -> Parts:
        """One more container; its clock may be off."""
        self._processes += 1
        clock = self.clock if not clock_offset else cast(FakeClock, _OffsetClock(self.clock, clock_offset))
        life = _Life(self.send)
        seams = Seams(
            send=life,
            invoke=self._invoke,
            clock=clock,
            randomness=FakeRandomness(fraction, prefix=f"{name}{self._processes}-"),
            threads=InlineThreads(self.clock),
            objects=cast(Any, self.objects),
        )
        parts = Parts(self.settings, seams, registry=self.registry, telemetry=cast(Any, self.notes))
        self._lives[id(parts)] = life
        return parts

    def _invoke(self, function: str, event: bytes) -> None:
        answer = self.answers.pop(0) if self.answers else True
        if answer is not False:
            self.events.append(json.loads(event))
        if answer is not True:
            raise DispatchError(function, "TooManyRequestsException" if answer is False else "Timeout", accepted=answer)

    # ---- what happens ------------------------------------------------------------------------------------------------

    def submit(self, type: str = "echo", *, key: str | None = None, **fields: Any) -> str:
        submission = Submission(type=type, **fields)
        return str(self.api.submitter.submit(submission, key=key, body=fields).task.task_id)

    def sweep(self, poller: Parts | None = None) -> int:
        """One pass; what it claimed. A poller that died is another one the next time."""
        if poller is None and self._lives[id(self.poller)].is_over:
            self.poller = self.process("poller")
        return (poller or self.poller).sweeper.run_pass().claimed

    def reap(self, reaper: Parts | None = None) -> Any:
        if reaper is None and self._lives[id(self.reaper)].is_over:
            self.reaper = self.process("reaper")
        return (reaper or self.reaper).reaper.run()

    def executor(self, parts: Parts) -> Runner:
        return Runner(
            parts.store,
            parts.bodies,
            self.handlers,
            threads=InlineThreads(self.clock),
            concurrency=self.settings.executors["default"].threads,
            lease_seconds=self.settings.lease_seconds,
            observer=self.notes,
            submitter=parts.submitter,
            relatives=parts.dependencies,
            end_process=lambda: None,
        )

    def deliver(self, event: Mapping[str, Any] | None = None, *, process: Parts | None = None) -> Summary:
        """An executor is given an event: the oldest that waits, unless one is named (which then is a duplicate).
        Raises Died when its process ended in the middle."""
        process = process or self.process("executor")
        summary = self.executor(process).run(Batch.from_event(event or self.events.pop(0)), lambda: 900.0)
        if self._lives[id(process)].is_over:
            raise Died
        return summary

    def deliver_all(self) -> None:
        """Every event that waits; those whose executor dies are gone with it."""
        while self.events:
            with suppress(Died):
                self.deliver()

    def run(self) -> None:
        """Sweep and execute what is due now."""
        self.sweep()
        self.deliver_all()

    def advance(self, seconds: float) -> None:
        self.clock.advance(seconds)

    def lapse(self) -> None:
        """Until every lease and lock of now has passed, the grace included."""
        self.advance(LEASE_SECONDS + GRACE_SECONDS + 1)

    # ---- what is stored ----------------------------------------------------------------------------------------------

    def item(self, task_id: str) -> Item:
        found = self.db.item(task_id)
        assert found is not None
        return found

    def task(self, task_id: str) -> Task:
        return Task.from_item(self.item(task_id))

    def status(self, task_id: str) -> str:
        return str(self.item(task_id)["status"])

    def leases(self) -> list[Lease]:
        return [Lease.from_item(item) for item in self.db.items("lease#").values()]

    def log(self, event: str) -> list[dict[str, Any]]:
        return [fields for name, fields in self.notes.events if name == event]


class _Life:
    """A process's way to the table. Once it died, no request of its gets there any more."""

    def __init__(self, send: Any) -> None:
        self._send = send
        self.is_over = False

    def __call__(self, operation: str, arguments: Mapping[str, Any]) -> Mapping[str, Any]:
        if self.is_over:
            raise Died
        try:
            answer: Mapping[str, Any] = self._send(operation, arguments)
        except Died:
            self.is_over = True
            raise
        return answer


class _OffsetClock:
    """The same time, told wrong by so many seconds."""

    def __init__(self, clock: FakeClock, offset: float) -> None:
        self._clock = clock
        self._offset = offset

    def now(self) -> float:
        return round(self._clock.now() + self._offset, 3)

    def monotonic(self) -> float:
        return self._clock.monotonic()

    def sleep(self, seconds: float) -> None:
        self._clock.sleep(seconds)


def _registry(types: set[str]) -> Registry:
    return Registry.from_dict(
        {
            "formatVersion": 1,
            "profiles": {"default": {"modules": ["m"], "timeoutSeconds": 900}},
            "queues": {"default": {}},
            "types": {
                name: {"profile": "default", "backoff": {"base": 1, "factor": 2, "cap": 300}} for name in sorted(types)
            },
        }
    )


# ---- which request ---------------------------------------------------------------------------------------------------


def to_status(status: str) -> Callable[[Call], bool]:
    """A write that sets this status."""
    return lambda call: call.operation != "GetItem" and call.sets.get("status") == status


def on_lease(operation: str, *, setting: str | None = None) -> Callable[[Call], bool]:
    """A request of that kind on a lease item; `setting` names an attribute it sets."""
    return lambda call: (
        call.operation == operation
        and any(item_id.startswith("lease#") for item_id in call.item_ids)
        and (setting is None or setting in call.sets)
    )


def die() -> None:
    raise Died
