"""The reaper function in one process: its real parts over an in-memory table and a queue of undelivered events."""

from __future__ import annotations

import io
import json
from dataclasses import dataclass, field
from typing import Any

from tests.support.api import REGISTRY, OneThread
from tests.support.fakes import FakeClock, FakeRandomness
from tests.support.memory_dynamodb import MemoryDynamoDB
from thunderagent.errors import StoreRefused
from thunderagent.registry import Registry
from thunderagent.settings import Executor, Settings
from thunderagent.telemetry import Telemetry
from thunderagent.transport import Message
from thunderagent.upkeep import Upkeep
from thunderagent.wiring import Parts, Seams

TABLE = "tasks"


class FakeQueue:
    """A queue whose messages come ten at a time, each once."""

    def __init__(self) -> None:
        self.messages: list[Message] = []
        self.deleted: list[str] = []
        self.refused = False
        self._given = 0

    def put(self, body: Any) -> None:
        text = body if isinstance(body, str) else json.dumps(body)
        self.messages.append(Message(text, f"handle{len(self.messages)}"))

    def receive(self) -> list[Message]:
        if self.refused:
            raise StoreRefused("receive_message", "AccessDenied")
        few = self.messages[self._given : self._given + 10]
        self._given += len(few)
        return few

    def delete(self, message: Message) -> None:
        self.deleted.append(message.body)


@dataclass
class Minute:
    """Runs minutes of the reaper. `table`, `clock` and `queue` are under the test's hand."""

    shards: int = 2
    table: MemoryDynamoDB = field(default_factory=lambda: MemoryDynamoDB(TABLE))
    clock: FakeClock = field(default_factory=FakeClock)
    queue: FakeQueue = field(default_factory=FakeQueue)
    log: io.StringIO = field(default_factory=io.StringIO)
    upkeep: Upkeep = field(init=False)

    def __post_init__(self) -> None:
        executors = {"default": Executor("default", "executor")}
        settings = Settings(table_name=TABLE, executors=executors, dispatch_shards=self.shards)
        seams = Seams(
            send=self.table,
            invoke=lambda function, event: None,
            clock=self.clock,
            randomness=FakeRandomness(),
            threads=OneThread(),  # type: ignore[arg-type]  # nothing is started here
        )
        telemetry = Telemetry(service="test", stream=self.log, clock_ms=lambda: 0)
        parts = Parts(settings, seams, registry=Registry.from_dict(REGISTRY), telemetry=telemetry)
        self.upkeep = Upkeep(parts, undelivered=self.queue)

    def run(self) -> dict[str, Any]:
        """One minute: the run, then the time until the next."""
        self.log.truncate(0)
        self.log.seek(0)
        try:
            return self.upkeep.run()
        finally:
            self.upkeep.parts.flush()
            self.clock.advance(60)

    def _lines(self) -> list[dict[str, Any]]:
        return [json.loads(line) for line in self.log.getvalue().splitlines()]

    def measured(self, metric: str, queue: str | None = None) -> float | None:
        """The one value of the last minute, None when it was not emitted."""
        values = [line[metric] for line in self._lines() if metric in line and line.get("Queue") == queue]
        assert len(values) <= 1
        return values[0] if values else None

    def logged(self, event: str) -> list[dict[str, Any]]:
        return [line for line in self._lines() if line.get("event") == event]
