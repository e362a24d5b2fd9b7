"""The three layers every function has."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path

from aws_cdk import aws_lambda as lambda_
from constructs import Construct

from infra.assets import Project, staged

RUNTIME = lambda_.Runtime.PYTHON_3_13
ARCHITECTURE = lambda_.Architecture.ARM_64


class Layers(Construct):
    """The library, its dependencies, and the environment's registry: apart, as they change at different times."""

    def __init__(self, scope: Construct, id: str, *, project: Project, environment: str) -> None:
        super().__init__(scope, id)
        self.versions = [
            self._layer("Library", "The claim and commit protocol of ThunderAgent", project.library_parts()),
            self._layer("Dependencies", "What the library imports", project.dependencies_parts()),
            self._layer("Registry", "Declared task types and queues", project.registry_parts(environment)),
        ]

    def _layer(self, id: str, description: str, parts: Mapping[str, Path]) -> lambda_.LayerVersion:
        with staged(parts) as directory:
            return lambda_.LayerVersion(
                self,
                id,
                code=lambda_.Code.from_asset(directory),
                description=description,
                compatible_runtimes=[RUNTIME],
                compatible_architectures=[ARCHITECTURE],
            )
