"""Invoices: what a placed order asks for."""

from __future__ import annotations

from typing import Any

from thunderagent import task


@task("invoice.write", timeout=60)
def write(payload: dict[str, Any], ctx: Any) -> dict[str, Any]:
    """The lines of an order, summed up."""
    lines = payload["lines"]
    return {"order": payload["order"], "total": sum(line["price"] * line["count"] for line in lines)}
