"""What must survive: the table and the bucket."""

from __future__ import annotations

from aws_cdk import Stack
from constructs import Construct

from infra.config import EnvironmentConfig
from infra.constructs.task_bucket import TaskBucket
from infra.constructs.task_table import TaskTable


class DataStack(Stack):
    """Table and bucket, apart from the functions, so that no change of code can touch them."""

    def __init__(self, scope: Construct, id: str, *, config: EnvironmentConfig) -> None:
        super().__init__(scope, id, description=f"ThunderAgent ({config.environment}): the task table and its bucket")
        self.table = TaskTable(self, "TaskTable", protection=config.protection, pinned=True).table
        self.bucket = TaskBucket(
            self, "TaskBucket", protection=config.protection, enforce_tls=config.enforce_tls, pinned=True
        ).bucket
        self._export_for_good()

    def _export_for_good(self) -> None:
        """Export the five values always, not only while something uses them.

        CDK would drop an export with its last user; CloudFormation deploys this stack first and refuses to drop an
        export that the deployed service stack still imports, so that removing one function would not deploy.
        """
        for value in (
            self.table.table_name,
            self.table.table_arn,
            self.table.table_stream_arn,
            self.bucket.bucket_name,
            self.bucket.bucket_arn,
        ):
            self.export_value(value)
