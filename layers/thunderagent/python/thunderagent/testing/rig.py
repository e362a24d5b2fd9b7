"""One task with all the library around it, in memory: submitted, claimed, executed, its worker killed, taken back."""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from dataclasses import replace
from typing import Any, cast

from thunderagent.claims import Claims
from thunderagent.codec import Item
from thunderagent.errors import ConfigurationError
from thunderagent.leased_batch import Batch, Summary
from thunderagent.model import Task
from thunderagent.registry import LONGEST_TIMEOUT_SECONDS, Handler, Registry, handlers_of
from thunderagent.runner import Runner
from thunderagent.schema import EXECUTOR_MARGIN_SECONDS
from thunderagent.seams import Seams
from thunderagent.settings import Executor, Settings
from thunderagent.submit import Submission
from thunderagent.telemetry import Telemetry
from thunderagent.testing.fakes import FakeClock, FakeRandomness, InlineThreads, Recorder
from thunderagent.testing.faults import Call
from thunderagent.testing.memory_dynamodb import MemoryDynamoDB
from thunderagent.wiring import Parts

LEASE_SECONDS = 300.0
EXECUTOR_SECONDS = float(LONGEST_TIMEOUT_SECONDS + EXECUTOR_MARGIN_SECONDS)
READS = frozenset({"GetItem", "BatchGetItem", "Query", "Scan"})
Tables = Mapping[str, Sequence[str]]


class Killed(BaseException):
    """The process ended here, without a word. Not an Exception, so that no handler takes it for a failure."""


class Life:
    """A process's way to the table. `kill_at` is which of its writes it dies at (from 1), before it or after it; then
    no request of its gets there any more."""

    def __init__(self, db: MemoryDynamoDB, *, kill_at: int | None = None, before: bool = True) -> None:
        self._db = db
        self._kill_at = kill_at
        self._before = before
        self.writes: list[Call] = []
        self.is_over = False

    def __call__(self, operation: str, arguments: Mapping[str, Any]) -> Mapping[str, Any]:
        if self.is_over:
            raise Killed
        if operation in READS:
            return self._db(operation, arguments)
        self.writes.append(Call(operation, arguments))
        dies = len(self.writes) == self._kill_at
        if dies and self._before:
            self._die()
        answer = self._db(operation, arguments)
        if dies:
            self._die()
        return answer

    def _die(self) -> None:
        self.is_over = True
        raise Killed


class Objects(dict[str, bytes]):
    """A bucket."""

    def put(self, key: str, data: bytes) -> None:
        self[key] = data

    def get(self, key: str) -> bytes | None:  # type: ignore[override]
        return super().get(key)

    def delete(self, key: str) -> None:
        self.pop(key, None)

    def url(self, key: str, *, seconds: int) -> str:
        return f"memory:{key}"


class Rig:
    """The world of one handler. `tables` are the user's own, by name, with their key attributes."""

    def __init__(
        self,
        handler: Callable[..., Any],
        *,
        tables: Tables | None = None,
        queues: Sequence[str] = (),
        clock: FakeClock | None = None,
        wrap: Callable[[Handler], Handler] = lambda handler: handler,
    ) -> None:
        declared = handlers_of(handler)
        if not declared:
            raise ConfigurationError(f"{getattr(handler, '__qualname__', handler)} is no handler: @task is missing")
        self.handler = wrap(declared[0])
        self.type = self.handler.declaration.name
        self.db = MemoryDynamoDB(others=tables)
        self.clock = clock or FakeClock()
        self.seen = Recorder()
        self.objects = Objects()
        self._events: list[dict[str, Any]] = []
        self._executor = Executor("default", "executor", EXECUTOR_SECONDS, lease_seconds=LEASE_SECONDS)
        self._settings = Settings("tasks", dispatch_shards=1, executors={"default": self._executor})
        self._registry = _registry(self.handler, queues)
        self._processes = 0
        self.service = self.process(Life(self.db))

    def process(self, life: Life) -> Parts:
        """One more container."""
        self._processes += 1
        seams = Seams(
            send=life,
            invoke=lambda function, event: self._events.append(json.loads(event)),
            clock=self.clock,
            randomness=FakeRandomness(prefix=f"p{self._processes}-"),
            threads=InlineThreads(self.clock),
            objects=self.objects,
        )
        return Parts(self._settings, seams, registry=self._registry, telemetry=cast(Telemetry, self.seen))

    # ---- what happens ------------------------------------------------------------------------------------------------

    def submit(self, payload: str, **options: Any) -> str:
        """A task of the handler's type; `payload` is JSON text."""
        return str(self.service.submitter.submit(Submission(type=self.type, payload=payload, **options)).task.task_id)

    def attempt(self, task_id: str, *, life: Life | None = None) -> Summary:
        """Claim the task and run it once, in a process of its own, which may die."""
        parts = self.service
        claims = Claims(parts.store, parts.seams.invoke, threads=parts.seams.threads, owner="rig", observer=self.seen)
        claims.send([self.task(task_id)], self._executor)
        return self._run(self.process(life or Life(self.db)), Batch.from_event(self._events.pop()))

    def _run(self, parts: Parts, batch: Batch) -> Summary:
        runner = Runner(
            parts.store,
            parts.bodies,
            {self.type: self.handler},
            threads=parts.seams.threads,
            concurrency=1,
            lease_seconds=LEASE_SECONDS,
            observer=self.seen,
            submitter=parts.submitter,
            relatives=parts.dependencies,
            task_seconds=LONGEST_TIMEOUT_SECONDS,
            end_process=lambda: None,
        )
        summary = Summary()
        with suppress(Killed):
            summary = runner.run(batch, lambda: EXECUTOR_SECONDS)
        return summary

    def take_back(self) -> None:
        """What a killed worker left: its lease runs out, and the reaper sees to its task."""
        self.clock.advance(LEASE_SECONDS + self._settings.lease_grace_seconds + 1)
        self.service.reaper.reap_leases()

    def wait_until_due(self, task_id: str) -> None:
        self.clock.advance(max(0.0, self.task(task_id).due_at - self.clock.now()))

    # ---- what is stored ----------------------------------------------------------------------------------------------

    def item(self, task_id: str) -> Item:
        found = self.db.item(task_id)
        assert found is not None
        return found

    def change(self, task_id: str, **attributes: Any) -> None:
        self.db.put({**self.item(task_id), **attributes})

    def task(self, task_id: str) -> Task:
        return Task.from_item(self.item(task_id))

    def children(self, task_id: str) -> list[Task]:
        """Every task but that one, in the order of their ids."""
        items = [item for item_id, item in sorted(self.db.items().items()) if "#" not in item_id]
        return [Task.from_item(item) for item in items if item["taskId"] != task_id and "depth" in item]


def _registry(handler: Handler, queues: Sequence[str]) -> Registry:
    declared = handler.declaration
    entry = {
        "profile": "default",
        "queue": declared.queue or "default",
        "priority": declared.priority or "normal",
        "timeoutSeconds": declared.timeout,
        "maxRetryNumber": declared.max_retries,
        "backoff": handler.backoff.as_map(),
    }
    known = dict.fromkeys(["default", entry["queue"], *queues])
    return Registry.from_dict(
        {
            "formatVersion": 1,
            "profiles": {"default": {"modules": ["handlers"], "timeoutSeconds": EXECUTOR_SECONDS}},
            "queues": {name: {} for name in known},
            "types": {declared.name: entry},
        }
    )


def with_function(handler: Handler, function: Callable[[Any, Any], Any]) -> Handler:
    """The same declaration with another function; it gets the payload as the handler would."""
    return replace(handler, function=function)
