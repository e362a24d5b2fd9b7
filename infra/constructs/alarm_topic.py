"""Where every alarm goes."""

from __future__ import annotations

from collections.abc import Sequence

from aws_cdk import Stack, Validations
from aws_cdk import aws_iam as iam
from aws_cdk import aws_kms as kms
from aws_cdk import aws_sns as sns
from aws_cdk import aws_sns_subscriptions as subscriptions
from constructs import Construct

from infra.acknowledge import acknowledge_plain_http
from infra.pin import pin

LOGICAL_ID = "AlarmTopic"


class AlarmTopic(Construct):
    """One topic; an email subscription for each address, otherwise synthesis says that nobody listens yet."""

    def __init__(
        self,
        scope: Construct,
        id: str,
        *,
        emails: Sequence[str],
        enforce_tls: bool,
        quiet: bool,
        key: kms.IKey | None = None,
        pinned: bool = False,
    ) -> None:
        super().__init__(scope, id)
        self.topic = sns.Topic(
            self, "Topic", display_name="ThunderAgent alarms", enforce_ssl=enforce_tls, master_key=key
        )
        if pinned:
            pin(self.topic, LOGICAL_ID)  # another one would lose its subscriptions
        if not enforce_tls:
            acknowledge_plain_http(self.topic, "SNS3")
        self._admit_alarms()
        for email in emails:
            self.topic.add_subscription(subscriptions.EmailSubscription(email))
        if not emails and not quiet:
            Validations.of(self).add_warning(
                "thunder:alarms-unheard", "alarmEmails is not set: subscribe to the output AlarmTopicArn to hear alarms"
            )

    def _admit_alarms(self) -> None:
        """A topic policy of our own replaces SNS's default one, under which CloudWatch could publish."""
        self.topic.add_to_resource_policy(
            iam.PolicyStatement(
                sid="AlarmsOfThisAccount",
                actions=["sns:Publish"],
                principals=[iam.ServicePrincipal("cloudwatch.amazonaws.com")],
                resources=[self.topic.topic_arn],
                conditions={"StringEquals": {"aws:SourceAccount": Stack.of(self).account}},
            )
        )
