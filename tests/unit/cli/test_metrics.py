"""`thunder metrics serve`: whom it asks, and what it says when it cannot."""

from __future__ import annotations

import sys

import pytest
from click.testing import CliRunner

from thunder.cli import metrics, target
from thunder.cli.main import main
from thunder.cli.options import Options
from thunder.cli.target import Target


def test_without_the_stacks_name_there_are_no_metrics(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(target, "locate", lambda options: Target("https://api.example.com", Options()))
    done = CliRunner().invoke(main, ["metrics", "serve"])
    assert done.exit_code == 2
    assert "--stack" in done.stderr


def test_a_missing_package_is_named(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "prometheus_client", None)
    done = CliRunner().invoke(main, ["metrics", "serve"])
    assert done.exit_code == 1
    assert metrics.MISSING in done.stderr


def test_it_listens_on_loopback_unless_told_otherwise() -> None:
    options = {option.name: option.default for option in metrics.serve.params}
    assert options["host"] == "127.0.0.1"
