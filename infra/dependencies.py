"""Builds the dependency layer (`make layers`): pinned, hash-checked, pure Python, the same bytes on every machine."""

from __future__ import annotations

import shutil
import subprocess
import sys
from pathlib import Path

from infra.assets import AssetError, Project, clean_files
from infra.bundles import PYTHON, prune

# Wheels are chosen for the functions' Python, not for this machine's; platform "any" admits no compiled ones.
TARGET = ("--python-version", PYTHON, "--implementation", "py", "--abi", "none", "--platform", "any")
PIP = ("install", "--quiet", "--disable-pip-version-check", "--no-compile", "--no-deps", "--only-binary=:all:")


def build(project: Project) -> Path:
    """Install the project's requirements into its dependency layer, replacing what was there.

    Raises AssetError when pip finds no pure-Python release, a hash differs, or native code came along.
    """
    source, built = project.requirements, project.dependencies
    fresh = built.with_name(built.name + ".new")
    shutil.rmtree(fresh, ignore_errors=True)
    command = [sys.executable, "-m", "pip", *PIP, "--require-hashes", *TARGET]
    command += ["--target", str(fresh / "python"), "--requirement", str(source)]
    finished = subprocess.run(command, check=False)
    if finished.returncode != 0:
        raise AssetError(f"{source}: pip could not install it as pure Python for the functions (see above)")
    prune(fresh / "python")
    list(clean_files(fresh / "python"))
    shutil.copyfile(source, fresh / source.name)  # last: its presence says that the layer is whole
    shutil.rmtree(built, ignore_errors=True)
    fresh.rename(built)
    return built


if __name__ == "__main__":
    print(build(Project()))
