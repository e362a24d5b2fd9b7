"""The curves of the simulation as SVG, for light and dark pages: no background, colours of middle brightness."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

INK = "#7d8590"
COLOURS = ("#2f81f7", "#2da44e", "#bf8700", "#a371f7", "#db6d28", "#e5534b")
COMPARED = "status"  # lines of this name are what ours is compared with


def sustained(directory: Path, offered: Sequence[float], lines: Mapping[str, Sequence[float]]) -> Path:
    """What is offered against what passes, both in tasks a second, on logarithmic axes."""
    figure, axes = _axes("offered, tasks a second", "sustained, tasks a second")
    axes.set_xscale("log")
    axes.set_yscale("log")
    axes.plot(offered, offered, color=INK, linewidth=0.8, linestyle=":")
    for place, (name, values) in enumerate(lines.items()):
        _line(axes, place, name, offered, values)
    return _save(figure, axes, directory / "scale-sustained.svg")


def cold_start(directory: Path, seconds: Sequence[float], lines: Mapping[str, Sequence[float]]) -> Path:
    """Ended tasks a second over the first half hour of a new table."""
    figure, axes = _axes("minutes", "ended, tasks a second")
    for place, (name, values) in enumerate(lines.items()):
        _line(axes, place, name, [each / 60 for each in seconds], values, marker="")
    axes.set_ylim(bottom=0)
    return _save(figure, axes, directory / "scale-cold-start.svg")


def pollers(directory: Path, counts: Sequence[int], lines: Mapping[str, Sequence[float]]) -> Path:
    """What so many pollers claim a second."""
    figure, axes = _axes("at work at the same time", "claimed, tasks a second")
    for place, (name, values) in enumerate(lines.items()):
        _line(axes, place, name, counts, values)
    axes.set_xticks(list(counts))
    axes.set_ylim(bottom=0)
    return _save(figure, axes, directory / "scale-pollers.svg")


def _axes(across: str, up: str) -> tuple[Any, Any]:
    import matplotlib

    matplotlib.use("svg")
    import matplotlib.pyplot as plt

    plt.rcParams.update({"svg.fonttype": "none", "svg.hashsalt": "thunder", "font.size": 10, "text.color": INK})
    figure, axes = plt.subplots(figsize=(7.2, 4.2))
    axes.set_xlabel(across, color=INK)
    axes.set_ylabel(up, color=INK)
    axes.tick_params(colors=INK, which="both")
    axes.grid(color=INK, alpha=0.25, linewidth=0.6)
    for side in axes.spines.values():
        side.set_color(INK)
    return figure, axes


def _line(axes: Any, place: int, name: str, x: Sequence[float], y: Sequence[float], *, marker: str = "o") -> None:
    style = "--" if name.startswith(COMPARED) else "-"
    axes.plot(x, y, label=name, color=COLOURS[place % len(COLOURS)], linestyle=style, marker=marker, markersize=3.5)


def _save(figure: Any, axes: Any, path: Path) -> Path:
    import matplotlib.pyplot as plt

    axes.legend(frameon=False, labelcolor=INK, fontsize=9)
    path.parent.mkdir(parents=True, exist_ok=True)
    figure.tight_layout()
    figure.savefig(path, transparent=True, metadata={"Date": None})
    plt.close(figure)
    return path
