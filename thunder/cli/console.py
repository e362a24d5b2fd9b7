"""`thunder console`: the web console on this machine."""

from __future__ import annotations

import click

from thunder.cli.errors import Failed
from thunder.cli.options import Command, Options

MISSING = "the console needs starlette, jinja2 and uvicorn: pip install 'thunder-agent[console]'"


@click.command(cls=Command)
@click.option("--port", type=click.IntRange(0, 65535), default=0, help="On 127.0.0.1 (default: a free one).")
@click.option("--read-only", is_flag=True, help="Show everything, change nothing.")
@click.option("--open", "opens", is_flag=True, help="Open it in your browser.")
@click.pass_obj
def console(options: Options, port: int, read_only: bool, opens: bool) -> None:
    """See and operate the stack in a browser, with your own AWS credentials.

    It answers on 127.0.0.1 only, and only to who follows the printed address. It runs until interrupted.
    """
    from thunder.cli.target import locate

    try:
        from thunder.console.keys import Keys
        from thunder.console.serve import LOOPBACK, console_of, listening, run
    except ModuleNotFoundError as error:
        raise Failed(MISSING) from error
    made = console_of(locate(options), read_only=read_only)
    try:
        socket = listening(port)
    except OSError as error:
        raise Failed(f"port {port} on {LOOPBACK}: {error.strerror}; leave --port out for a free one") from error
    with socket:
        keys = Keys()
        address = f"http://{LOOPBACK}:{socket.getsockname()[1]}/"
        place = made.place
        click.echo(
            f"{place.service} ({place.environment}), account {place.account}, {place.region}"
            + (", read only" if read_only else ""),
            err=True,
        )
        click.echo(f"{address}?token={keys.token}")
        click.echo("until you press Ctrl-C; whoever has this address can act as you", err=True)
        if opens:
            click.launch(f"{address}?token={keys.opening_code()}")
        run(made, keys, socket)
