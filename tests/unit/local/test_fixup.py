"""Every property that the embedded AWS drops comes out as the call that sets it."""

from __future__ import annotations

import pytest

from thunder.local import fixup
from thunder.local.errors import LocalError
from thunder.local.fixup import Call, dropped, fix_up, lifecycle_rule, with_ids

TABLE_TYPES = ["AWS::DynamoDB::Table", "AWS::DynamoDB::GlobalTable"]


def calls(resource_type, properties):
    return list(dropped(resource_type, properties, "physical"))


@pytest.mark.parametrize("resource_type", TABLE_TYPES)
def test_a_time_to_live_is_set(resource_type):
    properties = {"TimeToLiveSpecification": {"AttributeName": "expiresAt", "Enabled": True}}

    assert calls(resource_type, properties) == [
        Call(
            "dynamodb",
            "update_time_to_live",
            {"TableName": "physical", "TimeToLiveSpecification": {"AttributeName": "expiresAt", "Enabled": True}},
        )
    ]


@pytest.mark.parametrize(
    "properties",
    [
        {"PointInTimeRecoverySpecification": {"PointInTimeRecoveryEnabled": True}},
        {"Replicas": [{"PointInTimeRecoverySpecification": {"PointInTimeRecoveryEnabled": True}}]},
    ],
    ids=["table", "replica"],
)
def test_point_in_time_recovery_is_set(properties):
    assert calls("AWS::DynamoDB::GlobalTable", properties) == [
        Call(
            "dynamodb",
            "update_continuous_backups",
            {
                "TableName": "physical",
                "PointInTimeRecoverySpecification": {"PointInTimeRecoveryEnabled": True},
            },
        )
    ]


def test_encryption_is_set_with_its_kind():
    properties = {"SSESpecification": {"SSEEnabled": True, "SSEType": "KMS"}}

    assert calls("AWS::DynamoDB::GlobalTable", properties) == [
        Call(
            "dynamodb",
            "update_table",
            {"TableName": "physical", "SSESpecification": {"Enabled": True, "SSEType": "KMS"}},
        )
    ]


def test_what_is_switched_off_or_absent_needs_no_call():
    off = {
        "TimeToLiveSpecification": {"AttributeName": "expiresAt", "Enabled": False},
        "PointInTimeRecoverySpecification": {"PointInTimeRecoveryEnabled": False},
        "SSESpecification": {"SSEEnabled": False},
    }

    assert calls("AWS::DynamoDB::Table", off) == []
    assert calls("AWS::DynamoDB::Table", {}) == []
    assert calls("AWS::S3::Bucket", {}) == []
    assert calls("AWS::Lambda::Function", {"Tags": [{"Key": "a", "Value": "b"}]}) == []


def test_bucket_tags_are_set():
    assert calls("AWS::S3::Bucket", {"Tags": [{"Key": "team", "Value": "a"}]}) == [
        Call("s3", "put_bucket_tagging", {"Bucket": "physical", "Tagging": {"TagSet": [{"Key": "team", "Value": "a"}]}})
    ]


def test_the_throttling_of_a_stage_is_set():
    settings = {"ThrottlingBurstLimit": 1000, "ThrottlingRateLimit": 500}

    assert calls("AWS::ApiGatewayV2::Stage", {"ApiId": "api", "StageName": "x", "DefaultRouteSettings": settings}) == [
        Call(
            "apigatewayv2",
            "update_stage",
            {"ApiId": "api", "StageName": "physical", "DefaultRouteSettings": settings},
        )
    ]
    assert calls("AWS::ApiGatewayV2::Stage", {"ApiId": "api", "StageName": "x"}) == []


def test_cors_is_set():
    cors = {"AllowOrigins": ["https://ops.example"]}

    assert calls("AWS::ApiGatewayV2::Api", {"CorsConfiguration": cors}) == [
        Call("apigatewayv2", "update_api", {"ApiId": "physical", "CorsConfiguration": cors})
    ]
    assert calls("AWS::ApiGatewayV2::Api", {"Name": "x"}) == []


