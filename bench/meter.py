"""What the metered embedded AWS has counted (`bench.metered_aws`), read and compared."""

from __future__ import annotations

import json
import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any

from bench.metered_aws import METER_TABLE
from thunder.local.aws import client

LOOK_SECONDS = 0.2
QUIET_SECONDS = 1.0


@dataclass(frozen=True)
class Reading:
    """Sums by name, as paths: `writes/<table>/task`, `calls/<table>/UpdateItem`, `invocations/<function>`."""

    sums: Mapping[str, float]

    def total(self, *path: str) -> float:
        """All below a path, itself included."""
        prefix = "/".join(path)
        return sum(value for name, value in self.sums.items() if name == prefix or name.startswith(prefix + "/"))

    def below(self, *path: str) -> dict[str, float]:
        """What is not zero below a path, by the rest of its name."""
        prefix = "/".join(path) + "/"
        return {name[len(prefix) :]: value for name, value in self.sums.items() if name.startswith(prefix) and value}

    def since(self, earlier: Reading) -> Reading:
        return Reading({name: value - earlier.sums.get(name, 0) for name, value in self.sums.items()})

    def by_function(self, kind: str, prefix: str) -> float:
        """Of all functions whose names begin so: `invocations`, `ms` or `logBytes`."""
        return sum(value for name, value in self.below(kind).items() if name.startswith(prefix))


class Meter:
    """Reads the meter of one embedded AWS."""

    def __init__(self, endpoint: str) -> None:
        self._dynamodb: Any = client("dynamodb", endpoint)

    def read(self) -> Reading:
        answer = self._dynamodb.get_item(TableName=METER_TABLE, Key={"taskId": {"S": "figures"}})
        return Reading(json.loads(answer["Item"]["figures"]["S"]))

    def became(self, table: str, *statuses: str) -> int:
        """How many items of the table have come to one of these statuses so far."""
        reading = self.read()
        return int(sum(reading.total("became", table, status) for status in statuses))

    def last(self, table: str, *statuses: str) -> float:
        """When the last item came to one of these statuses; epoch seconds."""
        reading = self.read()
        return max(reading.total("last", table, status) for status in statuses)

    def wait_until(self, reached: Callable[[Reading], bool], *, seconds: float, doing: str) -> Reading:
        """Raises SystemExit when it is not reached in that time: a bench that goes on would measure something else."""
        until = time.monotonic() + seconds
        while not reached(reading := self.read()):
            if time.monotonic() > until:
                raise SystemExit(f"{doing}: not within {seconds:g} s")
            time.sleep(LOOK_SECONDS)
        return reading

    def settle(self, *, seconds: float = 60) -> Reading:
        """Once nothing has been counted for a moment: invocations that were under way have ended. Clocks that tick by
        themselves (schedules) have to be off."""
        until, quiet_since, before = time.monotonic() + seconds, time.monotonic(), self.read()
        while time.monotonic() - quiet_since < QUIET_SECONDS and time.monotonic() < until:
            time.sleep(LOOK_SECONDS)
            now = self.read()
            if now != before:
                before, quiet_since = now, time.monotonic()
        return before
