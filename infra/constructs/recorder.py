"""The recorder: the table's stream as completion events on a bus, and as an archive of removed tasks in the bucket."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from aws_cdk import Duration
from aws_cdk import aws_dynamodb as dynamodb
from aws_cdk import aws_events as events
from aws_cdk import aws_iam as iam
from aws_cdk import aws_kms as kms
from aws_cdk import aws_lambda as lambda_
from aws_cdk import aws_s3 as s3
from aws_cdk import aws_sqs as sqs
from constructs import Construct

from infra.acknowledge import acknowledge, acknowledge_plain_http
from infra.config import FunctionSize, RecorderSettings
from infra.constructs.last_resort import StreamLastResort
from infra.constructs.service_function import HouseDefaults, ServiceFunction
from infra.constructs.task_bucket import ARCHIVE, BODIES, grant_objects
from infra.constructs.task_table import grant_items, grant_stream
from thunderagent.states import Status

ITEM_ACTIONS = ("BatchGetItem", "GetItem", "UpdateItem", "DeleteItem")
TIMEOUT_SECONDS = 120  # a batch's bodies, a few objects, ten calls of PutEvents, each tried again for some seconds
BATCH_RECORDS = 100
BATCH_SECONDS = 2  # how long records are gathered: the price of an object in S3 is shared, an event is 2 s late
RETRIES = 1_000  # while the batch is younger than the function's patience; the age below ends it
AGE_MARGIN_SECONDS = 1_800  # the function gives up by itself, and with the records, before Lambda does without them
LONGEST_AGE_SECONDS = 86_400  # a stream's retention
FAILURE_DAYS = 14


class Recorder(Construct):
    """Reads the stream from its oldest record on, one batch of a shard after the other.

    What it cannot record goes to `failures` with its key, and whole where it fits; Lambda puts there what the function
    did not live to tell of.
    """

    def __init__(
        self,
        scope: Construct,
        id: str,
        *,
        house: HouseDefaults,
        size: FunctionSize,
        settings: RecorderSettings,
        table: dynamodb.ITableV2,
        bucket: s3.IBucket,
        enforce_tls: bool,
        bus: events.IEventBus | None = None,
    ) -> None:
        super().__init__(scope, id)
        self.bus = bus or self._bus(settings.event_bus)
        self.failures = self._failures(enforce_tls, house.key)
        service_function = ServiceFunction(
            self,
            "Recorder",
            house=house,
            description="Tells of ended tasks, archives removed ones",
            parts=house.project.function_parts("recorder"),
            size=size,
            timeout_seconds=TIMEOUT_SECONDS,
            environment={
                **self._event_environment(settings),
                "FAILURES_QUEUE_URL": self.failures.queue_url,
                "RECORDER_PATIENCE_SECONDS": str(settings.patience_seconds),
            },
        )
        self.function = service_function.function
        self.role = service_function.role
        grant_items(table, self.role, ITEM_ACTIONS)
        grant_stream(table, self.role)
        grant_objects(bucket, self.role, ARCHIVE, ("PutObject",))
        grant_objects(bucket, self.role, BODIES, ("DeleteObject",))
        self._grant("events:PutEvents", self.bus.event_bus_arn)
        self._map_stream(table, settings)

    def _bus(self, given: str | None) -> events.IEventBus:
        """A bus of our own, unless one is given by its ARN or its name in this account."""
        if given is None:
            return events.EventBus(self, "Bus", description="Tasks that ended")
        if given.startswith("arn:"):
            return events.EventBus.from_event_bus_arn(self, "Bus", given)
        return events.EventBus.from_event_bus_name(self, "Bus", given)

    def _event_environment(self, settings: RecorderSettings) -> dict[str, str]:
        if not settings.event_statuses:
            return {}
        return {"EVENT_BUS": self.bus.event_bus_name, "EVENT_STATUSES": ",".join(settings.event_statuses)}

    def _failures(self, enforce_tls: bool, key: kms.IKey | None) -> sqs.Queue:
        queue = sqs.Queue(
            self,
            "Failures",
            retention_period=Duration.days(FAILURE_DAYS),
            encryption=sqs.QueueEncryption.KMS if key else sqs.QueueEncryption.SQS_MANAGED,
            encryption_master_key=key,
            enforce_ssl=enforce_tls,
        )
        if not enforce_tls:
            acknowledge_plain_http(queue, "SQS4")
        acknowledge(queue, {"SQS3": "It is itself the place for what could not be recorded."})
        return queue

    def _grant(self, action: str, resource: str) -> None:
        self.role.add_to_policy(iam.PolicyStatement(actions=[action], resources=[resource]))

    def _map_stream(self, table: dynamodb.ITableV2, settings: RecorderSettings) -> None:
        assert table.table_stream_arn is not None
        self.function.add_event_source_mapping(
            "Stream",
            event_source_arn=table.table_stream_arn,
            starting_position=lambda_.StartingPosition.TRIM_HORIZON,
            filters=[lambda_.FilterCriteria.filter(pattern) for pattern in filters(settings.event_statuses)],
            batch_size=BATCH_RECORDS,
            max_batching_window=Duration.seconds(BATCH_SECONDS),
            bisect_batch_on_error=True,
            retry_attempts=RETRIES,
            max_record_age=Duration.seconds(record_age_seconds(settings.patience_seconds)),
            on_failure=StreamLastResort(self.failures, self.role),
        ).node.add_dependency(self.role)


def filters(event_statuses: Sequence[str]) -> list[dict[str, Any]]:
    """What wakes the recorder: ends in the statuses that are told of, and removals of tasks (not of side items).

    Who removed it is looked at in the function: AWS documents filters for the `dynamodb` part of a record only.
    """
    ends = {"dynamodb": {"NewImage": {"status": {"S": list(event_statuses)}}}}
    removals = {"eventName": ["REMOVE"], "dynamodb": {"OldImage": {"status": {"S": [each.value for each in Status]}}}}
    return [ends, removals] if event_statuses else [removals]


def record_age_seconds(patience_seconds: int) -> int:
    """How old a record may grow before Lambda gives it up: later than the function does."""
    return min(LONGEST_AGE_SECONDS, patience_seconds + AGE_MARGIN_SECONDS)
