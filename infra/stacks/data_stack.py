"""What must survive: the table and the bucket."""

from __future__ import annotations

from aws_cdk import Stack
from constructs import Construct

from infra.config import Encryption, EnvironmentConfig
from infra.constructs.encryption import service_key
from infra.constructs.task_bucket import TaskBucket
from infra.constructs.task_table import TaskTable


class DataStack(Stack):
    """Table and bucket, apart from the functions, so that no change of code can touch them."""

    def __init__(self, scope: Construct, id: str, *, config: EnvironmentConfig) -> None:
        super().__init__(scope, id, description=f"ThunderAgent ({config.environment}): the task table and its bucket")
        protection = config.protection
        self.key = (
            service_key(self, "Key", encryption=config.encryption, protection=protection, pinned=True)
            if config.encryption
            else None
        )
        self.table = TaskTable(self, "TaskTable", protection=protection, key=self.key, pinned=True).table
        self.bucket = TaskBucket(
            self, "TaskBucket", protection=protection, enforce_tls=config.enforce_tls, key=self.key, pinned=True
        ).bucket
        self._export_for_good(config)

    def _export_for_good(self, config: EnvironmentConfig) -> None:
        """Export what the service uses always, not only while something uses them.

        CDK would drop an export with its last user; CloudFormation deploys this stack first and refuses to drop an
        export that the deployed service stack still imports, so that removing one function would not deploy.
        """
        for value in (
            self.table.table_name,
            self.table.table_arn,
            self.table.table_stream_arn,
            self.bucket.bucket_name,
            self.bucket.bucket_arn,
            *([self.key.key_arn] if self.key and config.encryption == Encryption() else []),
        ):
            self.export_value(value)
