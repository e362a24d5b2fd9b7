"""The chart: well-formed, told to those who cannot see it, and the same bytes for the same report."""

import subprocess
import sys
from xml.etree import ElementTree as ET

import pytest

from examples.reports.chart import HEIGHT, RAIN_BOTTOM, RIGHT, STYLE, TEMPERATURE_TOP, WIDTH, Scale, draw
from examples.reports.periods import Period, periods_within
from examples.reports.weather import stations, summarise

SVG = "{http://www.w3.org/2000/svg}"
SAMPLES = [("seattle", "2012"), ("new-york", "2015-Q1"), ("seattle", "2012-03"), ("new-york", "2014-W05")]
DRIEST = ("seattle", "2012-W34")


def chart(slug: str, label: str) -> str:
    station, period = stations()[slug], Period.parse(label)
    return draw(station, period, summarise(station, period))


@pytest.mark.parametrize(("slug", "label"), SAMPLES)
def test_each_day_is_drawn_inside_the_picture_and_says_its_figures(slug: str, label: str) -> None:
    root = ET.fromstring(chart(slug, label))
    days = root.findall(f"{SVG}g[@class='day']")
    assert len(days) == Period.parse(label).days
    for day, record in zip(days, stations()[slug].during(Period.parse(label)), strict=True):
        told = day.findtext(f"{SVG}title") or ""
        assert f"{record.on.day} {record.on:%B %Y}" in told
        assert told.endswith(f"mm, {record.sky}")
        assert len(day.findall(f"{SVG}rect[@class='rain']")) == (record.rain > 0)
        for bar in day.findall(f"{SVG}rect"):
            left, top, width, height = (float(bar.attrib[name]) for name in ("x", "y", "width", "height"))
            assert left >= 0
            assert left + width <= RIGHT + 0.1
            assert TEMPERATURE_TOP - 0.1 <= top <= top + height <= RAIN_BOTTOM + 0.1


@pytest.mark.parametrize(("slug", "label"), SAMPLES)
def test_every_label_stands_inside_the_picture(slug: str, label: str) -> None:
    for text in ET.fromstring(chart(slug, label)).findall(f"{SVG}text"):
        x, y, words = float(text.attrib["x"]), float(text.attrib["y"]), text.text or ""
        breadth = len(words) * (12.5 if "title" in text.attrib["class"] else 8)
        start = {"end": x - breadth, "middle": x - breadth / 2}.get(text.attrib["class"].split()[-1], x)
        if "halo" in text.attrib["class"].split():
            start = x - breadth / 2
        assert start >= 0, words
        assert start + breadth <= WIDTH, words
        assert 0 < y < HEIGHT, words


def test_it_names_and_describes_itself() -> None:
    root = ET.fromstring(chart("seattle", "2012-03"))
    assert root.attrib["role"] == "img"
    named = root.attrib["aria-labelledby"].split()
    assert [root.find(f"*[@id='{name}']") is not None for name in named] == [True, True]
    assert root.findtext(f"{SVG}title") == "Seattle, March 2012: temperature and precipitation by day"
    assert root.findtext(f"{SVG}desc") == (
        "31 days. Mean temperature 6.2 °C, 2.3 °C below usual. Highest 15.6 °C on 8 March 2012, "
        "lowest −1.7 °C on 7 March 2012. Precipitation 183 mm on 22 days, most on 29 March 2012 with 27.4 mm."
    )


def test_a_period_without_rain_says_so() -> None:
    told = ET.fromstring(chart(*DRIEST)).findtext(f"{SVG}desc") or ""
    assert told.endswith("No precipitation.")


def test_it_follows_light_and_dark_with_readable_contrast() -> None:
    light, dark = STYLE.split("@media (prefers-color-scheme:dark)")
    for scheme in (light, dark):
        paper = _colour(scheme, ".paper")
        assert _contrast(_colour(scheme, "text"), paper) >= 7
        assert _contrast(_colour(scheme, ".quiet"), paper) >= 4.5
        assert _contrast(_colour(scheme, ".range"), paper) >= 3
        assert _contrast(_colour(scheme, ".range"), _colour(scheme, ".usual")) >= 3
        assert _contrast(_colour(scheme, ".rain"), paper) >= 3


def test_it_loads_nothing_and_runs_nothing() -> None:
    text = chart("seattle", "2012-03")
    root = ET.fromstring(text)
    assert {element.tag.removeprefix(SVG) for element in root.iter()} <= {
        "svg", "title", "desc", "style", "rect", "path", "text", "g"
    }  # fmt: skip
    assert not [name for element in root.iter() for name in element.attrib if name.startswith("on") or "href" in name]
    assert "url(" not in text
    assert "@import" not in text


def test_another_process_draws_the_same_bytes() -> None:
    program = (
        "import sys; from examples.reports.chart import draw; from examples.reports.periods import Period\n"
        "from examples.reports.weather import stations, summarise\n"
        "station, period = stations()['new-york'], Period.parse('2014-W05')\n"
        "sys.stdout.buffer.write(draw(station, period, summarise(station, period)).encode())"
    )
    drawn = subprocess.run([sys.executable, "-c", program], capture_output=True, check=True, timeout=60)
    assert drawn.stdout == chart("new-york", "2014-W05").encode()


def test_every_report_can_be_drawn() -> None:
    for station in stations().values():
        for period in periods_within(station.first, station.last):
            if period.kind != "year":
                ET.fromstring(draw(station, period, summarise(station, period)))


@pytest.mark.parametrize(("low", "high"), [(-16.0, 16.7), (7.0, 9.0), (0.0, 5.0), (0.0, 118.9), (-0.4, 0.4)])
def test_a_scale_holds_its_values_on_a_few_round_steps(low: float, high: float) -> None:
    scale = Scale.around(low, high, top=100, bottom=300, lines=5)
    assert scale.low <= low < high <= scale.high
    assert 2 <= len(scale.steps()) <= 8
    assert (scale.y(scale.high), scale.y(scale.low)) == (100, 300)


def _colour(scheme: str, selector: str) -> tuple[float, float, float]:
    rule = scheme.split(f"{selector}{{", 1)[1].split("}", 1)[0]
    code = rule.split("fill:#", 1)[1][:6]
    red, green, blue = (int(code[at : at + 2], 16) / 255 for at in (0, 2, 4))
    return red, green, blue


def _contrast(one: tuple[float, float, float], other: tuple[float, float, float]) -> float:
    """WCAG 2.2, relative luminance and contrast ratio."""
    brighter, darker = sorted((_luminance(one), _luminance(other)), reverse=True)
    return (brighter + 0.05) / (darker + 0.05)


def _luminance(colour: tuple[float, float, float]) -> float:
    linear = [part / 12.92 if part <= 0.04045 else ((part + 0.055) / 1.055) ** 2.4 for part in colour]
    return 0.2126 * linear[0] + 0.7152 * linear[1] + 0.0722 * linear[2]
