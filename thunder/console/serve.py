"""Runs the console: a socket on 127.0.0.1, the stack it shows, and the server between."""

from __future__ import annotations

import json
import socket
from collections.abc import Mapping
from typing import Any

from thunder.cli.target import Target, stack_outputs
from thunder.console.app import application
from thunder.console.keys import Keys
from thunder.console.measures import Measures
from thunder.console.site import Console, Place
from thunder.console.task_logs import TaskLogs

LOOPBACK = "127.0.0.1"
HEADER_BYTES = 128 * 1024  # a hundred chosen ids in an address


def listening(port: int) -> socket.socket:
    """A listening socket on 127.0.0.1 and nothing else; port 0 means any. Raises OSError when the port is taken."""
    made = socket.socket(socket.AF_INET, socket.SOCK_STREAM)
    try:
        made.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        made.bind((LOOPBACK, port))
        made.listen(128)
    except OSError:
        made.close()
        raise
    return made


def console_of(target: Target, *, read_only: bool) -> Console:
    """A console over the stack. Asks the API for its health, and AWS who is asking: what is wrong shows here."""
    client = target.client()
    health = client.health()
    service = str(target.service or health.get("service") or "")
    cloudwatch = target.aws("cloudwatch")
    return Console(
        client=client,
        place=_place(target, service, str(health.get("environment") or "unknown")),
        cloudwatch=cloudwatch,
        measures=Measures(cloudwatch, math=not target.is_local),
        logs=TaskLogs(target.aws("logs"), service),
        read_only=read_only,
        dashboard=_dashboard(target),
        task_types=_task_types() if target.is_local else (),
    )


def _place(target: Target, service: str, environment: str) -> Place:
    account, caller = _identity(target)
    return Place(service, environment, account, target.region or "unknown", caller, target.is_local)


def _identity(target: Target) -> tuple[str, str]:
    """Account and caller. Not to be allowed to ask is no reason not to start."""
    from botocore.exceptions import BotoCoreError, ClientError

    try:
        found = target.aws("sts").get_caller_identity()
    except (BotoCoreError, ClientError):
        return "unknown", "unknown"
    return str(found["Account"]), str(found["Arn"])


def _dashboard(target: Target) -> str | None:
    """The name at the end of the stack's output DashboardUrl."""
    from botocore.exceptions import BotoCoreError, ClientError

    from thunder.cli.errors import NotFound

    outputs: Mapping[str, Any] = {"DashboardUrl": (target.record or {}).get("dashboardUrl")}
    if target.record is None and target.service is not None:
        try:
            outputs = stack_outputs(target.aws("cloudformation"), target.service)
        except (BotoCoreError, ClientError, NotFound):
            return None
    url = str(outputs.get("DashboardUrl") or "")
    name = url.rpartition("/")[2] if "/" in url else url
    return name.rpartition("name=")[2] or None


def _task_types() -> list[str]:
    """Of the registry built in this checkout: suggestions for the form, no more."""
    from thunder.local.checkout import Checkout
    from thunder.local.errors import LocalError

    try:
        built = Checkout.of_this_installation().root / "build" / "registry" / "local" / "python"
        text = (built / "thunderagent_registry" / "registry.json").read_text()
        return sorted(json.loads(text)["types"])
    except (LocalError, OSError, ValueError, KeyError):
        return []


def run(console: Console, keys: Keys, made: socket.socket) -> None:
    """Serves until it is interrupted. The caller has made the socket, and knows the address."""
    import uvicorn

    app = application(console, keys, port=made.getsockname()[1])
    config = uvicorn.Config(
        app,
        lifespan="off",
        ws="none",
        log_level="warning",
        access_log=False,  # addresses name tasks and, once, the token
        server_header=False,
        proxy_headers=False,
        h11_max_incomplete_event_size=HEADER_BYTES,
        timeout_graceful_shutdown=2,
    )
    uvicorn.Server(config).run(sockets=[made])
