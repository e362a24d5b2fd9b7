"""A report's chart: SVG text, the same bytes for the same report.

Daily temperature ranges stand on the range that is usual for the day, precipitation below. It reads without its
colours (position and labels carry the figures), follows the reader's light or dark scheme, and names itself to a
screen reader by `<title>` and `<desc>`. Each day answers the pointer with its figures.
"""

import math
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from datetime import date
from typing import Any
from xml.sax.saxutils import escape

from .periods import Period
from .weather import Day, Station, Typical

WIDTH, HEIGHT = 760, 470
LEFT, RIGHT = 68, 736
TEMPERATURE_TOP, TEMPERATURE_BOTTOM = 112, 300
RAIN_TOP, RAIN_BOTTOM = 334, 402
WIDEST_BAR = 26
LEGEND = (("range", "low to high"), ("usual", "usual range"), ("rain", "precipitation"))

STYLE = """
text{font:13px system-ui,-apple-system,"Segoe UI",Roboto,"DejaVu Sans",sans-serif;fill:#24292f}
.paper{fill:#fcfcfa}.title{font-size:21px;font-weight:600}.figure{font-weight:600}.quiet{fill:#57606a}
.end{text-anchor:end}.middle{text-anchor:middle}
.grid{stroke:#e2e5e8;stroke-width:1}.zero{stroke:#8c959f;stroke-width:1}
.usual{fill:#eadcca}.range{fill:#c2531b}.rain{fill:#2463a6}
.halo{paint-order:stroke;stroke:#fcfcfa;stroke-width:4px}
.day:hover .range,.day:hover .rain{opacity:.65}.touch{fill:transparent}
@media (prefers-color-scheme:dark){
text{fill:#e6e9ec}.paper{fill:#15191e}.quiet{fill:#a3adb8}.grid{stroke:#2a3038}.zero{stroke:#6b7580}
.usual{fill:#50422f}.range{fill:#f0925a}.rain{fill:#6cb0f5}.halo{stroke:#15191e}
}
"""


@dataclass(frozen=True)
class Scale:
    """Values on a vertical axis that starts and ends on a labelled step."""

    low: float
    high: float
    step: float
    top: int
    bottom: int

    @classmethod
    def around(cls, low: float, high: float, *, top: int, bottom: int, lines: int) -> "Scale":
        step = _round_step((high - low) / lines)
        return cls(math.floor(low / step) * step, math.ceil(high / step) * step, step, top, bottom)

    def y(self, value: float) -> float:
        return self.bottom - (value - self.low) / (self.high - self.low) * (self.bottom - self.top)

    def steps(self) -> list[float]:
        return [self.low + index * self.step for index in range(round((self.high - self.low) / self.step) + 1)]


@dataclass(frozen=True)
class Columns:
    """One column of the plot per day."""

    days: int

    @property
    def width(self) -> float:
        return (RIGHT - LEFT) / self.days

    @property
    def bar(self) -> float:
        return min(WIDEST_BAR, self.width * (0.62 if self.days < 100 else 0.8))

    def left(self, index: int) -> float:
        return LEFT + index * self.width

    def middle(self, index: int) -> float:
        return self.left(index) + self.width / 2


def draw(station: Station, period: Period, summary: dict[str, Any]) -> str:
    """The chart of one report. `summary` is what `weather.summarise` made of the same station and period."""
    days = station.during(period)
    columns = Columns(len(days))
    temperature, rain = _scales(days)
    parts = [
        *_opening(summary),
        *_heading(summary),
        *_axis(temperature, "°C"),
        _usual_band([station.typical(day.on) for day in days], temperature, columns),
        *_zero_line(temperature),
        *_axis(rain, "mm"),
        *_calendar(days, period, columns),
        *(_day(day, index, temperature, rain, columns) for index, day in enumerate(days)),
        *_extremes(days, temperature, columns),
        *_wettest(days, rain, columns),
        _text(LEFT, HEIGHT - 14, _source(station), "quiet"),
    ]
    return "\n".join([*parts, "</svg>", ""])


