"""The deployed CloudWatch dashboards, drawn here: the same widgets from GetDashboard, the same data."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace

from starlette.responses import Response

from thunder.console import shown
from thunder.console.alarms import STATES, Alarm, alarms_of
from thunder.console.charts import RANGES, Chart, range_of
from thunder.console.dashboard_body import Body, Widget, body_of
from thunder.console.forms import FieldError
from thunder.console.measures import Series, period_for
from thunder.console.routing import Asked
from thunder.console.site import Console

DASHBOARD_NAME = re.compile(r"[A-Za-z0-9_-]{1,255}")
MILLISECONDS = re.compile(r"\bms\b|millisecond", re.IGNORECASE)
SECONDS = re.compile(r"submit to start|\bage\b|\bseconds\b|duration|latency", re.IGNORECASE)


@dataclass(frozen=True)
class Drawn:
    """A widget with its data."""

    widget: Widget
    chart: Chart | None = None
    alarms: Sequence[Alarm] = ()


def page(asked: Asked) -> Response:
    names = _names(asked.console)
    name = _chosen(asked, names)
    hours = range_of(asked.query.text("hours"))
    return asked.page("dashboards.html", title="Dashboards", names=names, name=name, hours=hours, ranges=RANGES)


def widgets(asked: Asked) -> Response:
    console = asked.console
    name = _chosen(asked, [])
    hours = range_of(asked.query.text("hours"))
    if name is None:
        raise FieldError("name", "Which dashboard?")
    end = console.now()
    start = end - hours * 3600
    text = console.cloudwatch.get_dashboard(DashboardName=name)["DashboardBody"]
    try:
        body = body_of(text, period=period_for(hours * 3600))
    except ValueError as error:
        raise FieldError("name", f"{name} cannot be read as a dashboard: {error}") from None
    drawn = _drawn(console, body, start, end)
    return asked.page("dashboards_widgets.html", title="Dashboards", drawn=drawn, states=STATES, name=name, hours=hours)


def _names(console: Console) -> list[str]:
    """The stack's dashboards, the one its output names first."""
    paginator = console.cloudwatch.get_paginator("list_dashboards")
    found = [entry["DashboardName"] for page in paginator.paginate() for entry in page["DashboardEntries"]]
    mine = sorted(name for name in found if name.startswith(f"{console.place.service}-") or name == console.dashboard)
    return sorted(mine or found, key=lambda name: name != console.dashboard)


def _chosen(asked: Asked, names: Sequence[str]) -> str | None:
    name = asked.query.text("name")
    if name and not DASHBOARD_NAME.fullmatch(name):
        raise FieldError("name", "This cannot be the name of a dashboard.")
    return name or asked.console.dashboard or next(iter(names), None)


def _drawn(console: Console, body: Body, start: float, end: float) -> list[Drawn]:
    found = console.measures.read(body.metrics, start=start, end=end)
    alarms: Mapping[str, Alarm] = {}
    if any(widget.kind == "alarm" for widget in body.widgets):
        alarms = {alarm.full_name: alarm for alarm in alarms_of(console)[0]}
    drawn = []
    for widget in body.widgets:
        count = sum(metric.is_shown for metric in widget.metrics)
        mine, found = found[:count], found[count:]
        mine = [replace(each, label=_short(each.label, console.place.service)) for each in mine]
        drawn.append(_with_data(widget, mine, alarms, start, end))
    return drawn


def _with_data(
    widget: Widget, series: Sequence[Series], alarms: Mapping[str, Alarm], start: float, end: float
) -> Drawn:
    if widget.kind == "alarm":
        return Drawn(widget, alarms=[alarms[name] for name in widget.alarms if name in alarms])
    if widget.kind != "metric":
        return Drawn(widget)
    whole = (int(start), int(end))
    lines = [Series(line.label, tuple((at, line.value) for at in whole)) for line in widget.lines]
    title = widget.title
    return Drawn(widget, Chart(title, [*series, *lines], _unit(title), start, end, is_stacked=widget.is_stacked))


def _short(label: str, service: str) -> str:
    return ", ".join(shown.short_name(part, service) for part in label.split(", "))


def _unit(title: str) -> str:
    """A dashboard does not say its units; its titles do."""
    if MILLISECONDS.search(title):
        return "ms"
    return "s" if SECONDS.search(title) else ""
