"""What an environment may ask for beside the usual: keys, a VPC, another CPU, tags, addresses, limits."""

from __future__ import annotations

import json
from typing import Any

import pytest

from tests.infra.templates import Synthesise, Synthesised, functions, of_type, properties, readable

KEY_ARN = "arn:aws:kms:eu-central-1:111122223333:key/0f4c0000-0000-4000-8000-000000000000"
FENCED = {
    "encryption": {"kind": "own"},
    "vpc": {"vpcId": "vpc-0a1b2c3d", "subnetIds": ["subnet-0a1b2c3d", "subnet-0b1c2d3e"]},
    "tags": {"cost-centre": "4711", "team": "shop & web".replace("&", "+")},
    "alarmEmails": ["ops@example.com", "oncall@example.com"],
    "architecture": "x86_64",
    "queues": {"default": {"maxConcurrency": 5}},
}
ENCRYPTED = {"kind": "given", "keyArn": KEY_ARN}


@pytest.fixture(scope="module")
def fenced(synthesise: Synthesise) -> Synthesised:
    return synthesise("prod", {"environments": {"prod": FENCED}})


@pytest.fixture(scope="module")
def given(synthesise: Synthesise) -> Synthesised:
    network = {**FENCED["vpc"], "securityGroupIds": ["sg-0a1b2c3d"]}  # type: ignore[dict-item]
    return synthesise("prod", {"environments": {"prod": {"encryption": ENCRYPTED, "vpc": network}}})


# ---- keys ------------------------------------------------------------------------------------------------------------


def keys_of(synthesised: Synthesised) -> dict[str, set[str]]:
    """By what is stored, the keys it is encrypted with."""
    data, service = synthesised.stacks
    (table,) = properties(data, "AWS::DynamoDB::GlobalTable")
    (bucket,) = properties(data, "AWS::S3::Bucket")
    (topic,) = properties(service, "AWS::SNS::Topic")
    (rule,) = bucket["BucketEncryption"]["ServerSideEncryptionConfiguration"]
    assert rule["BucketKeyEnabled"] is True
    return {
        "table": {readable(replica["SSESpecification"]["KMSMasterKeyId"]) for replica in table["Replicas"]},
        "bucket": {readable(rule["ServerSideEncryptionByDefault"]["KMSMasterKeyID"])},
        "topic": {readable(topic["KmsMasterKeyId"])},
        "queues": {readable(queue["KmsMasterKeyId"]) for queue in properties(service, "AWS::SQS::Queue")},
        "logs": {readable(group["KmsKeyId"]) for group in properties(service, "AWS::Logs::LogGroup")},
    }


def test_a_key_of_its_own_encrypts_all_that_is_stored(fenced: Synthesised) -> None:
    (key_id, key), *others = of_type(fenced.data, "AWS::KMS::Key").items()
    assert (key_id, others) == ("Key", [])
    assert key["Properties"]["EnableKeyRotation"] is True
    assert key["DeletionPolicy"] == "Retain"
    (imported,) = (
        f"<{out['Export']['Name']}>"
        for out in fenced.data["Outputs"].values()
        if readable(out["Value"]) == f"{key_id}.Arn"
    )
    assert keys_of(fenced) == {
        "table": {"Key.Arn"},
        "bucket": {"Key.Arn"},
        "topic": {imported},
        "queues": {imported},
        "logs": {imported},
    }


def test_its_policy_lets_logs_and_alarms_of_this_account_use_it(fenced: Synthesised) -> None:
    (key,) = properties(fenced.data, "AWS::KMS::Key")
    statements = {each["Sid"]: each for each in key["KeyPolicy"]["Statement"] if "Sid" in each}
    assert set(statements) == {"LogGroupsOfThisAccount", "AlarmsOfThisAccount"}
    assert all(each["Condition"] for each in statements.values())


def test_a_key_that_is_given_is_used_and_none_is_made(given: Synthesised) -> None:
    assert not of_type(given.data, "AWS::KMS::Key")
    assert {key for keys in keys_of(given).values() for key in keys} == {KEY_ARN}


