"""What goes into each Lambda asset: clean copies of source trees, the same bytes from the same sources.

Caches, tests and local settings stay out, and native code is refused: an asset built here runs on any CPU and any
Python it says it runs on, without Docker. CDK is not imported.
"""

from __future__ import annotations

import json
import shutil
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from fnmatch import fnmatch
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

import thunderagent
from infra.bundles import AssetError, Target, bundle, require_to_fit
from infra.config import ROOT, EnvironmentConfig, ExecutorProfile
from infra.environment import THIS_MACHINE

__all__ = ["AssetError", "Project", "Registry", "clean_files", "require_to_fit", "staged"]

EXCLUDED = (
    ".*",
    "__pycache__",
    "*.pyc",
    "*.egg-info",
    "tests",
    "test_*.py",
    "conftest.py",
    "node_modules",
)
# The testing kit runs where tests run, the construct where the CDK does.
NOT_DEPLOYED = ("thunderagent/testing/*", "thunderagent/cdk/*")
NATIVE = ("*.so", "*.so.*", "*.pyd", "*.dylib", "*.dll")
SHIPPED = Path(__file__).resolve().parent / "shipped"  # in a wheel only: laid out like the checkout, with what is built
SOURCES = SHIPPED if SHIPPED.is_dir() else ROOT
INSTALLED_LIBRARY = Path(thunderagent.__file__).resolve().parent
REQUIREMENTS = "requirements.txt"
RESERVED_NAMES = ("handler", "thunderagent", "thunderagent_registry")


@contextmanager
def staged(parts: Mapping[str, Path]) -> Iterator[str]:
    """A temporary directory holding a clean copy of each part under its name (`.`: at the top).

    Raises AssetError when a part is missing or holds native code.
    """
    with TemporaryDirectory(prefix="thunder-asset-") as directory:
        for name, source in parts.items():
            _copy(source, Path(directory) / name)
        yield directory


def _copy(source: Path, target: Path) -> None:
    if source.is_file():
        shutil.copyfile(source, target)
        return
    for path in clean_files(source):
        destination = target / path.relative_to(source)
        destination.parent.mkdir(parents=True, exist_ok=True)
        shutil.copyfile(path, destination)


def clean_files(source: Path) -> Iterator[Path]:
    """The files of a tree that belong into an asset, in order. Raises AssetError on native code or an empty tree."""
    found = False
    for path in sorted(source.rglob("*")):
        if not path.is_file() or _excluded(path.relative_to(source), source.name):
            continue
        if _matches(path.name, NATIVE):
            raise AssetError(
                f"{path}: native code for one platform, but an asset runs wherever its function does; what handlers "
                "import belongs into the requirements.txt beside them, which is bundled for the right machine"
            )
        found = True
        yield path
    if not found:
        raise AssetError(f"{source}: nothing to put into an asset")


def _excluded(path: Path, tree: str) -> bool:
    return any(_matches(part, EXCLUDED) for part in path.parts) or _matches(f"{tree}/{path.as_posix()}", NOT_DEPLOYED)


def _matches(name: str, patterns: tuple[str, ...]) -> bool:
    return any(fnmatch(name, pattern) for pattern in patterns)


@dataclass(frozen=True)
class Registry:
    """Declared queues, types with their queues, and by executor profile the leases its types ask for themselves."""

    queues: Sequence[str]
    types: Mapping[str, str]
    lease_seconds: Mapping[str, Sequence[int]]

    @classmethod
    def of(cls, document: Mapping[str, Any]) -> Registry:
        """What the infrastructure needs to know of a `registry.json`."""
        leases: dict[str, list[int]] = {}
        for declared in document["types"].values():
            if declared.get("leaseSeconds") is not None:
                leases.setdefault(declared["profile"], []).append(declared["leaseSeconds"])
        types = {name: declared["queue"] for name, declared in document["types"].items()}
        return cls(queues=tuple(document["queues"]), types=types, lease_seconds=leases)


