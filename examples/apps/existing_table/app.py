"""A service on a table that is there already, made by somebody else or kept from an earlier service.

cd examples/apps/existing_table && cdk deploy -c tableArn=arn:aws:dynamodb:… -c streamArn=arn:aws:dynamodb:…

Nothing is looked up while it is synthesised: of a table that is only imported, its key, index and TTL are believed.
`docs/construct.md` says what they must be, and `thunder doctor` looks at the real one.
"""

from __future__ import annotations

from pathlib import Path

from aws_cdk import App, CfnOutput, Stack
from aws_cdk import aws_dynamodb as dynamodb
from constructs import Construct

from thunderagent.cdk import ThunderAgent

HERE = Path(__file__).resolve().parent


class Kept(Stack):
    def __init__(self, scope: Construct, id: str, *, table_arn: str, stream_arn: str) -> None:
        super().__init__(scope, id)
        table = dynamodb.TableV2.from_table_attributes(self, "Kept", table_arn=table_arn, table_stream_arn=stream_arn)
        tasks = ThunderAgent(self, "Tasks", project=HERE, table=table)
        CfnOutput(self, "TasksUrl", value=tasks.api_url)


def main() -> None:
    app = App()
    arns = [app.node.try_get_context(key) for key in ("tableArn", "streamArn")]
    if not all(arns):
        raise SystemExit("say which table: -c tableArn=… -c streamArn=…")
    Kept(app, "Kept", table_arn=arns[0], stream_arn=arns[1])
    app.synth()


if __name__ == "__main__":
    main()
