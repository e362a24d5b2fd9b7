"""The alarms and the first dashboard. No metric math, no composite alarms: what is here also works on a laptop."""

from __future__ import annotations

from aws_cdk import Duration
from aws_cdk import aws_cloudwatch as cloudwatch
from aws_cdk import aws_cloudwatch_actions as actions
from aws_cdk import aws_sns as sns
from constructs import Construct

from infra.config import SCHEDULE_SECONDS
from infra.constructs.dashboard import Watched, dashboard_rows
from infra.constructs.metrics import (
    FIVE_MINUTES,
    api_metric,
    function_metric,
    queue_metric,
    service_metric,
    table_metric,
)
from thunderagent import schema

HEARTBEAT_PERIOD = Duration.seconds(2 * SCHEDULE_SECONDS)  # twice the schedule: one late or lost beat is no alarm
BEHIND_MILLISECONDS = 1_800_000
HEARTBEAT_PERIODS = 2  # a stopped poller or reaper is an ALARM within five minutes

_AT_LEAST = cloudwatch.ComparisonOperator.GREATER_THAN_OR_EQUAL_TO_THRESHOLD
_LESS = cloudwatch.ComparisonOperator.LESS_THAN_THRESHOLD


class Monitoring(Construct):
    """Alarms, each with the topic as its action and a description that says what to do; and a dashboard."""

    def __init__(self, scope: Construct, id: str, *, watched: Watched, topic: sns.ITopic) -> None:
        super().__init__(scope, id)
        self._watched = watched
        self._action = actions.SnsAction(topic)
        self._heartbeat("Poller", consequence="no task is started")
        self._heartbeat("Reaper", consequence="expired leases and passed deadlines are not noticed")
        self._failed_dispatches()
        self._failed_sweeps()
        self._expired_leases()
        self._events_too_old()
        self._violations()
        self._unrecorded()
        for queue in watched.queues:
            self._failed_tasks(queue)
        for profile, function in watched.executors.items():
            self._executor_errors(profile, function)
        for name, function in watched.functions.items():
            self._function_errors(name, function)
        for kind in ("Read", "Write"):
            self._throttled("Table", kind, index=None)
            self._throttled("Index", kind, index=schema.INDEX_NAME)
        self._api_errors()
        self.dashboard = cloudwatch.Dashboard(
            self, "Dashboard", default_interval=Duration.hours(3), widgets=dashboard_rows(watched)
        )

    def _heartbeat(self, part: str, *, consequence: str) -> None:
        self._alarm(
            f"{part}Stopped",
            service_metric(f"{part}Heartbeat", service=self._watched.service, period=HEARTBEAT_PERIOD),
            threshold=1,
            comparison=_LESS,
            periods=HEARTBEAT_PERIODS,
            missing=cloudwatch.TreatMissingData.BREACHING,
            advice=f"The {part.lower()} has not reported for {2 * HEARTBEAT_PERIODS} minutes: {consequence}. "
            "Check that its EventBridge rule is enabled, then its log group for errors. "
            "Right after a first deployment this clears by itself.",
        )

    def _failed_tasks(self, queue: str) -> None:
        self._alarm(
            f"TasksFailed-{queue}",
            service_metric("Failed", service=self._watched.service, queue=queue, period=FIVE_MINUTES),
            advice=f"Tasks of queue {queue} ended FAILED (the dead letter). See their errors with "
            f"`thunder dlq list --queue {queue}`; once the cause is mended, run them again with `thunder dlq redrive`.",
        )

    def _failed_dispatches(self) -> None:
        self._alarm(
            "DispatchFailures",
            service_metric("DispatchFailures", service=self._watched.service),
            periods=3,
            advice="Executors could not be invoked for three minutes; the tasks were handed back unharmed. "
            "Compare maxInFlight with the account's Lambda concurrency, and read the poller's log group.",
        )

    def _failed_sweeps(self) -> None:
        self._alarm(
            "SweepsFailed",
            service_metric("SweepsFailed", service=self._watched.service),
            periods=3,
            advice="The poller could not read the table or its index for three minutes: no task is started, none is "
            "lost. An index that is still being built clears by itself; otherwise read the poller's log group.",
        )

    def _expired_leases(self) -> None:
        self._alarm(
            "LeasesExpired",
            service_metric("LeasesExpired", service=self._watched.service, period=FIVE_MINUTES),
            advice="Executors died with their tasks, or stopped their heartbeat. Look in the executor's log group for "
            "a crash, a timeout or exhausted memory; the tasks run again, or end FAILED as worker_lost.",
        )

    def _events_too_old(self) -> None:
        self._alarm(
            "EventsTooOld",
            service_metric("EventsTooOld", service=self._watched.service, period=FIVE_MINUTES),
            advice="Batches waited for an executor longer than their lease, and Lambda dropped them; their tasks were "
            "taken back unharmed. Raise the account's Lambda concurrency or the reserved one, or lower maxInFlight.",
        )

    def _violations(self) -> None:
        self._alarm(
            "AuditViolations",
            service_metric("AuditViolations", service=self._watched.service, period=FIVE_MINUTES),
            advice="The auditor found what must never be. The reaper's (or recorder's) log group has a line "
            "`audit.violation` with the invariant and the id; docs/audit.md says what each means. `thunder doctor "
            "--audit` looks at the whole table.",
        )

    def _unrecorded(self) -> None:
        self._alarm(
            "Undelivered",
            service_metric("Undelivered", service=self._watched.service, period=FIVE_MINUTES),
            advice="Completion events or archive lines could not be delivered and were given up. The recorder's log "
            "group names each as `record.given_up`; docs/recorder.md says how to record them from the failure queue.",
        )
        self._alarm(
            "RecorderFailures",
            queue_metric("ApproximateNumberOfMessagesVisible", queue=self._watched.failures, period=FIVE_MINUTES),
            advice="The recorder's failure queue is not empty: records wait there for somebody to look, 14 days at "
            "most. docs/recorder.md says how to record them again; purge the queue when that is done.",
        )
        self._alarm(
            "RecorderBehind",
            function_metric(
                "IteratorAge",
                function=self._watched.functions["recorder"],
                statistic="Maximum",
                period=FIVE_MINUTES,
            ),
            threshold=BEHIND_MILLISECONDS,
            advice="The recorder is more than half an hour behind the table's stream, which keeps records for a day. "
            "Read its log group: S3, EventBridge or a permission may fail it; it goes on by itself afterwards.",
        )

    def _executor_errors(self, profile: str, function: str) -> None:
        self._alarm(
            f"ExecutorErrors-{profile}",
            function_metric("Errors", function=function, period=FIVE_MINUTES),
            advice=f"Invocations of executor {profile} failed: a crash, a timeout or an import error; a handler's "
            "exception does not count here. Read its log group; give the profile more memory or time if it ran out.",
        )

    def _function_errors(self, name: str, function: str) -> None:
        self._alarm(
            f"FunctionErrors-{name}",
            function_metric("Errors", function=function, period=FIVE_MINUTES),
            advice=f"Invocations of the {name} failed: a defect, a timeout, or a missing permission. "
            "Read its log group; redeploy the last good version if it began with a deployment.",
        )

    def _throttled(self, place: str, kind: str, *, index: str | None) -> None:
        self._alarm(
            f"{place}{kind}Throttled",
            table_metric(f"{kind}ThrottleEvents", table=self._watched.table, index=index),
            periods=3,
            advice=f"DynamoDB throttled {kind.lower()}s of the {place.lower()} for three minutes: submits answer 503, "
            "claims wait. If one partition is hot, raise dispatchShards; otherwise check the account's table quotas.",
        )

    def _api_errors(self) -> None:
        self._alarm(
            "ApiServerErrors",
            api_metric("5xx", api=self._watched.api, period=FIVE_MINUTES),
            threshold=5,
            advice="The API answered 5xx at least five times in five minutes. Find the requests in the access log by "
            "status, then the requestId in the API function's log group. 503 means that DynamoDB throttled.",
        )

    def _alarm(
        self,
        id: str,
        metric: cloudwatch.Metric,
        *,
        advice: str,
        threshold: float = 1,
        comparison: cloudwatch.ComparisonOperator = _AT_LEAST,
        periods: int = 1,
        missing: cloudwatch.TreatMissingData = cloudwatch.TreatMissingData.NOT_BREACHING,
    ) -> None:
        """Idle means no data, and no data is good news, except for a heartbeat."""
        alarm = cloudwatch.Alarm(
            self,
            id,
            metric=metric,
            threshold=threshold,
            comparison_operator=comparison,
            evaluation_periods=periods,
            treat_missing_data=missing,
            alarm_description=advice,
        )
        alarm.add_alarm_action(self._action)
