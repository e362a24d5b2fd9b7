"""Exit codes of `thunder`, and the failures that carry them: 0 ok, 1 failed, 2 usage, 3 not found, 4 conflict."""

from __future__ import annotations

import click

INTERRUPTED = 130  # 128 + SIGINT, as shells have it


class Failed(click.ClickException):
    """The command was understood and did not succeed."""

    exit_code = 1


class Refused(click.ClickException):
    """What was given cannot be meant so: a value out of range, a contradiction."""

    exit_code = 2


class NotFound(click.ClickException):
    """What was asked about does not exist."""

    exit_code = 3


class Conflict(click.ClickException):
    """What was asked for does not fit the state it met."""

    exit_code = 4
