"""Draws the diagrams of the documentation: small SVG files that are readable on a light and on a dark page.

    python -m docsite.diagrams

The arrows of the state machine come from the table of transitions itself.
"""

from __future__ import annotations

from html import escape
from pathlib import Path

from thunderagent.states import TRANSITIONS

IMAGES = Path(__file__).resolve().parent.parent / "docs" / "images"
STYLE = """<style>
text{font:14px system-ui,sans-serif;fill:#222}.s{font-size:11px}.b{fill:#eef3f8;stroke:#456}.l{stroke:#456;fill:none}
.t{fill:#456}.p{fill:#fff}
@media(prefers-color-scheme:dark){text{fill:#eee}.b{fill:#263238;stroke:#9ab}.l{stroke:#9ab}.t{fill:#9ab}.p{fill:#1b1f24}}
</style><rect class="p" width="100%" height="100%" rx="6"/>
<defs><marker id="a" viewBox="0 0 10 10" refX="9" refY="5" markerWidth="7" markerHeight="7" orient="auto-start-reverse">
<path class="t" d="M0 0L10 5L0 10z"/></marker></defs>"""


def drawing(width: int, height: int, title: str, parts: list[str]) -> str:
    head = f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {width} {height}" role="img">'
    return "\n".join([head, f"<title>{escape(title)}</title>", STYLE, *parts, "</svg>", ""])


def box(x: int, y: int, text: str, note: str = "", *, width: int = 130) -> str:
    shape = f'<rect class="b" x="{x}" y="{y}" width="{width}" height="46" rx="6"/>'
    middle = x + width // 2
    words = f'<text x="{middle}" y="{y + (21 if note else 28)}" text-anchor="middle">{escape(text)}</text>'
    small = f'<text class="s" x="{middle}" y="{y + 37}" text-anchor="middle">{escape(note)}</text>' if note else ""
    return shape + words + small


def arrow(path: str, text: str = "", at: tuple[int, int] = (0, 0)) -> str:
    line = f'<path class="l" d="{path}" marker-end="url(#a)"/>'
    label = f'<text class="s" x="{at[0]}" y="{at[1]}" text-anchor="middle">{escape(text)}</text>' if text else ""
    return line + label


def parts() -> str:
    return drawing(
        760,
        300,
        "The parts and what passes between them",
        [
            box(20, 30, "client", "SigV4 or token"),
            box(220, 30, "API", "Lambda"),
            box(420, 110, "task table", "DynamoDB"),
            box(220, 120, "poller", "sweep and doorbell"),
            box(220, 210, "executor", "your handlers"),
            box(610, 30, "recorder", "events, archive"),
            box(610, 190, "reaper", "every minute"),
            arrow("M150 53H218", "submit", (184, 46)),
            arrow("M350 53C420 53 470 70 478 108", "put", (440, 58)),
            arrow("M350 135H418", "claim", (384, 128)),
            arrow("M420 148H352", "stream", (386, 164)),
            arrow("M285 166V208", "invoke", (315, 192)),
            arrow("M350 233C430 233 480 210 484 158", "heartbeat, commit", (440, 250)),
            arrow("M550 130C590 130 600 90 640 78", "stream", (585, 92)),
            arrow("M610 213C570 213 540 190 520 158", "close, reap", (598, 178)),
        ],
    )


def lease() -> str:
    steps = ("open", "claim", "invoke", "begin", "start", "heartbeat", "commit", "settle")
    row = [box(20 + 92 * n, 60, step, width=82) for n, step in enumerate(steps)]
    row += [arrow(f"M{102 + 92 * n} 83H{110 + 92 * n}") for n in range(len(steps) - 1)]
    row += [
        '<text x="20" y="40">poller</text><text x="296" y="40">executor</text>',
        box(296, 150, "close", "lock time and grace passed", width=190),
        box(516, 150, "reap", "its tasks go back", width=160),
        arrow("M391 106V148", "no heartbeat", (435, 132)),
        arrow("M486 173H514"),
        '<text x="20" y="178">reaper</text>',
    ]
    return drawing(770, 215, "The life of a lease", row)


PLACES = {"PENDING": (200, 90), "RUNNING": (420, 90), "SUCCESS": (640, 20), "DONE": (640, 230), "FAILED": (420, 230)}
LABELS = {
    ("", "PENDING"): ("M90 113H198", (145, 105)),
    ("PENDING", "RUNNING"): ("M330 100H418", (374, 92)),
    ("RUNNING", "PENDING"): ("M420 126H332", (376, 145)),
    ("RUNNING", "SUCCESS"): ("M550 100C590 95 600 60 638 48", (575, 66)),
    ("RUNNING", "DONE"): ("M550 126C610 130 660 180 680 228", (600, 216)),
    ("RUNNING", "FAILED"): ("M485 136V228", (524, 185)),
    ("FAILED", "PENDING"): ("M420 262C300 262 250 220 246 138", (318, 276)),
    ("PENDING", "FAILED"): ("M285 136C300 190 350 235 418 245", (390, 186)),
    ("PENDING", "DONE"): ("M210 136C150 350 650 360 700 278", (430, 306)),
    ("SUCCESS", "DONE"): ("M705 66V228", (748, 150)),
}


def state_machine() -> str:
    found: dict[tuple[str, str], list[str]] = {}
    for row in TRANSITIONS:
        edge = ("" if row.source is None else row.source.value, row.target.value)
        if edge[0] != edge[1]:
            found.setdefault(edge, []).append(row.event.value.replace("_", " "))
    drawn = [box(*place, status) for status, place in PLACES.items()]
    for edge, events in found.items():
        path, (x, y) = LABELS[edge]
        drawn.append(arrow(path))
        for line, pair in enumerate(events[at : at + 2] for at in range(0, len(events), 2)):
            drawn.append(
                f'<text class="s" x="{x}" y="{y + 13 * line}" text-anchor="middle">{escape(", ".join(pair))}</text>'
            )
    return drawing(790, 335, "The states of a task and what moves it between them", drawn)


DRAWINGS = {"parts": parts, "lease": lease, "state-machine": state_machine}


def main() -> None:
    for name, draw in DRAWINGS.items():
        (IMAGES / f"{name}.svg").write_text(draw(), encoding="utf-8")


if __name__ == "__main__":
    main()
