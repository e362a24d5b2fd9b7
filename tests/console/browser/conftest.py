"""A real browser on the real console over the embedded AWS, with the stack that the CDK has deployed.

Chromium comes from the system (`apt-get install chromium`), Playwright drives it. Without a browser these tests are
skipped, and say so.
"""

from __future__ import annotations

import os
import re
import shutil
import signal
import subprocess
import sys
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

import pytest
from botocore.credentials import Credentials
from playwright.sync_api import Browser, BrowserContext, Page, sync_playwright

from tests.support.local_stack import UpStack, copy_up, deployed_state
from thunder.local.checkout import Checkout
from thunder.local.progress import SILENT, Progress
from thunderagent.client import ThunderClient

BROWSERS = ("chromium", "chromium-browser", "google-chrome")
FLAGS = [
    "--no-sandbox",  # as root, in a container
    "--disable-gpu",
    "--disable-quic",
    "--no-first-run",
    "--disable-background-networking",
    "--disable-component-update",
    "--disable-sync",
]
MISSING = "there is no Chromium on PATH: on Debian `apt-get install chromium`, then run these tests again"


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Behind all others, as the end-to-end tests of which these are some."""
    here = Path(__file__).parent
    for item in items:
        if here in item.path.parents:
            item.add_marker(pytest.mark.e2e)
    items.sort(key=lambda item: here in item.path.parents)


@dataclass(frozen=True)
class Shown:
    """The console as it runs: its address, and the stack behind it as a client sees it."""

    base: str
    token: str
    client: ThunderClient

    @property
    def entrance(self) -> str:
        return f"{self.base}/?token={self.token}"


@pytest.fixture(scope="session")
def executable() -> str:
    found = next(filter(None, map(shutil.which, BROWSERS)), None)
    if found is None:
        pytest.skip(MISSING)
    return found


@pytest.fixture(scope="session")
def stack(executable: str, tmp_path_factory: pytest.TempPathFactory) -> Iterator[UpStack]:
    """Not started without a browser to look at it."""
    deployed = deployed_state(Checkout.of_this_installation(), Progress())
    up = copy_up(deployed, tmp_path_factory.mktemp("console") / "state", SILENT)
    yield up
    up.local.down()


@pytest.fixture(scope="session")
def shown(stack: UpStack) -> Iterator[Shown]:
    """`thunder console`, as an operator starts it."""
    program = "from thunder.cli.main import main; main()"
    running = subprocess.Popen(
        [sys.executable, "-c", program, "--local", "console"],
        env={**os.environ, "THUNDER_STATE_DIR": stack.record["stateDir"], "PYTHONPATH": os.pathsep.join(sys.path)},
        stdout=subprocess.PIPE,
        text=True,
    )
    try:
        assert running.stdout is not None
        printed = re.fullmatch(r"(http://127\.0\.0\.1:\d+)/\?token=(\S+)\n", running.stdout.readline())
        assert printed is not None
        key = Credentials(stack.record["accessKeyId"], stack.record["secretAccessKey"])
        client = ThunderClient(stack.record["apiUrl"], credentials=key, region=stack.record["region"])
        yield Shown(printed[1], printed[2], client)
    finally:
        running.send_signal(signal.SIGINT)
        try:
            running.communicate(timeout=10)
        finally:
            running.kill()


@pytest.fixture(scope="session")
def browser(executable: str) -> Iterator[Browser]:
    with sync_playwright() as playwright:
        started = playwright.chromium.launch(executable_path=executable, args=FLAGS)
        yield started
        started.close()


@pytest.fixture
def context(browser: Browser, shown: Shown) -> Iterator[BrowserContext]:
    """A fresh profile, signed in."""
    made = browser.new_context(viewport={"width": 1280, "height": 800}, base_url=shown.base)
    page = made.new_page()
    page.goto(shown.entrance)
    page.wait_for_url(shown.base + "/")
    page.close()
    yield made
    made.close()


@pytest.fixture
def page(context: BrowserContext) -> Iterator[Page]:
    """A page on which anything that the browser complains of fails the test."""
    complaints: list[str] = []
    made = context.new_page()
    made.set_default_timeout(20_000)
    made.on("console", lambda line: complaints.append(line.text) if line.type in ("error", "warning") else None)
    made.on("pageerror", lambda error: complaints.append(str(error)))
    made.on("dialog", lambda dialog: complaints.append(f"dialog: {dialog.message}"))
    yield made
    assert complaints == []
