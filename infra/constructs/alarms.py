"""What is an alarm, from when on, and what to do about it. The runbook has a section for each.

No metric math, no composite alarms: what is here also works on a laptop. Idle means no data, and no data is good news,
except for a heartbeat.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

from aws_cdk import Duration
from aws_cdk import aws_cloudwatch as cloudwatch

from infra.config import SCHEDULE_SECONDS, AlarmSettings
from infra.constructs.metrics import (
    FIVE_MINUTES,
    Watched,
    api_metric,
    function_metric,
    queue_metric,
    service_metric,
    table_metric,
)
from thunderagent import schema

HEARTBEAT_PERIOD = Duration.seconds(2 * SCHEDULE_SECONDS)  # twice the schedule: one late or lost beat is no alarm
HEARTBEAT_PERIODS = 2  # a stopped poller or reaper is an ALARM within five minutes
BEHIND_MILLISECONDS = 1_800_000

AT_LEAST = cloudwatch.ComparisonOperator.GREATER_THAN_OR_EQUAL_TO_THRESHOLD
LESS = cloudwatch.ComparisonOperator.LESS_THAN_THRESHOLD


@dataclass(frozen=True, kw_only=True)
class AlarmSpec:
    """One alarm. What stands before the first `-` of its id is its section in the runbook."""

    id: str
    metric: cloudwatch.Metric
    advice: str
    threshold: float = 1
    comparison: cloudwatch.ComparisonOperator = AT_LEAST
    periods: int = 1
    missing: cloudwatch.TreatMissingData = cloudwatch.TreatMissingData.NOT_BREACHING

    @property
    def section(self) -> str:
        return self.id.partition("-")[0]


def alarm_specs(watched: Watched, settings: AlarmSettings) -> Iterator[AlarmSpec]:
    """Every alarm of a stack."""
    yield _heartbeat(watched, "Poller", consequence="no task is started")
    yield _heartbeat(watched, "Reaper", consequence="expired leases and passed deadlines are not noticed")
    yield from _not_keeping_up(watched, settings)
    yield from _failing_tasks(watched, settings)
    yield from _failing_functions(watched)
    yield from _failing_store(watched)
    yield from _what_must_never_be(watched)
    yield from _recorder(watched)


def _heartbeat(watched: Watched, part: str, *, consequence: str) -> AlarmSpec:
    return AlarmSpec(
        id=f"{part}Stopped",
        metric=service_metric(f"{part}Heartbeat", service=watched.service, period=HEARTBEAT_PERIOD),
        threshold=1,
        comparison=LESS,
        periods=HEARTBEAT_PERIODS,
        missing=cloudwatch.TreatMissingData.BREACHING,
        advice=f"The {part.lower()} has not reported for {2 * HEARTBEAT_PERIODS} minutes: {consequence}. "
        "Check that its EventBridge rule is enabled, then its log group for errors. "
        "Right after a first deployment this clears by itself.",
    )


def _not_keeping_up(watched: Watched, settings: AlarmSettings) -> Iterator[AlarmSpec]:
    yield AlarmSpec(
        id="TasksWaiting",
        metric=service_metric("OldestDueAge", service=watched.service, statistic="Maximum"),
        threshold=settings.oldest_due_seconds,
        periods=3,
        advice=f"Some task has been due for more than {settings.oldest_due_seconds} s. See which queue on the "
        "dashboard, then ask `thunder task why` about its oldest task: paused, a limit, or executors that are full.",
    )
    yield AlarmSpec(
        id="DispatchFailures",
        metric=service_metric("DispatchFailures", service=watched.service),
        periods=3,
        advice="Executors could not be invoked for three minutes; the tasks were handed back unharmed. "
        "Compare maxInFlight with the account's Lambda concurrency, and read the poller's log group.",
    )
    yield AlarmSpec(
        id="EventsTooOld",
        metric=service_metric("EventsTooOld", service=watched.service, period=FIVE_MINUTES),
        advice="Batches waited for an executor longer than their lease, and Lambda dropped them; their tasks were "
        "taken back unharmed. Raise the account's Lambda concurrency or the reserved one, or lower maxInFlight.",
    )
    for profile, function in watched.executors.items():
        yield AlarmSpec(
            id=f"ExecutorThrottled-{profile}",
            metric=function_metric("Throttles", function=function),
            periods=3,
            advice=f"Lambda throttled executor {profile} for three minutes; its batches wait in Lambda's queue. "
            "Raise the account's concurrency or the profile's reserved one, or lower its maxInFlight.",
        )


def _failing_tasks(watched: Watched, settings: AlarmSettings) -> Iterator[AlarmSpec]:
    yield AlarmSpec(
        id="FailureRate",
        metric=service_metric("Failed", service=watched.service, statistic="Average", period=FIVE_MINUTES),
        threshold=settings.failure_rate,
        periods=3,
        advice=f"For a quarter of an hour at least {settings.failure_rate:.0%} of the tasks that ended were FAILED. "
        "Look at which type on the dashboard and at the last deployment; `thunder queue pause` stops the damage.",
    )
    for queue in watched.queues:
        yield AlarmSpec(
            id=f"TasksFailed-{queue}",
            metric=service_metric("Failed", service=watched.service, queue=queue, period=FIVE_MINUTES),
            advice=f"Tasks of queue {queue} ended FAILED (the dead letter). See their errors with "
            f"`thunder dlq list --queue {queue}`; once the cause is mended, run them again with `thunder dlq redrive`.",
        )
    yield AlarmSpec(
        id="LeasesExpired",
        metric=service_metric("LeasesExpired", service=watched.service, period=FIVE_MINUTES),
        advice="Executors died with their tasks, or stopped their heartbeat. Look in the executor's log group for "
        "a crash, a timeout or exhausted memory; the tasks run again, or end FAILED as worker_lost.",
    )


def _failing_functions(watched: Watched) -> Iterator[AlarmSpec]:
    for profile, function in watched.executors.items():
        yield AlarmSpec(
            id=f"ExecutorErrors-{profile}",
            metric=function_metric("Errors", function=function, period=FIVE_MINUTES),
            advice=f"Invocations of executor {profile} failed: a crash, a timeout or an import error; a handler's "
            "exception does not count here. Read its log group; give the profile more memory or time if it ran out.",
        )
    for name, function in watched.functions.items():
        yield AlarmSpec(
            id=f"FunctionErrors-{name}",
            metric=function_metric("Errors", function=function, period=FIVE_MINUTES),
            advice=f"Invocations of the {name} failed: a defect, a timeout, or a missing permission. "
            "Read its log group; redeploy the last good version if it began with a deployment.",
        )
    yield AlarmSpec(
        id="ApiServerErrors",
        metric=api_metric("5xx", api=watched.api, period=FIVE_MINUTES),
        threshold=5,
        advice="The API answered 5xx at least five times in five minutes. Find the requests in the access log by "
        "status, then the requestId in the API function's log group. 503 means that DynamoDB throttled.",
    )


def _failing_store(watched: Watched) -> Iterator[AlarmSpec]:
    yield AlarmSpec(
        id="SweepsFailed",
        metric=service_metric("SweepsFailed", service=watched.service),
        periods=3,
        advice="The poller could not read the table or its index for three minutes: no task is started, none is "
        "lost. An index that is still being built clears by itself; otherwise read the poller's log group.",
    )
    for kind in ("Read", "Write"):
        for place, index in (("Table", None), ("Index", schema.INDEX_NAME)):
            yield AlarmSpec(
                id=f"{place}{kind}Throttled",
                metric=table_metric(f"{kind}ThrottleEvents", table=watched.table, index=index),
                periods=3,
                advice=f"DynamoDB throttled {kind.lower()}s of the {place.lower()} for three minutes: submits answer "
                "503, claims wait. If one partition is hot, raise dispatchShards; otherwise check the table quotas.",
            )


def _what_must_never_be(watched: Watched) -> Iterator[AlarmSpec]:
    yield AlarmSpec(
        id="AuditViolations",
        metric=service_metric("AuditViolations", service=watched.service, period=FIVE_MINUTES),
        advice="The auditor found what must never be. The reaper's (or recorder's) log group has a line "
        "`audit.violation` with the invariant and the id; docs/audit.md says what each means. `thunder doctor "
        "--audit` looks at the whole table.",
    )


def _recorder(watched: Watched) -> Iterator[AlarmSpec]:
    yield AlarmSpec(
        id="Undelivered",
        metric=service_metric("Undelivered", service=watched.service, period=FIVE_MINUTES),
        advice="Completion events or archive lines could not be delivered and were given up. The recorder's log "
        "group names each as `record.given_up`; docs/recorder.md says how to record them from the failure queue.",
    )
    yield AlarmSpec(
        id="RecorderFailures",
        metric=queue_metric("ApproximateNumberOfMessagesVisible", queue=watched.failures, period=FIVE_MINUTES),
        advice="The recorder's failure queue is not empty: records wait there for somebody to look, 14 days at "
        "most. docs/recorder.md says how to record them again; purge the queue when that is done.",
    )
    yield AlarmSpec(
        id="RecorderBehind",
        metric=function_metric(
            "IteratorAge", function=watched.functions["recorder"], statistic="Maximum", period=FIVE_MINUTES
        ),
        threshold=BEHIND_MILLISECONDS,
        advice="The recorder is more than half an hour behind the table's stream, which keeps records for a day. "
        "Read its log group: S3, EventBridge or a permission may fail it; it goes on by itself afterwards.",
    )
