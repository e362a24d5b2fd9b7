"""A small task."""

from __future__ import annotations

from collections import Counter
from typing import Any

from thunderagent import task


@task("words.count", timeout=30)
def count(payload: dict[str, Any], ctx: Any) -> dict[str, int]:
    return dict(Counter(payload["text"].lower().split()))
