"""Pages from templates. Everything printed is escaped, and made inert before; nothing from a task is ever markup."""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping
from datetime import datetime
from functools import cache
from pathlib import Path
from typing import Any
from urllib.parse import urlencode

from jinja2 import Environment, FileSystemLoader, StrictUndefined, pass_context
from jinja2.runtime import Context
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
        self._everywhere = {
            "place": place,
            "csrf": csrf,
            "read_only": read_only,
            "htmx_headers": json.dumps({"X-CSRF-Token": csrf}),
        }

    def page(self, template: str, *, status: int = 200, **values: Any) -> Response:
        made = _environment().get_template(template)
        return HTMLResponse(made.render(**self._everywhere, present=self._now(), **values), status)


@cache
def _environment() -> Environment:
    """One for all consoles of a process: compiling the templates is most of a first page's time."""
    made = Environment(
        loader=FileSystemLoader(HERE / "templates"),
        autoescape=True,
        undefined=StrictUndefined,
        finalize=shown.safe_text,
        trim_blocks=True,
        lstrip_blocks=True,
    )
    made.globals.update(navigation=NAVIGATION, htmx_config=HTMX_CONFIG, statuses=shown.STATUSES)
    made.filters.update(
        time=_time,
        clock=lambda at: f"{datetime.fromtimestamp(at):%H:%M:%S}",
        duration=shown.duration,
        number=shown.number,
        money=shown.money,
        size=shown.size,
        cut=shown.cut,
    )
    return made


@pass_context
def _time(context: Context, at: Any) -> Markup | str:
    """How long ago or ahead, with the whole time at hand."""
    if isinstance(at, bool) or not isinstance(at, int | float):
        return "–"
    try:
        moment = datetime.fromtimestamp(at).astimezone()
    except (ValueError, OverflowError, OSError):
        return str(at)
    whole = moment.isoformat(sep=" ", timespec="milliseconds")
    template = Markup('<time datetime="{}" title="{}">{}</time>')
    return template.format(escape(moment.isoformat()), escape(whole), escape(shown.ago(at, context["present"])))


def query_of(values: Mapping[str, Any]) -> str:
    """`?a=b&c=d` of what is set; empty when nothing is."""
    given = {name: value for name, value in values.items() if value not in (None, "", [])}
    return f"?{urlencode(given, doseq=True)}" if given else ""
