"""The options every command understands, wherever they stand on the command line."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import Any

import click

OUTPUTS = ("table", "json", "text")


@dataclass(frozen=True)
class Options:
    """Whom to talk to and how to print; None means: as the AWS configuration says."""

    profile: str | None = None
    region: str | None = None
    endpoint_url: str | None = None
    output: str = "table"

    def overridden_by(self, given: Mapping[str, Any]) -> Options:
        """These options with those that were given replaced."""
        return replace(self, **{name: value for name, value in given.items() if value is not None})


def global_parameters() -> list[click.Parameter]:
    """Fresh click parameters for the fields of Options."""
    return [
        click.Option(["--profile"], help="Named profile of the AWS configuration."),
        click.Option(["--region"], help="AWS region."),
        click.Option(["--endpoint-url"], help="Endpoint to use instead of AWS's own."),
        click.Option(["--output"], type=click.Choice(OUTPUTS), help="How data are printed (default: table)."),
    ]


class GlobalOptions:
    """Mixed into commands and groups: takes the global options out and leaves an Options in `ctx.obj`.

    The innermost one given wins: `thunder --output json task get x --output text` prints text.
    """

    params: list[click.Parameter]

    def __init__(self, *args: Any, **kwargs: Any) -> None:
        super().__init__(*args, **kwargs)
        self.params.extend(global_parameters())

    def invoke(self, ctx: click.Context) -> Any:
        given = {name: ctx.params.pop(name, None) for name in Options.__dataclass_fields__}
        inherited = ctx.parent.obj if ctx.parent and ctx.parent.obj else Options()
        ctx.obj = inherited.overridden_by(given)
        return super().invoke(ctx)  # type: ignore[misc]


class Command(GlobalOptions, click.Command):
    """A verb; reads its Options with `@click.pass_obj`."""


class Noun(GlobalOptions, click.Group):
    """A group of verbs."""

    command_class = Command
