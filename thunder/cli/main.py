"""The entry point: a table of nouns, each imported only when it is used, so that `thunder --help` is instant."""

from __future__ import annotations

import io
import sys
from importlib import import_module
from typing import Any

import click

from thunder.cli.errors import INTERRUPTED
from thunder.cli.inert import inert_lines
from thunder.cli.options import Noun

NOUNS = {
    "task": ("thunder.cli.task", "Submit tasks, read them, operate them."),
    "queue": ("thunder.cli.queue", "Queues: list, pause, resume, limits."),
    "dlq": ("thunder.cli.dlq", "Dead letters: by error, and redrive."),
    "schedule": ("thunder.cli.schedule", "Tasks by the calendar."),
    "stats": ("thunder.cli.stats", "Backlog, running, failed, rates."),
    "top": ("thunder.cli.top", "The same, live."),
    "metrics": ("thunder.cli.metrics", "Metrics for Prometheus: serve."),
    "console": ("thunder.cli.console", "The web console, on this machine."),
    "doctor": ("thunder.cli.doctor", "Look for what is wrong with the set-up."),
    "agent": ("thunder.cli.agent", "A long-running worker, for tasks longer than 15 minutes."),
    "local": ("thunder.cli.local", "The whole stack on this machine: up, down, status, logs."),
    "registry": ("thunder.cli.registry", "The declared task types and queues: build, show."),
    "completion": ("thunder.cli.completion", "Completion for bash, zsh or fish."),
}
"""Command → the module that holds it, under the same name, and the line for `thunder --help`."""


class Nouns(Noun):
    """The root group over NOUNS."""

    def list_commands(self, ctx: click.Context) -> list[str]:
        return list(NOUNS)

    def get_command(self, ctx: click.Context, cmd_name: str) -> click.Command | None:
        if cmd_name not in NOUNS:
            return None
        module = import_module(NOUNS[cmd_name][0])
        command: click.Command = getattr(module, cmd_name)
        return command

    def format_commands(self, ctx: click.Context, formatter: click.HelpFormatter) -> None:
        """From the table: click's own would import every noun for its first sentence."""
        with formatter.section("Commands"):
            formatter.write_dl([(name, line) for name, (_, line) in NOUNS.items()])

    def invoke(self, ctx: click.Context) -> Any:
        """Every failure that is not our own defect ends as a message that says what to do, and an exit code."""
        for stream in (sys.stdout, sys.stderr):
            if isinstance(stream, io.TextIOWrapper):  # what the locale cannot show is escaped, not a failure
                stream.reconfigure(errors="backslashreplace")
        try:
            return super().invoke(ctx)
        except KeyboardInterrupt:
            raise click.exceptions.Exit(INTERRUPTED) from None
        except click.ClickException as error:
            # It may quote an argument, a file's name, what a server said. Only its text can be changed in place: a new
            # error of its class would need all that each class is made of.
            error.message = inert_lines(error.message)  # type: ignore[misc]
            raise
        except (click.exceptions.Exit, click.Abort, BrokenPipeError):
            raise
        except Exception as error:
            from thunder.cli.explain import explained

            failure = explained(error)
            if failure is None:
                raise
            raise failure from error


def print_version(ctx: click.Context, param: click.Parameter, asked: Any) -> None:
    if asked and not ctx.resilient_parsing:
        from thunderagent.version import VERSION

        click.echo(f"thunder-agent {VERSION}")
        ctx.exit()


@click.group(cls=Nouns, context_settings={"help_option_names": ["-h", "--help"]})
@click.option("--version", is_flag=True, expose_value=False, is_eager=True, callback=print_version, help="Print it.")
def main() -> None:
    """Operate ThunderAgent. Data go to stdout, progress to stderr.

    Exit codes: 0 ok, 1 failed, 2 usage, 3 not found, 4 conflict, 130 interrupted.
    """
