"""The doorbell's mapping: only news rings, and a record that fails cannot block its shard."""

from __future__ import annotations

import json
from typing import Any

from tests.infra.templates import Synthesise, Synthesised, functions, of_type, properties, queue_named, readable


def mapping(synthesised: Synthesised) -> dict[str, Any]:
    found = functions(synthesised.service)["doorbell"]["LogicalId"]
    (one,) = [
        each
        for each in properties(synthesised.service, "AWS::Lambda::EventSourceMapping")
        if each["FunctionName"] == {"Ref": found}
    ]
    return one


def test_it_reads_the_tables_stream_from_now_on(synthesised: Synthesised) -> None:
    one = mapping(synthesised)
    assert "TaskTableStreamArn" in readable(one["EventSourceArn"])
    assert one["StartingPosition"] == "LATEST"
    assert one["MaximumBatchingWindowInSeconds"] == 0


def test_poison_records_cannot_block_it(synthesised: Synthesised) -> None:
    one = mapping(synthesised)
    assert one["BisectBatchOnFunctionError"] is True
    assert one["MaximumRetryAttempts"] == 2
    assert one["MaximumRecordAgeInSeconds"] == 60
    queue = queue_named("Undelivered", synthesised.service)
    assert readable(one["DestinationConfig"]["OnFailure"]["Destination"]) == f"{queue}.Arn"


def test_a_change_from_pending_to_pending_does_not_ring(synthesised: Synthesised) -> None:
    patterns = [json.loads(each["Pattern"]) for each in mapping(synthesised)["FilterCriteria"]["Filters"]]
    assert len(patterns) <= 5, "Lambda takes no more"
    for pattern in patterns:
        new = pattern["dynamodb"]["NewImage"]
        assert new == {"status": {"S": ["PENDING"]}, "dispatchKey": {"S": [{"prefix": "OPEN#"}]}}
        if pattern["eventName"] == ["MODIFY"]:
            old = pattern["dynamodb"]["OldImage"]
            assert old in (
                {"status": {"S": [{"anything-but": ["PENDING"]}]}},
                {"dispatchKey": {"S": [{"prefix": "BLOCKED#"}]}},
            )
        else:
            assert pattern["eventName"] == ["INSERT"]


def test_it_may_read_the_stream_before_it_is_connected(synthesised: Synthesised) -> None:
    (resource,) = [
        each
        for id, each in of_type(synthesised.service, "AWS::Lambda::EventSourceMapping").items()
        if id.startswith("Doorbell")
    ]
    assert any("RoleDefaultPolicy" in each for each in resource["DependsOn"])


def test_r5_no_function_may_invoke_itself_or_another_but_executors(synthesised: Synthesised) -> None:
    executor = functions(synthesised.service)["executor"]["LogicalId"]
    for policy in properties(synthesised.service, "AWS::IAM::Policy"):
        for statement in policy["PolicyDocument"]["Statement"]:
            if "lambda:InvokeFunction" in statement["Action"]:
                assert readable(statement["Resource"]) == f"{executor}.Arn"


def test_it_can_be_left_out(synthesise: Synthesise) -> None:
    service = synthesise("dev", {"environments": {"dev": {"doorbell": False}}}).service
    assert "doorbell" not in functions(service)
    assert "poller" in functions(service)
    mappings = of_type(service, "AWS::Lambda::EventSourceMapping")
    assert not [id for id in mappings if id.startswith("Doorbell")]
