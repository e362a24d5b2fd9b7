"""Templates, synthesised once per session from the real configuration and library over stand-in handlers."""

from __future__ import annotations

import json
import shutil
from collections.abc import Mapping
from typing import Any

import pytest

from infra.assets import Project
from infra.config import FUNCTION_NAMES, ROOT, load_config, read_context
from infra.node import prefer_bundled_node
from tests.infra.templates import Synthesise, Synthesised, write

prefer_bundled_node()  # before any test module imports aws_cdk

ENVIRONMENTS = ("local", "dev", "prod")
REGISTRY = {
    "formatVersion": 1,
    "profiles": {"default": {"modules": ["tasks.hello"], "timeoutSeconds": 900}},
    "queues": {"default": {}},
    "types": {"demo.echo": {"profile": "default", "queue": "default", "leaseSeconds": None}},
}


@pytest.fixture(scope="session")
def project(tmp_path_factory: pytest.TempPathFactory) -> Project:
    """A project with the real library and requirements, handlers that do nothing, and built layers."""
    root = tmp_path_factory.mktemp("project")
    shutil.copytree(ROOT / "layers", root / "layers", ignore=shutil.ignore_patterns("__pycache__"))
    for name in (*FUNCTION_NAMES, "executor"):
        write(root / "functions" / name / "handler.py", "def handler(event, context): ...\n")
    for handlers in ("functions/executor/tasks", "examples/demo", "examples/reports"):
        write(root / handlers / "__init__.py", "")
    built = root / "build" / "layers" / "dependencies"
    write(built / "python" / "dependency.py", "")
    shutil.copyfile(ROOT / "layers" / "dependencies" / "requirements.txt", built / "requirements.txt")
    for environment in ENVIRONMENTS:
        package = root / "build" / "registry" / environment / "python" / "thunderagent_registry"
        write(package / "__init__.py", "")
        write(package / "registry.json", json.dumps(REGISTRY))
    return Project(root)


@pytest.fixture(scope="session")
def synthesise(project: Project, tmp_path_factory: pytest.TempPathFactory) -> Synthesise:
    """Synthesise an environment, perhaps with other context; without cdk-nag, which has its own test."""

    def run(environment: str, context: Mapping[str, Any] | None = None) -> Synthesised:
        from aws_cdk import App

        from infra.application import build

        merged = {**read_context(), **(context or {})}
        config = load_config(merged, environment)
        assembly = tmp_path_factory.mktemp(environment)
        app = App(context=merged, outdir=str(assembly))
        build(app, config, project)
        with pytest.MonkeyPatch.context() as patch:
            patch.setenv("CDK_VALIDATION", "false")
            app.synth()
        names = (config.data_stack_name, config.service_stack_name)
        data, service = (json.loads((assembly / f"{name}.template.json").read_text()) for name in names)
        return Synthesised(data=data, service=service, assembly=assembly, names=names)

    return run


@pytest.fixture(scope="session")
def local(synthesise: Synthesise) -> Synthesised:
    return synthesise("local")


@pytest.fixture(scope="session")
def dev(synthesise: Synthesise) -> Synthesised:
    return synthesise("dev")


@pytest.fixture(scope="session")
def prod(synthesise: Synthesise) -> Synthesised:
    return synthesise("prod")


@pytest.fixture(params=ENVIRONMENTS)
def synthesised(request: pytest.FixtureRequest) -> Synthesised:
    """Each environment in turn."""
    result: Synthesised = request.getfixturevalue(request.param)
    return result
