"""The stacks of one environment, put together."""

from __future__ import annotations

from dataclasses import dataclass

from aws_cdk import App, Tags, Validations
from cdk_nag import AwsSolutionsChecks

from infra.assets import Project
from infra.config import EnvironmentConfig
from infra.constructs.service import Service
from infra.stacks.data_stack import DataStack
from infra.stacks.service_stack import ServiceStack


@dataclass(frozen=True, kw_only=True)
class Application:
    """The two stacks of an environment and what runs in the second, for applications that add to them."""

    data: DataStack
    stack: ServiceStack

    @property
    def service(self) -> Service:
        return self.stack.service


def build(app: App, config: EnvironmentConfig, project: Project | None = None) -> Application:
    """Add the stacks of `config` to `app`. They fit any account and region."""
    data = DataStack(app, config.data_stack_name, config=config)
    stack = ServiceStack(
        app,
        config.service_stack_name,
        config=config,
        table=data.table,
        bucket=data.bucket,
        key=data.key,
        project=project,
    )
    for each in (data, stack):
        for tag, value in {**config.tags, "ThunderAgent": config.service_stack_name}.items():
            Tags.of(each).add(tag, value)
    return Application(data=data, stack=stack)


def check(app: App) -> None:
    """Have synthesis fail on security findings that are not acknowledged with a reason."""
    Validations.of(app).add_plugins(AwsSolutionsChecks(app))
