"""The registry of handlers that are declared in a CDK app: built while it is synthesised, so that it is never stale."""

from __future__ import annotations

import json
from collections.abc import Iterable, Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

from infra.assets import AssetError, Registry
from infra.environment import ExecutorProfile
from thunderagent.errors import ConfigurationError
from thunderagent.registry_build import ProfileSource, build_registry, write_registry


@contextmanager
def declared(
    profiles: Iterable[ExecutorProfile],
    home: Path,
    *,
    queue_limits: Mapping[str, Mapping[str, Any]],
    built: Path | None = None,
) -> Iterator[tuple[Registry, Mapping[str, Path]]]:
    """What the handlers below `home` declare, and the parts of the layer that says so.

    The handlers are imported; where that is not possible, `built` is the `registry.json` of `thunder registry build`.
    Raises AssetError for handlers that cannot be imported or contradict each other or their profile.
    """
    sources = {
        profile.name: ProfileSource(
            handlers=[home / handlers for handlers in profile.handlers],
            queues=profile.queues,
            timeout_seconds=profile.timeout_seconds,
        )
        for profile in profiles
    }
    with TemporaryDirectory(prefix="thunder-registry-") as directory:
        try:
            document = _read(built) if built else build_registry(sources, queue_limits=queue_limits)
        except ConfigurationError as error:
            raise AssetError(_told(error)) from error
        write_registry(document, Path(directory))
        yield Registry.of(document), {"python": Path(directory) / "python"}


def _read(built: Path) -> dict[str, Any]:
    try:
        document: dict[str, Any] = json.loads(built.read_text())
    except (OSError, ValueError) as error:
        raise AssetError(f"{built} is not a registry: {error}") from error
    return document


def _told(error: ConfigurationError) -> str:
    if "ModuleNotFoundError" not in str(error):
        return str(error)
    return (
        f"{error}. Synthesis imports the handlers to read what they declare: install what they import beside the CDK, "
        "or build the registry where it is installed (`thunder registry build`) and say `registry=`"
    )
