"""Every metric of the service as a method: of the whole service, of a queue, or of a type in a queue."""

from __future__ import annotations

from aws_cdk import Duration
from aws_cdk import aws_cloudwatch as cloudwatch

from infra.constructs.metrics import MINUTE, service_metric


class ServiceMetrics:
    """Mixed into `ThunderAgent`. The names are those of `thunderagent.metrics.METRICS`."""

    @property
    def service_name(self) -> str:
        raise NotImplementedError

    def metric(
        self,
        name: str,
        *,
        queue: str | None = None,
        type: str | None = None,
        statistic: str = "Sum",
        period: Duration = MINUTE,
    ) -> cloudwatch.Metric:
        """A metric of this service by its name in the namespace `ThunderAgent`. Raises KeyError for another name,
        ValueError for dimensions it is not emitted by."""
        return service_metric(
            name, service=self.service_name, queue=queue, type=type, statistic=statistic, period=period
        )

    def metric_poller_heartbeat(self, *, statistic: str = "Sum", period: Duration = MINUTE) -> cloudwatch.Metric:
        """Runs of the poller that began."""
        return self.metric("PollerHeartbeat", statistic=statistic, period=period)

    def metric_reaper_heartbeat(self, *, statistic: str = "Sum", period: Duration = MINUTE) -> cloudwatch.Metric:
        """Runs of the reaper that ended well."""
        return self.metric("ReaperHeartbeat", statistic=statistic, period=period)

    def metric_submitted(
        self, queue: str | None = None, *, statistic: str = "Sum", period: Duration = MINUTE
    ) -> cloudwatch.Metric:
        """Tasks accepted."""
        return self.metric("Submitted", queue=queue, statistic=statistic, period=period)

    def metric_claimed(
        self, queue: str = "default", *, statistic: str = "Sum", period: Duration = MINUTE
    ) -> cloudwatch.Metric:
        """Tasks claimed for an executor."""
        return self.metric("Claimed", queue=queue, statistic=statistic, period=period)

    def metric_claim_conflicts(
        self, queue: str = "default", *, statistic: str = "Sum", period: Duration = MINUTE
    ) -> cloudwatch.Metric:
        """Claims that another poller won."""
        return self.metric("ClaimConflicts", queue=queue, statistic=statistic, period=period)

    def metric_succeeded(
        self, queue: str | None = None, *, type: str | None = None, statistic: str = "Sum", period: Duration = MINUTE
    ) -> cloudwatch.Metric:
        """Tasks that ended as SUCCESS."""
        return self.metric("Succeeded", queue=queue, type=type, statistic=statistic, period=period)

    def metric_failed(
        self, queue: str | None = None, *, type: str | None = None, statistic: str = "Sum", period: Duration = MINUTE
    ) -> cloudwatch.Metric:
        """Dead letters; the average is the failure rate."""
        return self.metric("Failed", queue=queue, type=type, statistic=statistic, period=period)

    def metric_retried(
        self, queue: str | None = None, *, type: str | None = None, statistic: str = "Sum", period: Duration = MINUTE
    ) -> cloudwatch.Metric:
        """Attempts that failed and are tried again."""
        return self.metric("Retried", queue=queue, type=type, statistic=statistic, period=period)

    def metric_cancelled(
        self, queue: str = "default", *, statistic: str = "Sum", period: Duration = MINUTE
    ) -> cloudwatch.Metric:
        """Tasks that were cancelled."""
        return self.metric("Cancelled", queue=queue, statistic=statistic, period=period)

    def metric_queue_latency(
        self, queue: str | None = None, *, statistic: str = "p95", period: Duration = MINUTE
    ) -> cloudwatch.Metric:
        """Seconds from the submit, or the due time, to the start."""
        return self.metric("QueueLatency", queue=queue, statistic=statistic, period=period)

    def metric_duration(
        self, queue: str = "default", *, type: str | None = None, statistic: str = "p95", period: Duration = MINUTE
    ) -> cloudwatch.Metric:
        """Seconds an attempt ran."""
        return self.metric("Duration", queue=queue, type=type, statistic=statistic, period=period)

    def metric_backlog(
        self, queue: str = "default", *, statistic: str = "Maximum", period: Duration = MINUTE
    ) -> cloudwatch.Metric:
        """Tasks that wait."""
        return self.metric("Backlog", queue=queue, statistic=statistic, period=period)

    def metric_running(
        self, queue: str = "default", *, statistic: str = "Maximum", period: Duration = MINUTE
    ) -> cloudwatch.Metric:
        """Tasks that run."""
        return self.metric("Running", queue=queue, statistic=statistic, period=period)

    def metric_blocked(
        self, queue: str = "default", *, statistic: str = "Maximum", period: Duration = MINUTE
    ) -> cloudwatch.Metric:
        """Tasks that wait for others."""
        return self.metric("Blocked", queue=queue, statistic=statistic, period=period)

    def metric_oldest_due_age(
        self, queue: str | None = None, *, statistic: str = "Maximum", period: Duration = MINUTE
    ) -> cloudwatch.Metric:
        """For how many seconds the task that waits longest has been due."""
        return self.metric("OldestDueAge", queue=queue, statistic=statistic, period=period)

    def metric_dispatch_failures(self, *, statistic: str = "Sum", period: Duration = MINUTE) -> cloudwatch.Metric:
        """Batches whose executor could not be invoked."""
        return self.metric("DispatchFailures", statistic=statistic, period=period)

    def metric_sweeps_failed(self, *, statistic: str = "Sum", period: Duration = MINUTE) -> cloudwatch.Metric:
        """Sweeps that could not read the table."""
        return self.metric("SweepsFailed", statistic=statistic, period=period)

    def metric_events_too_old(self, *, statistic: str = "Sum", period: Duration = MINUTE) -> cloudwatch.Metric:
        """Batches that waited for an executor longer than their lease."""
        return self.metric("EventsTooOld", statistic=statistic, period=period)

    def metric_leases_expired(self, *, statistic: str = "Sum", period: Duration = MINUTE) -> cloudwatch.Metric:
        """Leases whose holder died."""
        return self.metric("LeasesExpired", statistic=statistic, period=period)

    def metric_heartbeats_lost(self, *, statistic: str = "Sum", period: Duration = MINUTE) -> cloudwatch.Metric:
        """Heartbeats that were refused: the lease was another's by then."""
        return self.metric("HeartbeatsLost", statistic=statistic, period=period)

    def metric_undelivered(self, *, statistic: str = "Sum", period: Duration = MINUTE) -> cloudwatch.Metric:
        """Events and archive lines given up."""
        return self.metric("Undelivered", statistic=statistic, period=period)

    def metric_audit_violations(self, *, statistic: str = "Sum", period: Duration = MINUTE) -> cloudwatch.Metric:
        """What must never be."""
        return self.metric("AuditViolations", statistic=statistic, period=period)

    def metric_write_units(
        self, queue: str | None = None, *, statistic: str = "Sum", period: Duration = MINUTE
    ) -> cloudwatch.Metric:
        """Write units consumed."""
        return self.metric("WriteUnits", queue=queue, statistic=statistic, period=period)

    def metric_read_units(
        self, queue: str | None = None, *, statistic: str = "Sum", period: Duration = MINUTE
    ) -> cloudwatch.Metric:
        """Read units consumed."""
        return self.metric("ReadUnits", queue=queue, statistic=statistic, period=period)