@dataclass(frozen=True)
class Project:
    """Where the sources of the assets are. Each `…_parts` is what `staged` takes; AssetError says what is missing.

    `root` is a checkout, or what a wheel brings in its place. `own` is where handlers and their registry are, if not in
    the checkout of ThunderAgent itself.
    """

    root: Path = SOURCES
    own: Path | None = None

    @property
    def home(self) -> Path:
        """Where handlers are looked for, and where what is made of them is kept."""
        return self.own or self.root

    @property
    def library(self) -> Path:
        """The package `thunderagent`: of the checkout, or the one that is installed."""
        own = self.root / "layers" / "thunderagent" / "python" / "thunderagent"
        return own if own.is_dir() else INSTALLED_LIBRARY

    @property
    def openapi(self) -> Path:
        return self.library / "openapi.json"

    @property
    def requirements(self) -> Path:
        return self.root / "layers" / "dependencies" / "requirements.txt"

    @property
    def dependencies(self) -> Path:
        return self.root / "build" / "layers" / "dependencies"

    def function_parts(self, name: str) -> dict[str, Path]:
        """The asset of `functions/<name>`: its own directory."""
        return {".": _existing(self.root / "functions" / name, f"functions/{name} is missing")}

    def executor_parts(self, profile: ExecutorProfile) -> dict[str, Path]:
        """The asset of a profile: the entry point, and each handlers directory beside it under its own name."""
        key = f"executors.{profile.name}"
        entry = self.root / profile.code / "handler.py"
        parts = {entry.name: _existing(entry, f"{key}.code: {profile.code}/handler.py is missing")}
        for handlers in profile.handlers:
            path = _existing(self.home / handlers, f"{key}.handlers: {handlers} is missing")
            if path.name in parts or path.name in RESERVED_NAMES:
                raise AssetError(f"{key}.handlers: {handlers}: the name {path.name!r} is already taken")
            parts[path.name] = path
        return parts

    def library_parts(self) -> dict[str, Path]:
        return {"python/thunderagent": self.library}

    def packages(self, profile: ExecutorProfile, target: Target) -> Path | None:
        """What the profile's handlers ask for in their requirements.txt, as the content of a layer; None for nothing.
        Kept below `build/packages`."""
        files = [self.home / handlers / REQUIREMENTS for handlers in profile.handlers]
        asked = [path for path in files if path.is_file()]
        return bundle(asked, target, self.home / "build" / "packages") if asked else None

    @staticmethod
    def bundle_target(config: EnvironmentConfig) -> Target:
        return Target(architecture=config.architecture, is_here=config.bundle_for == THIS_MACHINE)

    def dependencies_parts(self) -> dict[str, Path]:
        """The dependency layer as built, if it was built from the requirements as they are."""
        made_from = self.dependencies / self.requirements.name
        if not made_from.is_file() or not (self.dependencies / "python").is_dir():
            raise AssetError(f"{self.dependencies} is missing: run `make layers`")
        if made_from.read_text() != self.requirements.read_text():
            raise AssetError(f"{self.dependencies} was built from other requirements: run `make layers`")
        return {"python": self.dependencies / "python"}

    def registry_parts(self, environment: str) -> dict[str, Path]:
        """The registry layer of one environment."""
        return {"python": self._registry(environment).parent.parent}

    def read_registry(self, environment: str) -> Registry:
        """What the infrastructure needs to know of the declared types."""
        return Registry.of(json.loads(self._registry(environment).read_text()))

    def _registry(self, environment: str) -> Path:
        package = Path("build", "registry", environment, "python", "thunderagent_registry")
        path = self.home / package / "registry.json"
        root = "" if self.own is None else f" --root {self.own}"
        return _existing(path, f"{path} is missing: run `thunder registry build --env {environment}{root}`")


def _existing(path: Path, complaint: str) -> Path:
    if not path.exists():
        raise AssetError(complaint)
    return path
