"""Made-up records of the table's stream (the embedded AWS has none for TTL removals), and a recorder to take them."""

from __future__ import annotations

import gzip
import io
import itertools
import json
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import Any

from tests.support.api import REGISTRY, MemoryObjects
from tests.support.fakes import START, FakeClock, FakeRandomness
from tests.support.memory_dynamodb import MemoryDynamoDB
from thunderagent.codec import Item, to_item
from thunderagent.errors import OutcomeUnknown
from thunderagent.recording import Recording
from thunderagent.registry import Registry
from thunderagent.settings import Settings
from thunderagent.telemetry import Telemetry
from thunderagent.wiring import Parts, Seams

TABLE = "tasks"
TTL_IDENTITY = {"type": "Service", "principalId": "dynamodb.amazonaws.com"}
_sequence = itertools.count(4_000_001)


def record(
    name: str, item_id: str, *, old: Item | None = None, new: Item | None = None, at: float = START, ttl: bool = False
) -> dict[str, Any]:
    """One record as Lambda delivers it."""
    number = next(_sequence)
    body: dict[str, Any] = {
        "ApproximateCreationDateTime": at,
        "Keys": {"taskId": {"S": item_id}},
        "SequenceNumber": f"{number:025d}",
        "SizeBytes": 100,
        "StreamViewType": "NEW_AND_OLD_IMAGES",
    }
    body |= {} if old is None else {"OldImage": to_item(old)}
    body |= {} if new is None else {"NewImage": to_item(new)}
    identity = {"userIdentity": TTL_IDENTITY} if ttl else {}
    return {
        "eventID": f"event{number:012d}",
        "eventName": name,
        "eventSource": "aws:dynamodb",
        "eventSourceARN": "arn:aws:dynamodb:us-east-1:1:table/tasks/stream/1",
        "dynamodb": body,
        **identity,
    }


def removal(item: Item, *, ttl: bool = True, at: float = START) -> dict[str, Any]:
    return record("REMOVE", item["taskId"], old=item, at=at, ttl=ttl)


def ending(old: Item, new: Item, *, at: float = START) -> dict[str, Any]:
    return record("MODIFY", new["taskId"], old=old, new=new, at=at)


def batch(*records: dict[str, Any]) -> dict[str, Any]:
    return {"Records": list(records)}


class Objects(MemoryObjects):
    """S3 that can be down."""

    def __init__(self) -> None:
        super().__init__()
        self.down = False
        self.puts = 0

    def put(self, key: str, data: bytes) -> None:
        if self.down:
            raise OutcomeUnknown("PutObject", "EndpointConnectionError", "no answer")
        self.puts += 1
        super().put(key, data)


class Bus:
    """EventBridge: keeps what it accepts, and answers as it is told to."""

    def __init__(self) -> None:
        self.accepted: list[dict[str, Any]] = []
        self.calls = 0
        self.judge: Callable[[dict[str, Any]], str | None] = lambda detail: None
        self.down = False

    def __call__(self, entries: Sequence[dict[str, Any]]) -> list[str | None]:
        self.calls += 1
        if self.down:
            raise OutcomeUnknown("put_events", "ReadTimeoutError", "no answer")
        assert 1 <= len(entries) <= 10
        codes = [self.judge(json.loads(entry["Detail"])) for entry in entries]
        self.accepted += [entry for entry, code in zip(entries, codes, strict=True) if code is None]
        return codes

    @property
    def details(self) -> list[dict[str, Any]]:
        return [json.loads(entry["Detail"]) for entry in self.accepted]


@dataclass
class Rig:
    """A recorder over memory. `failures` are the messages of the failure destination."""

    statuses: frozenset[str] = frozenset({"SUCCESS", "FAILED", "DONE"})
    patience_seconds: float = 3600
    table: MemoryDynamoDB = field(default_factory=lambda: MemoryDynamoDB(TABLE))
    clock: FakeClock = field(default_factory=FakeClock)
    objects: Objects = field(default_factory=Objects)
    bus: Bus = field(default_factory=Bus)
    failures: list[dict[str, Any]] = field(default_factory=list)
    log: io.StringIO = field(default_factory=io.StringIO)
    queue_down: bool = False
    recording: Recording = field(init=False)

    def __post_init__(self) -> None:
        settings = Settings(
            table_name=TABLE,
            event_bus="bus",
            event_statuses=self.statuses,
            recorder_patience_seconds=self.patience_seconds,
        )
        seams = Seams(
            send=self.table,
            invoke=lambda function, event: None,
            clock=self.clock,
            randomness=FakeRandomness(),
            threads=None,  # type: ignore[arg-type]  # the recorder starts none
            objects=self.objects,
        )
        telemetry = Telemetry(service="test", stream=self.log, clock_ms=lambda: 0)
        parts = Parts(settings, seams, registry=Registry.from_dict(REGISTRY), telemetry=telemetry)
        self.recording = Recording(parts, put_events=self.bus, send_failure=self._fail)

    def _fail(self, message: str) -> None:
        if self.queue_down:
            raise OutcomeUnknown("send_message", "EndpointConnectionError", "no answer")
        self.failures.append(json.loads(message))

    def record(self, *records: dict[str, Any]) -> dict[str, int]:
        return self.recording.recorder.record(batch(*records)).as_dict()

    def lines(self) -> list[dict[str, Any]]:
        """Every archived line, in the order of the keys."""
        return [line for _, data in sorted(self.objects.stored.items()) for line in lines_of(data)]

    def logged(self, event: str) -> list[dict[str, Any]]:
        return [line for line in map(json.loads, self.log.getvalue().splitlines()) if line.get("event") == event]

    def measured(self, metric: str) -> float:
        self.recording.parts.flush()
        values = [line[metric] for line in map(json.loads, self.log.getvalue().splitlines()) if metric in line]
        return sum(sum(value) if isinstance(value, list) else value for value in values)


def lines_of(data: bytes) -> list[dict[str, Any]]:
    return [
        json.loads(line) for line in gzip.decompress(data).decode().split("\n") if line
    ]  # no other mark ends a line
