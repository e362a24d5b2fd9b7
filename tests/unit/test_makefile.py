"""The Makefile's own promises: it explains itself, and says clearly what it cannot work with."""

from __future__ import annotations

import os
import re
import shutil
import subprocess
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[2]
TARGETS = {
    "setup",
    "demo",
    "up",
    "down",
    "test",
    "lint",
    "types",
    "layers",
    "registry",
    "synth",
    "deploy",
    "destroy",
    "package",
}


def make(*arguments, cwd=ROOT):
    clean = {name: value for name, value in os.environ.items() if not name.startswith(("MAKE", "MFLAGS"))}
    return subprocess.run(["make", *arguments], cwd=cwd, env=clean, capture_output=True, text=True, check=False)


@pytest.fixture
def empty_checkout(tmp_path):
    """A checkout in which nothing has been made yet."""
    for name in ("Makefile", "requirements.txt", "requirements-local.txt", "requirements-dev.txt", "pyproject.toml"):
        shutil.copy(ROOT / name, tmp_path)
    return tmp_path


def interpreter(directory, script):
    path = directory / "python-under-test"
    path.write_text(f"#!/bin/sh\n{script}\n")
    path.chmod(0o755)
    return f"PYTHON={path}"


def test_help_names_every_target():
    shown = make("help")

    assert shown.returncode == 0
    assert set(re.findall(r"make ([a-z]+) ", shown.stdout)) >= TARGETS


def test_an_old_python_is_refused_with_what_is_needed(empty_checkout):
    old = interpreter(empty_checkout, 'case "$1" in --version) echo Python 3.10.2;; *) exit 1;; esac')

    refused = make("setup", old, cwd=empty_checkout)

    assert refused.returncode != 0
    assert "Python 3.10.2 is too old" in refused.stderr
    assert not (empty_checkout / ".venv").exists()


def test_a_python_without_venv_is_refused_with_what_is_needed(empty_checkout):
    bare = interpreter(empty_checkout, 'case "$2" in *venv*) exit 1;; *) exit 0;; esac')

    refused = make("setup", bare, cwd=empty_checkout)

    assert refused.returncode != 0
    assert "no venv module" in refused.stderr


def test_no_python_at_all_is_said(empty_checkout):
    refused = make("setup", "PYTHON=no-such-python", cwd=empty_checkout)

    assert refused.returncode != 0
    assert "no-such-python is not on PATH" in refused.stderr


def test_a_deployment_demands_its_environment():
    refused = make("deploy")

    assert refused.returncode != 0
    assert "make deploy ENV=dev" in refused.stderr


def test_a_destruction_demands_its_environment():
    refused = make("destroy")

    assert refused.returncode != 0
    assert "make destroy ENV=dev" in refused.stderr


def test_pins_name_one_version_each_and_no_registry():
    for name in ("requirements.txt", "requirements-local.txt", "requirements-dev.txt", "requirements-docs.txt"):
        lines = [line for line in (ROOT / name).read_text().splitlines() if line and not line.startswith("#")]
        pins = [line for line in lines if line != "-r requirements.txt"]
        assert pins
        assert [line for line in pins if not re.fullmatch(r"[A-Za-z0-9._-]+==[A-Za-z0-9._+!]+", line)] == []
    assert "resolved" not in (ROOT / "package-lock.json").read_text()


def test_shared_pins_agree():
    """The embedded AWS is tested with the SDK that the operator's side has."""
    operator = set((ROOT / "requirements.txt").read_text().splitlines())
    embedded = (ROOT / "requirements-local.txt").read_text().splitlines()

    assert {line for line in embedded if line.startswith(("boto3==", "botocore=="))} <= operator
