"""Builds the sdist, and from it the wheel (`make package`): what is not in the one cannot be in the other."""

from __future__ import annotations

import subprocess
import sys
import tarfile
from pathlib import Path
from tempfile import TemporaryDirectory

from infra.config import ROOT

BACKEND = "import sys; from setuptools import build_meta; print(getattr(build_meta, sys.argv[1])(sys.argv[2]))"


def build(into: Path, root: Path = ROOT) -> tuple[Path, Path]:
    """Both of them, with the tools that are installed: nothing is fetched.

    Raises CalledProcessError when a build fails, with what it said on stderr.
    """
    into = into.resolve()
    into.mkdir(parents=True, exist_ok=True)
    sdist = into / _run("build_sdist", root, into)
    with TemporaryDirectory(prefix="thunder-wheel-") as directory:
        with tarfile.open(sdist) as archive:
            archive.extractall(directory, filter="data")
        (unpacked,) = Path(directory).iterdir()
        return sdist, into / _run("build_wheel", unpacked, into)


def _run(step: str, root: Path, into: Path) -> str:
    command = [sys.executable, "-c", BACKEND, step, str(into)]
    finished = subprocess.run(command, cwd=root, check=False, capture_output=True, text=True)
    if finished.returncode:
        sys.stderr.write(finished.stdout + finished.stderr)
        finished.check_returncode()
    return finished.stdout.splitlines()[-1]


if __name__ == "__main__":
    print(*build(ROOT / "dist"), sep="\n")
