"""Write units are added up from the functions' own metric lines, and from nothing else."""

import json

from examples.meter import add_up


def line(**fields: object) -> str:
    return json.dumps({"_aws": {"Timestamp": 1, "CloudWatchMetrics": []}, "Service": "s", **fields})


def test_single_values_and_arrays_are_added_by_function() -> None:
    units = add_up(
        [
            ("ApiFunction", line(WriteUnits=2)),
            ("ApiFunction", line(WriteUnits=[2, 2.5])),
            ("PollerFunction", line(WriteUnits=1.0)),
            ("ExecutorFunction", line(WriteUnits=[3], ReadUnits=9)),
        ]
    )
    assert units.by_function == {"ApiFunction": 6.5, "PollerFunction": 1, "ExecutorFunction": 3}
    assert units.total == 10.5
    assert units.is_whole


def test_other_lines_count_nothing() -> None:
    units = add_up(
        [
            ("Api", "START RequestId: 1"),
            ("Api", '{"event":"submitted","WriteUnits":5}'),
            ("Api", "WriteUnits {"),
            ("Api", '["WriteUnits"]'),
            ("Api", line(ReadUnits=5)),
        ]
    )
    assert units.total == 0


def test_a_sum_without_every_function_is_not_whole() -> None:
    assert not add_up([("Api", line(WriteUnits=2)), ("Executor", line(WriteUnits=2))]).is_whole
