"""`thunder agent`: a long-running worker, for tasks that take longer than a Lambda may."""

from __future__ import annotations

import os
import signal
import socket
import sys
from contextlib import ExitStack, suppress
from pathlib import Path
from queue import Empty, SimpleQueue
from typing import TYPE_CHECKING, Any

import click

from infra.config import project_root
from thunder.cli.errors import Refused
from thunder.cli.options import Command, Options
from thunder.cli.output import print_object

if TYPE_CHECKING:
    from thunderagent.agent import Agent, Report

STUCK = 70  # EX_SOFTWARE of sysexits.h, as an executor function's: whoever supervises it starts it anew
ENDED = 0  # in the mailbox: no signal has this number
SWEEP_THREADS = 10
SIGNALS = (signal.SIGTERM, signal.SIGINT)
WAKE_SECONDS = 1.0


@click.command(cls=Command)
@click.option("--profile-name", "--executor", "executor", default="default", show_default=True, metavar="NAME")
@click.option(
    "--handlers",
    multiple=True,
    type=click.Path(exists=True, file_okay=False, path_type=Path),
    help="A directory of handlers, as in cdk.json; repeatable (default: the profile's, by cdk.json).",
)
@click.option(
    "--registry",
    type=click.Path(exists=True, dir_okay=False, path_type=Path),
    help="The registry.json that was deployed (default: the one below build/registry, or the installed one).",
)
@click.option("--queue", "queues", multiple=True, metavar="NAME", help="Look only into this queue; repeatable.")
@click.option("--batches", default=2, show_default=True, type=click.IntRange(1, 100), help="Batches run at once.")
@click.option("--threads", type=click.IntRange(1, 1000), help="Tasks of a batch run at once (default: the profile's).")
@click.option(
    "--grace", default=30.0, show_default=True, type=click.FloatRange(0, 86_400), help="Seconds left to work at a stop."
)
@click.option("--emf", is_flag=True, help="Write metrics among the log lines, in CloudWatch's embedded metric format.")
@click.option("--name", help="What its tasks name as their owner (default: host and process id).")
@click.option("--env", "environment", help="An environment of cdk.json (default: the one whose stack it is).")
@click.option(
    "--root", type=click.Path(file_okay=False, path_type=Path), default=project_root, help="Where cdk.json is."
)
@click.pass_obj
def agent(options: Options, /, executor: str, batches: int, grace: float, name: str | None, **given: Any) -> None:
    """Claim tasks of one executor profile and run them in this process, until SIGTERM or SIGINT.

    Then nothing more is claimed, what waits goes back at once, and what runs has the grace before it is released; a
    second signal ends the process at once. Log lines go to stderr; at the end, what was done goes to stdout. Exit code
    70: a handler's thread could not be ended; start the agent anew.
    """
    from thunderagent.agent import Plan

    plan = Plan(
        name or f"{socket.gethostname().partition('.')[0][:40]}-{os.getpid()}",
        batches=batches,
        grace_seconds=grace,
        queues=given["queues"],
    )
    with ExitStack() as life:
        made = _make(options, plan, executor, given, life)
        report = until_signalled(made)
    print_object(report.as_dict(), options.output)
    if report.stuck:
        raise click.exceptions.Exit(STUCK)


def _make(options: Options, plan: Any, executor: str, given: dict[str, Any], life: ExitStack) -> Agent:
    """The agent, over AWS. Handlers stay importable while `life` lasts."""
    from thunder.cli import agent_setup as setup
    from thunderagent.agent import Agent
    from thunderagent.clock import SystemRandomness
    from thunderagent.registry import load_handlers
    from thunderagent.registry_build import importable
    from thunderagent.seams import aws_seams
    from thunderagent.settings import load_settings
    from thunderagent.threads import PoolThreads

    setup.apply(setup.stack_environment(options, os.environ))
    config = setup.project_config(given["root"], given["environment"], os.environ.get("SERVICE_NAME", ""))
    defaults = setup.default_variables(config, executor)
    setup.apply({name: value for name, value in defaults.items() if not os.environ.get(name)})
    settings = setup.served_by(load_settings(), executor, given["threads"])

    directories = setup.handler_directories(given["handlers"], config, given["root"], executor)
    registry = setup.read_registry(directories, config, given["root"], executor, given["registry"])
    life.enter_context(importable([directory.resolve() for directory in directories]))
    handlers = load_handlers(registry.modules_of(executor))
    if not handlers:
        raise Refused(f"executor profile {executor!r} has no handlers: there is nothing for an agent to do")
    randomness = SystemRandomness()
    return Agent(
        plan,
        settings,
        aws_seams(settings, randomness=randomness, threads=PoolThreads(SWEEP_THREADS)),
        registry=registry,
        handlers=handlers,
        telemetry=setup.telemetry_of(settings, registry, stream=sys.stderr, with_metrics=given["emf"]),
        make_threads=lambda: PoolThreads(1),
    )


def until_signalled(agent: Agent) -> Report:
    """Run it in a thread of its own until a signal stops it; a second one ends the process at once.

    A handler of signals may interrupt this thread anywhere, so it only drops a note (`SimpleQueue.put` may be entered
    again while it runs), and the locks that `stop` takes are never held by the thread that reads the notes.
    """
    from thunderagent.threads import PoolThreads

    notes: SimpleQueue[int] = SimpleQueue()
    former = {number: signal.signal(number, lambda received, frame: notes.put(received)) for number in SIGNALS}
    failures: list[BaseException] = []
    try:
        PoolThreads(1).start(lambda: _run(agent, notes, failures))
        if (first := _next(notes)) != ENDED:
            click.echo(f"{signal.Signals(first).name}: no new work; a second signal ends at once", err=True)
            agent.stop()
            if (second := _next(notes)) != ENDED:
                click.echo("ending at once: the reaper takes back what ran", err=True)
                os._exit(128 + second)
    finally:
        for number, handler in former.items():
            signal.signal(number, handler)
    if failures:
        raise failures[0]
    return agent.report()


def _next(notes: SimpleQueue[int]) -> int:
    """Waits in short turns. The kernel may give a signal to another thread: its handler runs when this one wakes."""
    while True:
        with suppress(Empty):
            return notes.get(timeout=WAKE_SECONDS)


def _run(agent: Agent, notes: SimpleQueue[int], failures: list[BaseException]) -> None:
    try:
        agent.run()
    except BaseException as error:  # noqa: BLE001  raised again where the command can tell of it
        failures.append(error)
    finally:
        notes.put(ENDED)