def _scales(days: Sequence[Day]) -> tuple[Scale, Scale]:
    lowest, highest = min(day.low for day in days), max(day.high for day in days)
    wettest = max(day.rain for day in days)
    return (
        Scale.around(lowest - 1, highest + 1, top=TEMPERATURE_TOP, bottom=TEMPERATURE_BOTTOM, lines=5),
        Scale.around(0, max(5.0, wettest), top=RAIN_TOP, bottom=RAIN_BOTTOM, lines=2),
    )


def _source(station: Station) -> str:
    years = f"{station.first.year} to {station.last.year}"
    return f"NOAA daily summaries. Usual: mean high and low within a week of the day, {years}."


def _opening(summary: dict[str, Any]) -> Iterator[str]:
    yield (
        f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {WIDTH} {HEIGHT}" width="{WIDTH}" height="{HEIGHT}" '
        'role="img" lang="en" aria-labelledby="title description">'
    )
    yield f'<title id="title">{escape(summary["title"])}: temperature and precipitation by day</title>'
    yield f'<desc id="description">{escape(describe(summary))}</desc>'
    yield f"<style>{STYLE}</style>"
    yield f'<rect class="paper" width="{WIDTH}" height="{HEIGHT}" rx="10"/>'


def describe(summary: dict[str, Any]) -> str:
    """The report in sentences: what a reader who cannot see the chart is told."""
    warmth, water = summary["temperature"], summary["precipitation"]
    return (
        f"{summary['days']} days. Mean temperature {_number(warmth['mean'])} °C, {_departure(warmth['departure'])}. "
        f"Highest {_number(warmth['highest']['value'])} °C on {_spoken(warmth['highest']['on'])}, "
        f"lowest {_number(warmth['lowest']['value'])} °C on {_spoken(warmth['lowest']['on'])}. "
        f"{_rainfall(water)}"
    )


def _rainfall(water: dict[str, Any]) -> str:
    if not water["wetDays"]:
        return "No precipitation."
    most = f"most on {_spoken(water['wettest']['on'])} with {_number(water['wettest']['value'])} mm"
    return f"Precipitation {_number(water['total'])} mm on {_count(water['wetDays'], 'day')}, {most}."


def _heading(summary: dict[str, Any]) -> Iterator[str]:
    warmth, water = summary["temperature"], summary["precipitation"]
    yield _text(LEFT, 38, summary["title"], "title")
    yield _text(
        LEFT,
        62,
        f"Mean {_number(warmth['mean'])} °C, {_departure(warmth['departure'])} · "
        f"{_number(water['total'])} mm on {_count(water['wetDays'], 'wet day')} · "
        f"{_count(warmth['frostDays'], 'frost day')}",
        "figure",
    )
    for place, (name, label) in enumerate(LEGEND):
        yield _rect(name, LEFT + 116 * place, 78, 12, 12, corner=2)
        yield _text(LEFT + 116 * place + 18, 89, label, "quiet")


def _axis(scale: Scale, unit: str) -> Iterator[str]:
    last = scale.steps()[-1]
    for value in scale.steps():
        y = scale.y(value)
        yield f'<path class="grid" d="M{LEFT} {y:.1f}H{RIGHT}"/>'
        yield _text(LEFT - 8, y + 4.5, f"{_number(value)}{f' {unit}' if value == last else ''}", "quiet end")


def _zero_line(scale: Scale) -> Iterator[str]:
    if scale.low < 0 < scale.high:
        yield f'<path class="zero" d="M{LEFT} {scale.y(0):.1f}H{RIGHT}"/>'


def _usual_band(usual: Sequence[Typical], scale: Scale, columns: Columns) -> str:
    """A closed outline along the highs and back along the lows, from edge to edge of the plot."""
    highs = [(columns.middle(index), scale.y(typical.high)) for index, typical in enumerate(usual)]
    lows = [(columns.middle(index), scale.y(typical.low)) for index, typical in enumerate(usual)]
    there = [(LEFT, highs[0][1]), *highs, (RIGHT, highs[-1][1])]
    back = [(RIGHT, lows[-1][1]), *reversed(lows), (LEFT, lows[0][1])]
    outline = "L".join(f"{x:.1f} {y:.1f}" for x, y in [*there, *back])
    return f'<path class="usual" d="M{outline}Z"/>'


