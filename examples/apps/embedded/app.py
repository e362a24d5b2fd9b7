"""A shop with a task service inside its own stack: its order function may submit, its handlers may read the orders.

cd examples/apps/embedded && cdk deploy
"""

from __future__ import annotations

from pathlib import Path

from aws_cdk import App, CfnOutput, Stack
from aws_cdk import aws_dynamodb as dynamodb
from aws_cdk import aws_iam as iam
from constructs import Construct

from thunderagent.cdk import ThunderAgent

HERE = Path(__file__).resolve().parent


class Shop(Stack):
    def __init__(self, scope: Construct, id: str) -> None:
        super().__init__(scope, id)
        orders = dynamodb.TableV2(
            self, "Orders", partition_key=dynamodb.Attribute(name="id", type=dynamodb.AttributeType.STRING)
        )
        web = iam.Role(self, "Web", assumed_by=iam.ServicePrincipal("lambda.amazonaws.com"))
        tasks = ThunderAgent(self, "Tasks", project=HERE, alarm_emails=["shop@example.com"])
        tasks.grant_submit(web)
        orders.grant_read_data(tasks.executors["default"].role)
        tasks.metric_backlog().create_alarm(self, "TooMuchToDo", threshold=10_000, evaluation_periods=5)
        CfnOutput(self, "TasksUrl", value=tasks.api_url)


def main() -> None:
    app = App()
    Shop(app, "Shop")
    app.synth()


if __name__ == "__main__":
    main()
