"""Write units are the table's own metric: its share and its indexes', from the run's first second on."""

from datetime import UTC, datetime
from typing import Any

import pytest

from examples import meter
from examples.meter import WriteUnits, write_units_since

POINTS: dict[tuple[str, ...], list[tuple[int, float]]] = {
    ("tasks",): [(99, 100.0), (100, 2.0), (160, 3.0)],
    ("tasks", "dispatch-index"): [(100, 1.5)],
    ("others",): [(100, 50.0)],
}


class FakeCloudWatch:
    def list_metrics(self, *, Namespace: str, MetricName: str) -> dict[str, Any]:
        assert (Namespace, MetricName) == ("AWS/DynamoDB", "ConsumedWriteCapacityUnits")
        names = ("TableName", "GlobalSecondaryIndexName")
        return {
            "Metrics": [
                {"Dimensions": [{"Name": name, "Value": value} for name, value in zip(names, key, strict=False)]}
                for key in POINTS
            ]
        }

    def get_metric_statistics(
        self, *, Dimensions: list[dict[str, str]], StartTime: datetime, EndTime: datetime, **_: Any
    ) -> dict[str, Any]:
        points = POINTS[tuple(dimension["Value"] for dimension in Dimensions)]
        return {
            "Datapoints": [
                {"Sum": units} for at, units in points if StartTime <= datetime.fromtimestamp(at, UTC) < EndTime
            ]
        }


def test_table_and_index_are_added_up_from_the_second_the_run_began(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(meter, "client", lambda *_: FakeCloudWatch())
    units = write_units_since("http://127.0.0.1:1", "tasks", 100.9)
    assert units == WriteUnits(table=5.0, index=1.5)
    assert units.total == 6.5
    assert write_units_since("http://127.0.0.1:1", "unheard-of", 0) == WriteUnits(table=0, index=0)
