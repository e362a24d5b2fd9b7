"""What handlers import beside the library: their requirements.txt, as wheels for the machine their function runs on.

No Docker and no compiler: pip only unpacks wheels, for another CPU and Python if need be. A package without a fitting
wheel is refused by name. CDK is not imported.
"""

from __future__ import annotations

import hashlib
import re
import shutil
import subprocess
import sys
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from tempfile import TemporaryDirectory

from infra.environment import ARM_64

PYTHON = "3.13"  # of the functions; `infra.constructs.layers.RUNTIME` is the same
GLIBC_MINOR = 34  # of Lambda's Amazon Linux 2023
OLDEST_GLIBC_MINOR = 17
UNZIPPED_LIMIT = 262_144_000  # Lambda, "Deployment package size": 250 MB, unzipped, with layers
PIP = ("install", "--quiet", "--disable-pip-version-check", "--no-input", "--no-compile", "--only-binary=:all:")
RESERVED = ("handler.py", "thunderagent", "thunderagent_registry")
# pip's notes about its own run and the scripts it generates name the machine that built them; nothing imports them.
MACHINE_FILES = ("RECORD", "INSTALLER", "REQUESTED", "direct_url.json")
ELF_MACHINES = {"aarch64": 0xB7, "x86_64": 0x3E}

_INCLUDED = re.compile(r"^(?:-r|-c|--requirement|--constraint)[ =]*(\S+)", re.MULTILINE)
_LOCAL = re.compile(r"^(?:-e\b|--editable\b|\.{0,2}/|file:|[a-z]+\+)", re.MULTILINE)
_UNMATCHED = re.compile(r"No matching distribution found for ([^\s;(]+)")
_CONFLICT = re.compile(r"Cannot install (.+?) because these package versions have conflicting dependencies")


class AssetError(Exception):
    """An asset cannot be made; the text says which file is in the way or which command makes what is missing."""


@dataclass(frozen=True, kw_only=True)
class Target:
    """The machine that imports the packages: a function's, by its architecture, or the one that we are on."""

    architecture: str = ARM_64
    is_here: bool = False

    @property
    def machine(self) -> str:
        return "aarch64" if self.architecture == ARM_64 else "x86_64"

    @property
    def description(self) -> str:
        if self.is_here:
            return f"CPython {sys.version_info.major}.{sys.version_info.minor} on this machine"
        return f"CPython {PYTHON} on {self.architecture} Linux"

    @property
    def options(self) -> list[str]:
        """What makes pip choose wheels for it."""
        if self.is_here:
            return []
        minors = range(GLIBC_MINOR, OLDEST_GLIBC_MINOR - 1, -1)
        platforms = [f"manylinux_2_{minor}_{self.machine}" for minor in minors]
        options = ["--python-version", PYTHON, "--implementation", "cp"]
        for platform in (*platforms, f"manylinux2014_{self.machine}", f"linux_{self.machine}"):
            options += ["--platform", platform]
        return options


def bundle(requirements: Sequence[Path], target: Target, cache: Path) -> Path:
    """The directory `python/` with these requirements in it, below a directory of the cache that is named by their
    content and the target; made only when it is not there.

    What a requirement leaves open is decided once, by pip: pin everything for the same bytes everywhere. Raises
    AssetError when a package has no wheel for the target, when one brings native code for another machine, or names
    that are ours, and for requirements that are no packages of an index.
    """
    key = _content_key(requirements, target)
    bundled = cache / key
    if not bundled.is_dir():
        cache.mkdir(parents=True, exist_ok=True)
        with TemporaryDirectory(prefix=".bundling-", dir=cache) as directory:
            fresh = Path(directory) / key
            _install(requirements, target, fresh / "python")
            prune(fresh / "python")
            _check(fresh / "python", requirements, target)
            fresh.rename(bundled)
    return bundled


def prune(installed: Path) -> None:
    """Remove what differs from machine to machine, and is not imported."""
    shutil.rmtree(installed / "bin", ignore_errors=True)
    for notes in MACHINE_FILES:
        for path in installed.glob(f"*.dist-info/{notes}"):
            path.unlink()
    for compiled in list(installed.rglob("__pycache__")):
        shutil.rmtree(compiled)


