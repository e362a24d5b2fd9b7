"""The poller: finds due tasks, claims them under leases, invokes executors."""

from __future__ import annotations

import math

from aws_cdk import Duration
from aws_cdk import aws_dynamodb as dynamodb
from constructs import Construct

from infra.config import SCHEDULE_SECONDS, FunctionSize, PollSettings
from infra.constructs.every_minute import EveryMinute
from infra.constructs.service_function import HouseDefaults, ServiceFunction
from infra.constructs.task_table import grant_dispatch_index, grant_items

ITEM_ACTIONS = ("BatchGetItem", "ConditionCheckItem", "GetItem", "UpdateItem", "PutItem", "DeleteItem")
# The pass begun just before the window closes: open leases, claim, invoke, undo what was refused.
LAST_PASS_SECONDS = 30


def poller_timeout_seconds(poll: PollSettings) -> int:
    """Long enough for the start jitter, the window and a last pass; a hung poller ends within the next minute."""
    return math.ceil(poll.start_jitter_seconds + poll.window_seconds) + LAST_PASS_SECONDS


class Poller(Construct):
    """The sweep: one invocation a minute, looping inside it. It reads and claims, and may invoke the executors."""

    def __init__(
        self,
        scope: Construct,
        id: str,
        *,
        house: HouseDefaults,
        size: FunctionSize,
        poll: PollSettings,
        table: dynamodb.ITableV2,
    ) -> None:
        super().__init__(scope, id)
        service_function = ServiceFunction(
            self,
            "Poller",
            house=house,
            description="Sweeps due tasks, claims them and invokes executors",
            parts=house.project.function_parts("poller"),
            size=size,
            timeout_seconds=poller_timeout_seconds(poll),
            environment=_poll_environment(poll),
        )
        service_function.invoke_once(max_event_age=Duration.seconds(SCHEDULE_SECONDS))
        self.function = service_function.function
        self.role = service_function.role
        self.schedule = EveryMinute(
            self, "Schedule", function=self.function, description="Wakes the poller for its sweep"
        )
        grant_items(table, self.role, ITEM_ACTIONS)
        grant_dispatch_index(table, self.role)


def _poll_environment(poll: PollSettings) -> dict[str, str]:
    return {
        "POLL_BUSY_SECONDS": f"{poll.busy_seconds:g}",
        "POLL_IDLE_SECONDS": f"{poll.idle_seconds:g}",
        "POLL_WINDOW_SECONDS": f"{poll.window_seconds:g}",
        "POLL_START_JITTER_SECONDS": f"{poll.start_jitter_seconds:g}",
        "POLL_BATCH_SIZE": str(poll.batch_size),
    }
