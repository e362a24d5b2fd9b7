"""The doorbell: the poller's code behind the table's stream, for a start within milliseconds of the submit."""

from __future__ import annotations

from typing import Any

from aws_cdk import Duration
from aws_cdk import aws_dynamodb as dynamodb
from aws_cdk import aws_lambda as lambda_
from aws_cdk import aws_sqs as sqs
from constructs import Construct

from infra.config import FunctionSize, PollSettings
from infra.constructs.last_resort import StreamLastResort
from infra.constructs.service_function import HouseDefaults, ServiceFunction
from infra.constructs.task_table import grant_dispatch_index, grant_items, grant_stream

# It claims, and takes back what it could not send. It ends nothing: no proof on another item goes with its writes.
ITEM_ACTIONS = ("BatchGetItem", "GetItem", "UpdateItem", "PutItem", "DeleteItem")
TIMEOUT_SECONDS = 30  # a ring takes milliseconds; one that hangs must not hold its shard back
BATCH_RECORDS = 100
AT_ONCE = 4  # batches of one shard in work at the same time
RETRIES = 2  # of the whole function: a bad record never fails it, and what it leaves is the sweep's
RECORD_AGE_SECONDS = 60  # the shortest Lambda takes: by then the sweep has met the task

_PENDING: dict[str, Any] = {"S": ["PENDING"]}
_OPEN: dict[str, Any] = {"S": [{"prefix": "OPEN#"}]}

# A change from PENDING to PENDING under an open key must not ring: the sweep defers tasks by such changes.
FILTERS: tuple[dict[str, Any], ...] = (
    {"eventName": ["INSERT"], "dynamodb": {"NewImage": {"status": _PENDING, "dispatchKey": _OPEN}}},
    {
        "eventName": ["MODIFY"],
        "dynamodb": {
            "NewImage": {"status": _PENDING, "dispatchKey": _OPEN},
            "OldImage": {"status": {"S": [{"anything-but": ["PENDING"]}]}},
        },
    },
    {
        "eventName": ["MODIFY"],
        "dynamodb": {
            "NewImage": {"status": _PENDING, "dispatchKey": _OPEN},
            "OldImage": {"dispatchKey": {"S": [{"prefix": "BLOCKED#"}]}},
        },
    },
)


class Doorbell(Construct):
    """Woken by tasks that just became due: inserted, re-opened from another status, or unblocked."""

    def __init__(
        self,
        scope: Construct,
        id: str,
        *,
        house: HouseDefaults,
        size: FunctionSize,
        poll: PollSettings,
        table: dynamodb.ITableV2,
        undelivered: sqs.IQueue,
    ) -> None:
        super().__init__(scope, id)
        service_function = ServiceFunction(
            self,
            "Doorbell",
            house=house,
            description="Claims tasks that just became due, from the table's stream",
            parts=house.project.function_parts("poller"),
            handler="handler.doorbell",
            size=size,
            timeout_seconds=TIMEOUT_SECONDS,
            environment={"POLL_BATCH_SIZE": str(poll.batch_size)},
        )
        self.function = service_function.function
        self.role = service_function.role
        grant_items(table, self.role, ITEM_ACTIONS)
        grant_dispatch_index(table, self.role)
        grant_stream(table, self.role)
        assert table.table_stream_arn is not None
        self.function.add_event_source_mapping(
            "Stream",
            event_source_arn=table.table_stream_arn,
            starting_position=lambda_.StartingPosition.LATEST,
            filters=[lambda_.FilterCriteria.filter(pattern) for pattern in FILTERS],
            batch_size=BATCH_RECORDS,
            max_batching_window=Duration.seconds(0),
            parallelization_factor=AT_ONCE,
            bisect_batch_on_error=True,
            retry_attempts=RETRIES,
            max_record_age=Duration.seconds(RECORD_AGE_SECONDS),
            on_failure=StreamLastResort(undelivered, self.role),
        ).node.add_dependency(self.role)
