"""Mails as HTML. Names come from strangers, so they are escaped: by a package of its own, see requirements.txt."""

from __future__ import annotations

from typing import Any

from markupsafe import escape

from thunderagent import task


@task("mail.render", timeout=30)
def render(payload: dict[str, Any], ctx: Any) -> dict[str, Any]:
    return {"to": payload["to"], "html": f"<p>Dear {escape(payload['name'])}</p>"}


@task("newsletter.render", timeout=30, queue="newsletter")
def newsletter(payload: dict[str, Any], ctx: Any) -> dict[str, Any]:
    return {**render(payload, ctx), "list": payload["list"]}
