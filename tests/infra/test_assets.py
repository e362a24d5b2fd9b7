from __future__ import annotations

import hashlib
import json
import zipfile
from collections.abc import Iterator
from pathlib import Path

import pytest

from infra.assets import AssetError, Project, staged
from infra.config import ExecutorProfile
from infra.dependencies import build
from tests.infra.templates import Synthesised, write


@pytest.fixture
def tree(tmp_path: Path) -> Path:
    root = tmp_path / "tree"
    write(root / "tasks" / "__init__.py", "")
    write(root / "tasks" / "hello.py", "x = 1\n")
    return root


def contents(directory: str | Path) -> dict[str, str]:
    root = Path(directory)
    return {str(path.relative_to(root)): path.read_text() for path in files(root)}


def files(root: Path) -> Iterator[Path]:
    return (path for path in sorted(root.rglob("*")) if path.is_file())


def digest(root: Path) -> str:
    lines = [f"{path.relative_to(root)} {hashlib.sha256(path.read_bytes()).hexdigest()}" for path in files(root)]
    return hashlib.sha256("\n".join(lines).encode()).hexdigest()


# ---- TA-40: packages built for the wrong machine ---------------------------------------------------------------------


@pytest.mark.parametrize("name", ["fast.cpython-313-x86_64-linux-gnu.so", "fast.pyd", "lib.so.3", "lib.dylib"])
def test_ta40_native_code_is_refused_by_name(tree: Path, name: str) -> None:
    write(tree / "tasks" / name, "")
    with pytest.raises(AssetError, match=rf"{name}: native code for one platform"), staged({".": tree}):
        pass


def test_ta40_no_tests_caches_or_local_settings_inside(tree: Path) -> None:
    for unwanted in (
        "tasks/__pycache__/hello.cpython-313.pyc",
        "tasks/.env",
        "tasks/tests/test_hello.py",
        "tasks/test_hello.py",
        "tasks/conftest.py",
        ".git/config",
        ".mypy_cache/x",
        "thing.egg-info/PKG-INFO",
    ):
        write(tree / unwanted, "unwanted")
    with staged({".": tree}) as directory:
        assert set(contents(directory)) == {"tasks/__init__.py", "tasks/hello.py"}


def test_ta40_the_same_sources_give_the_same_layer(tmp_path: Path) -> None:
    project = project_with_wheel(tmp_path, {"tiny.py": "x = 1\n", "tiny-1.0.data/scripts/tiny": "#!python\n"})
    first = digest(build(project) / "python")
    assert digest(build(project) / "python") == first
    assert (project.dependencies / "python" / "tiny.py").exists()
    assert not list(project.dependencies.rglob("RECORD"))
    assert not (project.dependencies / "python" / "bin").exists()
    assert project.dependencies_parts() == {"python": project.dependencies / "python"}


def test_ta40_native_code_in_a_dependency_fails_the_build(tmp_path: Path) -> None:
    project = project_with_wheel(tmp_path, {"tiny.py": "", "tiny_native.so": "ELF"})
    with pytest.raises(AssetError, match=r"tiny_native\.so: native code"):
        build(project)
    with pytest.raises(AssetError, match="run `make layers`"):
        project.dependencies_parts()


def test_ta40_a_wheel_for_one_machine_is_not_even_considered(tmp_path: Path) -> None:
    project = project_with_wheel(tmp_path, {"tiny.py": ""}, tag="cp313-cp313-manylinux_2_17_x86_64")
    with pytest.raises(AssetError, match="pure Python"):
        build(project)


def test_ta40_the_synthesised_assets_hold_no_native_code(synthesised: Synthesised) -> None:
    assets = list(synthesised.assembly.glob("asset.*"))
    assert assets
    assert not [path for path in synthesised.assembly.rglob("*") if path.suffix in {".so", ".pyd", ".dylib", ".pyc"}]


def project_with_wheel(root: Path, modules: dict[str, str], tag: str = "py3-none-any") -> Project:
    """A project whose only requirement is a wheel made here."""
    wheel = root / f"tiny-1.0-{tag}.whl"
    with zipfile.ZipFile(wheel, "w") as archive:
        for name, text in modules.items():
            archive.writestr(name, text)
        archive.writestr("tiny-1.0.dist-info/METADATA", "Metadata-Version: 2.1\nName: tiny\nVersion: 1.0\n")
        archive.writestr(
            "tiny-1.0.dist-info/WHEEL", f"Wheel-Version: 1.0\nGenerator: test\nRoot-Is-Purelib: true\nTag: {tag}\n"
        )
        archive.writestr("tiny-1.0.dist-info/RECORD", "")
    project = Project(root / "project")
    hashed = hashlib.sha256(wheel.read_bytes()).hexdigest()
    write(project.requirements, f"tiny @ {wheel.as_uri()} --hash=sha256:{hashed}\n")
    return project


