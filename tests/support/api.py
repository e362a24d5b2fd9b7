"""The API function in one process: the real handler over an in-memory table, a fake clock and a small registry."""

from __future__ import annotations

import io
import json
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from functions.api import handler as api
from tests.support.events import v2_event
from tests.support.fakes import FakeClock, FakeRandomness
from tests.support.memory_dynamodb import MemoryDynamoDB
from thunderagent.registry import Registry
from thunderagent.service import Service
from thunderagent.settings import Executor, Settings
from thunderagent.telemetry import Telemetry
from thunderagent.wiring import Parts, Seams

TABLE = "tasks"

REGISTRY: dict[str, Any] = {
    "formatVersion": 1,
    "profiles": {"default": {"modules": ["tasks.hello"], "timeoutSeconds": 900}},
    "queues": {"default": {}, "reports": {}},
    "types": {
        "demo.echo": {"profile": "default"},
        "report.generate": {
            "profile": "default",
            "queue": "reports",
            "priority": "low",
            "timeoutSeconds": 120,
            "maxRetryNumber": 5,
        },
    },
}


class MemoryObjects:
    """S3 as a dictionary."""

    def __init__(self) -> None:
        self.stored: dict[str, bytes] = {}

    def put(self, key: str, data: bytes) -> None:
        self.stored[key] = data

    def get(self, key: str) -> bytes | None:
        return self.stored.get(key)

    def delete(self, key: str) -> None:
        self.stored.pop(key, None)

    def url(self, key: str, *, seconds: int) -> str:
        return f"https://bucket.example/{key}?expires={seconds}"


class OneThread:
    """The thread pool seam without threads."""

    def map(self, function: Callable[[Any], Any], items: Sequence[Any]) -> list[Any]:
        return [function(item) for item in items]


@dataclass(frozen=True)
class Response:
    status: int
    headers: Mapping[str, str]
    text: str

    @property
    def json(self) -> Any:
        return json.loads(self.text) if self.text else None

    @property
    def error(self) -> Any:
        return self.json["error"]


@dataclass
class Api:
    """Calls the handler as API Gateway would. `table`, `clock`, `objects` and `log` are under the test's hand."""

    table: MemoryDynamoDB = field(default_factory=lambda: MemoryDynamoDB(TABLE))
    clock: FakeClock = field(default_factory=FakeClock)
    objects: MemoryObjects = field(default_factory=MemoryObjects)
    log: io.StringIO = field(default_factory=io.StringIO)
    list_completed: bool = True
    table_name: str = TABLE
    parts: Parts = field(init=False)
    service: Service = field(init=False)

    def __post_init__(self) -> None:
        settings = Settings(
            table_name=self.table_name,
            list_completed=self.list_completed,
            executors={"default": Executor("default", "executor")},
        )
        seams = Seams(
            send=self.table,
            invoke=lambda function, event: None,
            clock=self.clock,
            randomness=FakeRandomness(),
            threads=OneThread(),
            objects=self.objects,
        )
        telemetry = Telemetry(service="test", stream=self.log, clock_ms=lambda: 0)
        self.parts = Parts(settings, seams, registry=Registry.from_dict(REGISTRY), telemetry=telemetry)
        self.service = Service(self.parts)

    def call(self, method: str, path: str, body: Any = None, **options: Any) -> Response:
        text = None if body is None else json.dumps(body)
        return self.send(v2_event(method, path, body=text, **options))

    def send(self, event: dict[str, Any]) -> Response:
        answer = api.handler(event, None)
        return Response(answer["statusCode"], answer["headers"], answer["body"])

    def submit(self, **fields: Any) -> str:
        """Submit a task that must be accepted; its id."""
        response = self.call("POST", "/tasks", {"type": "demo.echo", **fields})
        assert response.status == 201, response.text
        return str(response.json["taskId"])

    def rows(self) -> list[str]:
        return sorted(self.table.items())

    def events(self) -> list[str]:
        lines = [json.loads(line) for line in self.log.getvalue().splitlines()]
        return [line["event"] for line in lines if "event" in line]
