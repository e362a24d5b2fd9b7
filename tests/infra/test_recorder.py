"""TA-31 in the template: a record that fails cannot block its shard, nor vanish; and what wakes the recorder."""

from __future__ import annotations

import json
from typing import Any

import pytest

from infra.config import ConfigError, RecorderSettings, load_config, read_context
from infra.constructs.recorder import filters, record_age_seconds
from tests.infra.templates import Synthesise, Synthesised, functions, of_type, properties, queue_named, readable
from thunderagent import schema
from thunderagent.settings import load_settings


def mapping(service: dict[str, Any]) -> dict[str, Any]:
    found = functions(service)["recorder"]["LogicalId"]
    (one,) = [
        each
        for each in properties(service, "AWS::Lambda::EventSourceMapping")
        if each["FunctionName"] == {"Ref": found}
    ]
    return one


def variables(service: dict[str, Any]) -> dict[str, Any]:
    result: dict[str, Any] = functions(service)["recorder"]["Environment"]["Variables"]
    return result


def test_ta31_one_bad_record_cannot_block_the_shard(synthesised: Synthesised) -> None:
    one = mapping(synthesised.service)
    assert one["BisectBatchOnFunctionError"] is True
    assert 0 < one["MaximumRetryAttempts"] <= 10_000
    assert 60 <= one["MaximumRecordAgeInSeconds"] <= schema.DAY_SECONDS
    queue = queue_named("Recorder", synthesised.service)
    assert readable(one["DestinationConfig"]["OnFailure"]["Destination"]) == f"{queue}.Arn"
    assert readable(variables(synthesised.service)["FAILURES_QUEUE_URL"]) == f"{{{queue}}}"


def test_the_function_gives_up_before_lambda_does_without_the_records(synthesised: Synthesised) -> None:
    patience = float(variables(synthesised.service)["RECORDER_PATIENCE_SECONDS"])
    assert patience < mapping(synthesised.service)["MaximumRecordAgeInSeconds"]
    assert record_age_seconds(72_000) <= schema.DAY_SECONDS


def test_ta31_ten_minutes_without_s3_are_waited_out_on_aws_and_not_where_a_shard_would_stop(
    prod: Synthesised, local: Synthesised
) -> None:
    assert float(variables(prod.service)["RECORDER_PATIENCE_SECONDS"]) > 3600
    assert variables(local.service)["RECORDER_PATIENCE_SECONDS"] == "0"


def test_it_reads_the_stream_from_its_oldest_record_in_order(synthesised: Synthesised) -> None:
    one = mapping(synthesised.service)
    assert "TaskTableStreamArn" in readable(one["EventSourceArn"])
    assert one["StartingPosition"] == "TRIM_HORIZON"
    assert one.get("ParallelizationFactor", 1) == 1


def test_ends_and_removals_of_tasks_wake_it_and_nothing_else(synthesised: Synthesised) -> None:
    patterns = [json.loads(each["Pattern"]) for each in mapping(synthesised.service)["FilterCriteria"]["Filters"]]
    statuses = ["PENDING", "RUNNING", "SUCCESS", "FAILED", "DONE"]
    assert patterns == [
        {"dynamodb": {"NewImage": {"status": {"S": ["SUCCESS", "FAILED", "DONE"]}}}},
        {"eventName": ["REMOVE"], "dynamodb": {"OldImage": {"status": {"S": statuses}}}},
    ]


def test_no_statuses_means_removals_only() -> None:
    assert len(filters(())) == 1


def test_the_stack_has_a_bus_of_its_own(synthesised: Synthesised) -> None:
    (bus,) = of_type(synthesised.service, "AWS::Events::EventBus")
    assert readable(variables(synthesised.service)["EVENT_BUS"]) == f"{{{bus}}}"


@pytest.mark.parametrize("given", ["orders", "arn:aws:events:eu-west-1:123456789012:event-bus/orders"])
def test_a_bus_that_is_given_is_used_and_none_is_made(given: str, synthesise: Synthesise) -> None:
    settings = {"eventBus": given, "eventStatuses": ["FAILED"]}
    service = synthesise("dev", {"environments": {"dev": {"recording": settings}}}).service
    assert not of_type(service, "AWS::Events::EventBus")
    assert variables(service)["EVENT_STATUSES"] == "FAILED"
    assert str(readable(variables(service)["EVENT_BUS"])).endswith("orders")
    statements = json.dumps(properties(service, "AWS::IAM::Policy"))
    assert given.rpartition(":")[2].removeprefix("event-bus/") in statements


def test_no_events_means_no_bus_in_the_function(synthesise: Synthesise) -> None:
    service = synthesise("dev", {"environments": {"dev": {"recording": {"eventStatuses": []}}}}).service
    given = {name: str(readable(value)) for name, value in variables(service).items()}
    assert load_settings(given).event_bus is None


def test_the_settings_are_read_and_judged() -> None:
    def recording(**settings: Any) -> RecorderSettings:
        context = {**read_context(), "environments": {"dev": {"recording": settings}}}
        return load_config(context, "dev").recording

    assert recording() == RecorderSettings()
    assert recording(patienceSeconds=60).patience_seconds == 60
    for bad in ({"eventStatuses": ["RUNNING"]}, {"eventBus": "a b"}, {"patienceSeconds": 90_000}, {"other": 1}):
        with pytest.raises(ConfigError, match="recording"):
            recording(**bad)
