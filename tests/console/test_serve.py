"""`thunder console`: where it listens, what it prints, and what it takes a stack for."""

from __future__ import annotations

import re
import signal
import socket
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
from botocore.exceptions import NoCredentialsError
from click.testing import CliRunner

from thunder.cli.main import main
from thunder.cli.options import Options
from thunder.cli.target import Target
from thunder.console import serve
from thunder.console.site import Console

CONSOLE = Path(serve.__file__).parent


class Health:
    def health(self) -> dict[str, str]:
        return {"status": "ok", "service": "ThunderAgent-dev", "environment": "dev"}


def console(monkeypatch: pytest.MonkeyPatch, **services: Any) -> Console:
    class Known(Target):
        def client(self, wrap: Any = None) -> Any:
            return Health()

        def aws(self, service: str, **config: Any) -> Any:
            return services.get(service)

    target = Known(
        "https://x.execute-api.eu-central-1.amazonaws.com/", Options(region="eu-central-1"), service="ThunderAgent-dev"
    )
    return serve.console_of(target, read_only=True)


class Sts:
    def get_caller_identity(self) -> dict[str, str]:
        return {"Account": "123456789012", "Arn": "arn:aws:iam::123456789012:user/olga"}


class NobodySts:
    def get_caller_identity(self) -> dict[str, str]:
        raise NoCredentialsError


class CloudFormation:
    def __init__(self, url: str) -> None:
        self._url = url

    def describe_stacks(self, **asked: str) -> dict[str, Any]:
        return {"Stacks": [{"Outputs": [{"OutputKey": "DashboardUrl", "OutputValue": self._url}]}]}


def test_the_place_is_what_aws_and_the_api_say(monkeypatch: pytest.MonkeyPatch) -> None:
    made = console(monkeypatch, sts=Sts(), cloudformation=CloudFormation("https://x#dashboards/dashboard/My-Board"))
    place = made.place
    assert (place.account, place.region, place.environment, place.service) == (
        "123456789012",
        "eu-central-1",
        "dev",
        "ThunderAgent-dev",
    )
    assert (made.dashboard, made.read_only) == ("My-Board", True)


def test_an_identity_that_cannot_be_read_is_unknown(monkeypatch: pytest.MonkeyPatch) -> None:
    made = console(monkeypatch, sts=NobodySts(), cloudformation=CloudFormation("https://x#dashboards:name=Old-Board"))
    assert (made.place.account, made.dashboard) == ("unknown", "Old-Board")


def test_it_listens_on_loopback_only() -> None:
    with serve.listening(0) as made:
        assert made.getsockname()[0] == "127.0.0.1"


def test_a_port_that_is_taken_is_said(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(serve, "console_of", lambda target, read_only: None)
    monkeypatch.setenv("THUNDER_API_URL", "https://x.execute-api.eu-central-1.amazonaws.com/")
    with socket.socket() as taken:
        taken.bind(("127.0.0.1", 0))
        taken.listen()
        result = CliRunner().invoke(main, ["console", "--port", str(taken.getsockname()[1])])
    assert result.exit_code == 1
    assert "leave --port out" in result.output


def test_it_prints_its_address_answers_and_ends_with_an_interrupt(tmp_path: Path) -> None:
    program = tmp_path / "run.py"
    program.write_text(
        "from tests.support.console import make_site\n"
        "from tests.support.api import Api\n"
        "from thunder.cli.main import main\n"
        "from thunder.console import serve\n"
        "serve.console_of = lambda target, read_only: make_site(Api(), read_only=read_only).console\n"
        "main(['--api-url', 'https://x.execute-api.eu-central-1.amazonaws.com/', 'console', '--read-only'])\n"
    )
    root = Path(__file__).resolve().parents[2]
    running = subprocess.Popen(
        [sys.executable, str(program)], cwd=root, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True,
        env={"PATH": "/usr/bin:/bin", "PYTHONPATH": f"{root}:{root}/layers/thunderagent/python"},
    )  # fmt: skip
    try:
        assert running.stdout is not None
        address = re.fullmatch(r"http://127\.0\.0\.1:(\d+)/\?token=(\S+)\n", running.stdout.readline())
        assert address is not None
        with socket.create_connection(("127.0.0.1", int(address[1])), timeout=20) as made:
            head = f"GET /?token={address[2]} HTTP/1.1\r\nHost: 127.0.0.1:{address[1]}\r\nConnection: close"
            made.sendall(f"{head}\r\n\r\n".encode())
            answer = b"".join(iter(lambda: made.recv(65536), b"")).decode()
        assert answer.startswith("HTTP/1.1 200")
        assert "server:" not in answer.lower()
        assert address[2] not in answer
        running.send_signal(signal.SIGINT)
        _, said = running.communicate(timeout=20)
    finally:
        running.kill()
    assert "read only" in said
    assert address[2] not in said


def test_what_is_vendored_has_its_licence_and_version() -> None:
    vendor = CONSOLE / "static" / "vendor"
    assert "v1.6.32" in (vendor / "uplot" / "uPlot.iife.min.js").read_text()[:200]
    assert 'version:"2.0.' in (vendor / "htmx" / "htmx.min.js").read_text()
    assert all((vendor / name / "LICENSE").stat().st_size > 300 for name in ("htmx", "uplot"))


def test_nothing_is_fetched_from_elsewhere() -> None:
    own = [*CONSOLE.glob("templates/*.html"), *CONSOLE.glob("static/*.*")]
    assert len(own) > 30
    for path in own:
        text = path.read_text().replace("http://www.w3.org/2000/svg", "")
        assert "http://" not in text, path
        assert "https://" not in text, path
        assert "|safe" not in text, path
