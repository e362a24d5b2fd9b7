"""A table with claimed tasks under an open lease, and a runner over it: what tests of the executor start from."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from types import SimpleNamespace
from typing import Any

from tests.support.fakes import START, FakeClock, FakeRandomness, InlineThreads, Recorder
from tests.support.memory_dynamodb import MemoryDynamoDB
from thunderagent import expressions
from thunderagent.codec import Item
from thunderagent.leased_batch import Batch, Summary
from thunderagent.model import LeaseToken, TaskId
from thunderagent.registry import Registry, handlers_in
from thunderagent.runner import Runner
from thunderagent.schema import Layout, lease_id
from thunderagent.settings import Settings
from thunderagent.store import Written
from thunderagent.testing.rig import Objects
from thunderagent.threads import Threads
from thunderagent.wiring import Parts, Seams

TOKEN = LeaseToken("token-a")
LAYOUT = Layout(shards=1)


class Bench:
    """One executor's world. `claim` puts tasks into it, `run` runs them; afterwards look at `item`, `calls`, `seen`."""

    def __init__(
        self,
        *functions: Callable[..., Any],
        threads: Threads | None = None,
        clock: Any = None,
        concurrency: int = 10,
        lease_seconds: float = 60,
        fraction: float = 0.5,
        randomness: FakeRandomness | None = None,
        **more: Any,
    ) -> None:
        self.db = MemoryDynamoDB()
        self.clock = clock or FakeClock()
        self.seen = Recorder()
        self.exits: list[int] = []
        self.lease_seconds = lease_seconds
        self.randomness = randomness or FakeRandomness(fraction)
        self.objects = Objects()
        self.threads = threads or InlineThreads(self.clock)
        seams = Seams(
            send=self.db,
            invoke=lambda function, event: None,
            clock=self.clock,
            randomness=self.randomness,
            threads=self.threads,
            objects=self.objects,
        )
        settings = Settings(table_name="tasks", dispatch_shards=LAYOUT.shards)
        parts = Parts(settings, seams, registry=Registry(), telemetry=self.seen)  # type: ignore[arg-type]
        self.store, self.bodies = parts.store, parts.bodies
        self.runner = Runner(
            self.store,
            self.bodies,
            {handler.declaration.name: handler for handler in handlers_of(*functions)},
            threads=self.threads,
            concurrency=concurrency,
            lease_seconds=lease_seconds,
            observer=self.seen,
            submitter=parts.submitter,
            relatives=parts.dependencies,
            end_process=lambda: self.exits.append(1),
            **more,
        )
        self.task_ids: list[TaskId] = []

    def claim(self, task_id: str = "t1", payload: str = "{}", **more: Any) -> None:
        """A task as a poller's claim leaves it."""
        self.db.put(self.claimed(task_id, payload, **more))
        self.task_ids.append(TaskId(task_id))

    def claimed(self, task_id: str = "t1", payload: str = "{}", **more: Any) -> Item:
        now = self.clock.now()
        item = {
            "taskId": task_id,
            "type": "demo",
            "queue": "default",
            "priority": "normal",
            "status": "RUNNING",
            "payload": payload,
            "retryCount": 0,
            "maxRetryNumber": 3,
            "timeoutSeconds": 30,
            "fence": 1,
            "createdAt": now - 2,
            "dueAt": now - 2,
            "updatedAt": now,
            "startedAt": now,
            "dispatchKey": LAYOUT.open("default", "normal", task_id),
            "leaseToken": TOKEN,
            "lockTime": now + self.lease_seconds,
            "owner": "poller",
            "formatVersion": 1,
        }
        return {**item, **more}

    def open_lease(self) -> Batch:
        now = self.clock.now()
        lock_time = now + self.lease_seconds
        opening = expressions.open_lease(TOKEN, profile="default", task_ids=self.task_ids, lock_time=lock_time, now=now)
        assert isinstance(self.store.apply(opening), Written)
        self.db.calls.clear()
        return Batch(TOKEN, tuple(self.task_ids), lock_time)

    def run(self, batch: Batch | None = None, remaining: float | Callable[[], float] = 900) -> Summary:
        left = remaining if callable(remaining) else self.counting_down(remaining)
        return self.runner.run(self.open_lease() if batch is None else batch, left)

    def counting_down(self, seconds: float) -> Callable[[], float]:
        """What a Lambda context says: the time left, as the clock goes on."""
        until = self.clock.monotonic() + seconds
        return lambda: until - self.clock.monotonic()

    def item(self, task_id: str = "t1") -> Item:
        found = self.db.item(task_id)
        assert found is not None
        return found

    @property
    def lease(self) -> Item | None:
        return self.db.item(lease_id(TOKEN))

    def cancel(self, task_id: str = "t1") -> None:
        """What the API does to a running task, both writes."""
        task = self.store.get_task(task_id)
        assert task is not None
        request = expressions.cancel_request(task, reason=None, operator=None, now=self.clock.now())
        assert isinstance(self.store.apply(request), Written)
        self.store.apply(expressions.tell_lease(TOKEN, TaskId(task_id)))

    def close_lease(self) -> None:
        """What a reaper does to a lease that ran out."""
        lease = self.store.get_lease(TOKEN)
        assert lease is not None
        assert isinstance(self.store.apply(expressions.close(lease, now=self.clock.now())), Written)

    def take_away(self, task_id: str = "t1") -> None:
        """Somebody else claimed the task under another lease."""
        self.db.put({**self.item(task_id), "leaseToken": "token-b", "fence": 2, "owner": "other"})


def handlers_of(*functions: Callable[..., Any]) -> Any:
    """Handlers of functions declared in a test: as if they stood alone in their module."""
    names: Mapping[str, Any] = {f"function{number}": function for number, function in enumerate(functions)}
    return handlers_in(SimpleNamespace(__name__=functions[0].__module__ if functions else "none", **names))  # type: ignore[arg-type]


__all__ = ["LAYOUT", "START", "TOKEN", "Bench", "Objects", "handlers_of"]
