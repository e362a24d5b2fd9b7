"""What a cold start of the API pays for: the SDK is imported when a client is first built, heavy frameworks never."""

from __future__ import annotations

import subprocess
import sys

import pytest

HEAVY = ("boto3", "botocore", "pydantic", "aws_lambda_powertools", "fastjsonschema", "jsonschema", "difflib", "asyncio")


@pytest.fixture(scope="module")
def imported() -> set[str]:
    script = "import sys, functions.api.handler; print(*sys.modules, sep='\\n')"
    done = subprocess.run([sys.executable, "-c", script], capture_output=True, check=True, text=True)
    return set(done.stdout.split())


@pytest.mark.parametrize("module", HEAVY)
def test_the_api_imports_without(imported: set[str], module: str) -> None:
    assert module not in imported


def test_the_probe_sees_what_is_imported(imported: set[str]) -> None:
    assert {"functions.api.handler", "thunderagent.store", "json"} <= imported
