"""CloudWatch's embedded metric format: from log lines to the arguments of PutMetricData, as CloudWatch does it itself.

Pure. A line that is not in the format, or a metric of it that is damaged, yields nothing: it is still a log line.
"""

from __future__ import annotations

import json
import math
from collections import Counter, defaultdict
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Any

VALUES_A_DATUM = 150  # PutMetricData's limits
DATA_A_REQUEST = 500


@dataclass(frozen=True)
class Series:
    """One metric under one set of dimensions."""

    namespace: str
    name: str
    unit: str
    dimensions: tuple[tuple[str, str], ...]


class Gathered:
    """Values of many lines, equal ones of one second counted together: what is stored does not grow with traffic."""

    def __init__(self) -> None:
        self._values: dict[tuple[Series, int], Counter[float]] = defaultdict(Counter)

    def __bool__(self) -> bool:
        return bool(self._values)

    def add(self, message: str) -> None:
        for series, second, value in values_of(message):
            self._values[series, second][value] += 1

    def requests(self) -> Iterator[dict[str, Any]]:
        """Arguments of PutMetricData, within its limits."""
        by_namespace: dict[str, list[dict[str, Any]]] = defaultdict(list)
        for (series, second), counts in self._values.items():
            by_namespace[series.namespace] += _data(series, second, counts)
        for namespace, data in by_namespace.items():
            for start in range(0, len(data), DATA_A_REQUEST):
                yield {"Namespace": namespace, "MetricData": data[start : start + DATA_A_REQUEST]}


def values_of(message: str) -> Iterator[tuple[Series, int, float]]:
    """(series, epoch second, value) of everything a line measures, once under each of its dimension sets."""
    line = _object(message)
    about = line.get("_aws")
    if not isinstance(about, dict) or not isinstance(about.get("Timestamp"), int):
        return
    for directive in _objects(about.get("CloudWatchMetrics")):
        for definition in _objects(directive.get("Metrics")):
            for names in directive.get("Dimensions") or ():
                series = _series(line, directive, definition, names)
                for value in _numbers(line.get(definition.get("Name", ""))) if series else ():
                    assert series is not None
                    yield series, about["Timestamp"] // 1000, value


def _series(
    line: Mapping[str, Any], directive: Mapping[str, Any], definition: Mapping[str, Any], names: Any
) -> Series | None:
    """None where a dimension has no value: CloudWatch leaves such a set out."""
    if not isinstance(names, list) or not all(isinstance(line.get(name), str) for name in names):
        return None
    return Series(
        namespace=str(directive.get("Namespace")),
        name=str(definition.get("Name")),
        unit=str(definition.get("Unit", "None")),
        dimensions=tuple((name, line[name]) for name in sorted(names)),
    )


def _data(series: Series, second: int, counts: Mapping[float, int]) -> Iterator[dict[str, Any]]:
    values = sorted(counts)
    for start in range(0, len(values), VALUES_A_DATUM):
        part = values[start : start + VALUES_A_DATUM]
        yield {
            "MetricName": series.name,
            "Unit": series.unit,
            "Timestamp": second,
            "Dimensions": [{"Name": name, "Value": value} for name, value in series.dimensions],
            "Values": part,
            "Counts": [float(counts[value]) for value in part],
        }


def _object(message: str) -> dict[str, Any]:
    if not message.startswith("{"):
        return {}
    try:
        value = json.loads(message)
    except (ValueError, RecursionError):
        return {}
    return value if isinstance(value, dict) else {}


def _objects(value: Any) -> list[dict[str, Any]]:
    return [each for each in value if isinstance(each, dict)] if isinstance(value, list) else []


def _numbers(value: Any) -> list[float]:
    values = value if isinstance(value, list) else [value]
    numbers = [each for each in values if isinstance(each, int | float) and not isinstance(each, bool)]
    return [float(each) for each in numbers if math.isfinite(each)]
