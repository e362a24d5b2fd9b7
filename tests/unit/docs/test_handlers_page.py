"""The handlers that the documentation shows run, and end as it says."""

from __future__ import annotations

import re
from collections.abc import Callable
from typing import Any

import pytest

from tests.support.documented import ROOT, blocks
from thunderagent.testing import run_task


def handler(page: str, name: str) -> Callable[..., Any]:
    """The handler of that name, from the one block of the page that declares it."""
    (text,) = (
        block.text for block in blocks(ROOT / page) if re.search(rf"^def {name}\(payload, ctx\)", block.text, re.M)
    )
    names: dict[str, Any] = {"__name__": "page", "load": lambda region: [region]}
    exec(compile(text, page, "exec"), names)
    found: Callable[..., Any] = names[name]
    return found


@pytest.mark.parametrize(
    ("payload", "ended", "result"),
    [
        ({"order": 7}, "succeeded", {"receipt": "receipt of 7"}),
        ({"order": 7, "test": True}, "skipped", None),
        ({"order": 7, "late": True}, "snoozed", None),
        ({}, "failed", None),
    ],
)
def test_the_handlers_page_ends_as_its_table_says(payload: Any, ended: str, result: Any) -> None:
    run = run_task(handler("docs/handlers.md", "confirm"), payload)
    assert (run.ended, run.result) == (ended, result)


def test_the_readme_s_handler_runs() -> None:
    assert run_task(handler("README.md", "generate"), {"region": "eu"}).result == {"rows": 1}


def test_the_migrated_handler_runs() -> None:
    run = run_task(handler("docs/migrating.md", "send"), {"number": 7})
    assert run.ended == "succeeded"
    assert run.result["sent"] == 7
