"""Which stack a command means: what is said, then the environment, then what is up on this machine."""

from __future__ import annotations

from pathlib import Path
from types import SimpleNamespace
from typing import Any

import botocore.exceptions
import click
import pytest

from thunder.cli import target
from thunder.cli.errors import NotFound, Refused
from thunder.cli.options import Options
from thunderagent.errors import ConfigurationError

RECORD = {
    "apiUrl": "http://127.0.0.1:4566/_aws/execute-api/abc/",
    "endpoint": "http://127.0.0.1:4566",
    "tableName": "tasks",
    "region": "us-east-1",
    "accessKeyId": "test",
    "secretAccessKey": "test",
    "stacks": ["ThunderAgent-local-Data", "ThunderAgent-local"],
}
OUTPUTS = {"ApiUrl": "https://abc.execute-api.eu-central-1.amazonaws.com", "TableName": "T"}


@pytest.fixture(autouse=True)
def nothing_said(monkeypatch: pytest.MonkeyPatch) -> None:
    for name in (target.STACK_VARIABLE, target.API_URL_VARIABLE, target.STATE_DIR_VARIABLE):
        monkeypatch.delenv(name, raising=False)
    for name in ("NO_PROXY", "no_proxy"):
        monkeypatch.setenv(name, "")
    monkeypatch.setattr(target, "local_record", lambda: None)


