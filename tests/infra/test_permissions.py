from __future__ import annotations

from typing import Any

import pytest

from tests.infra.templates import Synthesised, functions, of_type, queue_named, readable

ITEMS = ["BatchGetItem", "ConditionCheckItem", "DeleteItem", "GetItem", "PutItem", "UpdateItem"]
OWN_LOGS = {"{logs}": ["logs:CreateLogStream", "logs:PutLogEvents"]}
UNDELIVERED = {"{undelivered}": ["sqs:SendMessage"]}


def dynamodb(*actions: str) -> list[str]:
    return sorted(f"dynamodb:{action}" for action in actions)


ALLOWED: dict[str, dict[str, list[str]]] = {
    "api": {
        **OWN_LOGS,
        "{table}": dynamodb(*ITEMS),
        "{table}/index/dispatch-index": dynamodb("Query"),
        "{bucket}": ["s3:ListBucket"],
        "{bucket}/bodies/*": ["s3:DeleteObject", "s3:GetObject", "s3:PutObject"],
    },
    "poller": {
        **OWN_LOGS,
        "{table}": dynamodb(*ITEMS),
        "{table}/index/dispatch-index": dynamodb("Query"),
        "{executor}": ["lambda:InvokeFunction"],
    },
    "doorbell": {
        **OWN_LOGS,
        "{table}": dynamodb("BatchGetItem", "DeleteItem", "GetItem", "PutItem", "UpdateItem"),
        "{table}/index/dispatch-index": dynamodb("Query"),
        "{stream}": dynamodb("DescribeStream", "GetRecords", "GetShardIterator", "ListStreams"),
        "{executor}": ["lambda:InvokeFunction"],
        "{undelivered}": ["sqs:SendMessage"],
    },
    "executor": {
        **OWN_LOGS,
        **UNDELIVERED,
        "{table}": dynamodb(*ITEMS),
        "{table}/index/dispatch-index": dynamodb("Query"),
        "{bucket}": ["s3:ListBucket"],
        "{bucket}/bodies/*": ["s3:GetObject", "s3:PutObject"],
        "{bucket}/reports/*": ["s3:GetObject", "s3:PutObject"],
    },
    "reaper": {
        **OWN_LOGS,
        "{table}": dynamodb(*ITEMS, "Scan"),
        "{table}/index/dispatch-index": dynamodb("Query"),
        "{undelivered}": ["sqs:DeleteMessage", "sqs:ReceiveMessage"],
    },
    "recorder": {
        **OWN_LOGS,
        "{table}": dynamodb("BatchGetItem", "DeleteItem", "GetItem", "UpdateItem"),
        "{stream}": dynamodb("DescribeStream", "GetRecords", "GetShardIterator", "ListStreams"),
        "{bucket}/archive/*": ["s3:PutObject"],
        "{bucket}/bodies/*": ["s3:DeleteObject"],
        "{bus}": ["events:PutEvents"],
        "{failures}": ["sqs:SendMessage"],
    },
}


@pytest.mark.parametrize("function", ALLOWED)
def test_each_role_may_do_exactly_this(function: str, synthesised: Synthesised) -> None:
    assert allowed(synthesised.service, function) == ALLOWED[function]


def test_no_action_is_a_wildcard_and_no_resource_is_everything(synthesised: Synthesised) -> None:
    """The only `*` are after a bucket prefix, because keys are made at run time."""
    for function in ALLOWED:
        for resource, actions in allowed(synthesised.service, function).items():
            assert not [action for action in actions if "*" in action]
            assert "*" not in resource.removesuffix("/bodies/*").removesuffix("/reports/*").removesuffix("/archive/*")


def test_bodies_alone_may_be_listed(synthesised: Synthesised) -> None:
    """So that a missing body is told from one that is refused; the archive is nobody's to look through."""
    listing = [
        statement
        for policy in of_type(synthesised.service, "AWS::IAM::Policy").values()
        for statement in policy["Properties"]["PolicyDocument"]["Statement"]
        if "s3:ListBucket" in listed(statement["Action"])
    ]
    assert len(listing) == 2
    assert all(each["Condition"] == {"StringLike": {"s3:prefix": "bodies/*"}} for each in listing)


def test_no_function_has_a_managed_policy(synthesised: Synthesised) -> None:
    roles = of_type(synthesised.service, "AWS::IAM::Role")
    for function in functions(synthesised.service).values():
        role = roles[function["Role"]["Fn::GetAtt"][0]]
        assert not role["Properties"].get("ManagedPolicyArns")
        assert not role["Properties"].get("Policies")


def test_alarms_may_publish_although_the_topic_has_its_own_policy(synthesised: Synthesised) -> None:
    (policy,) = of_type(synthesised.service, "AWS::SNS::TopicPolicy").values()
    (statement,) = [
        statement for statement in policy["Properties"]["PolicyDocument"]["Statement"] if statement["Effect"] == "Allow"
    ]
    assert statement["Principal"] == {"Service": "cloudwatch.amazonaws.com"}
    assert statement["Action"] == "sns:Publish"
    assert statement["Condition"] == {"StringEquals": {"aws:SourceAccount": {"Ref": "AWS::AccountId"}}}


def allowed(service: dict[str, Any], function: str) -> dict[str, list[str]]:
    """What the role of a function may do: actions by resource, in names that do not depend on logical ids."""
    found = functions(service)
    role = found[function]["Role"]["Fn::GetAtt"][0]
    result: dict[str, list[str]] = {}
    for policy in of_type(service, "AWS::IAM::Policy").values():
        if {"Ref": role} not in policy["Properties"]["Roles"]:
            continue
        for statement in policy["Properties"]["PolicyDocument"]["Statement"]:
            assert statement["Effect"] == "Allow"
            for resource in listed(statement["Resource"]):
                name = plain(service, found, found[function], readable(resource))
                result[name] = sorted({*result.get(name, []), *listed(statement["Action"])})
    return result


def plain(service: dict[str, Any], found: dict[str, Any], function: dict[str, Any], resource: str) -> str:
    (bus,) = of_type(service, "AWS::Events::EventBus")
    names = {
        f"{function['LoggingConfig']['LogGroup']['Ref']}.Arn": "{logs}",
        f"{found['executor']['LogicalId']}.Arn": "{executor}",
        f"{queue_named('Undelivered', service)}.Arn": "{undelivered}",
        f"{queue_named('Recorder', service)}.Arn": "{failures}",
        f"{bus}.Arn": "{bus}",
    }
    if resource.startswith("<"):
        exported, _, rest = resource[1:].partition(">")
        if "FnGetAttTaskTableStreamArn" in exported:
            return "{stream}"
        return ("{table}" if "FnGetAttTaskTableArn" in exported else "{bucket}") + rest
    return names[resource]


def listed(value: Any) -> list[Any]:
    return value if isinstance(value, list) else [value]
