"""What `thunder agent` works with: which stack, which settings, which handlers."""

from __future__ import annotations

import json
import sys
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from infra.config import EnvironmentConfig, ExecutorProfile
from thunder.cli import agent_setup as setup
from thunder.cli import target
from thunder.cli.errors import Refused
from thunder.cli.options import Options
from thunder.cli.target import Target
from thunderagent.errors import ConfigurationError
from thunderagent.settings import load_settings

RECORD = {
    "apiUrl": "http://127.0.0.1:4566/_aws/execute-api/abc/",
    "endpoint": "http://127.0.0.1:4566",
    "tableName": "tasks",
    "bucketName": "bodies",
    "region": "us-east-1",
    "accessKeyId": "key",
    "secretAccessKey": "secret",
}
LONG = ExecutorProfile(
    name="long", kind="agent", handlers=("jobs",), queues=("long",), timeout_seconds=86_430, threads=2
)
CONFIG = EnvironmentConfig(
    instance="ThunderAgent", environment="dev", executors=(ExecutorProfile(name="default"), LONG)
)


def located(monkeypatch: pytest.MonkeyPatch, **fields: Any) -> None:
    monkeypatch.setattr(target, "locate", lambda options: Target("http://api", options, **fields))


# ---- where ----------------------------------------------------------------------------------------------------------


def test_the_shells_table_is_taken_with_what_the_options_say_of_aws(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(target, "locate", lambda options: pytest.fail("no stack was asked for"))
    options = Options(profile="p", region="eu-west-1", endpoint_url="http://127.0.0.1:8000")
    assert setup.stack_environment(options, {"TABLE_NAME": "t"}) == {
        "AWS_PROFILE": "p",
        "AWS_REGION": "eu-west-1",
        "AWS_DEFAULT_REGION": "eu-west-1",
        "AWS_ENDPOINT_URL": "http://127.0.0.1:8000",
    }


def test_the_local_stack_brings_its_endpoint_and_keys_and_nothing_of_the_operators(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    located(monkeypatch, service="ThunderAgent-local", table_name="tasks", record=RECORD)
    found = setup.stack_environment(Options(local=True), {"TABLE_NAME": "another"})
    assert found["TABLE_NAME"] == "tasks"
    assert (found["AWS_ENDPOINT_URL"], found["AWS_ACCESS_KEY_ID"]) == ("http://127.0.0.1:4566", "key")
    assert (found["AWS_PROFILE"], found["AWS_SESSION_TOKEN"]) == ("", "")


def test_a_stack_on_aws_brings_table_and_bucket(monkeypatch: pytest.MonkeyPatch) -> None:
    located(monkeypatch, service="ThunderAgent-dev", table_name="T")
    monkeypatch.setattr(Target, "aws", lambda self, service: SimpleNamespace())
    monkeypatch.setattr(target, "stack_outputs", lambda client, stack: {"ArchiveBucketName": "B"})
    found = setup.stack_environment(Options(stack="ThunderAgent-dev", region="eu-west-1"), {})
    assert (found["TABLE_NAME"], found["BUCKET_NAME"], found["AWS_REGION"]) == ("T", "B", "eu-west-1")


def test_an_api_alone_is_not_enough(monkeypatch: pytest.MonkeyPatch) -> None:
    located(monkeypatch)
    with pytest.raises(Refused, match="TABLE_NAME"):
        setup.stack_environment(Options(api_url="http://api"), {})


# ---- how ------------------------------------------------------------------------------------------------------------


def project(tmp_path: Path) -> Path:
    environments: dict[str, Any] = {"dev": {}, "prod": {"executors": {"long": {"kind": "agent"}}}}
    (tmp_path / "cdk.json").write_text(json.dumps({"context": {"name": "Mine", "environments": environments}}))
    return tmp_path


def test_the_environment_is_the_one_whose_stack_it_is(tmp_path: Path) -> None:
    root = project(tmp_path)
    found = setup.project_config(root, None, "Mine-prod")
    assert found is not None
    assert found.executor("long").timeout_seconds == 86_430
    assert setup.project_config(root, "dev", "Mine-prod") == setup.project_config(root, None, "Mine-dev")
    with pytest.raises(Refused, match="--env"):
        setup.project_config(root, None, "Other")


def test_without_a_project_the_profile_is_an_agents(tmp_path: Path) -> None:
    assert setup.project_config(tmp_path, None, "ThunderAgent-dev") is None
    settings = load_settings({"TABLE_NAME": "t", **setup.default_variables(None, "long")})
    assert setup.served_by(settings, "long", 3).served["long"].threads == 3


def test_its_settings_are_those_of_the_stacks_functions() -> None:
    settings = setup.served_by(
        load_settings({"TABLE_NAME": "t", **setup.default_variables(CONFIG, "long")}), "long", None
    )
    assert set(settings.executors) == {"default", "long"}
    assert set(settings.served) == {"long"}
    assert (settings.served["long"].timeout_seconds, settings.served["long"].threads) == (86_430, 2)
    with pytest.raises(Refused, match="no executor profile 'big'; configured: default, long"):
        setup.served_by(settings, "big", None)


# ---- with what ------------------------------------------------------------------------------------------------------


def jobs(root: Path, source: str = "") -> Path:
    directory = root / "jobs"
    directory.mkdir()
    (directory / "night.py").write_text(
        "from thunderagent import task\n\n@task('night.run', timeout=40_000)\ndef run(payload, ctx): ...\n" + source
    )
    return directory


def deployed(root: Path) -> Path:
    file = root / "registry.json"
    types = {
        "demo.echo": {"profile": "default", "timeoutSeconds": 20},
        "night.old": {"profile": "long"},
    }
    profiles = {"default": {"modules": ["tasks"], "timeoutSeconds": 900}, "long": {"modules": ["jobs.old"]}}
    file.write_text(json.dumps({"formatVersion": 1, "types": types, "profiles": profiles, "queues": {"default": {}}}))
    return file


def test_its_own_types_are_as_declared_now_all_others_as_deployed(tmp_path: Path) -> None:
    directories = setup.handler_directories([], CONFIG, jobs(tmp_path).parent, "long")
    registry = setup.read_registry(directories, CONFIG, tmp_path, "long", deployed(tmp_path))
    assert set(registry.types) == {"demo.echo", "night.run"}
    assert registry.modules_of("long") == ("jobs.night",)
    assert (registry.types["night.run"].queue, registry.timeout_limit("night.run")) == ("long", 86_400)
    assert registry.types["demo.echo"].timeout_seconds == 20


def test_handlers_given_need_no_project(tmp_path: Path) -> None:
    registry = setup.read_registry([jobs(tmp_path)], None, tmp_path, "default", None)
    assert registry.profile_of("night.run") == "default"


def test_a_bad_handler_is_told_before_anything_is_claimed(tmp_path: Path) -> None:
    directory = jobs(tmp_path, "\n@task('night.run')\ndef again(payload, ctx): ...\n")
    with pytest.raises(ConfigurationError, match=r"night\.run.*declared twice"):
        setup.read_registry([directory], None, tmp_path, "default", None)


def test_neither_handlers_nor_registry_is_refused(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "thunderagent_registry", None)  # none is installed, whatever was imported before
    with pytest.raises(Refused, match="--handlers"):
        setup.read_registry([], None, tmp_path, "default", None)
