"""`make audit-dependencies`: known weaknesses of what is pinned, by pip-audit and `npm audit`.

Exits with 1 when there is one, with 2 when a service did not answer: then nothing was shown.
"""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

ROOT = Path(__file__).resolve().parents[1]
FILES = ("layers/dependencies/requirements.txt", "requirements.txt", "requirements-local.txt", "requirements-dev.txt")
FOUND, UNREACHABLE = 1, 2
NO_ANSWER = (
    "ConnectionError",
    "Max retries",
    "ENOTFOUND",
    "ECONNREFUSED",
    "ETIMEDOUT",
    "EAI_AGAIN",
    "audit endpoint",
    "could not be audited",
)


def main() -> int:
    pip_audit = os.environ.get("PIP_AUDIT", "pip-audit")
    codes = [
        verdict(file, [pip_audit, "--requirement", str(file), "--no-deps", "--disable-pip", "--progress-spinner=off"])
        for file in FILES
    ]
    codes.append(verdict("package-lock.json", ["npm", "audit", "--package-lock-only"]))
    return FOUND if FOUND in codes else max(codes)


def verdict(what: str, command: list[str]) -> int:
    """Runs one audit and says what came of it."""
    print(f"==> {what}", flush=True)
    done = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, check=False)
    said = done.stdout + done.stderr
    print(said, flush=True)
    if done.returncode == 0:
        return 0
    if any(sign in said for sign in NO_ANSWER):
        print(f"{what}: NOT AUDITED, the service did not answer", file=sys.stderr)
        return UNREACHABLE
    return FOUND


if __name__ == "__main__":
    sys.exit(main())
