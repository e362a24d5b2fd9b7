"""What became of one grant, and the table that says so of all."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

HEAD = """# Least privilege, measured

Made by `make least-privilege`. Do not edit.

On the embedded AWS every call is judged by IAM, those of the functions' own roles too. Each grant below was taken from
its role alone, in the running stack; then probes (`tests/least_privilege/probes.py`) ran until one failed. The grant
was given back, and the same probe had to pass. A grant whose absence no probe noticed fails the target, unless a reason
stands beside it: what the embedded AWS does by itself, and AWS does in the function's name.

"""


@dataclass(frozen=True)
class Found:
    """`noticed_by` is the probe that failed (or the calls that changed); `reason` why none can."""

    role: str
    action: str
    resource: str
    noticed_by: str | None
    reason: str | None

    @property
    def is_unneeded(self) -> bool:
        return self.noticed_by is None and self.reason is None

    def row(self) -> str:
        noticed = self.noticed_by.replace("_", " ") if self.noticed_by else None
        shown = noticed or (f"*not shown:* {self.reason}" if self.reason else "**nothing: not needed**")
        return f"| `{self.action}` | {self.resource} | {shown} |"


def page(functions: Sequence[Found], callers: Sequence[Found]) -> str:
    """The page of docs/. Grants that AWS alone can show are counted apart."""
    shown = sum(found.noticed_by is not None for found in functions)
    text = HEAD + (
        f"{len(functions)} grants of functions: {shown} noticed, {len(functions) - shown} with a reason. "
        f"{len(callers)} paths of callers' policies.\n"
    )
    for title, found, third in (
        ("Functions", functions, "without it this fails"),
        ("Callers", callers, "without it"),
    ):
        text += f"\n## {title}\n"
        for role in dict.fromkeys(each.role for each in found):
            text += f"\n### {role}\n\n| action | on | {third} |\n|---|---|---|\n"
            text += "".join(f"{each.row()}\n" for each in found if each.role == role)
    return text