def _day(day: Day, index: int, temperature: Scale, rain: Scale, columns: Columns) -> str:
    x, bar = columns.middle(index) - columns.bar / 2, columns.bar
    high, low, wet = temperature.y(day.high), temperature.y(day.low), rain.y(day.rain)
    shapes = [
        _rect("touch", columns.left(index), TEMPERATURE_TOP, columns.width, RAIN_BOTTOM - TEMPERATURE_TOP),
        _rect("range", x, high, bar, max(1.5, low - high), corner=min(3.0, bar / 3)),
        _rect("rain", x, wet, bar, rain.bottom - wet) if day.rain else "",
    ]
    warmth = f"{_number(day.low)} to {_number(day.high)} °C"
    told = f"{_spoken(day.on.isoformat())}: {warmth}, {_number(day.rain)} mm, {day.sky}"
    return f'<g class="day"><title>{escape(told)}</title>{"".join(shapes)}</g>'


def _extremes(days: Sequence[Day], scale: Scale, columns: Columns) -> Iterator[str]:
    warmest = max(range(len(days)), key=lambda index: days[index].high)
    coldest = min(range(len(days)), key=lambda index: days[index].low)
    yield _label(columns.middle(warmest), scale.y(days[warmest].high) - 7, f"{_number(days[warmest].high)}°")
    yield _label(columns.middle(coldest), scale.y(days[coldest].low) + 16, f"{_number(days[coldest].low)}°")


def _wettest(days: Sequence[Day], scale: Scale, columns: Columns) -> Iterator[str]:
    wettest = max(range(len(days)), key=lambda index: days[index].rain)
    if days[wettest].rain:
        yield _label(columns.middle(wettest), scale.y(days[wettest].rain) - 6, f"{_number(days[wettest].rain)} mm")


def _label(x: float, y: float, text: str) -> str:
    return _text(min(max(x, LEFT + 24), RIGHT - 24), y, text, "figure middle halo")


def _calendar(days: Sequence[Day], period: Period, columns: Columns) -> Iterator[str]:
    for index, day in enumerate(days):
        if period.kind in ("year", "quarter") and day.on.day == 1:
            yield f'<path class="grid" d="M{columns.left(index):.1f} {TEMPERATURE_TOP}V{RAIN_BOTTOM + 6}"/>'
        if label := _day_label(day.on, period):
            yield _text(columns.middle(index), RAIN_BOTTOM + 22, label, "quiet middle")


def _day_label(on: date, period: Period) -> str:
    if period.kind == "week":
        return f"{on:%a} {on.day} {on:%b}"
    if period.kind == "month":
        return str(on.day) if on.day == 1 or on.day % 5 == 0 else ""
    if on.day != 15:
        return ""
    return f"{on:%B}" if period.kind == "quarter" else f"{on:%b}"


def _rect(name: str, x: float, y: float, width: float, height: float, *, corner: float = 0) -> str:
    rounded = f' rx="{corner:.1f}"' if corner else ""
    return f'<rect class="{name}" x="{x:.2f}" y="{y:.1f}" width="{width:.2f}" height="{height:.1f}"{rounded}/>'


def _text(x: float, y: float, text: str, classes: str) -> str:
    return f'<text class="{classes}" x="{x:.1f}" y="{y:.1f}">{escape(text)}</text>'


def _number(value: float) -> str:
    """To a tenth, shortest form, with a true minus sign: `12.8`, `−0.6`, `20`, `1,226`."""
    return f"{value:,.1f}".removesuffix(".0").replace("-", "−")


def _departure(value: float) -> str:
    if value == 0:
        return "as usual"
    return f"{_number(abs(value))} °C {'above' if value > 0 else 'below'} usual"


def _count(number: int, thing: str) -> str:
    return f"{number} {thing}{'' if number == 1 else 's'}"


def _spoken(iso: str) -> str:
    on = date.fromisoformat(iso)
    return f"{on.day} {on:%B %Y}"


def _round_step(rough: float) -> float:
    """The smallest of 1, 2, 2.5, 5, 10, 20, 25 … that is not below `rough`."""
    power = 10 ** math.floor(math.log10(max(rough, 1)))
    return next(float(factor * power) for factor in (1, 2, 2.5, 5, 10) if factor * power >= rough)
