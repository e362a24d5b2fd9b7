"""Is it alive, is it keeping up, what fails, what does it cost."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Final

from starlette.responses import Response

from thunder.cli.figures import LATE_SECONDS, OLD_SECONDS, as_of, value_of
from thunder.console import shown
from thunder.console.alarms import Alarm, alarms_of
from thunder.console.charts import RANGES, Chart, range_of
from thunder.console.measures import Metric, Series, period_for
from thunder.console.routing import Asked
from thunder.console.site import Console
from thunderagent.metrics import NAMESPACE

QUEUES_DRAWN: Final = 10
WRITE_PRICE, READ_PRICE = 0.625e-6, 0.125e-6  # USD a unit, on demand in us-east-1


@dataclass(frozen=True)
class Finding:
    """One thing worth knowing at once. `kind` is good, note or bad."""

    kind: str
    text: str
    link: str | None = None


@dataclass(frozen=True)
class Cost:
    """What the table's units of a stretch of time come to, a task."""

    tasks: float
    write_units: float
    read_units: float

    @property
    def dollars(self) -> float:
        return self.write_units * WRITE_PRICE + self.read_units * READ_PRICE

    def a_task(self, amount: float) -> float | None:
        return amount / self.tasks if self.tasks else None


def page(asked: Asked) -> Response:
    hours = range_of(asked.query.text("hours"))
    return asked.page("overview.html", title="Overview", hours=hours, ranges=RANGES, **_figures(asked))


def figures(asked: Asked) -> Response:
    return asked.page("overview_figures.html", title="Overview", **_figures(asked))


def _figures(asked: Asked) -> dict[str, Any]:
    stats = asked.console.client.stats()
    alarms, problem = alarms_of(asked.console)
    findings = list(_findings(stats["queues"], alarms, problem, asked.console.now()))
    return {
        "totals": stats["totals"],
        "queues": stats["queues"],
        "findings": findings or [Finding("good", "All is well: nothing waits too long, and no alarm is on.")],
        "counted_at": as_of(stats["queues"]),
    }


def _findings(
    queues: Sequence[Mapping[str, Any]], alarms: Sequence[Alarm], problem: str | None, now: float
) -> list[Finding]:
    found = []
    if on := [alarm for alarm in alarms if alarm.state == "ALARM"]:
        names = ", ".join(alarm.name for alarm in on[:4]) + (" and others" if len(on) > 4 else "")
        found.append(Finding("bad", f"{_many(len(on), 'alarm is', 'alarms are')} on: {names}", "/alarms"))
    if problem is not None:
        found.append(Finding("note", f"The alarms cannot be read: {problem}", "/alarms"))
    counted = as_of(queues)
    if counted is None or now - counted > OLD_SECONDS:
        since = "yet" if counted is None else f"for {shown.duration(now - counted)}"
        found.append(Finding("bad", f"The reaper has not counted {since}: the figures below are old.", "/alarms"))
    for queue in queues:
        found += _of_queue(queue)
    return found


def _of_queue(queue: Mapping[str, Any]) -> list[Finding]:
    name, link = queue["queue"], f"/queue/{queue['queue']}"
    if queue["paused"]:
        return [Finding("note", f"Queue {name} is paused.", link)]
    age = value_of(queue, "oldestDueAgeSeconds")
    late = age is not None and age > LATE_SECONDS
    found = [Finding("note", f"Queue {name} is behind: its oldest due task waits for {shown.duration(age)}.", link)]
    found = found if late else []
    if failed := value_of(queue, "failed"):
        more = "at least " if queue["failed"].get("atLeast") else ""
        words = _many(failed, "dead letter", "dead letters")
        found.append(Finding("note", f"Queue {name} has {more}{words}.", f"/dead-letters?queue={name}"))
    return found


def _many(count: int, one: str, many: str) -> str:
    return f"{shown.number(count)} {one if count == 1 else many}"


# ---- charts ---------------------------------------------------------------------------------------------------------


def charts(asked: Asked) -> Response:
    console = asked.console
    hours = range_of(asked.query.text("hours"))
    end = console.now()
    start = end - hours * 3600
    names = [queue["queue"] for queue in console.client.queues()[:QUEUES_DRAWN]]
    drawn, cost = _drawn(console, names, start=start, end=end)
    return asked.page("overview_charts.html", title="Overview", charts=drawn, cost=cost, hours=hours)


def _drawn(console: Console, queues: Sequence[str], *, start: float, end: float) -> tuple[list[Chart], Cost]:
    period = period_for(end - start)

    def one(name: str, label: str, statistic: str = "Sum", **dimensions: str) -> Metric:
        by = {"Service": console.place.service, **dimensions}
        return Metric(label, NAMESPACE, name, tuple(by.items()), statistic, period)

    groups: list[tuple[str, str, list[Metric]]] = [
        (
            f"Throughput, tasks per {_words(period)}",
            "",
            [one("Submitted", "submitted"), one("Succeeded", "succeeded"), one("Failed", "failed")],
        ),
        ("Latency, submit to start", "s", [one("QueueLatency", each, each) for each in ("p50", "p95", "p99")]),
        ("Backlog", "", [one("Backlog", name, "Maximum", Queue=name) for name in queues]),
        (f"Failures per {_words(period)}", "", [one("Failed", "dead letters"), one("Retried", "retries")]),
        (
            f"DynamoDB units per {_words(period)}",
            "",
            [one("WriteUnits", "write units"), one("ReadUnits", "read units")],
        ),
    ]
    series = console.measures.read([metric for _, _, metrics in groups for metric in metrics], start=start, end=end)
    drawn, rest = [], series
    for title, unit, metrics in groups:
        mine, rest = rest[: len(metrics)], rest[len(metrics) :]
        drawn.append(Chart(title, mine, unit, start, end))
    return drawn, _cost(drawn[0].series, drawn[4].series)


def _cost(flow: Sequence[Series], units: Sequence[Series]) -> Cost:
    return Cost(flow[1].total + flow[2].total, units[0].total, units[1].total)


def _words(period: int) -> str:
    return {60: "minute", 300: "5 minutes", 3600: "hour"}.get(period, shown.duration(period))
