"""How a video is cut into parts that are encoded one by one."""

from __future__ import annotations

from typing import Any

from thunderagent import task


@task("video.plan", timeout=60)
def plan(payload: dict[str, Any], ctx: Any) -> dict[str, Any]:
    """The first and last second of each part, none of them longer than `part` seconds."""
    length, part = payload["seconds"], payload["part"]
    return {"parts": [[start, min(start + part, length)] for start in range(0, length, part)]}
