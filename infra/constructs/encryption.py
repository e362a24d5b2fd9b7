"""A KMS key of one's own for all that is stored, and the use of it through the services that store."""

from __future__ import annotations

from collections.abc import Sequence

from aws_cdk import RemovalPolicy, Stack
from aws_cdk import aws_iam as iam
from aws_cdk import aws_kms as kms
from constructs import Construct

from infra.config import DataProtection, Encryption
from infra.pin import pin

LOGICAL_ID = "Key"
# What DynamoDB asks of who reads and writes a table; S3 and SQS ask for a part of it.
DATA_ACTIONS = ("Decrypt", "DescribeKey", "Encrypt", "GenerateDataKey", "ReEncryptFrom", "ReEncryptTo")
STORES = ("dynamodb", "s3", "sqs")


def service_key(
    scope: Construct, id: str, *, encryption: Encryption, protection: DataProtection, pinned: bool = False
) -> kms.IKey:
    """The key that is given, or one made here, whose policy lets CloudWatch Logs and the alarms use it.

    Made here it rotates every year, and stays as long as the data do that it encrypts.
    """
    if encryption.key_arn is not None:
        return kms.Key.from_key_arn(scope, id, encryption.key_arn)
    key = kms.Key(
        scope,
        id,
        description="Tasks of ThunderAgent",
        enable_key_rotation=True,
        removal_policy=RemovalPolicy.RETAIN if protection.retain else RemovalPolicy.DESTROY,
    )
    if pinned:
        pin(key, LOGICAL_ID)
    for statement in service_statements(Stack.of(key)):
        key.add_to_resource_policy(statement)
    return key


def service_statements(stack: Stack) -> Sequence[iam.PolicyStatement]:
    """What the policy of a key must allow beside this account: the log groups of this account and its alarms."""
    logs = f"arn:{stack.partition}:logs:{stack.region}:{stack.account}:*"
    return [
        iam.PolicyStatement(
            sid="LogGroupsOfThisAccount",
            principals=[iam.ServicePrincipal(f"logs.{stack.region}.amazonaws.com")],
            actions=["kms:Decrypt", "kms:Describe*", "kms:Encrypt", "kms:GenerateDataKey*", "kms:ReEncrypt*"],
            resources=["*"],
            conditions={"ArnLike": {"kms:EncryptionContext:aws:logs:arn": logs}},
        ),
        iam.PolicyStatement(
            sid="AlarmsOfThisAccount",
            principals=[iam.ServicePrincipal("cloudwatch.amazonaws.com")],
            actions=["kms:Decrypt", "kms:GenerateDataKey*"],
            resources=["*"],
            conditions={"StringEquals": {"aws:SourceAccount": stack.account}},
        ),
    ]


def grant_data_key(key: kms.IKey, role: iam.Role) -> None:
    """Use of the key for what the services store, and in no other way."""
    stack = Stack.of(role)
    services = [f"{service}.{stack.region}.amazonaws.com" for service in STORES]
    role.add_to_policy(
        iam.PolicyStatement(
            actions=[f"kms:{action}" for action in DATA_ACTIONS],
            resources=[key.key_arn],
            conditions={"StringEquals": {"kms:ViaService": services}},
        )
    )
