"""The attempts of a task along a line of time: waiting, each attempt, and the waits between."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Final

WIDTH: Final = 1000.0
THINNEST: Final = 6.0

ENDS: Final[Mapping[str, str]] = {"SUCCESS": "success", "DONE": "done", "FAILED": "failed"}


@dataclass(frozen=True)
class Attempt:
    """One start of the task. `ended` is None while it runs; `number` is None for one whose place is not known."""

    number: int | None
    started: float | None
    ended: float | None
    outcome: str
    error_type: str = ""
    message: str = ""

    @property
    def seconds(self) -> float | None:
        return None if self.started is None or self.ended is None else max(0.0, self.ended - self.started)

    @property
    def kind(self) -> str:
        """Its class in the stylesheet."""
        if self.outcome in ("success", "done", "running"):
            return self.outcome
        return "pending" if self.outcome in ("released", "snoozed", "free") else "failed"


@dataclass(frozen=True)
class Bar:
    x: float
    width: float
    attempt: Attempt


@dataclass(frozen=True)
class Timeline:
    """Bars on a line of WIDTH from `start` to `end`."""

    start: float
    end: float
    bars: Sequence[Bar]

    @property
    def words(self) -> str:
        return "; ".join(
            f"attempt {bar.attempt.number or '?'}: {bar.attempt.outcome}"
            + (f", {bar.attempt.error_type}" if bar.attempt.error_type else "")
            for bar in self.bars
        )


def attempts_of(task: Mapping[str, Any]) -> list[Attempt]:
    """The stored attempts, and the one that is not stored: the one that runs, or that ended the task well."""
    found = [
        Attempt(
            number=each.get("attempt"),
            started=_time(each.get("startedAt")),
            ended=_time(each.get("endedAt")),
            outcome=str(each.get("outcome", "")),
            error_type=str(each.get("errorType", "")),
            message=str(each.get("message", "")),
        )
        for each in task.get("attempts", ())
        if isinstance(each, Mapping)
    ]
    status, started = task.get("status"), _time(task.get("startedAt"))
    number = int(task.get("retryCount", 0)) + 1
    if status == "RUNNING":
        found.append(Attempt(number, started, None, "running"))
    elif started is not None and (status == "SUCCESS" or task.get("outcome") in ("skipped", "acknowledged")):
        found.append(
            Attempt(number, started, _time(task.get("finishedAt")), "success" if status == "SUCCESS" else "done")
        )
    return found


def timeline_of(task: Mapping[str, Any], attempts: Sequence[Attempt], *, now: float) -> Timeline | None:
    """None when nothing has started yet."""
    started = [each for each in attempts if each.started is not None]
    if not started:
        return None
    start = min(float(task.get("createdAt") or now), *(each.started or now for each in started))
    end = max(_time(task.get("finishedAt")) or now, *(each.ended or now for each in started))
    scale = WIDTH / max(end - start, 1e-3)
    bars = []
    for each in started:
        width = max(THINNEST, ((each.ended or now) - (each.started or now)) * scale)
        x = min(((each.started or now) - start) * scale, WIDTH - width)
        bars.append(Bar(round(max(0.0, x), 1), round(min(width, WIDTH), 1), each))
    return Timeline(start, end, bars)


def _time(value: Any) -> float | None:
    return float(value) if isinstance(value, int | float) and not isinstance(value, bool) else None
