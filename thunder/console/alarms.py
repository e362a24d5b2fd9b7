"""The alarms of the stack: which are on, since when, and what to do about each."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Final

from starlette.responses import Response

from thunder.cli.explain import explained
from thunder.console import shown
from thunder.console.routing import Asked
from thunder.console.site import Console

ORDER: Final = ("ALARM", "INSUFFICIENT_DATA", "OK")
STATES: Final[Mapping[str, tuple[str, str, str]]] = {
    "ALARM": ("failed", "▲", "in alarm"),
    "INSUFFICIENT_DATA": ("pending", "?", "no data yet"),
    "OK": ("success", "✓", "ok"),
}
COMPARISONS: Final = {
    "GreaterThanOrEqualToThreshold": "≥",
    "GreaterThanThreshold": ">",
    "LessThanThreshold": "<",
    "LessThanOrEqualToThreshold": "≤",
}


@dataclass(frozen=True)
class Alarm:
    """One alarm, under the name its construct has."""

    name: str
    full_name: str
    state: str
    since: float | None
    reason: str
    advice: str
    rule: str
    has_actions: bool


def alarms_of(console: Console) -> tuple[list[Alarm], str | None]:
    """The stack's alarms, those that are on first; or none, and why they cannot be read."""
    try:
        return _read(console), None
    except Exception as error:
        known = explained(error)
        if known is None:
            raise
        return [], known.message.split("\n")[0]


def _read(console: Console) -> list[Alarm]:
    service = console.place.service
    paginator = console.cloudwatch.get_paginator("describe_alarms")
    prefix = {"AlarmNamePrefix": f"{service}-"} if service else {}
    pages = paginator.paginate(AlarmTypes=["MetricAlarm", "CompositeAlarm"], **prefix)
    found = [
        _alarm(each, service)
        for page in pages
        for each in [*page.get("MetricAlarms", ()), *page.get("CompositeAlarms", ())]
    ]
    return sorted(found, key=lambda alarm: (ORDER.index(alarm.state) if alarm.state in ORDER else 1, alarm.name))


def _alarm(found: Mapping[str, Any], service: str) -> Alarm:
    changed = found.get("StateUpdatedTimestamp")
    return Alarm(
        name=shown.short_name(found["AlarmName"], service),
        full_name=found["AlarmName"],
        state=found["StateValue"],
        since=changed.timestamp() if changed is not None else None,
        reason=found.get("StateReason", ""),
        advice=found.get("AlarmDescription", ""),
        rule=_rule(found),
        has_actions=bool(found.get("ActionsEnabled") and found.get("AlarmActions")),
    )


def _rule(found: Mapping[str, Any]) -> str:
    """When it goes on, in words."""
    if "AlarmRule" in found:
        return str(found["AlarmRule"])
    metric = found.get("MetricName")
    if metric is None:
        return "metric math"
    statistic = found.get("Statistic") or found.get("ExtendedStatistic", "")
    sign = COMPARISONS.get(found.get("ComparisonOperator", ""), str(found.get("ComparisonOperator", "")))
    period = shown.duration(found["Period"] * found.get("EvaluationPeriods", 1))
    words = f"{metric} ({statistic}) {sign} {shown.number(found['Threshold'])} for {period}"
    return words + (", missing data count" if found.get("TreatMissingData") == "breaching" else "")


def page(asked: Asked) -> Response:
    return asked.page("alarms.html", title="Alarms", **_rows(asked))


def rows(asked: Asked) -> Response:
    return asked.page("alarms_rows.html", title="Alarms", **_rows(asked))


def _rows(asked: Asked) -> dict[str, Any]:
    found: Sequence[Alarm] = _read(asked.console)
    return {"alarms": found, "on": [alarm for alarm in found if alarm.state == "ALARM"], "states": STATES}
