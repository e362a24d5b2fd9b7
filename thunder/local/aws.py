"""The embedded AWS as a process: its settings, its port, its start, and the proof that only this machine reaches it."""

from __future__ import annotations

import http.client
import os
import socket
import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from thunder.local.checkout import SYSTEM_PATH, Checkout
from thunder.local.errors import LocalError, last_lines
from thunder.local.processes import POLL_SECONDS, Child, end, group_members, open_addresses, spawn
from thunder.local.state import StateDir

PROCESS_NAME = "aws"
LOOPBACK = "127.0.0.1"
ACCOUNT = "000000000000"
REGION = "us-east-1"
ACCESS_KEY_ID = "test"
SECRET_ACCESS_KEY = "test"
READY_SECONDS = 60.0
START_TRIES = 3
EMULATOR = Path(__file__).with_name("emulator.py")


@dataclass(frozen=True)
class EmbeddedAws:
    """A running embedded AWS."""

    child: Child
    port: int

    @property
    def endpoint(self) -> str:
        return f"http://{LOOPBACK}:{self.port}"


def settings(state: StateDir, port: int, endpoints: Mapping[str, str] | None = None) -> dict[str, str]:
    """The whole environment of the embedded AWS. Nothing is inherited: its Lambda functions would inherit it too, as
    they do `endpoints`, which lead them to single services (`DYNAMODB`) by another way."""
    return {
        **{f"AWS_ENDPOINT_URL_{service}": url for service, url in (endpoints or {}).items()},
        "PATH": SYSTEM_PATH,
        "HOME": str(state.scratch),
        "TMPDIR": str(state.scratch),
        "LANG": "C.UTF-8",
        "TZ": "UTC",
        "BIND_HOST": LOOPBACK,
        "GATEWAY_PORT": str(port),
        "IOT_MTLS_ENABLED": "0",
        "SFTP_ENABLED": "0",
        "LOG_LEVEL": "WARNING",
        "AUTH": "true",
        "STATE_DIR": str(state.aws),
        "PERSIST_STATE": "1",
        "S3_DATA_DIR": str(state.objects),
        "S3_PERSIST": "1",
        "MINISTACK_REGION": REGION,
        "MINISTACK_ACCOUNT_ID": ACCOUNT,
    }


def start(
    checkout: Checkout,
    state: StateDir,
    remember: Callable[[EmbeddedAws], None],
    *,
    endpoints: Mapping[str, str] | None = None,
    emulator: Path | None = None,
) -> EmbeddedAws:
    """Starts the embedded AWS on the port it had before, or on a free one, and waits until it answers. `emulator` is
    the script it is run from, if not our own.

    `remember` is told of the process before anything else is done with it: whatever happens to us, it can be found and
    ended. Between the choice of a port and its use another process may take it; then another one is tried. Raises
    LocalError with the end of its log when it does not come up, and when it listens on more than 127.0.0.1.
    """
    for attempt in range(START_TRIES):
        port = free_port(remembered=None if attempt else _remembered_port(state))
        aws = _launch(checkout, state, settings(state, port, endpoints), port, emulator or EMULATOR)
        remember(aws)
        if _answers(aws):
            _require_loopback(aws)
            state.port_file.write_text(f"{aws.port}\n")
            return aws
        end(aws.child)
    raise LocalError(f"the embedded AWS did not start:\n{last_lines(state.logs / 'aws.log')}")


def free_port(*, remembered: int | None = None) -> int:
    """The remembered port when nobody uses it, otherwise a free one of the kernel's choice."""
    for port in (remembered, 0) if remembered else (0,):
        with socket.socket() as probe:
            probe.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
            try:
                probe.bind((LOOPBACK, port))
            except OSError:
                continue
            chosen: int = probe.getsockname()[1]
            return chosen
    raise LocalError("no free port on 127.0.0.1")


def client(service: str, endpoint: str) -> Any:
    """A client of the embedded AWS, as its root user, blind to the operator's own AWS and proxy configuration."""
    import botocore.session
    from botocore.config import Config

    nobody: dict[str, Any] = {"profile": (None, [], None, None), "config_file": (None, [], os.devnull, None)}
    return botocore.session.Session(session_vars=nobody).create_client(
        service,
        region_name=REGION,
        endpoint_url=endpoint,
        aws_access_key_id=ACCESS_KEY_ID,
        aws_secret_access_key=SECRET_ACCESS_KEY,
        # Path style, since a bucket's own host name does not resolve on loopback.
        config=Config(retries={"max_attempts": 2}, read_timeout=120, proxies={}, s3={"addressing_style": "path"}),
    )


def _launch(checkout: Checkout, state: StateDir, env: Mapping[str, str], port: int, emulator: Path) -> EmbeddedAws:
    argv = [str(checkout.embedded_python), "-I", str(emulator)]
    child = spawn(PROCESS_NAME, argv, env=env, log=state.logs / "aws.log")
    return EmbeddedAws(child=child, port=port)


def _remembered_port(state: StateDir) -> int | None:
    return int(state.port_file.read_text()) if state.port_file.exists() else None


def _answers(aws: EmbeddedAws) -> bool:
    """Waits for its readiness; False when the process ended or the time is over."""
    deadline = time.monotonic() + READY_SECONDS
    while time.monotonic() < deadline and aws.child.alive:
        if is_ready(aws.port):
            return aws.child.alive  # Somebody else may answer on this port while ours has failed to bind it.
        time.sleep(POLL_SECONDS)
    return False


def is_ready(port: int) -> bool:
    """Whether an embedded AWS answers on this port."""
    connection = http.client.HTTPConnection(LOOPBACK, port, timeout=5)
    try:
        connection.request("GET", "/_ministack/ready")
        return connection.getresponse().status == 200
    except (OSError, http.client.HTTPException):
        return False
    finally:
        connection.close()


def _require_loopback(aws: EmbeddedAws) -> None:
    """No door to the network: ends the process and raises LocalError when it listens on another address."""
    opened = open_addresses(group_members(aws.child.pid))
    outside = {address for address in opened or () if address[0] != LOOPBACK}
    if outside:
        end(aws.child)
        raise LocalError(f"the embedded AWS listened on {sorted(outside)} instead of {LOOPBACK} alone; it was ended")
