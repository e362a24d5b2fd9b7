"""The table of tasks, and exact grants on it."""

from __future__ import annotations

from collections.abc import Sequence

from aws_cdk import RemovalPolicy
from aws_cdk import aws_dynamodb as dynamodb
from aws_cdk import aws_iam as iam
from aws_cdk import aws_kms as kms
from constructs import Construct

from infra.config import DataProtection
from infra.pin import pin
from thunderagent import schema

LOGICAL_ID = "TaskTable"


class TaskTable(Construct):
    """One table with one sparse, keys-only index; on demand; TTL; a stream of old and new images.

    `pinned`: its logical id never changes; another one would be another, empty table. A release adds or removes at most
    one index, because CloudFormation refuses two in one update.
    """

    def __init__(
        self,
        scope: Construct,
        id: str,
        *,
        protection: DataProtection,
        key: kms.IKey | None = None,
        pinned: bool = False,
    ) -> None:
        super().__init__(scope, id)
        self.table = dynamodb.TableV2(
            self,
            "Table",
            partition_key=_attribute(schema.TABLE_KEY, dynamodb.AttributeType.STRING),
            global_secondary_indexes=[
                dynamodb.GlobalSecondaryIndexPropsV2(
                    index_name=schema.INDEX_NAME,
                    partition_key=_attribute(schema.INDEX_HASH, dynamodb.AttributeType.STRING),
                    sort_key=_attribute(schema.INDEX_RANGE, dynamodb.AttributeType.NUMBER),
                    projection_type=dynamodb.ProjectionType.KEYS_ONLY,
                )
            ],
            billing=dynamodb.Billing.on_demand(),
            time_to_live_attribute=schema.TTL_ATTRIBUTE,
            dynamo_stream=dynamodb.StreamViewType.NEW_AND_OLD_IMAGES,
            point_in_time_recovery_specification=dynamodb.PointInTimeRecoverySpecification(
                point_in_time_recovery_enabled=protection.point_in_time_recovery
            ),
            deletion_protection=protection.deletion_protection,
            # RETAIN covers deletion and replacement.
            removal_policy=RemovalPolicy.RETAIN if protection.retain else RemovalPolicy.DESTROY,
        )
        if pinned:
            pin(self.table, LOGICAL_ID)
        if key:
            self._encrypt(key)

    def _encrypt(self, key: kms.IKey) -> None:
        """What `TableEncryptionV2.customer_managed_key` renders, which it refuses to without a region: here there is
        one replica, the stack's, whatever its region is."""
        resource = self.table.node.default_child
        assert isinstance(resource, dynamodb.CfnGlobalTable)
        resource.add_property_override("SSESpecification", {"SSEEnabled": True, "SSEType": "KMS"})
        resource.add_property_override("Replicas.0.SSESpecification.KMSMasterKeyId", key.key_arn)


def grant_items(table: dynamodb.ITableV2, grantee: iam.IGrantable, actions: Sequence[str]) -> None:
    """Item actions on the table itself. A transaction needs the actions of its parts; it has none of its own."""
    _grant(grantee, actions, table.table_arn)


def grant_dispatch_index(table: dynamodb.ITableV2, grantee: iam.IGrantable) -> None:
    """Query, on the index only: the table is never queried."""
    _grant(grantee, ("Query",), f"{table.table_arn}/index/{schema.INDEX_NAME}")


def grant_audit(table: dynamodb.ITableV2, grantee: iam.IGrantable) -> None:
    """Scan, for the auditor, which looks at one page a minute: what stands in no index is found in no other way."""
    _grant(grantee, ("Scan",), table.table_arn)


def grant_stream(table: dynamodb.ITableV2, grantee: iam.IGrantable) -> None:
    """What Lambda needs, in the function's name, to read the table's stream for it."""
    assert table.table_stream_arn is not None
    _grant(grantee, ("DescribeStream", "GetRecords", "GetShardIterator", "ListStreams"), table.table_stream_arn)


def _grant(grantee: iam.IGrantable, actions: Sequence[str], resource: str) -> None:
    statement = iam.PolicyStatement(actions=[f"dynamodb:{action}" for action in actions], resources=[resource])
    grantee.grant_principal.add_to_principal_policy(statement)


def _attribute(name: str, type_: dynamodb.AttributeType) -> dynamodb.Attribute:
    return dynamodb.Attribute(name=name, type=type_)
