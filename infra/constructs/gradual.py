"""New code of executors a share at a time, and back by itself when an alarm goes off."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from aws_cdk import Duration
from aws_cdk import aws_cloudwatch as cloudwatch
from aws_cdk import aws_codedeploy as codedeploy
from aws_cdk import aws_iam as iam
from aws_cdk import aws_lambda as lambda_
from aws_cdk import aws_sqs as sqs
from constructs import Construct

from infra.acknowledge import acknowledge
from infra.constructs.executor import Executor
from infra.constructs.last_resort import EventLastResort

ALIAS = "live"
CODEDEPLOY_POLICY = "arn:<AWS::Partition>:iam::aws:policy/service-role/AWSCodeDeployRoleForLambdaLimited"
SERVICE_WIDE = ("FailureRate", "LeasesExpired")


def _configuration(rollout: str) -> codedeploy.ILambdaDeploymentConfig:
    configurations = codedeploy.LambdaDeploymentConfig
    return {
        "canary10Percent5Minutes": configurations.CANARY_10_PERCENT_5_MINUTES,
        "canary10Percent30Minutes": configurations.CANARY_10_PERCENT_30_MINUTES,
        "linear10PercentEvery1Minute": configurations.LINEAR_10_PERCENT_EVERY_1_MINUTE,
        "linear10PercentEvery10Minutes": configurations.LINEAR_10_PERCENT_EVERY_10_MINUTES,
    }[rollout]


class GradualRollout(Construct):
    """Pollers invoke an alias of each executor; CodeDeploy moves it to a new version by `rollout`.

    Only executors: they run the users' handlers, which change most, and a batch runs whole in one version. Two versions
    work side by side meanwhile, which the item format allows. An alarm of an executor, or of the share of tasks that
    fail, takes the alias back. The other functions change at once.
    """

    def __init__(
        self,
        scope: Construct,
        id: str,
        *,
        rollout: str,
        executors: Mapping[str, Executor],
        invokers: Sequence[iam.Role],
        event_age_seconds: Mapping[str, int],
        alarms: Mapping[str, cloudwatch.Alarm],
        undelivered: sqs.IQueue,
    ) -> None:
        super().__init__(scope, id)
        self.application = codedeploy.LambdaApplication(self, "Application")
        self.names: dict[str, str] = {}
        for name, executor in executors.items():
            alias = lambda_.Alias(self, f"Live-{name}", alias_name=ALIAS, version=executor.function.current_version)
            # Settings of asynchronous invocations are per qualifier: those of the function do not hold for its alias.
            alias.configure_async_invoke(
                retry_attempts=0,
                max_event_age=Duration.seconds(event_age_seconds[name]),
                on_failure=EventLastResort(undelivered, executor.role),
            )
            qualified = f"{executor.function.function_arn}:{ALIAS}"
            for role in invokers:
                role.add_to_policy(iam.PolicyStatement(actions=["lambda:InvokeFunction"], resources=[qualified]))
            group = codedeploy.LambdaDeploymentGroup(
                self,
                f"Group-{name}",
                application=self.application,
                alias=alias,
                deployment_config=_configuration(rollout),
                alarms=[alarms[f"ExecutorErrors-{name}"], *(alarms[each] for each in SERVICE_WIDE)],
            )
            acknowledge(group, {f"IAM4[Policy::{CODEDEPLOY_POLICY}]": "CodeDeploy's own for Lambda, kept by AWS."})
            self.names[name] = f"{executor.function.function_name}:{ALIAS}"
