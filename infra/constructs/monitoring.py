"""The alarms and the dashboard."""

from __future__ import annotations

from aws_cdk import Duration
from aws_cdk import aws_cloudwatch as cloudwatch
from aws_cdk import aws_cloudwatch_actions as actions
from aws_cdk import aws_sns as sns
from constructs import Construct

from infra.config import AlarmSettings
from infra.constructs.alarms import alarm_specs
from infra.constructs.dashboard import dashboard_rows
from infra.constructs.metrics import Watched


class Monitoring(Construct):
    """Alarms, each with the topic as its action and a description that says what to do; and a dashboard."""

    def __init__(
        self, scope: Construct, id: str, *, watched: Watched, settings: AlarmSettings, topic: sns.ITopic
    ) -> None:
        super().__init__(scope, id)
        action = actions.SnsAction(topic)
        self.alarms = []
        for spec in alarm_specs(watched, settings):
            alarm = cloudwatch.Alarm(
                self,
                spec.id,
                metric=spec.metric,
                threshold=spec.threshold,
                comparison_operator=spec.comparison,
                evaluation_periods=spec.periods,
                treat_missing_data=spec.missing,
                alarm_description=f"{spec.advice} Runbook: {settings.runbook_section(spec.section)}",
            )
            alarm.add_alarm_action(action)
            self.alarms.append(alarm)
        self.dashboard = cloudwatch.Dashboard(
            self,
            "Dashboard",
            default_interval=Duration.hours(3),
            widgets=dashboard_rows(watched, settings, self.alarms),
        )
