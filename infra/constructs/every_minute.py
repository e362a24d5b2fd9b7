"""A schedule that invokes a function every minute."""

from __future__ import annotations

from aws_cdk import Duration
from aws_cdk import aws_events as events
from aws_cdk import aws_events_targets as targets
from aws_cdk import aws_lambda as lambda_
from constructs import Construct

from infra.config import SCHEDULE_SECONDS


class EveryMinute(Construct):
    """EventBridge may fire twice or late; the functions cope. A firing that cannot be delivered is not repeated:
    the next one is a minute away."""

    def __init__(self, scope: Construct, id: str, *, function: lambda_.IFunction, description: str) -> None:
        super().__init__(scope, id)
        self.rule = events.Rule(
            self,
            "Rule",
            description=description,
            schedule=events.Schedule.rate(Duration.seconds(SCHEDULE_SECONDS)),
            targets=[
                targets.LambdaFunction(function, retry_attempts=0, max_event_age=Duration.seconds(SCHEDULE_SECONDS))
            ],
        )
