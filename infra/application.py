"""The stacks of one environment, put together."""

from __future__ import annotations

from dataclasses import dataclass

from aws_cdk import App, Tags, Validations
from cdk_nag import AwsSolutionsChecks

from infra.assets import Project
from infra.config import EnvironmentConfig
from infra.stacks.data_stack import DataStack
from infra.stacks.service_stack import ServiceStack


@dataclass(frozen=True, kw_only=True)
class Application:
    """The two stacks of an environment, for applications that add to them."""

    data: DataStack
    service: ServiceStack


def build(app: App, config: EnvironmentConfig, project: Project | None = None) -> Application:
    """Add the stacks of `config` to `app`. They fit any account and region."""
    data = DataStack(app, config.data_stack_name, config=config)
    service = ServiceStack(
        app,
        config.service_stack_name,
        config=config,
        table=data.table,
        bucket=data.bucket,
        project=project,
    )
    for stack in (data, service):
        Tags.of(stack).add("ThunderAgent", config.service_stack_name)
    return Application(data=data, service=service)


def check(app: App) -> None:
    """Have synthesis fail on security findings that are not acknowledged with a reason."""
    Validations.of(app).add_plugins(AwsSolutionsChecks(app))
