"""Values as pages show them: numbers, spans, JSON. Text from tasks is made inert here, whatever the template does."""

from __future__ import annotations

import json
import math
import re
from collections.abc import Mapping
from typing import Any, Final

from markupsafe import Markup

from thunder.cli.inert import inert_json, inert_lines
from thunder.cli.times import relative, span

JSON_SHOWN: Final = 20_000
STATUSES: Final[Mapping[str, tuple[str, str, str]]] = {
    "PENDING": ("pending", "○", "waiting to run"),
    "RUNNING": ("running", "◐", "a worker has it"),
    "SUCCESS": ("success", "✓", "succeeded"),
    "FAILED": ("failed", "✕", "a dead letter: retries used up, or a permanent error"),
    "DONE": ("done", "–", "ended with nothing to keep"),
}
"""Status → its class in the stylesheet, its sign, what it means."""


def safe_text(value: Any) -> Any:
    """Applied to everything a template prints: control codes and marks that cannot be seen become visible."""
    return value if isinstance(value, Markup) or not isinstance(value, str) else inert_lines(value)


def number(value: Any) -> str:
    """Whole numbers grouped, others to three significant digits."""
    if isinstance(value, bool) or not isinstance(value, int | float):
        return "–" if value is None else str(value)
    if isinstance(value, float) and not math.isfinite(value):
        return "–"
    if isinstance(value, int) or value == int(value):
        return f"{int(value):,}".replace(",", "\u2009")
    return f"{value:.3g}" if abs(value) < 1000 else number(round(value))


def money(value: float) -> str:
    return f"${value:.2f}" if value >= 1 else f"${value:.3g}"


def duration(seconds: Any) -> str:
    if isinstance(seconds, bool) or not isinstance(seconds, int | float) or not math.isfinite(seconds):
        return "–"
    if 0 <= seconds < 1:
        return f"{seconds * 1000:.0f} ms" if seconds >= 0.0005 else "<1 ms"
    return span(max(0.0, seconds))


def ago(at: Any, now: float) -> str:
    return relative(float(at), now) if isinstance(at, int | float) and not isinstance(at, bool) else "–"


def size(count: Any) -> str:
    """Bytes, in the unit that reads best."""
    amount = float(count)
    for unit in ("B", "KiB", "MiB"):
        if amount < 1024 or unit == "MiB":
            return f"{amount:.0f} {unit}" if unit == "B" or amount >= 100 else f"{amount:.1f} {unit}"
        amount /= 1024
    raise AssertionError("MiB is the last unit")


def pretty(value: Any) -> str:
    """JSON for people to read; equal to the value, whatever characters it holds."""
    return inert_json(json.dumps(value, indent=2, ensure_ascii=False))


def cut(text: str, most: int = JSON_SHOWN) -> str:
    return text if len(text) <= most else text[:most] + "…"


_GENERATED_END = re.compile(r"(?:[0-9A-F]{8})?-[0-9A-Za-z]{8,}$|[0-9A-F]{8}[0-9A-Fa-f]*$")


def short_name(name: str, service: str) -> str:
    """A physical name as its construct is called: without the stack's in front and what CloudFormation put behind."""
    if not service or not name.startswith(f"{service}-"):
        return name
    rest = name.removeprefix(f"{service}-").removeprefix("Data-").removeprefix("Monitoring")
    return _GENERATED_END.sub("", rest) or rest


_VARIABLE = re.compile(r"0x[0-9a-fA-F]+|[0-9a-fA-F]{8,}(?:-[0-9a-fA-F]{4,})*|\d+")


def message_pattern(message: str) -> str:
    """An error's message without what differs from one occurrence to the next: numbers and ids become `#`."""
    return _VARIABLE.sub("#", message.split("\n", 1)[0])[:200]
