"""The body of a CloudWatch dashboard, read as CloudWatch reads it: widgets, their metrics with shorthands, their place.

Source of the form: CloudWatch API reference, «Dashboard body structure and syntax».
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any, Final

from thunder.console.measures import Metric, is_drawable

COLUMNS: Final = 24
LONGEST_PERIOD: Final = 86_400  # of GetMetricData
_ID = re.compile(r"[a-z][A-Za-z0-9_]{0,200}")  # what GetMetricData takes; one that is refused fails the whole call
_LINK = re.compile(r"\[(?:button:[a-z]*:)?([^\]\n]*)\]\([^)\n]*\)")


@dataclass(frozen=True)
class Line:
    """A horizontal annotation."""

    label: str
    value: float


@dataclass(frozen=True)
class Widget:
    """One widget. `kind` is metric, text, alarm, or what it is called where this console cannot draw it."""

    kind: str
    title: str
    width: int = 6
    height: int = 6
    view: str = "timeSeries"
    is_stacked: bool = False
    metrics: tuple[Metric, ...] = ()
    lines: tuple[Line, ...] = ()
    text: str = ""
    alarms: tuple[str, ...] = ()
    note: str = ""

    @property
    def paragraphs(self) -> list[tuple[bool, str]]:
        """A text widget's Markdown as far as it is needed here: headings, and links as their words. Links are not
        followed: they lead out of the console."""
        lines = [_LINK.sub(lambda found: found[1], line) for line in self.text.split("\n") if line.strip()]
        return [(line.startswith("#"), line.lstrip("# ")) for line in lines]

    @property
    def columns(self) -> int:
        """Of 24, in the steps the stylesheet knows."""
        return next((step for step in (6, 8, 12, 16, 24) if self.width <= step), COLUMNS)


@dataclass(frozen=True)
class Body:
    widgets: Sequence[Widget] = field(default_factory=tuple)

    @property
    def metrics(self) -> list[Metric]:
        return [metric for widget in self.widgets for metric in widget.metrics]


def body_of(text: str, *, period: int) -> Body:
    """The dashboard, its widgets from top to bottom. Raises ValueError for what is no dashboard.

    `period` is for metrics that name none, and the shortest that is used.
    """
    body = json.loads(text)
    widgets = body.get("widgets") if isinstance(body, dict) else None
    if not isinstance(widgets, list):
        raise ValueError("it has no widgets")
    placed = sorted(
        (each for each in widgets if isinstance(each, dict)), key=lambda each: (_int(each, "y"), _int(each, "x"))
    )
    return Body(tuple(_widget(each, f"w{number}", period) for number, each in enumerate(placed)))


def _widget(found: Mapping[str, Any], prefix: str, period: int) -> Widget:
    kind = str(found.get("type", "unknown"))
    said = found.get("properties")
    properties: Mapping[str, Any] = said if isinstance(said, dict) else {}
    width, height = _int(found, "width", 6), _int(found, "height", 6)
    title = _text(properties, "title")
    match kind:
        case "metric":
            return Widget(
                kind,
                title or "Untitled",
                width,
                height,
                view=_text(properties, "view", "timeSeries"),
                is_stacked=properties.get("stacked") is True,
                metrics=tuple(_metrics(properties, prefix, period)),
                lines=tuple(_lines(properties)),
            )
        case "text":
            return Widget(kind, "", width, height, text=_text(properties, "markdown"))
        case "alarm":
            arns = properties.get("alarms", [])
            names = tuple(str(arn).rpartition(":alarm:")[2] for arn in arns) if isinstance(arns, list) else ()
            return Widget(kind, title or "Alarms", width, height, alarms=names)
        case "log":
            note = "A query of CloudWatch Logs Insights, which costs by what it reads: run it in the AWS console."
            return Widget(kind, title or "Log query", width, height, text=_text(properties, "query"), note=note)
    return Widget(kind, title or kind, width, height, note=f"A widget of type {kind}: see it in the AWS console.")


def _metrics(properties: Mapping[str, Any], prefix: str, period: int) -> Iterator[Metric]:
    """Each row is namespace, name, dimension and value in turn, and options; `.` repeats the row above in its place,
    `...` all but the last value. Ids are made unique on the dashboard, in expressions too."""
    rows = properties.get("metrics", [])
    spelled = _all_spelled_out(rows if isinstance(rows, list) else [])
    others = [words for words in spelled if len(words) > 1]
    ids = [_options(row)["id"] for row in rows if _has_id(_options(row))]
    for number, row in enumerate(rows if isinstance(rows, list) else []):
        if not isinstance(row, list):
            continue
        options = _options(row)
        made = Metric(
            label="",
            is_shown=options.get("visible", True) is not False,
            is_right=options.get("yAxis") == "right",
            period=_period(options, properties, period),
            id=f"{prefix}_{options['id']}" if _has_id(options) else f"{prefix}_n{number}",
        )
        if "expression" in options:
            expression = _renamed(str(options["expression"]), ids, prefix)
            yield replace(made, label=str(options.get("label") or options["expression"]), expression=expression)
            continue
        words = spelled[number]
        if len(words) < 2:
            continue
        statistic = str(options.get("stat") or properties.get("stat") or "Average")
        yield replace(
            made,
            label=_label(options, words, statistic, others),
            namespace=words[0],
            name=words[1],
            dimensions=tuple(zip(words[2::2], words[3::2], strict=False)),
            statistic=statistic,
        )


def _options(row: Any) -> Mapping[str, Any]:
    return row[-1] if isinstance(row, list) and row and isinstance(row[-1], dict) else {}


def _has_id(options: Mapping[str, Any]) -> bool:
    return isinstance(options.get("id"), str) and _ID.fullmatch(options["id"]) is not None


def _period(options: Mapping[str, Any], properties: Mapping[str, Any], shortest: int) -> int:
    """In whole minutes, as GetMetricData takes it."""
    asked = _int(options, "period", _int(properties, "period", shortest))
    return min(LONGEST_PERIOD, -(-max(shortest, asked) // 60) * 60)


def _all_spelled_out(rows: Sequence[Any]) -> list[list[str]]:
    """Every row without its options and shorthands; empty for what names no metric."""
    found: list[list[str]] = []
    above: list[str] = []
    for row in rows:
        words = [str(word) for word in row if not isinstance(word, dict)] if isinstance(row, list) else []
        above = _spelled_out(words, above) if words else above
        found.append(above if words else [])
    return found


def _spelled_out(words: Sequence[str], above: Sequence[str]) -> list[str]:
    if words[:1] == ["..."]:
        return [*above[: len(above) - (len(words) - 1)], *words[1:]]
    return [above[place] if word == "." and place < len(above) else word for place, word in enumerate(words)]


def _label(options: Mapping[str, Any], words: Sequence[str], statistic: str, others: Sequence[Sequence[str]]) -> str:
    """As CloudWatch labels: by what tells a row from the others, its metric, its dimensions or its statistic."""
    label = options.get("label")
    if isinstance(label, str) and label and "${" not in label:
        return label
    if len({tuple(row) for row in others}) == 1:
        return statistic if len(others) > 1 else words[1]
    names = [row[1] for row in others]
    if len(names) > 1 and names.count(words[1]) == 1:
        return words[1]
    said = [words[1]] if len(set(names)) > 1 else []
    shared = set.intersection(*(set(row[3::2]) for row in others))
    said += [value for value in words[3::2] if value not in shared]
    return ", ".join(said or words[-1:])


def _renamed(expression: str, ids: Sequence[str], prefix: str) -> str:
    known = set(ids)
    return re.sub(r"[a-z][A-Za-z0-9_]*", lambda m: f"{prefix}_{m[0]}" if m[0] in known else m[0], expression)


def _lines(properties: Mapping[str, Any]) -> Iterator[Line]:
    annotations = properties.get("annotations")
    horizontal = annotations.get("horizontal", []) if isinstance(annotations, dict) else []
    for each in horizontal if isinstance(horizontal, list) else []:
        if isinstance(each, dict) and is_drawable(each.get("value")):
            yield Line(_text(each, "label"), float(each["value"]))


def _int(found: Mapping[str, Any], name: str, default: int = 0) -> int:
    value = found.get(name, default)
    return value if isinstance(value, int) and not isinstance(value, bool) else default


def _text(found: Mapping[str, Any], name: str, default: str = "") -> str:
    value = found.get(name)
    return value if isinstance(value, str) else default
