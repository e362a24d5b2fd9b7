"""The command line over the API in one process: every command as an operator types it, no network, no AWS."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Any
from urllib.parse import unquote, urlsplit

from click.testing import CliRunner, Result

from tests.support.api import Api
from tests.support.events import v2_event
from tests.support.fakes import FakeRandomness
from thunder.cli.main import main
from thunderagent.client import ThunderClient
from thunderagent.signed_http import Exchange
from thunderagent.store import Store

API_URL = "https://api.example"


def exchange_with(api: Api) -> Exchange:
    """What the client sends, handed to the API's handler as the gateway would."""

    def exchange(
        method: str, url: str, headers: Mapping[str, str], body: bytes
    ) -> tuple[int, Mapping[str, str], bytes]:
        parts = urlsplit(url)
        text = body.decode() if body else None
        event = v2_event(method, unquote(parts.path), body=text, headers=headers, query=parts.query)
        answer = api.send(event)
        return answer.status, answer.headers, answer.text.encode()

    return exchange


@dataclass
class FakeTarget:
    """A Target whose API is in this process; `services` are its AWS clients by name."""

    api: Api
    services: dict[str, Any] = field(default_factory=dict)
    label: str = "ThunderAgent-test in eu-central-1"
    service: str | None = "ThunderAgent-test"
    table_name: str | None = "tasks"
    api_url: str = API_URL
    region: str | None = "eu-central-1"
    is_local: bool = False
    exchange: Exchange | None = None

    def client(self, wrap: Callable[[Exchange], Exchange] = lambda exchange: exchange) -> ThunderClient:
        exchange = wrap(self.exchange or exchange_with(self.api))
        return ThunderClient(
            self.api_url, exchange=exchange, clock=self.api.clock, randomness=FakeRandomness(prefix="k"), attempts=2
        )

    def store(self) -> Store:
        return self.api.parts.store

    def aws(self, service: str) -> Any:
        return self.services[service]


@dataclass
class Terminal:
    """Runs commands. `target` is what they find; `calls` are the options each looked for it with."""

    api: Api
    target: FakeTarget

    def __call__(self, *arguments: str, typed: str | bytes | None = None) -> Result:
        return CliRunner().invoke(main, arguments, input=typed)

    def ok(self, *arguments: str, typed: str | bytes | None = None) -> Result:
        """A run that must succeed."""
        result = self(*arguments, typed=typed)
        assert result.exit_code == 0, result.output
        return result
