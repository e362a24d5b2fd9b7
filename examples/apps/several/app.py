"""Two kinds of work that must not stand in each other's way: many short mails, and few long videos with much memory.

cd examples/apps/several && cdk deploy
"""

from __future__ import annotations

from pathlib import Path

from aws_cdk import App, CfnOutput, Stack
from constructs import Construct

from thunderagent.cdk import ExecutorProfile, ThunderAgent

HERE = Path(__file__).resolve().parent


class Studio(Stack):
    def __init__(self, scope: Construct, id: str) -> None:
        super().__init__(scope, id)
        mail = ExecutorProfile(name="mail", handlers=("mail",), queues=("mail",), timeout_seconds=120, threads=20)
        tasks = ThunderAgent(self, "Tasks", project=HERE, executors=[mail])
        tasks.add_executor("video", handlers=["video"], queues=["video"], memory_mib=2048, threads=1, max_in_flight=4)
        # What reaches the provider stays below its limit, until an operator sets another one.
        tasks.add_queue("newsletter", executor="mail", rate_per_second=10, burst=20)
        CfnOutput(self, "TasksUrl", value=tasks.api_url)


def main() -> None:
    app = App()
    Studio(app, "Studio")
    app.synth()


if __name__ == "__main__":
    main()
