"""A queue as the place for what Lambda gives up, with the one right that needs.

CDK's own destinations let the function look at the queue as well, which Lambda never does in its name. A queue under a
KMS key needs the key too: see `encryption.grant_data_key`.
"""

from __future__ import annotations

import jsii
from aws_cdk import aws_iam as iam
from aws_cdk import aws_lambda as lambda_
from aws_cdk import aws_sqs as sqs
from constructs import Construct


@jsii.implements(lambda_.IEventSourceDlq)
class StreamLastResort:
    """`on_failure` of a stream's mapping."""

    def __init__(self, queue: sqs.IQueue, role: iam.Role) -> None:
        self._queue, self._role = queue, role

    def bind(self, target: lambda_.IEventSourceMapping, handler: lambda_.IFunction) -> lambda_.DlqDestinationConfig:
        _grant_send(self._queue, self._role)
        return lambda_.DlqDestinationConfig(destination=self._queue.queue_arn)


@jsii.implements(lambda_.IDestination)
class EventLastResort:
    """`on_failure` of asynchronous invocations."""

    def __init__(self, queue: sqs.IQueue, role: iam.Role) -> None:
        self._queue, self._role = queue, role

    def bind(
        self, scope: Construct, fn: lambda_.IFunction, *, type: lambda_.DestinationType
    ) -> lambda_.DestinationConfig:
        _grant_send(self._queue, self._role)
        return lambda_.DestinationConfig(destination=self._queue.queue_arn)


def _grant_send(queue: sqs.IQueue, role: iam.Role) -> None:
    role.add_to_policy(iam.PolicyStatement(actions=["sqs:SendMessage"], resources=[queue.queue_arn]))
