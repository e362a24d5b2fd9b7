"""The layers every function has, and those of executors."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path

from aws_cdk import aws_lambda as lambda_
from constructs import Construct

from infra.assets import Project, staged
from infra.environment import ARM_64, X86_64

RUNTIME = lambda_.Runtime.PYTHON_3_13
ARCHITECTURES = {ARM_64: lambda_.Architecture.ARM_64, X86_64: lambda_.Architecture.X86_64}


class Layers(Construct):
    """The library, its dependencies, and the service's registry: apart, as they change at different times."""

    def __init__(self, scope: Construct, id: str, *, project: Project, architecture: lambda_.Architecture) -> None:
        super().__init__(scope, id)
        self._architecture = architecture
        self.versions = [
            self._layer("Library", "The claim and commit protocol of ThunderAgent", project.library_parts()),
            self._layer("Dependencies", "What the library imports", project.dependencies_parts()),
        ]

    def add_registry(self, parts: Mapping[str, Path]) -> lambda_.LayerVersion:
        return self._layer("Registry", "Declared task types and queues", parts)

    def add_packages(self, profile: str, packages: Path) -> lambda_.LayerVersion:
        """What the handlers of a profile import, as bundled; native code in it has been looked at."""
        return lambda_.LayerVersion(
            self,
            f"Packages-{profile}",
            code=lambda_.Code.from_asset(str(packages)),
            description=f"What the handlers of executor {profile} import",
            compatible_runtimes=[RUNTIME],
            compatible_architectures=[self._architecture],
        )

    def _layer(self, id: str, description: str, parts: Mapping[str, Path]) -> lambda_.LayerVersion:
        with staged(parts) as directory:
            return lambda_.LayerVersion(
                self,
                id,
                code=lambda_.Code.from_asset(directory),
                description=description,
                compatible_runtimes=[RUNTIME],
                compatible_architectures=[self._architecture],
            )
