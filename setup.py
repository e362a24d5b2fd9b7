"""What `pyproject.toml` cannot say: a wheel also brings the functions' code and the built layer of dependencies.

They stand in `infra/shipped/`, laid out like the checkout, so that `infra.assets.Project` finds them in either.
"""

from __future__ import annotations

import shutil
from pathlib import Path

from setuptools import setup
from setuptools.command.build_py import build_py
from setuptools.command.sdist import sdist

ROOT = Path(__file__).resolve().parent
REQUIREMENTS = Path("layers", "dependencies", "requirements.txt")
LAYER = Path("build", "layers", "dependencies")
LAYER_IN_SDIST = Path("layers", "dependencies", "built")  # sdists leave out whatever is below build/
ENTRY_POINTS = "functions/*/handler.py"
NO_BYTECODE = shutil.ignore_patterns("__pycache__", "*.pyc")


def built_layer() -> Path:
    """The layer of dependencies, built from the requirements as they are; SystemExit says how to build it."""
    for layer in (ROOT / LAYER_IN_SDIST, ROOT / LAYER):
        made_from = layer / REQUIREMENTS.name
        if made_from.is_file() and made_from.read_text() == (ROOT / REQUIREMENTS).read_text():
            return layer
    raise SystemExit("the layer of dependencies is not built, or from other requirements: run `make layers`")


class BuildPy(build_py):
    def run(self) -> None:
        super().run()
        if not self.editable_mode:
            self.ship(Path(self.build_lib, "infra", "shipped"))

    def ship(self, shipped: Path) -> None:
        shutil.rmtree(shipped, ignore_errors=True)
        for source in (*sorted(ROOT.glob(ENTRY_POINTS)), ROOT / REQUIREMENTS):
            target = shipped / source.relative_to(ROOT)
            target.parent.mkdir(parents=True, exist_ok=True)
            shutil.copyfile(source, target)
        shutil.copytree(built_layer(), shipped / LAYER, ignore=NO_BYTECODE)


class Sdist(sdist):
    def make_release_tree(self, base_dir: str, files: list[str]) -> None:
        super().make_release_tree(base_dir, files)
        target = Path(base_dir, LAYER_IN_SDIST)
        if not target.is_dir():
            shutil.copytree(built_layer(), target, ignore=NO_BYTECODE)


setup(cmdclass={"build_py": BuildPy, "sdist": Sdist})