def unzipped_bytes(path: Path) -> int:
    return sum(each.stat().st_size for each in ([path] if path.is_file() else path.rglob("*")) if each.is_file())


def require_to_fit(name: str, parts: Sequence[Path]) -> None:
    """Raises AssetError when the parts of a function, its layers among them, are more than Lambda unpacks."""
    total = sum(map(unzipped_bytes, parts))
    if total > UNZIPPED_LIMIT:
        largest = sorted(((unzipped_bytes(each), each.name) for each in parts[0].glob("*/*")), reverse=True)[:3]
        shares = ", ".join(f"{each} {size / 1e6:.0f} MB" for size, each in largest)
        raise AssetError(
            f"{name}: its code and layers are {total / 1e6:.0f} MB unzipped, and Lambda takes "
            f"{UNZIPPED_LIMIT / 1e6:.0f} MB; the largest packages: {shares}. Leave out what its handlers do not "
            "import, or give the heavy handlers an executor of their own"
        )


def _content_key(requirements: Sequence[Path], target: Target) -> str:
    digest = hashlib.sha256(repr((target, target.description, target.options)).encode())
    for path in requirements:
        digest.update(_texts(path))
    return digest.hexdigest()[:20]


def _texts(path: Path) -> bytes:
    """The file, and those it includes. Raises AssetError for lines that name code instead of a release: what they stand
    for may change while the line stays."""
    try:
        text = path.read_text()
    except OSError as error:
        raise AssetError(f"{path}: {error.strerror}") from error
    if local := _LOCAL.search(text):
        line = text[local.start() :].partition("\n")[0]
        raise AssetError(
            f"{path}: {line!r} is not a release of a package: put your own modules among the handlers, or build a "
            "wheel and name its version (PIP_FIND_LINKS says where wheels lie)"
        )
    return text.encode() + b"".join(_texts(path.parent / included) for included in _INCLUDED.findall(text))


def _install(requirements: Sequence[Path], target: Target, into: Path) -> None:
    command = [sys.executable, "-m", "pip", *PIP, *target.options, "--target", str(into)]
    for path in requirements:
        command += ["--requirement", str(path)]
    finished = subprocess.run(command, check=False, capture_output=True, text=True)
    if finished.returncode:
        raise AssetError(_refusal(finished.stderr, requirements, target))
    into.mkdir(exist_ok=True)  # a file of comments asks for nothing


def _refusal(said: str, requirements: Sequence[Path], target: Target) -> str:
    where = ", ".join(map(str, requirements))
    if "No module named pip" in said:
        return f"{where}: bundling needs pip in {sys.executable}: install it there (`uv pip install pip`)"
    if unmatched := _UNMATCHED.search(said):
        return (
            f"{where}: {unmatched[1]} has no wheel for {target.description}. Take a version that has one, or "
            "another architecture; or build a wheel on such a machine and say where it lies with PIP_FIND_LINKS. "
            "Without network pip finds nothing at all"
        )
    if conflict := _CONFLICT.search(said):
        return f"{where}: {conflict[1]} ask for versions of something that exclude each other"
    return f"{where}: pip could not bundle it for {target.description}:\n{said.strip()[-2000:]}"


def _check(installed: Path, requirements: Sequence[Path], target: Target) -> None:
    for name in RESERVED:
        if (installed / name).exists():
            where = ", ".join(map(str, requirements))
            raise AssetError(f"{where}: it brings {name!r}, which every function has already: leave it out")
    if target.is_here:
        return
    for path in sorted(installed.rglob("*.so*")):
        if not _fits(path, target):
            raise AssetError(f"{path.relative_to(installed)}: native code that does not run on {target.description}")


def _fits(library: Path, target: Target) -> bool:
    """By the machine its ELF header names (bytes 18 and 19), and the interpreter its own name does."""
    with library.open("rb") as file:
        header = file.read(20)
    tag = re.search(r"\.cpython-(\d+)", library.name)
    return (
        header[:4] == b"\x7fELF"
        and int.from_bytes(header[18:20], "little") == ELF_MACHINES[target.machine]
        and (tag is None or tag[1] == PYTHON.replace(".", ""))
    )
