"""What operators see: JSON log lines, and CloudWatch metrics in embedded metric format (EMF).

A log line is one JSON object with an `event` name and ids, never a payload, a header or a token. Metrics are estimates:
a line may be written twice, or lost with its process. Which exist, and by which dimensions, stands in `metrics`.
"""

from __future__ import annotations

import json
import math
import sys
import threading
import time
from collections import defaultdict
from collections.abc import Callable, Iterable, Mapping
from datetime import UTC, datetime
from typing import TYPE_CHECKING, Any, Protocol, TextIO

from thunderagent.metrics import METRICS, NAMESPACE, OTHER_TYPES, SERVICE, DimensionNames, Metric, named_types
from thunderagent.text import cut

if TYPE_CHECKING:
    from thunderagent.model import Task

EMF_VALUES = 100  # CloudWatch's limit for one metric's array in one line
FLUSH_MS = 30_000  # what was measured is written out this soon: an alarm looks at the last few minutes only
TEXT_BYTES = 8_192  # of one field of a log line
LEVELS = {"DEBUG": 10, "INFO": 20, "WARNING": 30, "ERROR": 40}

Labels = tuple[str | None, str | None]  # queue, type


class Observer(Protocol):
    """Where the library reports to. Implementations never raise."""

    def log(self, event: str, *, level: str = "INFO", **fields: Any) -> None: ...
    def measure(self, metric: str, value: float = 1, *, queue: str | None = None, type: str | None = None) -> None: ...
    def flush_old(self) -> None:
        """A chance to write out what was measured a while ago; taken by whoever runs for long."""


def ids_of(task: Task) -> dict[str, Any]:
    """What every log line about a task says of it. `traceparent` is None for a task submitted without one."""
    return {
        "taskId": task.task_id,
        "queue": task.queue,
        "type": task.type,
        "traceparent": task.item.get("traceparent"),
    }


class Telemetry:
    """The observer of the functions: log lines at once, metrics gathered until `flush` or for half a minute.

    `debug_share` of the invocations, drawn anew at each flush, log everything whatever the level. `types` are all task
    types of the service. Thread-safe.
    """

    def __init__(
        self,
        *,
        service: str,
        level: str = "INFO",
        types: Iterable[str] = (),
        debug_share: float = 0,
        draw: Callable[[], float] = lambda: 1.0,
        stream: TextIO | None = None,
        clock_ms: Callable[[], int] = lambda: int(time.time() * 1000),
    ) -> None:
        self._service = service
        self._level = LEVELS.get(level, 20)
        self._types = named_types(types)
        self._debug_share = debug_share
        self._draw = draw
        self._stream = stream
        self._clock_ms = clock_ms
        self._values: dict[Labels, dict[str, list[float]]] = defaultdict(lambda: defaultdict(list))
        self._oldest_ms: int | None = None
        self._lock = threading.Lock()
        self._print_lock = threading.Lock()
        self._sampled = self._is_sampled()
        self.listener: Callable[[str, Mapping[str, Any]], None] | None = None  # hears every event, whatever its level

    # ---- log lines ---------------------------------------------------------------------------------------------------

    def log(self, event: str, *, level: str = "INFO", **fields: Any) -> None:
        """One line of JSON. None values are left out, long texts cut."""
        if self.listener is not None:
            self.listener(event, fields)
        if LEVELS.get(level, 20) < self._level and not self._sampled:
            return
        now = datetime.fromtimestamp(self._clock_ms() / 1000, UTC)
        line = {"time": now.isoformat(timespec="milliseconds").replace("+00:00", "Z"), "level": level, "event": event}
        # `_aws` would make a metric of a log line
        line |= {name: _shown(value) for name, value in fields.items() if value is not None and name != "_aws"}
        self._print(line)

    def _is_sampled(self) -> bool:
        return self._debug_share > 0 and self._draw() < self._debug_share

    # ---- metrics -----------------------------------------------------------------------------------------------------

    def measure(self, metric: str, value: float = 1, *, queue: str | None = None, type: str | None = None) -> None:
        """Add a value of a metric; it counts under every set of dimensions that `metrics` lists for it."""
        if not math.isfinite(value):
            return
        named = type if type is None or type in self._types else OTHER_TYPES
        with self._lock:
            self._values[queue, named][metric].append(value)
            if self._oldest_ms is None:
                self._oldest_ms = self._clock_ms()
        self.flush_old()

    def flush_old(self) -> None:
        """Write out if something was measured half a minute ago."""
        oldest = self._oldest_ms
        if oldest is not None and self._clock_ms() - oldest >= FLUSH_MS:
            self._write_metrics()

    def flush(self) -> None:
        """Write all that was measured. For the end of an invocation, however it ended."""
        self._write_metrics()
        self._sampled = self._is_sampled()

    def _write_metrics(self) -> None:
        with self._lock:
            taken, self._values = self._values, defaultdict(lambda: defaultdict(list))
            self._oldest_ms = None
        for labels, metrics in taken.items():
            while metrics:
                part = {name: values[:EMF_VALUES] for name, values in metrics.items()}
                self._print(self._emf(labels, part))
                metrics = {name: values[EMF_VALUES:] for name, values in metrics.items() if len(values) > EMF_VALUES}

    def _emf(self, labels: Labels, metrics: Mapping[str, list[float]]) -> dict[str, Any]:
        """One line for all metrics of one queue and type: a directive for each list of dimension sets."""
        dimensions = {"Service": self._service}
        dimensions |= {name: value for name, value in zip(("Queue", "Type"), labels, strict=True) if value is not None}
        directives: dict[tuple[DimensionNames, ...], list[dict[str, str]]] = defaultdict(list)
        for name in metrics:
            metric = METRICS.get(name, Metric("Count", (SERVICE,)))
            sets = tuple(each for each in metric.dimension_sets if dimensions.keys() >= set(each))
            directives[sets].append({"Name": name, "Unit": metric.unit})
        return {
            "_aws": {
                "Timestamp": self._clock_ms(),
                "CloudWatchMetrics": [
                    {"Namespace": NAMESPACE, "Dimensions": [list(each) for each in sets], "Metrics": definitions}
                    for sets, definitions in directives.items()
                ],
            },
            **dimensions,
            **{name: values if len(values) > 1 else values[0] for name, values in metrics.items()},
        }

    def _print(self, line: Mapping[str, Any]) -> None:
        """One write: lines of several threads must not run into each other. Nor can what a task says forge a line: JSON
        escapes every control character, and here all that is not ASCII."""
        try:
            text = json.dumps(line, default=str, separators=(",", ":"))
        except (TypeError, ValueError, RecursionError) as error:
            about = {"level": line.get("level"), "event": line.get("event"), "unprintable": type(error).__name__}
            text = json.dumps(about, default=str)
        stream = self._stream or sys.stdout
        with self._print_lock:
            stream.write(text + "\n")
            stream.flush()


def _shown(value: Any) -> Any:
    return cut(value, TEXT_BYTES) if isinstance(value, str) else value


class Silence:
    """An observer that keeps nothing."""

    def log(self, event: str, *, level: str = "INFO", **fields: Any) -> None:
        return None

    def measure(self, metric: str, value: float = 1, *, queue: str | None = None, type: str | None = None) -> None:
        return None

    def flush_old(self) -> None:
        return None
