"""What is installed is what was tested: every version exact, every licence one we may pass on or use."""

from __future__ import annotations

import json
import re
from importlib.metadata import Distribution, distribution, distributions
from pathlib import Path

import pytest

from infra.bill_of_materials import allowed, bill_of_materials, licence_of, pinned

ROOT = Path(__file__).resolve().parents[2]
FILES = [*sorted(ROOT.glob("requirements*.txt")), ROOT / "layers/dependencies/requirements.txt"]


@pytest.mark.parametrize("file", FILES, ids=lambda file: str(file.relative_to(ROOT)))
def test_every_requirement_is_one_version(file: Path) -> None:
    for line in file.read_text().splitlines():
        line = line.partition(" #")[0].strip()
        if line and not line.startswith(("#", "-r ")):
            assert re.fullmatch(r"[A-Za-z0-9._-]+(\[[a-z,]+\])?==[^\s*]+( --hash=sha256:[0-9a-f]{64})*", line), line


def test_what_goes_into_functions_is_pinned_by_its_bytes() -> None:
    lines = (ROOT / "layers/dependencies/requirements.txt").read_text().splitlines()
    assert all("--hash=sha256:" in line for line in lines if line and not line.startswith("#"))


def test_every_node_package_is_pinned_by_its_bytes() -> None:
    lock = json.loads((ROOT / "package-lock.json").read_bytes())
    packages = {name: entry for name, entry in lock["packages"].items() if name}
    assert packages
    for name, entry in packages.items():
        assert entry["integrity"].startswith("sha512-"), name
        assert entry.get("resolved", "https://registry.npmjs.org/").startswith("https://registry.npmjs.org/"), name


def installed() -> list[Distribution]:
    names = set().union(*(pinned(ROOT / f"requirements{kind}.txt") for kind in ("", "-dev", "-docs")))
    here = [distribution(name) for name in names]
    embedded = next((ROOT / ".venv" / "embedded" / "lib").glob("python3*/site-packages"))
    names = pinned(ROOT / "requirements-local.txt")
    return here + [each for each in distributions(path=[str(embedded)]) if each.name.lower().replace("_", "-") in names]


def test_every_licence_is_one_we_may_use() -> None:
    found = installed()
    assert len(found) > 100
    assert {f"{each.name}: {licence_of(each)}" for each in found if not allowed(licence_of(each))} == set()


@pytest.mark.parametrize("licence", ["GPL-3.0-only", "AGPL-3.0", "MIT AND SSPL-1.0", "Proprietary", ""])
def test_a_licence_we_may_not_use_is_noticed(licence: str) -> None:
    assert not allowed(licence)


def test_the_bill_of_materials_names_all_of_it() -> None:
    bill = bill_of_materials(ROOT)
    assert (bill["bomFormat"], bill["specVersion"]) == ("CycloneDX", "1.6")
    purls = [component["purl"] for component in bill["components"]]
    assert len(purls) == len(set(purls))
    assert "pkg:pypi/cronsim@2.8" in purls
    pins = set().union(*(pinned(file) for file in FILES))
    assert pins == {purl.removeprefix("pkg:pypi/").partition("@")[0] for purl in purls if purl.startswith("pkg:pypi/")}
    assert any(purl.startswith("pkg:npm/aws-cdk@") for purl in purls)
    assert bill == bill_of_materials(ROOT), "the same sources make the same bill"