@pytest.fixture
def local_up(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(target, "local_record", lambda: RECORD)


class FakeCloudFormation:
    """One stack, `ThunderAgent-dev`."""

    def __init__(self, outputs: dict[str, str] = OUTPUTS, error: str | None = None) -> None:
        self.outputs, self.error = outputs, error
        self.meta = SimpleNamespace(region_name="eu-central-1")

    def describe_stacks(self, *, StackName: str) -> dict[str, Any]:
        if StackName != "ThunderAgent-dev" or self.error:
            message = self.error or f"Stack with id {StackName} does not exist"
            raise botocore.exceptions.ClientError({"Error": {"Code": "X", "Message": message}}, "DescribeStacks")
        outputs = [{"OutputKey": key, "OutputValue": value} for key, value in self.outputs.items()]
        return {"Stacks": [{"Outputs": outputs}]}


@pytest.fixture
def cloudformation(monkeypatch: pytest.MonkeyPatch) -> FakeCloudFormation:
    fake = FakeCloudFormation()
    monkeypatch.setattr(target, "aws_client", lambda session, service, options, region=None: fake)
    return fake


@pytest.mark.usefixtures("local_up")
def test_nothing_said_means_the_local_stack_that_is_up_and_says_so(capsys: pytest.CaptureFixture[str]) -> None:
    found = target.locate(Options())

    assert (found.is_local, found.service, found.table_name) == (True, "ThunderAgent-local", "tasks")
    assert capsys.readouterr() == ("", "using ThunderAgent-local on this machine (say --stack for another)\n")


@pytest.mark.usefixtures("local_up")
def test_local_asked_for_is_not_announced(capsys: pytest.CaptureFixture[str]) -> None:
    assert target.locate(Options(local=True)).is_local
    assert capsys.readouterr() == ("", "")


@pytest.mark.usefixtures("local_up")
@pytest.mark.parametrize("said", [{"profile": "p"}, {"region": "r"}, {"endpoint_url": "http://x"}])
def test_a_local_stack_is_not_taken_for_one_on_aws(said: dict[str, str]) -> None:
    with pytest.raises(Refused, match="--stack"):
        target.locate(Options(**said))


def test_nothing_said_and_nothing_up_tells_what_to_do() -> None:
    with pytest.raises(Refused, match=r"--stack.*THUNDER_STACK.*--api-url.*thunder local up"):
        target.locate(Options())
    with pytest.raises(NotFound, match="thunder local up"):
        target.locate(Options(local=True))


@pytest.mark.usefixtures("local_up", "cloudformation")
def test_a_stack_by_name() -> None:
    found = target.locate(Options(stack="ThunderAgent-dev"))

    assert (found.api_url, found.table_name, found.is_local) == (OUTPUTS["ApiUrl"], "T", False)
    assert found.label == "ThunderAgent-dev in eu-central-1"


@pytest.mark.usefixtures("local_up", "cloudformation")
def test_the_environment_names_a_stack_and_the_command_line_wins(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv(target.STACK_VARIABLE, "ThunderAgent-dev")

    assert target.locate(Options()).service == "ThunderAgent-dev"
    assert target.locate(Options(api_url="https://other.example")).api_url == "https://other.example"
    assert target.locate(Options(local=True)).is_local


@pytest.mark.usefixtures("cloudformation")
def test_an_unknown_stack_is_not_found() -> None:
    with pytest.raises(NotFound, match=r"no stack Nope in eu-central-1.*--region"):
        target.locate(Options(stack="Nope"))


def test_a_stack_of_another_kind_is_told_apart(cloudformation: FakeCloudFormation) -> None:
    cloudformation.outputs = {"Else": "x"}
    with pytest.raises(NotFound, match="no output ApiUrl"):
        target.locate(Options(stack="ThunderAgent-dev"))


def test_behind_an_emulators_endpoint_the_api_is_below_a_path(cloudformation: FakeCloudFormation) -> None:
    assert target.locate(Options(stack="ThunderAgent-dev", endpoint_url="http://127.0.0.1:4566/")).api_url == (
        "http://127.0.0.1:4566/_aws/execute-api/abc/"
    )
    proxied = target.locate(Options(stack="ThunderAgent-dev", endpoint_url="https://vpce.example"))
    assert proxied.api_url == OUTPUTS["ApiUrl"]


@pytest.mark.parametrize(
    "options",
    [
        Options(local=True, stack="x"),
        Options(local=True, api_url="https://x"),
        Options(stack="x", api_url="https://x"),
        Options(api_url="x.example/path"),
        Options(api_url="ftp://x"),
    ],
)
def test_contradictions_and_half_urls_are_refused(options: Options) -> None:
    with pytest.raises(Refused):
        target.locate(options)


@pytest.mark.usefixtures("local_up")
def test_the_local_stack_is_reached_past_any_proxy(monkeypatch: pytest.MonkeyPatch) -> None:
    from botocore.utils import get_environ_proxies

    monkeypatch.setenv("HTTP_PROXY", "http://proxy.example:3128")
    monkeypatch.setenv("NO_PROXY", "internal.example")
    target.locate(Options(local=True))

    assert get_environ_proxies(RECORD["apiUrl"]) == {}
    assert get_environ_proxies("http://internal.example/") == {}


def test_without_credentials_it_says_how_to_get_some(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    for name in ("AWS_ACCESS_KEY_ID", "AWS_SECRET_ACCESS_KEY"):
        monkeypatch.delenv(name)
    monkeypatch.setenv("AWS_SHARED_CREDENTIALS_FILE", str(tmp_path / "none"))
    monkeypatch.setenv("AWS_CONFIG_FILE", str(tmp_path / "none"))
    with pytest.raises(ConfigurationError, match="--profile"):
        target.locate(Options(api_url=OUTPUTS["ApiUrl"])).client()


def test_the_region_is_the_apis_unless_said_otherwise() -> None:
    assert target.locate(Options(api_url=OUTPUTS["ApiUrl"])).region == "eu-central-1"
    assert target.locate(Options(api_url=OUTPUTS["ApiUrl"], region="eu-west-1")).region == "eu-west-1"
    assert target.locate(Options(api_url="https://tasks.example")).region == "us-east-1"  # the environment's


def test_an_unknown_profile_is_told(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    from click.testing import CliRunner

    from thunder.cli.main import main

    monkeypatch.setenv("AWS_CONFIG_FILE", str(tmp_path / "none"))
    ended = CliRunner().invoke(main, ["stats", "--profile", "nope", "--stack", "s", "--region", "eu-west-1"])

    assert ended.exit_code == 1
    assert "nope" in ended.stderr
    assert "list-profiles" in ended.stderr
    assert isinstance(ended.exception, SystemExit | click.ClickException)
