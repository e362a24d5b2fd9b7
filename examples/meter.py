"""Write units of a run, summed from what the functions metered.

Each function asks DynamoDB for the capacity of every write it sends (`ReturnConsumedCapacity`) and logs the sums as
the metric `WriteUnits` in CloudWatch's embedded metric format. What is not logged is not counted; nothing is estimated.
"""

import json
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import Any

from thunder.local.logs import FunctionLogs

METRIC = "WriteUnits"


@dataclass(frozen=True)
class WriteUnits:
    """Write units by function."""

    by_function: Mapping[str, float]

    @property
    def total(self) -> float:
        return sum(self.by_function.values())

    @property
    def is_whole(self) -> bool:
        """Whether each of the functions that take a task from submit to its end has logged something."""
        named = " ".join(self.by_function).lower()
        return all(part in named for part in ("api", "poller", "executor"))


def write_units_since(endpoint: str, epoch_seconds: float) -> WriteUnits:
    """What all functions of the local stack logged since then."""
    lines = FunctionLogs(endpoint).since(int(epoch_seconds * 1000))
    return add_up((line.group.rpartition("/")[2], line.message) for line in lines)


def add_up(lines: Iterable[tuple[str, str]]) -> WriteUnits:
    """Sum the metric over (function, log line) pairs; lines that are no metric lines are passed over."""
    units: dict[str, float] = {}
    for function, message in lines:
        for value in _values(message):
            units[function] = units.get(function, 0) + value
    return WriteUnits(units)


def _values(message: str) -> list[float]:
    """The metric's values in one line: a number, or an array of them."""
    if METRIC not in message:
        return []
    try:
        line: Any = json.loads(message)
    except ValueError:
        return []
    if not isinstance(line, dict) or "_aws" not in line or METRIC not in line:
        return []
    found = line[METRIC]
    return [float(value) for value in (found if isinstance(found, list) else [found])]
