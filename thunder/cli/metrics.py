"""`thunder metrics`: the stack's metrics for other systems."""

from __future__ import annotations

import click

from thunder.cli import target
from thunder.cli.errors import Failed, Refused
from thunder.cli.inert import inert
from thunder.cli.options import Noun, Options

PORT = 9464
MISSING = "prometheus_client is missing: pip install 'thunder-agent[prometheus]'"


@click.group(cls=Noun)
def metrics() -> None:
    """The stack's metrics for other systems."""


@metrics.command()
@click.option(
    "--host", default="127.0.0.1", show_default=True, help="Where it listens; anybody who reaches it may read."
)
@click.option("--port", type=click.IntRange(0, 65535), default=PORT, show_default=True, help="0: any free one.")
@click.option(
    "--interval",
    type=click.FloatRange(min=1),
    default=60,
    show_default=True,
    metavar="SECONDS",
    help="How often CloudWatch is asked at most; it is paid by the figure.",
)
@click.pass_obj
def serve(options: Options, host: str, port: int, interval: float) -> None:
    """Serve tasks_processed_total, tasks_failed_total and task_queue_length for Prometheus, until interrupted."""
    try:
        from prometheus_client import CollectorRegistry, start_http_server
    except ImportError as error:
        raise Failed(MISSING) from error
    from thunder.exporter import Exporter, Totals

    found = target.locate(options)
    if found.service is None:
        raise Refused("metrics are kept by the stack's name: say --stack")
    totals = Totals(found.aws("cloudwatch"), found.service)
    registry = CollectorRegistry(auto_describe=False)
    registry.register(Exporter(totals, interval_seconds=interval, say=lambda line: click.echo(inert(line), err=True)))
    try:
        server, thread = start_http_server(port, addr=host, registry=registry)
    except OSError as error:
        raise Failed(f"{host}:{port}: {error.strerror}") from error
    click.echo(
        f"metrics of {inert(found.label)}: http://{host}:{server.server_port}/metrics (Ctrl-C ends it)", err=True
    )
    try:
        thread.join()
    finally:
        server.shutdown()
        server.server_close()
