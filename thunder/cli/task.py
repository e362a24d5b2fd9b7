"""`thunder task`: submit, submit-many, get, list, wait, cancel, redrive, ack, why, delete."""

from __future__ import annotations

import click

from thunder.cli.options import Noun
from thunder.cli.task_change import ack, cancel, delete, redrive
from thunder.cli.task_read import get, list_, why
from thunder.cli.task_submit import submit
from thunder.cli.task_submit_many import submit_many
from thunder.cli.task_wait import wait


@click.group(cls=Noun)
def task() -> None:
    """Submit tasks, read them, operate them."""


for _verb in (submit, submit_many, get, list_, wait, why, cancel, redrive, ack, delete):
    task.add_command(_verb)
