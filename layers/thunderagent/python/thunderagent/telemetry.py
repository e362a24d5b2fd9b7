"""What operators see: one JSON log line per state change, and CloudWatch metrics in embedded metric format (EMF).

Log lines carry an `event` name and ids, never a payload, a header or a token. Metrics are estimates (a line may be
written twice or lost); their dimensions are Service and Queue (and Type where the contract says so), never an id.
"""

from __future__ import annotations

import json
import sys
import threading
from collections import defaultdict
from collections.abc import Mapping
from typing import Any, Protocol, TextIO

NAMESPACE = "ThunderAgent"
EMF_VALUES = 100  # CloudWatch's limit for one metric's array in one line
UNITS = {
    "QueueLatency": "Seconds",
    "Duration": "Seconds",
    "OldestDueAge": "Seconds",
}
LEVELS = {"DEBUG": 10, "INFO": 20, "WARNING": 30, "ERROR": 40}

Dimensions = tuple[tuple[str, str], ...]


class Observer(Protocol):
    """Where the library reports to. Implementations never raise."""

    def log(self, event: str, *, level: str = "INFO", **fields: Any) -> None: ...
    def measure(self, metric: str, value: float = 1, *, queue: str | None = None, type: str | None = None) -> None: ...


class Telemetry:
    """The observer of the functions: log lines at once, metrics gathered until `flush`."""

    def __init__(
        self,
        *,
        service: str,
        level: str = "INFO",
        stream: TextIO | None = None,
        context: Mapping[str, Any] | None = None,
        clock_ms: Any = None,
    ) -> None:
        self._service = service
        self._level = LEVELS.get(level, 20)
        self._stream = stream
        self._context = dict(context or {})
        self._clock_ms = clock_ms
        self._values: dict[Dimensions, dict[str, list[float]]] = defaultdict(lambda: defaultdict(list))
        self._lock = threading.Lock()

    def log(self, event: str, *, level: str = "INFO", **fields: Any) -> None:
        """One line of JSON. None values are left out."""
        if LEVELS.get(level, 20) >= self._level:
            line = {"level": level, "event": event, **self._context, **fields}
            self._print({name: value for name, value in line.items() if value is not None})

    def measure(self, metric: str, value: float = 1, *, queue: str | None = None, type: str | None = None) -> None:
        """Add a value of a metric of CONTRACT §5, for one queue (or for the whole service) and perhaps one type."""
        dimensions: Dimensions = (("Service", self._service),)
        if queue is not None:
            dimensions += (("Queue", queue),)
        if type is not None:
            dimensions += (("Type", type),)
        with self._lock:
            self._values[dimensions][metric].append(value)

    def flush(self) -> None:
        """Write what was measured as EMF lines and start anew."""
        with self._lock:
            taken, self._values = self._values, defaultdict(lambda: defaultdict(list))
        for dimensions, metrics in taken.items():
            while metrics:
                part = {name: values[:EMF_VALUES] for name, values in metrics.items()}
                self._print(self._emf(dimensions, part))
                metrics = {name: values[EMF_VALUES:] for name, values in metrics.items() if len(values) > EMF_VALUES}

    def _emf(self, dimensions: Dimensions, metrics: Mapping[str, list[float]]) -> dict[str, Any]:
        names = [{"Name": name, "Unit": UNITS.get(name, "Count")} for name in metrics]
        definition = {"Namespace": NAMESPACE, "Dimensions": [[name for name, _ in dimensions]], "Metrics": names}
        return {
            "_aws": {"Timestamp": self._clock_ms(), "CloudWatchMetrics": [definition]},
            **dict(dimensions),
            **{name: values if len(values) > 1 else values[0] for name, values in metrics.items()},
        }

    def _print(self, line: Mapping[str, Any]) -> None:
        # json.dumps escapes control characters, so nothing a task says can forge a line
        print(json.dumps(line, default=str, separators=(",", ":")), file=self._stream or sys.stdout, flush=True)


class Silence:
    """An observer that keeps nothing."""

    def log(self, event: str, *, level: str = "INFO", **fields: Any) -> None:
        return None

    def measure(self, metric: str, value: float = 1, *, queue: str | None = None, type: str | None = None) -> None:
        return None
