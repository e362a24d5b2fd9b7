"""A proxy in front of the embedded AWS that throttles, delays, holds requests and drops replies: microburst.

Run as a script it is the process (`fault_proxy.py UPSTREAM PORT`); `FaultProxy` starts, commands and ends it.
"""

from __future__ import annotations

import json
import sys
import time
import urllib.request
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from thunder.local.aws import LOOPBACK, free_port
from thunder.local.checkout import SYSTEM_PATH, Checkout
from thunder.local.errors import LocalError, last_lines
from thunder.local.processes import POLL_SECONDS, Child, end, spawn

READY_SECONDS = 60.0
HELD_MILLISECONDS = 60_000

Rule = dict[str, Any]


def throttled(share: float = 1.0) -> Rule:
    """That share of all requests is refused as an on-demand table refuses them."""
    return {"service": "dynamodb", "probability": share, "error": {"code": "ThrottlingException", "status": 400}}


def updates_throttled(prefix: str) -> Rule:
    """Every update of an item whose id begins with this is refused; the other requests are done."""
    return {**throttled(), "operation": "UpdateItem", "body": f"starts_with(Key.taskId.S, '{prefix}')"}


def replies_dropped(operation: str, *, share: float, spare: str | None = None) -> Rule:
    """The request is done, its reply lost: the connection ends after the first byte. `spare` is a prefix of item ids
    that are left alone."""
    rule: Rule = {"service": "dynamodb", "operation": operation, "probability": share, "response": {"abort_bytes": 1}}
    return rule if spare is None else {**rule, "body": f"!starts_with(Key.taskId.S, '{spare}')"}


def latency_spikes(*, usual_ms: int, spike_ms: int, share: float) -> Rule:
    """Every request is a little late, and that share of them very."""
    spread = {"dist": "spike", "min": 0, "max": usual_ms, "spike_ms": spike_ms, "spike_p": share}
    return {"service": "dynamodb", "latency": spread}


def next_invoke_held() -> Rule:
    """The next invocation of a function is accepted by nobody: it neither arrives nor is it refused."""
    return {"service": "lambda", "operation": "Invoke", "times": 1, "timeout_ms": HELD_MILLISECONDS}


def next_update_held(task_id: str) -> Rule:
    """The next update of this item does not arrive."""
    body = f"Key.taskId.S == '{task_id}'"
    held = {"times": 1, "timeout_ms": HELD_MILLISECONDS}
    return {"service": "dynamodb", "operation": "UpdateItem", "body": body, **held}


@dataclass(frozen=True)
class FaultProxy:
    """The running proxy: harmless until it is given rules."""

    child: Child
    port: int

    @property
    def url(self) -> str:
        return f"http://{LOOPBACK}:{self.port}"

    @classmethod
    def start(cls, checkout: Checkout, *, upstream: str, port: int, log: Path) -> FaultProxy:
        """Starts it and waits until it answers. Raises LocalError with the end of its log when it does not."""
        python = str(checkout.venv / "bin" / "python")
        env = {"PATH": SYSTEM_PATH, "LANG": "C.UTF-8", "NO_PROXY": "*", "PYTHONPATH": str(checkout.root)}
        child = spawn("proxy", [python, str(Path(__file__).resolve()), upstream, str(port)], env=env, log=log)
        proxy = cls(child, port)
        deadline = time.monotonic() + READY_SECONDS
        while time.monotonic() < deadline and child.alive:
            if proxy._answers():
                return proxy
            time.sleep(POLL_SECONDS)
        end(child)
        raise LocalError(f"the fault proxy did not start:\n{last_lines(log)}")

    @staticmethod
    def reserve_port() -> int:
        """A free port, to be told to those who shall use the proxy before it can be started."""
        return free_port()

    def stop(self) -> None:
        end(self.child)

    @contextmanager
    def breaking(self, *rules: Rule) -> Iterator[None]:
        """The rules hold for a while, and none afterwards."""
        self._control("POST", "rules", list(rules))
        try:
            yield
        finally:
            self.mend()

    def mend(self) -> None:
        self._control("POST", "rules", [])

    def fired(self) -> list[Mapping[str, Any]]:
        """What the rules have done since they were last forgotten, oldest first; the newest 2,000 are kept."""
        answer: list[Mapping[str, Any]] = self._control("GET", "fired?limit=2000")
        return answer

    def forget(self) -> None:
        self._control("DELETE", "fired")

    def _answers(self) -> bool:
        try:
            self._control("GET", "health")
        except OSError:
            return False
        return True

    def _control(self, method: str, path: str, body: Sequence[Rule] | None = None) -> Any:
        data = None if body is None else json.dumps(body).encode()
        request = urllib.request.Request(f"{self.url}/_microburst/{path}", data=data, method=method)
        with urllib.request.urlopen(request, timeout=10) as answer:
            return json.loads(answer.read())


def main(upstream: str, port: int) -> None:
    from aiohttp import web
    from microburst.app import make_app
    from microburst.core.pipeline import Microburst
    from microburst.detection import host

    # Names of hosts say nothing here, and to know those of all services it would read every model of botocore's first.
    host._endpoint_prefix_map = dict

    microburst = Microburst(upstream)
    keep_host(microburst.upstream)
    app = make_app(microburst)
    app._client_max_size = 16 * 1024 * 1024  # DynamoDB's largest request
    web.run_app(app, host=LOOPBACK, port=port, print=None, access_log=None)


def keep_host(upstream: Any) -> None:
    """microburst names its upstream as the host, which is part of what the caller has signed: it would be refused."""
    outbound = upstream._outbound_headers

    def headers(request: Any) -> dict[str, str]:
        return {**outbound(request), "host": request.headers["Host"]}

    upstream._outbound_headers = headers


if __name__ == "__main__":
    main(sys.argv[1], int(sys.argv[2]))