# ---- what is missing is said with the command that makes it ----------------------------------------------------------


def test_the_library_layer_is_without_the_testing_kit_and_with_all_the_rest() -> None:
    with staged(Project().library_parts()) as directory:
        library = Path(directory) / "python" / "thunderagent"
        assert not (library / "testing").exists()
        assert {path.name for path in library.glob("*.py")} >= {"store.py", "runner.py", "agent.py"}
        assert (library / "expressions" / "running.py").is_file()


def test_a_missing_dependency_layer_names_its_command(tmp_path: Path) -> None:
    with pytest.raises(AssetError, match="is missing: run `make layers`"):
        Project(tmp_path).dependencies_parts()


def test_a_dependency_layer_of_other_requirements_is_refused(tmp_path: Path) -> None:
    project = Project(tmp_path)
    write(project.requirements, "a==2\n")
    write(project.dependencies / "requirements.txt", "a==1\n")
    write(project.dependencies / "python" / "a.py", "")
    with pytest.raises(AssetError, match="other requirements: run `make layers`"):
        project.dependencies_parts()


def test_a_missing_registry_names_its_command(tmp_path: Path) -> None:
    with pytest.raises(AssetError, match="run `thunder registry build --env prod`"):
        Project(tmp_path).registry_parts("prod")


# ---- the executor's asset --------------------------------------------------------------------------------------------


def test_handlers_stand_beside_the_entry_point_under_their_own_names(tmp_path: Path) -> None:
    project = executor_project(tmp_path, "functions/executor/tasks", "examples/demo")
    profile = ExecutorProfile(name="default", handlers=("functions/executor/tasks", "examples/demo"))
    with staged(project.executor_parts(profile)) as directory:
        assert set(contents(directory)) == {"handler.py", "tasks/work.py", "demo/work.py"}


def test_handlers_may_live_outside_the_project(tmp_path: Path) -> None:
    project = executor_project(tmp_path / "project", "functions/executor/tasks")
    write(tmp_path / "elsewhere" / "jobs" / "work.py", "")
    profile = ExecutorProfile(name="default", handlers=(str(tmp_path / "elsewhere" / "jobs"),))
    with staged(project.executor_parts(profile)) as directory:
        assert set(contents(directory)) == {"handler.py", "jobs/work.py"}


def test_two_handlers_of_one_name_are_refused(tmp_path: Path) -> None:
    project = executor_project(tmp_path, "a/tasks", "b/tasks")
    with pytest.raises(AssetError, match="b/tasks: the name 'tasks' is already taken"):
        project.executor_parts(ExecutorProfile(name="default", handlers=("a/tasks", "b/tasks")))


def test_handlers_may_not_hide_the_library(tmp_path: Path) -> None:
    project = executor_project(tmp_path, "mine/thunderagent")
    with pytest.raises(AssetError, match="the name 'thunderagent' is already taken"):
        project.executor_parts(ExecutorProfile(name="default", handlers=("mine/thunderagent",)))


def test_missing_handlers_name_their_configuration_key(tmp_path: Path) -> None:
    project = executor_project(tmp_path)
    with pytest.raises(AssetError, match=r"executors\.default\.handlers: nowhere is missing"):
        project.executor_parts(ExecutorProfile(name="default", handlers=("nowhere",)))


def test_the_registry_tells_the_leases_that_types_ask_for(tmp_path: Path) -> None:
    types = {
        "a": {"profile": "default", "queue": "default", "leaseSeconds": 90},
        "b": {"profile": "default", "queue": "default", "leaseSeconds": None},
        "c": {"profile": "heavy", "queue": "slow", "leaseSeconds": 600},
    }
    registry = tmp_path / "build" / "registry" / "dev" / "python" / "thunderagent_registry" / "registry.json"
    write(registry, json.dumps({"queues": {"default": {}, "slow": {}}, "types": types}))
    read = Project(tmp_path).read_registry("dev")
    assert read.queues == ("default", "slow")
    assert read.types == {"a": "default", "b": "default", "c": "slow"}
    assert read.lease_seconds == {"default": [90], "heavy": [600]}


def executor_project(root: Path, *handlers: str) -> Project:
    write(root / "functions" / "executor" / "handler.py", "")
    for path in handlers:
        write(root / path / "work.py", "")
    return Project(root)
