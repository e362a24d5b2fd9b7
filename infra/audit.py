"""`make audit-dependencies`: known weaknesses of what is pinned, by pip-audit and `npm audit`.

Exits with 0 only when each pinned package was answered for and none is weak, with 1 when one is, and with 2 when a
service did not answer for all: then nothing was shown. pip-audit itself passes over what the service does not know, and
ends with 0.
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from infra.bill_of_materials import PYTHON_FILES, normalised, pinned

ROOT = Path(__file__).resolve().parents[1]
FOUND, NOT_SHOWN = 1, 2
NAMES_SHOWN = 5


@dataclass(frozen=True)
class Audited:
    """What the services said: packages they answered for, and a line for each weakness."""

    answered: frozenset[str] = frozenset()
    weak: tuple[str, ...] = ()
    problem: str = ""
    """Why there was no answer at all."""


def main() -> int:
    pip_audit = os.environ.get("PIP_AUDIT", "pip-audit")
    options = ["--no-deps", "--disable-pip", "--progress-spinner=off", "--format=json"]
    codes = [
        told(file, pinned(ROOT / file), asked([pip_audit, "--requirement", file, *options], said_by_pip_audit))
        for file in PYTHON_FILES
    ]
    locked = node_packages(ROOT)
    codes.append(told("package-lock.json", locked, asked(["npm", "audit", "--package-lock-only", "--json"], _npm)))
    return FOUND if FOUND in codes else max(codes)


def told(what: str, wanted: set[str], found: Audited) -> int:
    """Prints what came of one file, and says the exit code that follows."""
    unseen = sorted(wanted - found.answered)
    print(f"==> {what}: {len(wanted) - len(unseen)} of {len(wanted)} packages audited", flush=True)
    for line in found.weak:
        print(f"    {line}", flush=True)
    if unseen:
        named = ", ".join(unseen[:NAMES_SHOWN]) + (", …" if len(unseen) > NAMES_SHOWN else "")
        reason = found.problem or "the service does not know them"
        print(f"{what}: NOT AUDITED: {named}: {reason}", file=sys.stderr, flush=True)
    return FOUND if found.weak else NOT_SHOWN if unseen else 0


def asked(command: list[str], read: Callable[[Any], Audited]) -> Audited:
    """Runs one audit. What is no report is told as the reason for there being none."""
    try:
        done = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, check=False)
        return read(json.loads(done.stdout))
    except OSError as error:
        return Audited(problem=str(error))
    except (ValueError, KeyError, TypeError, AttributeError):
        lines = done.stderr.strip().splitlines() or [f"exit code {done.returncode}"]
        return Audited(problem=lines[-1][:200])


def said_by_pip_audit(report: Any) -> Audited:
    """Of `pip-audit --format=json`. A package that was passed over has a `skip_reason` and no `vulns`."""
    judged = [each for each in report["dependencies"] if "vulns" in each]
    weak = [
        f"{each['name']} {each['version']}: {weakness['id']}, mended in {', '.join(weakness['fix_versions']) or 'none'}"
        for each in judged
        for weakness in each["vulns"]
    ]
    return Audited(frozenset(normalised(each["name"]) for each in judged), tuple(weak))


def said_by_npm(report: Any, locked: set[str]) -> Audited:
    """Of `npm audit --json`: a report is about the whole lock file, and instead of one there may be a `message`."""
    if "vulnerabilities" not in report:
        return Audited(problem=str(report.get("message") or report.get("error"))[:200])
    weak = [f"{name} {each['range']}: {each['severity']}" for name, each in report["vulnerabilities"].items()]
    return Audited(frozenset(locked), tuple(weak))


def _npm(report: Any) -> Audited:
    return said_by_npm(report, node_packages(ROOT))


def node_packages(root: Path) -> set[str]:
    lock = json.loads((root / "package-lock.json").read_bytes())
    return {path.rpartition("node_modules/")[2] for path in lock["packages"] if path}


if __name__ == "__main__":
    sys.exit(main())
