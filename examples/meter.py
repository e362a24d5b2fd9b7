"""Write units of a run: what DynamoDB charged for table and index, as its own metric in CloudWatch says."""

import math
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from typing import Any

from thunder.local.aws import client

PERIOD_SECONDS = 3600


@dataclass(frozen=True)
class WriteUnits:
    """Sums over a time, of every write that was applied, whoever sent it."""

    table: float
    index: float

    @property
    def total(self) -> float:
        return self.table + self.index


def write_units_since(endpoint: str, table_name: str, epoch_seconds: float) -> WriteUnits:
    """What was written to the table from that second on."""
    cloudwatch = client("cloudwatch", endpoint)
    metrics = cloudwatch.list_metrics(Namespace="AWS/DynamoDB", MetricName="ConsumedWriteCapacityUnits")["Metrics"]
    sums = {"table": 0.0, "index": 0.0}
    for metric in metrics:
        dimensions = {dimension["Name"]: dimension["Value"] for dimension in metric["Dimensions"]}
        if dimensions.get("TableName") == table_name:
            kind = "index" if "GlobalSecondaryIndexName" in dimensions else "table"
            sums[kind] += _sum(cloudwatch, metric["Dimensions"], math.floor(epoch_seconds))
    return WriteUnits(**sums)


def _sum(cloudwatch: Any, dimensions: list[dict[str, str]], since: int) -> float:
    answer = cloudwatch.get_metric_statistics(
        Namespace="AWS/DynamoDB",
        MetricName="ConsumedWriteCapacityUnits",
        Dimensions=dimensions,
        StartTime=datetime.fromtimestamp(since, UTC),
        EndTime=datetime.now(UTC) + timedelta(minutes=1),
        Period=PERIOD_SECONDS,
        Statistics=["Sum"],
    )
    return math.fsum(point["Sum"] for point in answer["Datapoints"])
