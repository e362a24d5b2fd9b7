"""The options every command understands, wherever they stand on the command line."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import Any

import click

OUTPUTS = ("table", "json", "text")


@dataclass(frozen=True)
class Options:
    """Whom to talk to and how to print; None means: as the AWS configuration says, or whatever stack is up here."""

    profile: str | None = None
    region: str | None = None
    endpoint_url: str | None = None
    output: str = "table"
    local: bool | None = None
    stack: str | None = None
    api_url: str | None = None

    def overridden_by(self, given: Mapping[str, Any]) -> Options:
        """These options with those that were given replaced."""
        return replace(self, **{name: value for name, value in given.items() if value is not None})


class GlobalOption(click.Option):
    """One of the options below; help lists them behind a command's own."""


def global_parameters() -> list[click.Parameter]:
    """Fresh click parameters for the fields of Options."""
    return [
        GlobalOption(["--stack"], metavar="NAME", help="The deployed stack, by its CloudFormation name."),
        GlobalOption(["--api-url"], metavar="URL", help="The API itself (the stack's output ApiUrl)."),
        GlobalOption(["--local"], is_flag=True, default=None, help="The stack of `thunder local up`."),
        GlobalOption(["--profile"], help="Named profile of the AWS configuration."),
        GlobalOption(["--region"], help="AWS region."),
        GlobalOption(["--endpoint-url"], help="Endpoint to use instead of AWS's own."),
        GlobalOption(["--output"], type=click.Choice(OUTPUTS), help="How data are printed (default: table)."),
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

    def format_options(self, ctx: click.Context, formatter: click.HelpFormatter) -> None:
        """The command's own options first: the others are the same everywhere."""
        params = self.get_params(ctx)  # type: ignore[attr-defined]
        for title, is_global in (("Options", False), ("Global options", True)):
            chosen = [param for param in params if isinstance(param, GlobalOption) is is_global]
            records = [record for param in chosen if (record := param.get_help_record(ctx)) is not None]
            if records:
                with formatter.section(title):
                    formatter.write_dl(records)


class Command(GlobalOptions, click.Command):
    """A verb; reads its Options with `@click.pass_obj`."""


class Noun(GlobalOptions, click.Group):
    """A group of verbs."""

    command_class = Command

    def format_options(self, ctx: click.Context, formatter: click.HelpFormatter) -> None:
        super().format_options(ctx, formatter)
        self.format_commands(ctx, formatter)
