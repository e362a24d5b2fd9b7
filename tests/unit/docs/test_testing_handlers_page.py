"""docs/testing-handlers.md does what it says."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any

import pytest

PAGE = (Path(__file__).parents[3] / "docs" / "testing-handlers.md").read_text()
PYTHON = re.findall(r"```python\n(.*?)```", PAGE, re.DOTALL)
TEXT = re.findall(r"```text\n(.*?)```", PAGE, re.DOTALL)


def run_page() -> dict[str, Any]:
    names: dict[str, Any] = {"__name__": "page"}
    for block in PYTHON:
        exec(compile(block, "docs/testing-handlers.md", "exec"), names)
    return names


def test_its_examples_run() -> None:
    assert "report" in run_page()


def test_its_complaint_is_the_real_one() -> None:
    names = run_page()
    with pytest.raises(AssertionError) as caught:
        names["report"].check(may_repeat={"asked"})
    assert f"{caught.value}\n" == TEXT[0]
