"""TA-40: what handlers import is bundled for the machine their function runs on, or refused by name."""

from __future__ import annotations

from pathlib import Path

import pytest

import infra.bundles as bundles
from infra.bundles import AssetError, Target, bundle, require_to_fit
from infra.constructs.layers import RUNTIME
from tests.infra.templates import write
from tests.support.wheels import only_from, repack, write_wheel

ARM, X86, HERE = Target(architecture="arm64"), Target(architecture="x86_64"), Target(is_here=True)


def elf(machine: int) -> bytes:
    """The beginning of a shared object for this machine."""
    return b"\x7fELF\x02\x01\x01" + bytes(9) + (3).to_bytes(2, "little") + machine.to_bytes(2, "little")


ON_ARM, ON_X86 = elf(0xB7), elf(0x3E)


@pytest.fixture
def wheels(tmp_path: Path) -> Path:
    """A pure package, and one with a wheel for each CPU."""
    directory = tmp_path / "wheels"
    write_wheel(directory, "plain", {"plain.py": "x = 1\n"})
    for machine, library in (("aarch64", ON_ARM), ("x86_64", ON_X86)):
        files = {"fast/__init__.py": "", f"fast/_fast.cpython-313-{machine}-linux-gnu.so": library}
        write_wheel(directory, "fast", files, tag=f"cp313-cp313-manylinux_2_28_{machine}")
    return directory


@pytest.fixture
def ask(tmp_path: Path, wheels: Path):
    """Bundles requirements with no index but the wheels."""

    def run(text: str, target: Target = ARM) -> Path:
        requirements = tmp_path / "mail" / "requirements.txt"
        write(requirements, text)
        with only_from(wheels):
            return bundle([requirements], target, tmp_path / "cache")

    return run


def files_of(bundled: Path) -> set[str]:
    python = bundled / "python"
    return {str(path.relative_to(python)) for path in python.rglob("*") if path.is_file()}


def test_the_functions_run_on_the_python_that_is_bundled_for() -> None:
    assert RUNTIME.name == f"python{bundles.PYTHON}"


def test_packages_are_for_the_cpu_bundled_once_and_without_notes_of_this_machine(ask, wheels: Path) -> None:
    arm = ask("plain==1.0\nfast==1.0\n")
    assert {name for name in files_of(arm) if "dist-info" not in name} == {
        "plain.py",
        "fast/__init__.py",
        "fast/_fast.cpython-313-aarch64-linux-gnu.so",
    }
    assert {Path(name).name for name in files_of(arm) if "dist-info" in name} == {"METADATA", "WHEEL"}
    assert "fast/_fast.cpython-313-x86_64-linux-gnu.so" in files_of(ask("plain==1.0\nfast==1.0\n", X86))
    for wheel in wheels.iterdir():
        wheel.unlink()
    assert ask("plain==1.0\nfast==1.0\n") == arm


def test_what_this_machine_runs_is_for_this_machine(ask, wheels: Path) -> None:
    repack(wheels, "MarkupSafe")
    assert {name.partition("/")[0] for name in files_of(ask("MarkupSafe\n", HERE))} >= {"markupsafe"}


def test_ta40_a_package_without_a_fitting_wheel_is_refused_by_name(ask, wheels: Path, tmp_path: Path) -> None:
    write_wheel(wheels, "old", {"old.py": ""}, tag="cp312-cp312-manylinux_2_28_aarch64")
    refused = r"requirements\.txt: old==1\.0 has no wheel for CPython 3\.13 on arm64 Linux\. Take a version that"
    with pytest.raises(AssetError, match=refused):
        ask("plain==1.0\nold==1.0\n")
    assert list((tmp_path / "cache").iterdir()) == [], "nothing half made stays"


@pytest.mark.parametrize(
    ("said", "complaint"),
    [
        ("ERROR: No matching distribution found for mac==1.0 (from x)", "mac==1.0 has no wheel for CPython 3.13"),
        (
            "ERROR: Cannot install a==1 and b==2 because these package versions have conflicting dependencies.",
            "a==1 and b==2 ask for versions of something that exclude each other",
        ),
        ("/venv/bin/python: No module named pip", "bundling needs pip in"),
        ("ERROR: something else", "pip could not bundle it for CPython 3.13 on x86_64 Linux:\nERROR: something else"),
    ],
)
def test_what_pip_says_is_told_with_what_to_do(said: str, complaint: str) -> None:
    assert complaint in bundles._refusal(said, [Path("mail/requirements.txt")], X86)


@pytest.mark.parametrize(
    ("text", "complaint"),
    [
        ("plain==1.0\n-e ../mine\n", r"'-e \.\./mine' is not a release of a package"),
        ("git+https://example.com/x\n", r"'git\+https://example.com/x' is not a release of a package"),
        ("./mine\n", r"'\./mine' is not a release of a package"),
        ("-r nowhere.txt\n", r"nowhere\.txt: No such file"),
    ],
)
def test_what_is_no_release_is_refused(ask, text: str, complaint: str) -> None:
    with pytest.raises(AssetError, match=complaint):
        ask(text)


def test_what_is_included_counts(tmp_path: Path) -> None:
    requirements = tmp_path / "requirements.txt"
    write(requirements, "-r more.txt\n")
    write(tmp_path / "more.txt", "plain==1.0\n")
    before = bundles._content_key([requirements], ARM)
    assert bundles._content_key([requirements], ARM) == before
    assert bundles._content_key([requirements], X86) != before
    write(tmp_path / "more.txt", "plain==2.0\n")
    assert bundles._content_key([requirements], ARM) != before


@pytest.mark.parametrize(
    ("name", "content", "complaint"),
    [
        ("liar/_liar.so", ON_X86, r"liar/_liar\.so: native code that does not run on CPython 3\.13 on arm64 Linux"),
        ("stale.cpython-312-aarch64-linux-gnu.so", ON_ARM, r"stale\..*: native code that does not run"),
        ("text.so", b"INPUT(x)", r"text\.so: native code that does not run"),
        ("thunderagent/__init__.py", b"", r"it brings 'thunderagent', which every function has already: leave it out"),
    ],
)
def test_ta40_what_would_not_run_there_is_refused(tmp_path: Path, name: str, content: bytes, complaint: str) -> None:
    path = tmp_path / name
    path.parent.mkdir(exist_ok=True)
    path.write_bytes(content)
    with pytest.raises(AssetError, match=complaint):
        bundles._check(tmp_path, [Path("requirements.txt")], ARM)


def test_more_than_lambda_unpacks_is_refused(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(bundles, "UNZIPPED_LIMIT", 3_000_000)
    write(tmp_path / "packages" / "python" / "huge" / "data", "x" * 2_000_000)
    write(tmp_path / "handlers" / "data", "x" * 900_000)
    parts = [tmp_path / "packages", tmp_path / "handlers"]
    require_to_fit("executors.default", parts)
    write(tmp_path / "handlers" / "more", "x" * 200_000)
    with pytest.raises(AssetError, match=r"executors\.default: .* 3 MB unzipped, .* largest packages: huge 2 MB"):
        require_to_fit("executors.default", parts)