def test_every_function_uses_the_key_through_the_stores_only(given: Synthesised) -> None:
    roles = {readable(function["Role"]) for function in functions(given.service).values()}
    allowed = set()
    for policy in properties(given.service, "AWS::IAM::Policy"):
        for statement in policy["PolicyDocument"]["Statement"]:
            if "kms:ReEncryptTo" in statement["Action"]:
                services = map(readable, statement["Condition"]["StringEquals"]["kms:ViaService"])
                assert {service.partition(".")[0] for service in services} == {"dynamodb", "s3", "sqs"}
                assert statement["Resource"] == KEY_ARN
                allowed |= {f"{role['Ref']}.Arn" for role in policy["Roles"]}
    assert allowed == roles


def test_without_a_key_nothing_costs_one(prod: Synthesised) -> None:
    assert "kms" not in json.dumps(prod.stacks).lower()


# ---- a VPC -----------------------------------------------------------------------------------------------------------


def test_every_function_stands_in_the_vpc(fenced: Synthesised, given: Synthesised) -> None:
    (group,) = of_type(fenced.service, "AWS::EC2::SecurityGroup")
    made = fenced.service["Resources"][group]["Properties"]
    assert made["VpcId"] == "vpc-0a1b2c3d"
    assert "SecurityGroupIngress" not in made
    for synthesised, groups in ((fenced, [f"{group}.GroupId"]), (given, ["sg-0a1b2c3d"])):
        for function in functions(synthesised.service).values():
            assert function["VpcConfig"]["SubnetIds"] == ["subnet-0a1b2c3d", "subnet-0b1c2d3e"]
            assert [readable(each) for each in function["VpcConfig"]["SecurityGroupIds"]] == groups
    assert not of_type(given.service, "AWS::EC2::SecurityGroup")


def test_every_role_may_make_its_network_interfaces(fenced: Synthesised, prod: Synthesised) -> None:
    def able(synthesised: Synthesised) -> int:
        return sum(
            "ec2:CreateNetworkInterface" in json.dumps(policy)
            for policy in properties(synthesised.service, "AWS::IAM::Policy")
        )

    assert able(fenced) == len(functions(fenced.service))
    assert able(prod) == 0


def test_the_code_may_not_touch_the_interfaces_itself(fenced: Synthesised) -> None:
    """Lambda's calls in the role's name do not carry the function's ARN; the code's do."""
    policies = [each for each in of_type(fenced.service, "AWS::IAM::Policy").items() if "Interfaces" in each[0]]
    assert len(policies) == len(functions(fenced.service))
    for _, policy in policies:
        allow, deny = policy["Properties"]["PolicyDocument"]["Statement"]
        assert (allow["Effect"], deny["Effect"]) == ("Allow", "Deny")
        assert deny["Action"] == allow["Action"]
        assert deny["Resource"] == "*"
        assert readable(deny["Condition"]["ArnLike"]["lambda:SourceFunctionArn"]).endswith(":function:*")
    needed = {id for id, _ in policies}
    for function in of_type(fenced.service, "AWS::Lambda::Function").values():
        assert needed & set(function["DependsOn"])


# ---- CPU, tags, addresses --------------------------------------------------------------------------------------------


def test_functions_and_layers_are_for_the_cpu_that_is_asked_for(fenced: Synthesised) -> None:
    assert {tuple(each["Architectures"]) for each in functions(fenced.service).values()} == {("x86_64",)}
    layers = properties(fenced.service, "AWS::Lambda::LayerVersion")
    assert {tuple(each["CompatibleArchitectures"]) for each in layers} == {("x86_64",)}


def tags_of(resource: dict[str, Any]) -> dict[str, str]:
    return {tag["Key"]: tag["Value"] for tag in resource["Tags"]}


def test_everything_carries_the_tags(fenced: Synthesised) -> None:
    wanted = {"cost-centre": "4711", "team": "shop + web", "ThunderAgent": "ThunderAgent-prod"}
    tagged = [
        *properties(fenced.data, "AWS::S3::Bucket"),
        *properties(fenced.data, "AWS::KMS::Key"),
        *properties(fenced.service, "AWS::Lambda::Function"),
        *properties(fenced.service, "AWS::SQS::Queue"),
    ]
    assert all(wanted.items() <= tags_of(resource).items() for resource in tagged)


def test_every_address_hears_the_alarms(fenced: Synthesised) -> None:
    subscriptions = properties(fenced.service, "AWS::SNS::Subscription")
    assert {(each["Protocol"], each["Endpoint"]) for each in subscriptions} == {
        ("email", "ops@example.com"),
        ("email", "oncall@example.com"),
    }
