"""What can go wrong between `thunder local up` and a running stack."""

from __future__ import annotations

from pathlib import Path


class LocalError(Exception):
    """The local stack cannot do what was asked; the message tells the operator what to do about it."""


class CommandFailed(LocalError):
    """A tool run for the operator ended badly; its output is in `log`."""

    def __init__(self, title: str, code: int, log: Path) -> None:
        super().__init__(f"{title} failed (exit code {code}). The end of {log}:\n{last_lines(log)}")
        self.code = code
        self.log = log


def last_lines(log: Path, count: int = 25) -> str:
    """The last `count` lines of a log, indented; a missing log reads as empty."""
    text = log.read_text(errors="replace") if log.exists() else ""
    return "\n".join(f"    {line}" for line in text.splitlines()[-count:])
