"""A stack of the drill's own behind the fault proxy, and the hands that break it: which processes run a function."""

from __future__ import annotations

import json
import os
import shutil
import signal
import threading
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

from botocore.credentials import Credentials
from botocore.exceptions import BotoCoreError, ClientError

from drills.fault_proxy import FaultProxy
from tests.support.local_stack import deployed_state
from thunder.local.aws import client
from thunder.local.checkout import Checkout
from thunder.local.processes import group_members
from thunder.local.progress import SILENT, Progress
from thunder.local.stack import LocalStack
from thunder.local.state import StateDir
from thunderagent.client import ThunderClient
from thunderagent.codec import from_item

KEYS_A_READ = 100


@dataclass(frozen=True)
class Rhythm:
    """How long leases are and how often the parts run, in seconds. A stack's shortest lease and schedule is a minute:
    functions are told another lease, and started by hand every so often (0: by their schedule alone)."""

    lease_seconds: int = 300
    grace_seconds: int = 5
    poller_window: float = 50
    poller_every: float = 0
    reaper_every: float = 0

    def environment(self, before: Mapping[str, str]) -> dict[str, str]:
        """A function's environment in this rhythm."""
        executors = json.loads(before.get("EXECUTORS", "{}"))
        for profile in executors.values():
            profile["leaseSeconds"] = self.lease_seconds
        changed = {
            "EXECUTORS": json.dumps(executors),
            "LEASE_SECONDS": str(self.lease_seconds),
            "LEASE_GRACE_SECONDS": str(self.grace_seconds),
            "POLL_WINDOW_SECONDS": str(self.poller_window),
            "POLL_START_JITTER_SECONDS": "0",
        }
        return {**before, **{name: value for name, value in changed.items() if name in before}}


SHORT = Rhythm(lease_seconds=15, grace_seconds=1, poller_window=5, poller_every=6, reaper_every=5)


@dataclass
class Deployment:
    """A stack that is up. `proxy` stands between its functions and DynamoDB and Lambda; `aws` goes past it."""

    local: LocalStack
    record: Mapping[str, Any]
    proxy: FaultProxy
    _stopped: threading.Event = field(default_factory=threading.Event)
    _threads: list[threading.Thread] = field(default_factory=list)

    # ---- using it ----------------------------------------------------------------------------------------------------

    def aws(self, service: str) -> Any:
        return client(service, str(self.record["endpoint"]))

    def api(self, **options: Any) -> ThunderClient:
        key = Credentials(str(self.record["accessKeyId"]), str(self.record["secretAccessKey"]))
        return ThunderClient(str(self.record["apiUrl"]), credentials=key, region=str(self.record["region"]), **options)

    def items(self, ids: Sequence[str]) -> dict[str, dict[str, Any]]:
        """What the table holds of these ids, as it is now; an item that is not there is absent."""
        table, dynamodb = str(self.record["tableName"]), self.aws("dynamodb")
        found: dict[str, dict[str, Any]] = {}
        for first in range(0, len(ids), KEYS_A_READ):
            keys = [{"taskId": {"S": each}} for each in ids[first : first + KEYS_A_READ]]
            answer = dynamodb.batch_get_item(RequestItems={table: {"Keys": keys, "ConsistentRead": True}})
            for raw in answer["Responses"][table]:
                item = from_item(raw)
                found[item["taskId"]] = item
        return found

    # ---- breaking it -------------------------------------------------------------------------------------------------

    def workers(self, *parts: str) -> set[int]:
        """The processes that run functions with one of these words in their name now."""
        members = group_members(int(self.record["pid"])) - {int(self.record["pid"])}
        return {pid for pid in members if any(part in function_of(pid) for part in parts)}

    def kill(self, *parts: str) -> int:
        """SIGKILLs them. Returns how many there were."""
        found = self.workers(*parts)
        for pid in found:
            with suppress(ProcessLookupError):
                os.kill(pid, signal.SIGKILL)
        return len(found)

    def restart(self) -> None:
        """Ends the embedded AWS, which saves what it holds, and starts it again."""
        self.local.down()
        self.record = self.local.up()

    # ---- its rhythm --------------------------------------------------------------------------------------------------

    def invoke(self, part: str) -> None:
        """Starts a function by a word of its name, as its schedule does; whether it goes well is not waited for."""
        functions = self.aws("lambda")
        for name in self._functions():
            if part in name:
                functions.invoke(FunctionName=name, InvocationType="Event", Payload=b"{}")

    def keep(self, rhythm: Rhythm) -> None:
        """Gives the functions this rhythm, and starts poller and reaper as often as it says until `stop`."""
        functions = self.aws("lambda")
        for name in self._functions():
            before = functions.get_function_configuration(FunctionName=name).get("Environment", {}).get("Variables", {})
            functions.update_function_configuration(
                FunctionName=name, Environment={"Variables": rhythm.environment(before)}
            )
        for part, seconds in (("Poller", rhythm.poller_every), ("Reaper", rhythm.reaper_every)):
            if not seconds:
                continue
            thread = threading.Thread(target=self._again_and_again, args=(part, seconds), daemon=True)
            thread.start()
            self._threads.append(thread)

    def stop(self) -> None:
        self._stopped.set()
        for thread in self._threads:
            thread.join()
        self.local.down()

    def _again_and_again(self, part: str, seconds: float) -> None:
        while True:
            with suppress(BotoCoreError, ClientError):  # it is being restarted: the next time
                self.invoke(part)
            if self._stopped.wait(seconds):
                return

    def _functions(self) -> list[str]:
        pages = self.aws("lambda").get_paginator("list_functions").paginate()
        return [function["FunctionName"] for page in pages for function in page["Functions"]]


def function_of(pid: int) -> str:
    """The name of the Lambda function a process runs; empty for none, or a process that is gone."""
    try:
        environment = (Path("/proc") / str(pid) / "environ").read_bytes()
    except OSError:
        return ""
    prefix = b"AWS_LAMBDA_FUNCTION_NAME="
    return next((entry[len(prefix) :].decode() for entry in environment.split(b"\0") if entry.startswith(prefix)), "")


@contextmanager
def deployment(rhythm: Rhythm | None, progress: Progress) -> Iterator[Deployment]:
    """A fresh copy of the deployed stack, up behind a proxy, in a directory that is removed afterwards."""
    checkout = Checkout.of_this_installation()
    deployed = deployed_state(checkout, progress)
    with TemporaryDirectory(prefix="thunder-drill-") as directory:
        state = StateDir(Path(directory) / "state")
        shutil.copytree(deployed, state.path)
        port = FaultProxy.reserve_port()
        url = f"http://127.0.0.1:{port}"
        local = LocalStack(checkout, state, SILENT, endpoints={"DYNAMODB": url, "LAMBDA": url})
        try:
            record = local.up()
            proxy = FaultProxy.start(checkout, upstream=record["endpoint"], port=port, log=state.logs / "proxy.log")
            try:
                with _kept(Deployment(local, record, proxy), rhythm) as stack:
                    yield stack
            finally:
                proxy.stop()
        finally:
            local.down()


@contextmanager
def _kept(stack: Deployment, rhythm: Rhythm | None) -> Iterator[Deployment]:
    try:
        if rhythm is not None:
            stack.keep(rhythm)
        else:
            stack.invoke("Poller")  # its schedule would begin with the next minute
        yield stack
    finally:
        stack.stop()
