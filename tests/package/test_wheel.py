"""The wheel, installed without checkout, network or Docker: everything that a user's own app needs is in it."""

from __future__ import annotations

import json
import os
import subprocess
import sys
import tarfile
import zipfile
from collections.abc import Mapping
from dataclasses import dataclass
from email.parser import Parser
from pathlib import Path

import pytest

from infra.config import ROOT
from infra.distribution import build
from tests.infra.templates import write
from thunderagent.version import VERSION

SITE_PACKAGES = next(Path(path) for path in sys.path if path.endswith("site-packages"))
APP = """
from aws_cdk import App, Stack
from thunderagent.cdk import ThunderAgent

app = App()
stack = Stack(app, "Mine")
ThunderAgent(stack, "Tasks", alarm_emails=["me@example.com"])
app.synth()
"""
HANDLER = """
from thunderagent import task

@task("mine.work")
def work(payload, ctx):
    return payload
"""


@dataclass(frozen=True)
class Installed:
    """A virtual environment with the wheel in it; what it depends on comes from that of the tests."""

    venv: Path
    home: Path

    def run(self, *command: str, cwd: Path | None = None, env: Mapping[str, str] | None = None) -> str:
        """What the command prints. It fails when the command does, or when it reaches out."""
        nowhere = "http://127.0.0.1:9"
        clean = {
            "PATH": os.pathsep.join([str(self.venv / "bin"), str(Path(sys.executable).parent), "/usr/bin:/bin"]),
            "HOME": str(self.home),
            "LANG": "C.UTF-8",
            "HTTP_PROXY": nowhere,
            "HTTPS_PROXY": nowhere,
            "PIP_NO_INDEX": "1",
            "JSII_RUNTIME_PACKAGE_CACHE_ROOT": str(ROOT / ".venv" / "jsii"),
            "CDK_VALIDATION": "false",
            **(env or {}),
        }
        finished = subprocess.run(
            [str(self.venv / "bin" / command[0]), *command[1:]],
            cwd=cwd or self.home,
            env=clean,
            capture_output=True,
            text=True,
            check=False,
        )
        assert finished.returncode == 0, finished.stdout + finished.stderr
        return finished.stdout


@pytest.fixture(scope="session")
def distributions(tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, Path]:
    return build(tmp_path_factory.mktemp("dist"))


@pytest.fixture(scope="session")
def wheel(distributions: tuple[Path, Path]) -> Path:
    return distributions[1]


@pytest.fixture(scope="session")
def installed(wheel: Path, tmp_path_factory: pytest.TempPathFactory) -> Installed:
    home = tmp_path_factory.mktemp("home")
    venv = home / "venv"
    subprocess.run([sys.executable, "-m", "venv", "--without-pip", str(venv)], check=True)
    python = venv / "bin" / "python"
    pip = [sys.executable, "-m", "pip", "--python", str(python), "install", "--quiet", "--disable-pip-version-check"]
    # What PYTHONPATH leads to would count as installed already.
    clean = {name: value for name, value in os.environ.items() if not name.startswith("PYTHON")}
    subprocess.run([*pip, "--no-deps", "--no-index", "--no-compile", str(wheel)], check=True, env=clean)
    (site,) = venv.glob("lib/python*/site-packages")
    # A path in a .pth file is searched behind this environment's own, and its own .pth files are not read: the editable
    # install of the checkout stays out.
    (site / "dependencies.pth").write_text(f"{SITE_PACKAGES}\n")
    return Installed(venv, home)


def test_it_comes_from_the_wheel_and_from_nowhere_else(installed: Installed) -> None:
    code = (
        "import infra, json, sys, thunder, thunderagent;"
        "print(json.dumps([infra.__file__, thunder.__file__, thunderagent.__file__, *sys.path]))"
    )
    found = json.loads(installed.run("python", "-c", code))
    assert all(path.startswith(str(installed.venv)) for path in found[:3])
    assert str(ROOT) not in found


def test_the_command_runs(installed: Installed) -> None:
    assert "Operate ThunderAgent" in installed.run("thunder", "--help")
    assert installed.run("thunder", "--version") == f"thunder-agent {VERSION}\n"


