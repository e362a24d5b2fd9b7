"""The bucket for what does not fit into the table, and exact grants on it."""

from __future__ import annotations

from collections.abc import Sequence

from aws_cdk import Duration, RemovalPolicy, Stack
from aws_cdk import aws_iam as iam
from aws_cdk import aws_kms as kms
from aws_cdk import aws_s3 as s3
from constructs import Construct

from infra.acknowledge import acknowledge, acknowledge_plain_http
from infra.config import DataProtection
from infra.pin import pin
from thunderagent import schema

LOGICAL_ID = "TaskBucket"
BODIES = "bodies/"
ARCHIVE = "archive/"
REPORTS = "reports/"

BODY_DAYS = (schema.BUCKET_DELAY_SECONDS + schema.BODY_RETENTION_SECONDS) // schema.DAY_SECONDS


class TaskBucket(Construct):
    """Private, encrypted, pinned like the table. Bodies are deleted with their task; the lifecycle rule is the backstop
    for those whose task vanished first, so it is longer than any body can count."""

    def __init__(
        self,
        scope: Construct,
        id: str,
        *,
        protection: DataProtection,
        enforce_tls: bool,
        key: kms.IKey | None = None,
        pinned: bool = False,
    ) -> None:
        super().__init__(scope, id)
        self.bucket = s3.Bucket(
            self,
            "Bucket",
            block_public_access=s3.BlockPublicAccess.BLOCK_ALL,
            encryption=s3.BucketEncryption.KMS if key else s3.BucketEncryption.S3_MANAGED,
            encryption_key=key,
            bucket_key_enabled=True if key else None,  # one call of KMS for many objects
            object_ownership=s3.ObjectOwnership.BUCKET_OWNER_ENFORCED,
            enforce_ssl=enforce_tls,
            removal_policy=RemovalPolicy.RETAIN if protection.retain else RemovalPolicy.DESTROY,
            lifecycle_rules=[
                s3.LifecycleRule(id="orphaned-bodies", prefix=BODIES, expiration=Duration.days(BODY_DAYS)),
                s3.LifecycleRule(id="unfinished-uploads", abort_incomplete_multipart_upload_after=Duration.days(7)),
            ],
        )
        if pinned:
            pin(self.bucket, LOGICAL_ID)
        if not enforce_tls:
            acknowledge_plain_http(self.bucket, "S10")
        reason = (
            "Functions write it, for tasks whose submission is logged; a URL to read it comes of a logged call of the "
            "API. Access logs need a second bucket."
        )
        acknowledge(self.bucket, {"S1": reason})


def grant_objects(bucket: s3.IBucket, role: iam.Role, prefix: str, actions: Sequence[str]) -> None:
    """Object actions under one prefix. To a reader who may not list, a missing object answers 403 instead of 404: see
    `grant_lookup`."""
    statement = iam.PolicyStatement(
        actions=[f"s3:{action}" for action in actions], resources=[bucket.arn_for_objects(f"{prefix}*")]
    )
    role.add_to_policy(statement)
    finding = f"IAM5[Resource::{_arn_as_found(bucket, role)}/{prefix}*]"
    acknowledge(role, {finding: "Keys are made at run time: nobody knows them beforehand; the prefix is the bound."})


def grant_lookup(bucket: s3.IBucket, role: iam.Role, prefix: str) -> None:
    """Listing of one prefix, for who reads there and must tell a missing object from one it is refused."""
    statement = iam.PolicyStatement(
        actions=["s3:ListBucket"],
        resources=[bucket.bucket_arn],
        conditions={"StringLike": {"s3:prefix": f"{prefix}*"}},
    )
    role.add_to_policy(statement)


def _arn_as_found(bucket: s3.IBucket, role: iam.Role) -> str:
    """How cdk-nag writes the bucket's ARN: by the name it is imported under, or by its logical id."""
    arn = bucket.stack.resolve(bucket.bucket_arn)
    match arn:
        case {"Fn::GetAtt": [id, attribute]} if bucket.stack == Stack.of(role):
            return f"<{id}.{attribute}>"
        case {"Fn::GetAtt": _}:
            imported: dict[str, str] = bucket.stack.resolve(bucket.stack.export_value(bucket.bucket_arn))
            return imported["Fn::ImportValue"]
        case _:
            return str(arn)  # a bucket from elsewhere; a partition that is no text is written otherwise
