"""Directories of wheels that pip is sent to instead of an index: tests reach no network."""

from __future__ import annotations

import zipfile
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from importlib.metadata import distribution
from pathlib import Path

import pytest


def write_wheel(
    directory: Path, name: str, files: Mapping[str, bytes | str], *, version: str = "1.0", tag: str = "py3-none-any"
) -> Path:
    """A wheel of these files."""
    directory.mkdir(parents=True, exist_ok=True)
    wheel = directory / f"{name}-{version}-{tag}.whl"
    notes = f"{name}-{version}.dist-info"
    with zipfile.ZipFile(wheel, "w") as archive:
        for path, content in files.items():
            archive.writestr(path, content)
        archive.writestr(f"{notes}/METADATA", f"Metadata-Version: 2.1\nName: {name}\nVersion: {version}\n")
        archive.writestr(f"{notes}/WHEEL", f"Wheel-Version: 1.0\nGenerator: test\nRoot-Is-Purelib: true\nTag: {tag}\n")
        archive.writestr(f"{notes}/RECORD", "")
    return wheel


def repack(directory: Path, name: str) -> Path:
    """The installed distribution as the wheel it came from, for this machine."""
    installed = distribution(name)
    notes = (installed.read_text("WHEEL") or "").splitlines()
    tag = next(line.removeprefix("Tag: ") for line in notes if line.startswith("Tag: "))
    files = {
        str(path): Path(str(path.locate())).read_bytes()
        for path in installed.files or ()
        if "dist-info" not in str(path) and not str(path).endswith(".pyc")
    }
    return write_wheel(directory, name.replace("-", "_"), files, version=installed.version, tag=tag)


@contextmanager
def only_from(directory: Path) -> Iterator[None]:
    """pip finds what is in this directory, and nothing else."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("PIP_NO_INDEX", "1")
        patch.setenv("PIP_FIND_LINKS", str(directory))
        patch.setenv("PIP_CONFIG_FILE", "/dev/null")
        yield
