"""`thunder registry` builds and shows what an environment's handlers declare."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from click.testing import CliRunner

from thunder.cli.main import main


@pytest.fixture
def project(tmp_path: Path) -> Path:
    tasks = tmp_path / "mine"
    tasks.mkdir()
    (tasks / "mail.py").write_text('from thunderagent import task\n\n@task("mail.send")\ndef send(payload, ctx): ...\n')
    context = {"environments": {"dev": {"executors": {"default": {"handlers": ["mine"], "timeoutSeconds": 120}}}}}
    (tmp_path / "cdk.json").write_text(json.dumps({"context": context}))
    return tmp_path


def test_build_writes_the_layer_of_the_environment(project: Path) -> None:
    answer = CliRunner().invoke(main, ["registry", "build", "--env", "dev", "--root", str(project)])
    assert answer.exit_code == 0, answer.output
    assert answer.stdout == ""
    assert "1 task types, 1 queues" in answer.stderr
    package = project / "build" / "registry" / "dev" / "python" / "thunderagent_registry"
    assert json.loads((package / "registry.json").read_text())["profiles"]["default"] == {
        "modules": ["mine.mail"],
        "timeoutSeconds": 120,
    }
    assert (package / "__init__.py").is_file()


def test_show_prints_and_writes_nothing(project: Path) -> None:
    answer = CliRunner().invoke(main, ["registry", "show", "--env", "dev", "--root", str(project), "--output", "json"])
    assert list(json.loads(answer.stdout)["types"]) == ["mail.send"]
    assert not (project / "build").exists()
    text = CliRunner().invoke(main, ["registry", "show", "--env", "dev", "--root", str(project), "--output", "text"])
    assert text.stdout.startswith("mail.send\tdefault\tdefault\tnormal")


@pytest.mark.parametrize("environment", ["dev", "nowhere"])
def test_a_mistake_is_told_in_one_line_and_fails(project: Path, environment: str) -> None:
    (project / "mine" / "other.py").write_text((project / "mine" / "mail.py").read_text())
    answer = CliRunner().invoke(main, ["registry", "build", "--env", environment, "--root", str(project)])
    assert answer.exit_code == 1
    assert ("'mail.send' is declared twice" if environment == "dev" else "context key 'env'") in answer.stderr
    assert "Traceback" not in answer.output
