"""The handler of `report.generate`."""

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from thunderagent import Backoff, Fail, task

from .periods import Period
from .publication import Report
from .weather import stations

if TYPE_CHECKING:
    from thunderagent import Context


@dataclass(frozen=True)
class Request:
    """What is asked for: `{"station": "seattle", "period": "2012-03"}`. Another payload fails at once, unretried."""

    station: str
    period: str


@task("report.generate", timeout=60, max_retries=5, backoff=Backoff(base=1, cap=60))
def generate(request: Request, ctx: "Context") -> dict[str, Any]:
    """Make one weather report: a summary (JSON) and a chart (SVG) in the bucket. Returns their keys.

    A report that is already there is a success: the task may run twice, the report is made once.
    """
    report = _report(request)
    if not report.is_published():
        summary = report.summary()
        ctx.step("chart", lambda: report.publish_chart(summary))  # remembered: a retry does not draw it again
        ctx.progress(0.5, "chart published")
        report.publish_summary(summary)
    return {"summary": report.summary_key, "chart": report.chart_key, "days": report.period.days}


def _report(request: Request) -> Report:
    """The report asked for. Raises Fail if there can be none: no retry would mend that."""
    station = stations().get(request.station)
    if station is None:
        raise Fail(f"station {request.station[:80]!r} is not known: {', '.join(sorted(stations()))}")
    try:
        report = Report(station, Period.parse(request.period[:80]))
        station.during(report.period)
    except (ValueError, LookupError) as error:
        raise Fail(str(error)) from error
    return report
