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
    """Alarms, each with the topic as its action and a description that says what to do, by their ids; and a dashboard,
    which is empty until it is drawn."""

    def __init__(self, scope: Construct, id: str, *, settings: AlarmSettings, topic: sns.ITopic) -> None:
        super().__init__(scope, id)
        self._settings = settings
        self._action = actions.SnsAction(topic)
        self.alarms: dict[str, cloudwatch.Alarm] = {}
        self.dashboard = cloudwatch.Dashboard(self, "Dashboard", default_interval=Duration.hours(3))

    def add_alarms(self, watched: Watched) -> None:
        """Make those alarms that there are not yet."""
        for spec in alarm_specs(watched, self._settings):
            if spec.id in self.alarms:
                continue
            alarm = self.alarms[spec.id] = cloudwatch.Alarm(
                self,
                spec.id,
                metric=spec.metric,
                threshold=spec.threshold,
                comparison_operator=spec.comparison,
                evaluation_periods=spec.periods,
                treat_missing_data=spec.missing,
                alarm_description=f"{spec.advice} Runbook: {self._settings.runbook_section(spec.section)}",
            )
            alarm.add_alarm_action(self._action)

    def draw(self, watched: Watched) -> None:
        """Fill the dashboard, once everything there is to see is known. The alarms stand in the runbook's order."""
        ordered = [self.alarms[spec.id] for spec in alarm_specs(watched, self._settings)]
        for row in dashboard_rows(watched, self._settings, ordered):
            self.dashboard.add_widgets(*row)
