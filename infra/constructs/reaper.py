"""The reaper: ends what its holder can no longer end."""

from __future__ import annotations

from aws_cdk import Duration
from aws_cdk import aws_dynamodb as dynamodb
from aws_cdk import aws_iam as iam
from aws_cdk import aws_sqs as sqs
from constructs import Construct

from infra.config import SCHEDULE_SECONDS, FunctionSize
from infra.constructs.every_minute import EveryMinute
from infra.constructs.service_function import HouseDefaults, ServiceFunction
from infra.constructs.task_table import grant_audit, grant_dispatch_index, grant_items

ITEM_ACTIONS = ("BatchGetItem", "ConditionCheckItem", "GetItem", "UpdateItem", "PutItem", "DeleteItem")
TIMEOUT_SECONDS = 60  # one period: a slow reaper overlaps the next one at most once, and both are harmless together


class Reaper(Construct):
    """Once a minute: expired leases, passed deadlines, blocked tasks, census, audit; and a look at the undelivered."""

    def __init__(
        self,
        scope: Construct,
        id: str,
        *,
        house: HouseDefaults,
        size: FunctionSize,
        table: dynamodb.ITableV2,
        undelivered: sqs.IQueue,
    ) -> None:
        super().__init__(scope, id)
        service_function = ServiceFunction(
            self,
            "Reaper",
            house=house,
            description="Closes expired leases, ends what is overdue, takes the census",
            parts=house.project.function_parts("reaper"),
            size=size,
            timeout_seconds=TIMEOUT_SECONDS,
            environment={"UNDELIVERED_QUEUE_URL": undelivered.queue_url},
        )
        service_function.invoke_once(max_event_age=Duration.seconds(SCHEDULE_SECONDS))
        self.function = service_function.function
        self.role = service_function.role
        self.schedule = EveryMinute(self, "Schedule", function=self.function, description="Wakes the reaper")
        grant_items(table, self.role, ITEM_ACTIONS)
        grant_dispatch_index(table, self.role)
        grant_audit(table, self.role)
        self.role.add_to_policy(
            iam.PolicyStatement(actions=["sqs:ReceiveMessage", "sqs:DeleteMessage"], resources=[undelivered.queue_arn])
        )
