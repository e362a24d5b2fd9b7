from __future__ import annotations

from typing import Any

import pytest

from tests.infra.templates import Synthesise, Synthesised, of_type, properties, readable
from thunderagent import schema


def table_of(synthesised: Synthesised) -> dict[str, Any]:
    """The table, by the logical id that may never change."""
    table: dict[str, Any] = synthesised.data["Resources"]["TaskTable"]
    return table


# ---- TA-08: an upgrade replaces the table, or adds two indexes at once -----------------------------------------------


def test_ta08_logical_ids_of_table_index_and_bucket_are_pinned(synthesised: Synthesised) -> None:
    """Changing a literal here means an empty table or bucket for everyone who upgrades."""
    assert list(of_type(synthesised.data, "AWS::DynamoDB::GlobalTable")) == ["TaskTable"]
    assert list(of_type(synthesised.data, "AWS::S3::Bucket")) == ["TaskBucket"]
    (index,) = table_of(synthesised)["Properties"]["GlobalSecondaryIndexes"]
    assert index["IndexName"] == "dispatch-index"


def test_ta08_prod_survives_deletion_and_replacement(prod: Synthesised) -> None:
    for resource in (table_of(prod), prod.data["Resources"]["TaskBucket"]):
        assert (resource["DeletionPolicy"], resource["UpdateReplacePolicy"]) == ("Retain", "Retain")
    (replica,) = table_of(prod)["Properties"]["Replicas"]
    assert replica["DeletionProtectionEnabled"] is True
    assert replica["PointInTimeRecoverySpecification"]["PointInTimeRecoveryEnabled"] is True


@pytest.mark.parametrize("environment", ["local", "dev"])
def test_elsewhere_the_data_goes_with_the_stack(environment: str, request: pytest.FixtureRequest) -> None:
    synthesised: Synthesised = request.getfixturevalue(environment)
    for resource in (table_of(synthesised), synthesised.data["Resources"]["TaskBucket"]):
        assert (resource["DeletionPolicy"], resource["UpdateReplacePolicy"]) == ("Delete", "Delete")
    (replica,) = table_of(synthesised)["Properties"]["Replicas"]
    assert replica["DeletionProtectionEnabled"] is False


# ---- table and bucket ------------------------------------------------------------------------------------------------


def test_the_table_is_what_the_library_expects(synthesised: Synthesised) -> None:
    table = table_of(synthesised)["Properties"]
    assert table["KeySchema"] == [{"AttributeName": schema.TABLE_KEY, "KeyType": "HASH"}]
    (index,) = table["GlobalSecondaryIndexes"]
    assert index == {
        "IndexName": schema.INDEX_NAME,
        "KeySchema": [
            {"AttributeName": schema.INDEX_HASH, "KeyType": "HASH"},
            {"AttributeName": schema.INDEX_RANGE, "KeyType": "RANGE"},
        ],
        "Projection": {"ProjectionType": "KEYS_ONLY"},
    }
    types = {definition["AttributeName"]: definition["AttributeType"] for definition in table["AttributeDefinitions"]}
    assert types == {name: schema.TASK_ATTRIBUTES[name] for name in types}
    assert table["TimeToLiveSpecification"] == {"AttributeName": schema.TTL_ATTRIBUTE, "Enabled": True}
    assert table["StreamSpecification"] == {"StreamViewType": "NEW_AND_OLD_IMAGES"}
    assert table["BillingMode"] == "PAY_PER_REQUEST"


def test_the_bucket_is_private_and_encrypted(synthesised: Synthesised) -> None:
    (bucket,) = properties(synthesised.data, "AWS::S3::Bucket")
    assert set(bucket["PublicAccessBlockConfiguration"].values()) == {True}
    (encryption,) = bucket["BucketEncryption"]["ServerSideEncryptionConfiguration"]
    assert encryption["ServerSideEncryptionByDefault"]["SSEAlgorithm"] == "AES256"


@pytest.mark.parametrize(("environment", "policies"), [("local", 0), ("dev", 1), ("prod", 1)])
def test_only_an_aws_without_tls_may_be_spoken_to_without(
    environment: str, policies: int, request: pytest.FixtureRequest
) -> None:
    synthesised: Synthesised = request.getfixturevalue(environment)
    found = properties(synthesised.data, "AWS::S3::BucketPolicy")
    assert len(found) == policies
    for policy in found:
        (statement,) = policy["PolicyDocument"]["Statement"]
        assert statement["Effect"] == "Deny"
        assert statement["Condition"] == {"Bool": {"aws:SecureTransport": "false"}}


def test_bodies_outlive_every_task_that_may_need_them(synthesised: Synthesised) -> None:
    (bucket,) = properties(synthesised.data, "AWS::S3::Bucket")
    rules = {rule["Id"]: rule for rule in bucket["LifecycleConfiguration"]["Rules"]}
    bodies = rules["orphaned-bodies"]
    assert schema.body_key("payload#t#d").startswith(bodies["Prefix"])
    assert bodies["Status"] == "Enabled"
    longest_delay_days = 31_536_000 / schema.DAY_SECONDS
    assert bodies["ExpirationInDays"] >= longest_delay_days + schema.BODY_RETENTION_SECONDS / schema.DAY_SECONDS
    assert not [rule for rule in rules.values() if "ExpirationInDays" in rule and rule is not bodies]


def test_everything_the_service_imports_is_exported_for_good(synthesised: Synthesised) -> None:
    """R6: an export that only lived as long as its users would keep the data stack from deploying first."""
    exported = {output["Export"]["Name"]: readable(output["Value"]) for output in synthesised.data["Outputs"].values()}
    assert set(exported.values()) == {
        "{TaskTable}",
        "TaskTable.Arn",
        "TaskTable.StreamArn",
        "{TaskBucket}",
        "TaskBucket.Arn",
    }
    assert set(imports(synthesised.service)) <= set(exported)


def test_the_exports_do_not_depend_on_who_imports(prod: Synthesised, synthesise: Synthesise) -> None:
    profiles = {"default": {}, "second": {"handlers": ["examples/demo"]}}
    environments = {"prod": {"executors": profiles}}
    assert synthesise("prod", {"environments": environments}).data["Outputs"] == prod.data["Outputs"]


def imports(value: Any) -> list[str]:
    if isinstance(value, dict):
        if set(value) == {"Fn::ImportValue"}:
            return [value["Fn::ImportValue"]]
        return [name for part in value.values() for name in imports(part)]
    if isinstance(value, list):
        return [name for part in value for name in imports(part)]
    return []
