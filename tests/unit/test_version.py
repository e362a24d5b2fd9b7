"""One version: of the library, the API's document, the command, and what packaging says."""

from __future__ import annotations

import tomllib
from pathlib import Path

from click.testing import CliRunner

from thunder.cli.main import main
from thunderagent.validation import document
from thunderagent.version import VERSION

ROOT = Path(__file__).resolve().parents[2]


def test_the_document_and_the_command_tell_the_librarys_version():
    assert document()["info"]["version"] == VERSION
    assert CliRunner().invoke(main, ["--version"]).output == f"thunder-agent {VERSION}\n"


def test_packaging_reads_it_and_has_none_of_its_own():
    project = tomllib.loads((ROOT / "pyproject.toml").read_text())

    assert "version" in project["project"]["dynamic"]
    assert project["tool"]["setuptools"]["dynamic"]["version"] == {"attr": "thunderagent.version.VERSION"}
