"""Names that can be completed without asking anybody: what the registries built in this checkout declare."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import click

REGISTRIES = "build/registry/*/python/thunderagent_registry/registry.json"


def complete_type(ctx: click.Context, param: click.Parameter, incomplete: str) -> list[str]:
    return _declared("types", incomplete)


def complete_queue(ctx: click.Context, param: click.Parameter, incomplete: str) -> list[str]:
    return _declared("queues", incomplete)


def _declared(kind: str, incomplete: str) -> list[str]:
    root = Path(__file__).resolve().parents[2]
    found: set[str] = set()
    for path in root.glob(REGISTRIES):
        try:
            found |= json.loads(path.read_text())[kind].keys()
        except (OSError, ValueError, KeyError, AttributeError):
            continue  # half built, or of another format: completion has nothing to say about it
    return sorted(name for name in found if name.startswith(incomplete))


def queue_option(help: str = "Only tasks of this queue.") -> Callable[[Any], Any]:
    return click.option("--queue", shell_complete=complete_queue, help=help)


def type_option(help: str = "Only tasks of this type.") -> Callable[[Any], Any]:
    return click.option("--type", "task_type", shell_complete=complete_type, help=help)
