"""Values from files and standard input: read as far as they can be meant, and no further."""

from __future__ import annotations

import json
from pathlib import Path

from tests.support.cli import Terminal


def test_what_has_no_end_is_not_read_to_it(thunder: Terminal) -> None:
    refused = thunder("task", "submit", "demo.echo", "@/dev/zero")
    assert (refused.exit_code, "payload: more than 32 MiB" in refused.stderr) == (2, True)


def test_nor_is_standard_input(thunder: Terminal) -> None:
    refused = thunder("task", "submit", "demo.echo", "-", typed=b" " * (32 * 2**20 + 1))
    assert (refused.exit_code, "payload: more than 32 MiB" in refused.stderr) == (2, True)


def test_space_in_a_payload_does_not_count(thunder: Terminal, tmp_path: Path) -> None:
    file = tmp_path / "payload.json"
    file.write_text(" " * 3 * 2**20 + "[1]")
    submitted = thunder.ok("task", "submit", "demo.echo", f"@{file}", "--output", "json")
    task = thunder.api.call("GET", f"/tasks/{json.loads(submitted.stdout)['taskId']}").json
    assert task["payload"] == [1]
