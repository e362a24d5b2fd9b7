"""The table's stream: in order for each item and in batches. The recorder's come again until it is done; the doorbell's
may be lost, doubled and shuffled."""

from __future__ import annotations

import zlib
from collections import deque
from collections.abc import Mapping, Sequence
from functools import partial
from typing import TYPE_CHECKING, Any

from tests.simulation.containers import Container
from tests.simulation.kernel import Actor, Process
from thunderagent.recorder import RecordingDelayed
from thunderagent.testing.dynamodb_expressions import Raw

if TYPE_CHECKING:
    from tests.simulation.cloud import Cloud

STREAM_SHARDS = 2


class Streams:
    """One for each consumer and shard."""

    def __init__(self, cloud: Cloud) -> None:
        self._cloud = cloud
        self._kernel = cloud.kernel
        self._streams: dict[tuple[str, int], deque[dict[str, Any]]] = {}
        self._consumers: dict[tuple[str, int], Actor] = {}
        self._process = Process(cloud.kernel, "aws")
        self._sequence = 0

    def start(self) -> None:
        for consumer in ("doorbell", "recorder"):
            for shard in range(STREAM_SHARDS):
                key = (consumer, shard)
                self._streams[key] = deque()
                self._consumers[key] = self._kernel.spawn(
                    self._process, f"stream/{consumer}/{shard}", partial(self._consume, *key)
                )

    @property
    def has_records(self) -> bool:
        return any(self._streams.values())

    def take(self, item_id: str, old: Raw | None, new: Raw | None, by_ttl: bool) -> None:
        """A change of the table. Side items have nobody who listens."""
        if "#" in item_id or not self._streams:
            return
        self._sequence += 1
        record = _record_of(self._sequence, item_id, old, new, by_ttl, self._kernel.now)
        shard = zlib.crc32(item_id.encode()) % STREAM_SHARDS
        status = None if new is None else new["status"]["S"]
        if status == "PENDING" and new is not None and new["dispatchKey"]["S"].startswith("OPEN#"):
            self._put(("doorbell", shard), record)
        if status is None or status in {"SUCCESS", "FAILED", "DONE"}:
            self._put(("recorder", shard), record)

    def _put(self, key: tuple[str, int], record: dict[str, Any]) -> None:
        self._streams[key].append(record)
        if len(self._streams[key]) == 1:
            self._kernel.wake(self._consumers[key])

    def _consume(self, consumer: str, shard: int) -> None:
        """An event source mapping: one batch at a time, in order, again until it is done (the doorbell's: once)."""
        chance, stream = self._kernel.random, self._streams[(consumer, shard)]
        while True:
            while not stream:
                self._kernel.wait()
            late = chance.random() < self._cloud.weather.record_late
            self._kernel.faults["record_late"] += late
            self._kernel.pause(chance.random() * 30 if late else 0.02 + chance.random() * 0.2)
            size = 1 + int(chance.random() * 20)
            batch = [stream.popleft() for _ in range(min(size, len(stream)))]
            if consumer == "doorbell":
                self._ring(batch)
            else:
                self._record(batch)

    def _ring(self, batch: list[dict[str, Any]]) -> None:
        """Dropped, repeated and out of order: none of it may matter."""
        weather, chance = self._cloud.weather, self._kernel.random
        if chance.random() < weather.record_dropped:
            self._kernel.note(f"aws: a doorbell batch of {len(batch)} is dropped")
            self._kernel.faults["record_dropped"] += 1
            return
        times = 1 + (chance.random() < weather.record_repeated)
        self._kernel.faults["record_repeated"] += times - 1
        for _ in range(times):
            shuffled = weather.record_repeated and chance.random() < 0.3
            self._kernel.faults["record_reordered"] += bool(shuffled)
            records = sorted(batch, key=lambda record: chance.random()) if shuffled else batch
            self._cloud.invocations.run_in("doorbell", partial(_rung, records), seconds=60)

    def _record(self, batch: list[dict[str, Any]]) -> None:
        weather, chance = self._cloud.weather, self._kernel.random
        repeats = chance.random() < weather.record_repeated
        self._kernel.faults["record_repeated"] += repeats
        while True:
            fine: list[bool] = []

            def work(container: Container, fine: list[bool] = fine) -> None:
                try:
                    container.recording.recorder.record({"Records": batch})
                except RecordingDelayed:
                    return
                fine.append(True)

            self._cloud.invocations.and_wait("recorder", work, seconds=60)
            if fine and not repeats:
                return
            repeats = repeats and not fine
            self._kernel.pause(1)


def _rung(records: Sequence[Mapping[str, Any]], container: Container) -> None:
    container.parts.doorbell.ring(records)


def _record_of(number: int, item_id: str, old: Raw | None, new: Raw | None, by_ttl: bool, now: float) -> dict[str, Any]:
    body: dict[str, Any] = {
        "ApproximateCreationDateTime": now,
        "Keys": {"taskId": {"S": item_id}},
        "SequenceNumber": f"{number:025d}",
    }
    body |= {} if old is None else {"OldImage": old}
    body |= {} if new is None else {"NewImage": new}
    identity = {"type": "Service", "principalId": "dynamodb.amazonaws.com"}
    return {
        "eventID": f"event{number:012d}",
        "eventName": "INSERT" if old is None else "REMOVE" if new is None else "MODIFY",
        "dynamodb": body,
        **({"userIdentity": identity} if by_ttl else {}),
    }
