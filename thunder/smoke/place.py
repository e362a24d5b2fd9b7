"""Where a smoke run looks: a stack in an account, or the one of this machine, which cannot do everything."""

from __future__ import annotations

import time
import uuid
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Any

from botocore.credentials import Credentials

from thunder.cli.target import Target
from thunderagent.signed_http import sigv4_exchange


@dataclass(frozen=True)
class Answer:
    """What the API answered."""

    status: int
    headers: Mapping[str, str]
    body: bytes


@dataclass
class Place:
    """One stack under test. `is_aws` is False for the embedded AWS; `patience` stretches what is waited for.

    `undo` are the ways to remove what a check has made beside the stack, run last first.
    """

    target: Target
    stack: str
    is_aws: bool
    patience_seconds: float = 300
    ttl_minutes: float = 15
    sleep: Callable[[float], None] = time.sleep
    monotonic: Callable[[], float] = time.monotonic
    undo: list[Callable[[], Any]] = field(default_factory=list)

    def aws(self, service: str) -> Any:
        return self.target.aws(service)

    @property
    def client(self) -> Any:
        return self.target.client()

    def outputs(self) -> dict[str, str]:
        (found,) = self.aws("cloudformation").describe_stacks(StackName=self.stack)["Stacks"]
        return {each["OutputKey"]: each["OutputValue"] for each in found["Outputs"]}

    def resources(self, resource_type: str) -> dict[str, str]:
        """The stack's resources of one type: logical id → physical name."""
        pages = self.aws("cloudformation").get_paginator("list_stack_resources").paginate(StackName=self.stack)
        return {
            each["LogicalResourceId"]: each["PhysicalResourceId"]
            for page in pages
            for each in page["StackResourceSummaries"]
            if each["ResourceType"] == resource_type
        }

    def function(self, prefix: str) -> str:
        (name,) = [n for id, n in self.resources("AWS::Lambda::Function").items() if id.startswith(prefix)]
        return name

    def call(self, method: str, path: str, body: bytes = b"", *, key: Credentials | None = None) -> Answer:
        """One call of the API, signed by `key` or else as the operator."""
        region = str(self.target.region)
        exchange = sigv4_exchange(key or self._credentials(), region)
        headers = {"content-type": "application/json"} if body else {"accept": "application/json"}
        url = self.target.api_url.rstrip("/") + "/" + path.lstrip("/")
        return Answer(*exchange(method, url, headers, body))

    def unsigned(self, path: str) -> int:
        import urllib.error
        import urllib.request

        try:
            with urllib.request.urlopen(self.target.api_url.rstrip("/") + "/" + path, timeout=30) as answer:
                return int(answer.status)
        except urllib.error.HTTPError as error:
            with error:
                return int(error.code)

    def wait_for(self, look: Callable[[], Any], *, seconds: float | None = None, every: float = 2) -> Any:
        """The first truthy answer; the last one when the time is over."""
        deadline = self.monotonic() + (self.patience_seconds if seconds is None else seconds)
        while not (found := look()) and self.monotonic() < deadline:
            self.sleep(every)
        return found

    def clean_up(self) -> list[str]:
        """Undo what checks made; what could not be undone, in words."""
        left = []
        while self.undo:
            undo = self.undo.pop()
            try:
                undo()
            except Exception as error:  # noqa: BLE001  the rest is to be removed all the same
                left.append(f"{type(error).__name__}: {error}")
        return left

    def _credentials(self) -> Credentials:
        record = self.target.record
        if record is not None:
            return Credentials(record["accessKeyId"], record["secretAccessKey"])
        found: Credentials = self.target.session.get_credentials()
        return found


def unique_name() -> str:
    """A name of this run's own: two runs in one account do not meet."""
    return f"ThunderSmoke{uuid.uuid4().hex[:8]}"
