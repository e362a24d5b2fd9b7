"""An executor: the function that runs the leased batches of one profile."""

from __future__ import annotations

import json
import math
from collections.abc import Sequence

from aws_cdk import Duration
from aws_cdk import aws_dynamodb as dynamodb
from aws_cdk import aws_iam as iam
from aws_cdk import aws_lambda as lambda_
from aws_cdk import aws_s3 as s3
from aws_cdk import aws_sqs as sqs
from constructs import Construct

from infra.config import SHORTEST_LEASE_SECONDS, ExecutorProfile, FunctionSize
from infra.constructs.last_resort import EventLastResort
from infra.constructs.service_function import HouseDefaults, ServiceFunction
from infra.constructs.task_bucket import BODIES, REPORTS, grant_lookup, grant_objects
from infra.constructs.task_table import grant_dispatch_index, grant_items

# A handler may submit tasks: that is the submit path of the API, with its look at queue settings through the index.
ITEM_ACTIONS = ("BatchGetItem", "ConditionCheckItem", "GetItem", "UpdateItem", "PutItem", "DeleteItem")


def profile_environment(profile: ExecutorProfile, *, function: str) -> dict[str, object]:
    """One entry of EXECUTORS: where a profile's batches are sent, and how much it takes at once."""
    return {
        **({} if profile.is_function else {"kind": profile.kind}),
        "function": function,
        "timeoutSeconds": profile.timeout_seconds,
        "threads": profile.threads,
        "maxInFlight": profile.max_in_flight,
        "leaseSeconds": profile.lease_seconds,
    }


def event_age_seconds(profile: ExecutorProfile, lease_seconds: Sequence[int]) -> int:
    """How long an event may wait: as long as the shortest lease it may carry, but Lambda takes nothing below 60 s."""
    return max(SHORTEST_LEASE_SECONDS, math.floor(min([profile.lease_seconds, *lease_seconds])))


class Executor(Construct):
    """Invoked asynchronously by the poller, once per lease.

    An event older than the lease is worthless (its begin is refused), so Lambda drops it into `undelivered` by then.
    What a handler may do beyond tasks and reports is granted by its owner on `role`.
    """

    def __init__(
        self,
        scope: Construct,
        id: str,
        *,
        house: HouseDefaults,
        profile: ExecutorProfile,
        packages: Sequence[lambda_.ILayerVersion],
        table: dynamodb.ITableV2,
        bucket: s3.IBucket,
        undelivered: sqs.IQueue,
    ) -> None:
        super().__init__(scope, id)
        self.profile = profile
        service_function = ServiceFunction(
            self,
            "Executor",
            house=house,
            description=f"Runs leased batches of tasks, profile {profile.name}",
            parts=house.project.executor_parts(profile),
            size=FunctionSize(memory_mib=profile.memory_mib, reserved_concurrency=profile.reserved_concurrency),
            timeout_seconds=profile.timeout_seconds,
            environment={
                "EXECUTOR_PROFILE": profile.name,
                "LEASE_SECONDS": str(profile.lease_seconds),
                # Its own profile only, and without a function's name: it invokes none, and naming itself is a cycle.
                "EXECUTORS": json.dumps({profile.name: profile_environment(profile, function="")}),
            },
            layers=packages,
        )
        service_function.invoke_once(
            max_event_age=Duration.seconds(event_age_seconds(profile, ())),
            on_failure=EventLastResort(undelivered, service_function.role),
        )
        self.function = service_function.function
        self.role = service_function.role
        grant_items(table, self.role, ITEM_ACTIONS)
        grant_dispatch_index(table, self.role)
        grant_objects(bucket, self.role, BODIES, ("GetObject", "PutObject"))
        grant_lookup(bucket, self.role, BODIES)
        grant_objects(bucket, self.role, REPORTS, ("GetObject", "PutObject"))

    def shorten_event_age(self, lease_seconds: Sequence[int]) -> None:
        """For types that ask for leases of their own, once they are known."""
        config = self.function.node.find_child("EventInvokeConfig").node.default_child
        assert isinstance(config, lambda_.CfnEventInvokeConfig)
        config.maximum_event_age_in_seconds = event_age_seconds(self.profile, lease_seconds)

    def grant_invoke(self, role: iam.Role) -> None:
        """Invoke of the function itself; versions and aliases are not used."""
        role.add_to_policy(
            iam.PolicyStatement(actions=["lambda:InvokeFunction"], resources=[self.function.function_arn])
        )