def test_references_are_resolved_where_the_stack_has_them():
    value = {"ApiId": {"Ref": "Api"}, "List": [{"Ref": "Api"}, {"Ref": "AWS::Region"}], "Join": {"Ref": "Api", "x": 1}}

    assert with_ids(value, {"Api": "abc"}) == {
        "ApiId": "abc",
        "List": ["abc", {"Ref": "AWS::Region"}],
        "Join": {"Ref": "Api", "x": 1},
    }


def test_a_bucket_gets_all_its_lifecycle_rules_in_one_call():
    rules = [{"Status": "Enabled", "Prefix": "a/", "ExpirationInDays": 1}, {"Status": "Disabled", "Prefix": "b/"}]

    (call,) = calls("AWS::S3::Bucket", {"LifecycleConfiguration": {"Rules": rules}})

    assert (call.service, call.operation) == ("s3", "put_bucket_lifecycle_configuration")
    assert [rule["ID"] for rule in call.arguments["LifecycleConfiguration"]["Rules"]] == ["rule-0", "rule-1"]


@pytest.mark.parametrize(
    ("written", "sent"),
    [
        ({"Id": "mine"}, {"ID": "mine"}),
        ({"Status": "Enabled"}, {"Status": "Enabled"}),
        ({"Prefix": "bodies/"}, {"Filter": {"Prefix": "bodies/"}}),
        ({"ExpirationInDays": 400}, {"Expiration": {"Days": 400}}),
        ({"ExpiredObjectDeleteMarker": True}, {"Expiration": {"ExpiredObjectDeleteMarker": True}}),
        (
            {"Transitions": [{"StorageClass": "STANDARD_IA", "TransitionInDays": 30}]},
            {"Transitions": [{"StorageClass": "STANDARD_IA", "Days": 30}]},
        ),
        (
            {"AbortIncompleteMultipartUpload": {"DaysAfterInitiation": 2}},
            {"AbortIncompleteMultipartUpload": {"DaysAfterInitiation": 2}},
        ),
        (
            {"NoncurrentVersionExpiration": {"NoncurrentDays": 7}},
            {"NoncurrentVersionExpiration": {"NoncurrentDays": 7}},
        ),
    ],
    ids=lambda value: next(iter(value)),
)
def test_each_lifecycle_property_has_its_form_in_the_api(written, sent):
    assert lifecycle_rule(written, 3) == {"ID": "rule-3", "Filter": {"Prefix": ""}, **sent}


def test_a_lifecycle_property_without_a_known_form_is_refused_rather_than_dropped():
    with pytest.raises(LocalError, match="ObjectSizeGreaterThan"):
        lifecycle_rule({"ObjectSizeGreaterThan": 5}, 0)


class RefusingTable:
    """A DynamoDB that answers an update of the TTL with the given message."""

    class exceptions:
        class ClientError(Exception):
            def __init__(self, message):
                self.response = {"Error": {"Message": message}}

    def __init__(self, message):
        self._message = message

    def update_time_to_live(self, **arguments):
        raise self.exceptions.ClientError(self._message)


class OneTableDeployed:
    """A CloudFormation with one stack of one table."""

    def get_template(self, StackName):
        specification = {"AttributeName": "expiresAt", "Enabled": True}
        table = {"Type": TABLE_TYPES[1], "Properties": {"TimeToLiveSpecification": specification}}
        return {"TemplateBody": {"Resources": {"Table": table}}}

    def describe_stack_resources(self, StackName):
        return {"StackResources": [{"LogicalResourceId": "Table", "PhysicalResourceId": "the-table"}]}


@pytest.fixture
def deployed(monkeypatch):
    def with_table(table):
        clients = {"cloudformation": OneTableDeployed(), "dynamodb": table}
        monkeypatch.setattr(fixup, "client", lambda service, endpoint: clients[service])

    return with_table


def test_a_time_to_live_that_is_there_already_is_no_failure(deployed):
    deployed(RefusingTable("TimeToLive is already enabled"))

    (call,) = fix_up("http://endpoint", ["a-stack"])

    assert call.arguments["TableName"] == "the-table"


def test_any_other_refusal_is_raised(deployed):
    deployed(RefusingTable("no such table"))

    with pytest.raises(RefusingTable.exceptions.ClientError):
        fix_up("http://endpoint", ["a-stack"])
