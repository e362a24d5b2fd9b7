"""Completion: the scripts, and what they are answered."""

from __future__ import annotations

from pathlib import Path

import pytest
from click.shell_completion import ShellComplete
from click.testing import CliRunner

from thunder.cli import names
from thunder.cli.main import NOUNS, main


@pytest.mark.parametrize("shell", ["bash", "zsh", "fish"])
def test_each_shell_has_a_script(shell: str) -> None:
    script = CliRunner().invoke(main, ["completion", shell])

    assert script.exit_code == 0
    assert f"_THUNDER_COMPLETE={shell}_complete" in script.stdout


def test_another_shell_is_a_usage_error() -> None:
    assert CliRunner().invoke(main, ["completion", "csh"]).exit_code == 2


def offered(*words: str, incomplete: str = "") -> list[str]:
    completer = ShellComplete(main, {}, "thunder", "_THUNDER_COMPLETE")
    return [item.value for item in completer.get_completions(list(words), incomplete)]


def test_nouns_verbs_options_and_statuses() -> None:
    assert set(offered()) == set(NOUNS)
    assert offered("task", incomplete="re") == ["redrive"]
    assert "--status" in offered("task", "list", incomplete="--")
    assert "FAILED" in [each.upper() for each in offered("task", "list", "--status", incomplete="F")]


def test_types_and_queues_of_the_built_registries(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    package = tmp_path / "build/registry/local/python/thunderagent_registry"
    package.mkdir(parents=True)
    (package / "registry.json").write_text('{"types": {"mail.send": {}, "mail.read": {}}, "queues": {"mails": {}}}')
    broken = tmp_path / "build/registry/dev/python/thunderagent_registry"
    broken.mkdir(parents=True)
    (broken / "registry.json").write_text("{")
    monkeypatch.setattr(names, "__file__", str(tmp_path / "thunder/cli/names.py"))

    assert offered("task", "submit", incomplete="mail.s") == ["mail.send"]
    assert offered("task", "list", "--queue") == ["mails"]
    assert offered("queue", "pause", incomplete="m") == ["mails"]
