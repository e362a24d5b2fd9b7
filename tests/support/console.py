"""The console in one process: real pages over the real API function, a table in memory, a CloudWatch of the test's."""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from html import unescape
from typing import Any
from urllib.parse import parse_qs, urlsplit

from starlette.testclient import TestClient

from tests.support.api import Api
from tests.support.cloudwatch import FakeCloudWatch, FakeLogs
from tests.support.events import v2_event
from tests.support.fakes import FakeClock, FakeRandomness
from thunder.console.app import application
from thunder.console.gate import COOKIE
from thunder.console.jobs import Jobs
from thunder.console.keys import Keys
from thunder.console.measures import Measures
from thunder.console.site import Console, Place
from thunder.console.task_logs import TaskLogs
from thunderagent.client import ThunderClient

PORT = 8765
ORIGIN = f"http://127.0.0.1:{PORT}"
SERVICE = "ThunderAgent-test"


class OneProcess:
    """The client's exchange, answered by the API function. `asked` keeps every call."""

    def __init__(self, api: Api) -> None:
        self._api = api
        self.asked: list[str] = []
        self.lost: ConnectionError | None = None
        self.refusal: tuple[int, bytes] | None = None

    def __call__(
        self, method: str, url: str, headers: Mapping[str, str], body: bytes
    ) -> tuple[int, Mapping[str, str], bytes]:
        parts = urlsplit(url)
        self.asked.append(f"{method} {parts.path}")
        if self.lost is not None:
            raise self.lost
        if self.refusal is not None:
            return self.refusal[0], {}, self.refusal[1]
        event = v2_event(method, parts.path, body=body.decode() or None, headers=dict(headers), query=parts.query)
        answer = self._api.send(event)
        return answer.status, answer.headers, answer.text.encode()


@dataclass
class Site:
    """A signed-in browser without JavaScript, and the hands of a test on everything behind it."""

    api: Api
    exchange: OneProcess
    cloudwatch: FakeCloudWatch
    logs: FakeLogs
    keys: Keys
    console: Console
    browser: TestClient
    cookie: str
    jobs: list[Callable[[], None]] = field(default_factory=list)

    def get(self, path: str, *, part: bool = False, status: int = 200, page: str = "/") -> str:
        headers = {"hx-request": "true", "hx-current-url": ORIGIN + page} if part else {}
        answer = self.browser.get(path, headers=headers)
        assert answer.status_code == status, answer.text
        return answer.text

    def post(self, path: str, fields: Mapping[str, Any] | None = None, *, status: int = 303) -> Any:
        """Posts as one of our own pages would."""
        answer = self.browser.post(
            path, data={"csrf": self.keys.csrf, **(fields or {})}, headers={"origin": ORIGIN}, follow_redirects=False
        )
        assert answer.status_code == status, answer.text
        return answer

    def follow(self, answer: Any) -> str:
        """The page an action leads to."""
        return self.get(answer.headers["location"])

    def run_jobs(self) -> None:
        while self.jobs:
            self.jobs.pop(0)()


def make_site(api: Api, *, read_only: bool = False, now: Callable[[], float] | None = None, port: int = PORT) -> Site:
    exchange, cloudwatch, logs, keys = OneProcess(api), FakeCloudWatch(), FakeLogs(), Keys()
    client = ThunderClient(
        "https://api.example/",
        exchange=exchange,
        attempts=1,
        clock=FakeClock(),
        randomness=FakeRandomness(prefix="key"),
    )
    jobs: list[Callable[[], None]] = []
    console = Console(
        client=client,
        place=Place(SERVICE, "test", "123456789012", "eu-central-1", "arn:aws:iam::123456789012:user/olga"),
        cloudwatch=cloudwatch,
        measures=Measures(cloudwatch),
        logs=TaskLogs(logs, SERVICE),
        read_only=read_only,
        dashboard=f"{SERVICE}-Main",
        now=now or api.clock.now,
        jobs=Jobs(jobs.append),
    )
    app = application(console, keys, port=port)
    cookie = COOKIE.format(port)
    browser = TestClient(app, base_url=f"http://127.0.0.1:{port}", cookies={cookie: keys.session})
    return Site(api, exchange, cloudwatch, logs, keys, console, browser, cookie, jobs)


def text_of(html: str) -> str:
    """What a page says, without its markup."""
    body = re.sub(r"(?s)<(script|style|head)\b.*?</\1>", " ", html)
    return re.sub(r"\s+", " ", unescape(re.sub(r"<[^>]+>", " ", body))).strip()


def hidden(html: str) -> dict[str, list[str]]:
    """The hidden fields of a page's forms."""
    found: dict[str, list[str]] = {}
    for name, value in re.findall(r'<input type="hidden" name="([^"]+)" value="([^"]*)"', html):
        found.setdefault(name, []).append(unescape(value))
    return found


def notice_of(answer: Any) -> bool:
    return "notice" in parse_qs(urlsplit(answer.headers["location"]).query)
