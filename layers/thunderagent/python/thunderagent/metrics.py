"""The metrics of the service: their names, units and dimensions. Code, alarms, dashboards and documents read this.

`Service` is the stack's name. What is counted by lease, by sweep or by run has no `Queue`: a lease may carry tasks of
several. `Type` has at most 25 values, the rest are `other`. No dimension is ever an id: each combination of dimensions
is a metric of its own, and paid for.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import Final

NAMESPACE: Final = "ThunderAgent"
TYPES_NAMED: Final = 25
OTHER_TYPES: Final = "other"

DimensionNames = tuple[str, ...]

SERVICE: Final[DimensionNames] = ("Service",)
QUEUE: Final[DimensionNames] = ("Service", "Queue")
TYPE: Final[DimensionNames] = ("Service", "Queue", "Type")


@dataclass(frozen=True)
class Metric:
    """One metric: its unit, and the sets of dimensions every value is counted under."""

    unit: str
    dimension_sets: tuple[DimensionNames, ...]


METRICS: Final[Mapping[str, Metric]] = {
    "PollerHeartbeat": Metric("Count", (SERVICE,)),
    "ReaperHeartbeat": Metric("Count", (SERVICE,)),
    "Submitted": Metric("Count", (QUEUE, SERVICE)),
    "Claimed": Metric("Count", (QUEUE,)),
    "ClaimConflicts": Metric("Count", (QUEUE,)),
    "Succeeded": Metric("Count", (TYPE, QUEUE, SERVICE)),
    # 0 for a success, 1 for a dead letter: the sum counts failures, the average is the failure rate (as AWS/Lambda
    # does with Errors), and an alarm on a rate needs no metric math.
    "Failed": Metric("Count", (TYPE, QUEUE, SERVICE)),
    "Retried": Metric("Count", (TYPE, QUEUE, SERVICE)),
    "Cancelled": Metric("Count", (QUEUE,)),
    "QueueLatency": Metric("Seconds", (QUEUE, SERVICE)),
    "Duration": Metric("Seconds", (TYPE, QUEUE)),
    "Backlog": Metric("Count", (QUEUE,)),
    "Running": Metric("Count", (QUEUE,)),
    "Blocked": Metric("Count", (QUEUE,)),
    "OldestDueAge": Metric("Seconds", (QUEUE, SERVICE)),
    "DispatchFailures": Metric("Count", (SERVICE,)),
    "SweepsFailed": Metric("Count", (SERVICE,)),
    "EventsTooOld": Metric("Count", (SERVICE,)),
    "LeasesExpired": Metric("Count", (SERVICE,)),
    "HeartbeatsLost": Metric("Count", (SERVICE,)),
    "Undelivered": Metric("Count", (SERVICE,)),
    "AuditViolations": Metric("Count", (SERVICE,)),
    "WriteUnits": Metric("Count", (QUEUE, SERVICE)),
    "ReadUnits": Metric("Count", (QUEUE, SERVICE)),
}


def named_types(types: Iterable[str]) -> frozenset[str]:
    """Those types that are dimensions by their own name. The same in every function, since it depends on names only."""
    return frozenset(sorted(types)[:TYPES_NAMED])
