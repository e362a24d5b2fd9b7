"""Pages from templates. Everything printed is escaped, and made inert before; nothing from a task is ever markup."""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping
from datetime import datetime
from pathlib import Path
from typing import Any

from jinja2 import Environment, FileSystemLoader, StrictUndefined
from markupsafe import Markup, escape
from starlette.responses import HTMLResponse, Response

from thunder.console import shown
from thunder.console.site import Place

HERE = Path(__file__).parent
HTMX_CONFIG = json.dumps(
    {
        "includeIndicatorStyles": False,  # would be an inline style
        "allowEval": False,
        "allowScriptTags": False,
        "selfRequestsOnly": True,
        "historyEnabled": False,
        "historyCacheSize": 0,
        "timeout": 40_000,
        "responseHandling": [{"code": "204", "swap": False}, {"code": "...", "swap": True}],
    }
)
NAVIGATION = (
    ("/", "Overview"),
    ("/tasks", "Tasks"),
    ("/dead-letters", "Dead letters"),
    ("/queues", "Queues"),
    ("/schedules", "Schedules"),
    ("/dashboards", "Dashboards"),
    ("/alarms", "Alarms"),
)


class Renderer:
    """The templates, with what every page shows: place, mode, the key of its forms."""

    def __init__(self, place: Place, *, csrf: str, read_only: bool, now: Callable[[], float]) -> None:
        self._now = now
        self._environment = Environment(
            loader=FileSystemLoader(HERE / "templates"),
            autoescape=True,
            undefined=StrictUndefined,
            finalize=shown.safe_text,
            trim_blocks=True,
            lstrip_blocks=True,
        )
        self._environment.globals.update(
            place=place,
            csrf=csrf,
            read_only=read_only,
            navigation=NAVIGATION,
            htmx_config=HTMX_CONFIG,
            htmx_headers=json.dumps({"X-CSRF-Token": csrf}),
            statuses=shown.STATUSES,
        )
        self._environment.filters.update(
            ago=lambda at: shown.ago(at, self._now()),
            time=self._time,
            clock=lambda at: f"{datetime.fromtimestamp(at):%H:%M:%S}",
            duration=shown.duration,
            number=shown.number,
            money=shown.money,
            size=shown.size,
            pretty=shown.pretty,
            cut=shown.cut,
        )

    def page(self, template: str, *, status: int = 200, **values: Any) -> Response:
        return HTMLResponse(self._environment.get_template(template).render(**values), status)

    def _time(self, at: Any) -> Markup | str:
        """How long ago or ahead, with the whole time at hand."""
        if isinstance(at, bool) or not isinstance(at, int | float):
            return "–"
        try:
            moment = datetime.fromtimestamp(at).astimezone()
        except (ValueError, OverflowError, OSError):
            return str(at)
        whole = moment.isoformat(sep=" ", timespec="milliseconds")
        template = Markup('<time datetime="{}" title="{}">{}</time>')
        return template.format(escape(moment.isoformat()), escape(whole), escape(shown.ago(at, self._now())))


def query_of(values: Mapping[str, Any]) -> str:
    """`?a=b&c=d` of what is set; empty when nothing is."""
    from urllib.parse import urlencode

    given = {name: value for name, value in values.items() if value not in (None, "", [])}
    return f"?{urlencode(given, doseq=True)}" if given else ""
