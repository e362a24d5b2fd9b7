"""The handler of `report.generate`."""

from typing import TYPE_CHECKING, Any

from thunderagent import Backoff, Fail, task

from .periods import Period
from .publication import Report
from .weather import stations

if TYPE_CHECKING:
    from thunderagent.context import Context


@task("report.generate", timeout=60, max_retries=5, backoff=Backoff(base=1, cap=60))
def generate(payload: Any, ctx: "Context") -> dict[str, Any]:
    """Make one weather report: `{"station": "seattle", "period": "2012-03"}`.

    Leaves a summary (JSON) and a chart (SVG) in the bucket and returns their keys. A report that is already there is a
    success: the task may run twice, the report is made once. A request nobody could fulfil fails at once, unretried.
    """
    report = _requested(payload)
    if not report.is_published():
        summary = report.summary()
        ctx.step("chart", lambda: report.publish_chart(summary))
        ctx.progress(0.5, "chart published")
        report.publish_summary(summary)
    return {"summary": report.summary_key, "chart": report.chart_key, "days": report.period.days}


def _requested(payload: Any) -> Report:
    match payload:
        case {"station": str(slug), "period": str(label)}:
            return _covered(slug, label)
    raise Fail(f'{_shown(payload)} is not a report: send {{"station": "seattle", "period": "2012-03"}}')


def _covered(slug: str, label: str) -> Report:
    station = stations().get(slug)
    if station is None:
        raise Fail(f"station {slug!r} is not known: {', '.join(sorted(stations()))}")
    try:
        report = Report(station, Period.parse(label))
        station.during(report.period)
    except (ValueError, LookupError) as error:
        raise Fail(str(error)) from error
    return report


def _shown(payload: Any) -> str:
    text = repr(payload)
    return text if len(text) <= 80 else f"{text[:80]}…"