def test_an_app_of_ones_own_synthesises_in_a_directory_of_ones_own(installed: Installed, tmp_path: Path) -> None:
    write(tmp_path / "app.py", APP)
    write(tmp_path / "tasks" / "work.py", HANDLER)
    installed.run("python", "app.py", cwd=tmp_path, env={"CDK_OUTDIR": str(tmp_path / "out")})

    template = json.loads((tmp_path / "out" / "Mine.template.json").read_text())
    kinds = [resource["Type"] for resource in template["Resources"].values()]
    assert (kinds.count("AWS::Lambda::Function"), kinds.count("AWS::Lambda::LayerVersion")) == (6, 3)
    assets = [
        {str(path.relative_to(asset)) for path in asset.rglob("*") if path.is_file()}
        for asset in (tmp_path / "out").glob("asset.*")
    ]
    (library,) = (files for files in assets if "python/thunderagent/store.py" in files)
    assert {"python/thunderagent/openapi.json", "python/thunderagent/prices.json"} <= library
    assert not [file for file in library if "/cdk/" in file or "/testing/" in file]
    assert any({"handler.py", "tasks/work.py"} <= files for files in assets)
    assert any("python/cronsim/__init__.py" in files for files in assets)
    (registry,) = (tmp_path / "out").glob("asset.*/python/thunderagent_registry/registry.json")
    assert set(json.loads(registry.read_text())["types"]) == {"mine.work"}


def test_another_package_of_our_name_is_told(installed: Installed, tmp_path: Path) -> None:
    write(tmp_path / "infra" / "__init__.py", "")
    code = "\ntry:\n    import thunderagent.cdk\nexcept ImportError as error:\n    print(error)"
    assert "another one of that name stands before it" in installed.run("python", "-c", code, cwd=tmp_path)


def test_the_registry_builder_takes_the_current_directory(installed: Installed, tmp_path: Path) -> None:
    executors = {"default": {"handlers": ["tasks"]}}
    write(tmp_path / "cdk.json", json.dumps({"context": {"environments": {"prod": {"executors": executors}}}}))
    write(tmp_path / "tasks" / "work.py", HANDLER)
    installed.run("thunder", "registry", "build", "--env", "prod", cwd=tmp_path)
    assert (tmp_path / "build/registry/prod/python/thunderagent_registry/registry.json").is_file()


def test_the_library_and_the_testing_kit_are_used_without_the_cdk(installed: Installed) -> None:
    code = (
        "import sys, thunderagent, thunderagent.client, thunderagent.testing;"
        "print([name for name in ('aws_cdk', 'infra', 'boto3') if name in sys.modules])"
    )
    assert installed.run("python", "-c", code) == "[]\n"


def test_the_wheel_is_whole(wheel: Path) -> None:
    with zipfile.ZipFile(wheel) as archive:
        names = set(archive.namelist())
    package = ROOT / "layers" / "thunderagent" / "python"
    for tree, top in ((package / "thunderagent", package), (ROOT / "thunder", ROOT), (ROOT / "infra", ROOT)):
        files = {path.relative_to(top).as_posix() for path in tree.rglob("*") if path.is_file()}
        wanted = {name for name in files if "__pycache__" not in name and ".egg-info" not in name}
        assert wanted <= names
    assert not [name for name in names if name.startswith(("tests", "bench", "examples")) or name.endswith(".pyc")]
    vendored = {name for name in names if "/static/vendor/" in name}
    assert {f"thunder/console/static/vendor/{library}/LICENSE" for library in ("htmx", "uplot")} <= vendored


def test_its_metadata(wheel: Path) -> None:
    with zipfile.ZipFile(wheel) as archive:
        notes = f"thunder_agent-{VERSION}.dist-info"
        metadata = Parser().parsestr(archive.read(f"{notes}/METADATA").decode())
        assert f"{notes}/licenses/LICENSE" in archive.namelist()
    assert (metadata["Name"], metadata["Version"]) == ("thunder-agent", VERSION)
    assert (metadata["Requires-Python"], metadata["License-Expression"]) == (">=3.11", "Apache-2.0")
    assert set(metadata.get_all("Provides-Extra", [])) == {"cdk", "local", "prometheus", "console"}
    assert "Typing :: Typed" in metadata.get_all("Classifier", [])
    assert metadata.get_payload().startswith("# ThunderAgent")


def test_the_sdist_builds_without_make(distributions: tuple[Path, Path]) -> None:
    """The wheel was built from it; what that took is in it."""
    with tarfile.open(distributions[0]) as archive:
        names = {name.partition("/")[2] for name in archive.getnames()}
    assert {"setup.py", "pyproject.toml", "LICENSE", "README.md", "functions/api/handler.py"} <= names
    assert "layers/dependencies/built/python/cronsim/__init__.py" in names
