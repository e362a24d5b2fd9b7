"""A stack deployed to the embedded AWS, for tests: kept once per state of the sources, copied to be used."""

from __future__ import annotations

import json
import shutil
import urllib.error
import urllib.request
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from botocore.auth import SigV4Auth
from botocore.awsrequest import AWSRequest
from botocore.credentials import Credentials

from thunder.local.aws import client
from thunder.local.cdk import fingerprint
from thunder.local.checkout import Checkout
from thunder.local.progress import Progress
from thunder.local.stack import LocalStack
from thunder.local.state import StateDir

TIMEOUT_SECONDS = 30


class _NoRedirects(urllib.request.HTTPRedirectHandler):
    """A 303 is an answer to be looked at; its URL has a signature of its own, and takes no second one."""

    def redirect_request(self, *_: Any) -> None:
        return None


_OPENER = urllib.request.build_opener(_NoRedirects)


@dataclass(frozen=True)
class Answer:
    """What the API answered."""

    status: int
    headers: Mapping[str, str]
    body: bytes

    @property
    def json(self) -> Any:
        return json.loads(self.body)


@dataclass(frozen=True)
class UpStack:
    """A stack that is up. `record` is what `thunder local status --output json` prints."""

    local: LocalStack
    record: dict[str, Any]

    def client(self, service: str) -> Any:
        """A client of the stack's AWS, as its root user."""
        return client(service, self.record["endpoint"])

    def call(
        self,
        method: str,
        path: str,
        body: Any = None,
        *,
        headers: Mapping[str, str] | None = None,
        signed: bool = True,
        key: Credentials | None = None,
    ) -> Answer:
        """One call of the HTTP API, signed by `key` or else by the root user. `body` is sent as it is when it is bytes,
        and as JSON otherwise."""
        data = body if body is None or isinstance(body, bytes) else json.dumps(body).encode()
        sent = {"content-type": "application/json", **(headers or {})}
        request = AWSRequest(method, self.record["apiUrl"] + path.lstrip("/"), headers=sent, data=data)
        if signed:
            root = Credentials(self.record["accessKeyId"], self.record["secretAccessKey"])
            SigV4Auth(key or root, "execute-api", self.record["region"]).add_auth(request)
        sent = dict(request.headers.items())
        prepared = urllib.request.Request(str(request.url), data=data, headers=sent, method=method)
        try:
            with _OPENER.open(prepared, timeout=TIMEOUT_SECONDS) as answer:
                return Answer(answer.status, dict(answer.headers), answer.read())
        except urllib.error.HTTPError as refused:
            with refused:
                return Answer(refused.code, dict(refused.headers), refused.read())


def deployed_state(checkout: Checkout, progress: Progress) -> Path:
    """A state directory with the sources as they are now deployed, and nothing else in it: to be copied.

    Deploying takes half a minute, copying less than a second. Those of earlier sources are removed.
    """
    kept = checkout.root / "build" / "e2e"
    state = kept / fingerprint(checkout)[:16]
    if not (state / "complete").exists():
        shutil.rmtree(kept, ignore_errors=True)
        stack = LocalStack(checkout, StateDir(state), progress)
        try:
            stack.up()
        finally:
            stack.down()
        (state / "complete").touch()
    return state


def copy_up(deployed: Path, into: Path, progress: Progress, *, emulator: Path | None = None) -> UpStack:
    """Copies a deployed state and starts the stack from the copy. The caller ends it: `stack.local.down()`."""
    shutil.copytree(deployed, into)
    stack = LocalStack(Checkout.of_this_installation(), StateDir(into), progress, emulator=emulator)
    try:
        return UpStack(stack, stack.up())
    except BaseException:
        stack.down()
        raise
