"""Pollers over a table in memory: as many as a test needs, with executors that only note what they were sent."""

from __future__ import annotations

import itertools
import json
from collections.abc import Callable, Mapping
from typing import Any

from tests.support.fakes import FakeClock, FakeRandomness, InlineThreads, Recorder
from tests.support.memory_dynamodb import MemoryDynamoDB
from thunderagent import expressions
from thunderagent.claims import Claims
from thunderagent.codec import Item, to_item
from thunderagent.dispatch import Sweeper
from thunderagent.doorbell import Doorbell
from thunderagent.errors import DispatchError
from thunderagent.expressions import Result
from thunderagent.model import Attempt, LeaseToken, Task
from thunderagent.queues import Queues
from thunderagent.registry import Registry
from thunderagent.schema import FORMAT_VERSION, Layout, open_key
from thunderagent.settings import Executor, Settings
from thunderagent.store import Store


def registry(types: Mapping[str, str]) -> Registry:
    """Task types and the executor profiles that have them."""
    return Registry.from_dict(
        {
            "formatVersion": 1,
            "profiles": {name: {"modules": ["m"], "timeoutSeconds": 900} for name in {*types.values(), "default"}},
            "queues": {"default": {}},
            "types": {
                name: {
                    "profile": profile,
                    "queue": "default",
                    "priority": "normal",
                    "timeoutSeconds": 300,
                    "maxRetryNumber": 3,
                    "leaseSeconds": None,
                    "backoff": {"base": 1, "factor": 2, "cap": 300},
                }
                for name, profile in types.items()
            },
        }
    )


class Service:
    """One table with its tasks, and what all its pollers share."""

    def __init__(
        self,
        *,
        max_in_flight: int = 20,
        batch: int = 10,
        shards: int = 4,
        threads: int = 10,
        types: Mapping[str, str] | None = None,
        send: Any = None,
        clock: Any = None,
    ) -> None:
        self.memory = MemoryDynamoDB()
        self.send = send or self.memory
        self.clock = clock or FakeClock()
        self.layout = Layout(shards=shards)
        self.registry = registry(types or {"echo": "default"})
        self.settings = Settings(
            table_name="tasks",
            dispatch_shards=shards,
            poll_batch_size=batch,
            executors={
                name: Executor(name, f"function-{name}", threads=threads, max_in_flight=max_in_flight)
                for name in self.registry.profiles
            },
        )
        self.notes = Recorder()
        self.events: list[dict[str, Any]] = []
        self.refuse: Callable[[], bool] = lambda: False
        self._numbers = itertools.count()

    # ---- tasks -------------------------------------------------------------------------------------------------------

    def put(self, task_id: str | None = None, *, shard: int | None = None, **attributes: Any) -> str:
        """A task as a submit leaves it, due since a moment."""
        number = next(self._numbers)
        task_id = task_id or f"t{number:05d}"
        queue, priority = attributes.get("queue", "default"), attributes.get("priority", "normal")
        settings = self.poller("submit").queues.get(queue)
        chosen = shard
        if chosen is None and settings is not None:
            chosen = settings.shard_for(task_id, attributes.get("tags", {}))
        now = self.clock.now()
        self.memory.put(
            {
                "taskId": task_id,
                "type": "echo",
                "queue": queue,
                "priority": priority,
                "status": "PENDING",
                "payload": "null",
                "retryCount": 0,
                "maxRetryNumber": 3,
                "timeoutSeconds": 300,
                "fence": 0,
                "createdAt": now,
                "updatedAt": now,
                "dueAt": round(now - 1 + number / 100_000, 5),
                "dispatchKey": open_key(queue, priority, chosen or 0),
                "formatVersion": FORMAT_VERSION,
                **attributes,
            }
        )
        return task_id

    def task(self, task_id: str) -> Item:
        item = self.memory.item(task_id)
        assert item is not None
        return item

    def status(self, task_id: str) -> str:
        return str(self.task(task_id)["status"])

    def running(self, **attributes: Any) -> list[str]:
        """Ids of the tasks RUNNING now, of a queue or with other attributes if given."""
        return [
            item_id
            for item_id, item in self.memory.items().items()
            if item.get("status") == "RUNNING" and all(item.get(name) == value for name, value in attributes.items())
        ]

    def finish(self, *task_ids: str) -> None:
        """Commit running tasks (all, if none are named), and settle leases that have none left."""
        store = self.poller("executor").store
        for task_id in task_ids or self.running():
            task = Task.from_item(self.task(task_id))
            assert task.lease_token is not None
            store.apply(
                expressions.commit(
                    task,
                    task.lease_token,
                    result=Result(text="1"),
                    attempt=Attempt(1, self.clock.now(), self.clock.now(), "success"),
                    layout=self.layout,
                    now=self.clock.now(),
                )
            )
        for item_id, lease in self.memory.items("lease#").items():
            token = LeaseToken(item_id.removeprefix("lease#"))
            if not any(self.task(each).get("lockTime") and self._under(each, token) for each in lease["taskIds"]):
                self.memory.remove(item_id)

    def _under(self, task_id: str, token: str) -> bool:
        item = self.task(task_id)
        return item["status"] == "RUNNING" and item.get("leaseToken") == token

    # ---- pollers -----------------------------------------------------------------------------------------------------

    def poller(self, name: str, *, randomness: Any = None, threads: Any = None) -> Poller:
        return Poller(self, name, randomness=randomness, threads=threads)

    def invoke(self, function: str, event: bytes) -> None:
        if self.refuse():
            raise DispatchError(function, "TooManyRequestsException", accepted=False)
        self.events.append(json.loads(event))

    @property
    def sent(self) -> list[list[str]]:
        """The task ids of each batch an executor was sent, in order."""
        return [event["taskIds"] for event in self.events]

    def sent_tasks(self) -> list[str]:
        return [task_id for batch in self.sent for task_id in batch]


class Poller:
    """One container: its own memory, randomness and caches."""

    def __init__(self, service: Service, name: str, *, randomness: Any = None, threads: Any = None) -> None:
        self.randomness = randomness or FakeRandomness(prefix=f"{name}-{next(service._numbers)}-")
        self.store = Store(
            table="tasks",
            send=service.send,
            clock=service.clock,
            randomness=self.randomness,
            layout=service.layout,
        )
        self.queues = Queues(self.store, service.registry.queues, clock=service.clock)
        self.strays: list[Task] = []
        self.threads = threads = threads or InlineThreads(service.clock)
        claims = Claims(self.store, service.invoke, threads=threads, owner=name, observer=service.notes)
        common = (self.store, claims, service.registry, self.queues, service.settings)
        self.sweeper = Sweeper(*common, reap_stray=self.strays.append, threads=threads, observer=service.notes)
        self.doorbell = Doorbell(*common, threads=threads, observer=service.notes)


def stream_record(new: Mapping[str, Any] | None, old: Mapping[str, Any] | None = None) -> dict[str, Any]:
    """What the table's stream says of one change."""
    change: dict[str, Any] = {"Keys": {"taskId": {"S": str((new or old or {}).get("taskId"))}}}
    if new is not None:
        change["NewImage"] = to_item(new)
    if old is not None:
        change["OldImage"] = to_item(old)
    name = "INSERT" if old is None else "REMOVE" if new is None else "MODIFY"
    return {"eventID": "1", "eventName": name, "eventSource": "aws:dynamodb", "dynamodb": change}
