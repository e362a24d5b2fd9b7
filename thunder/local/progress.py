"""Progress on stderr: a line per step, and a sign of life while a long step runs."""

from __future__ import annotations

import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field

SIGN_OF_LIFE_SECONDS = 5.0


def to_stderr(line: str) -> None:
    print(line, file=sys.stderr, flush=True)


@dataclass(frozen=True)
class Progress:
    """Says what happens; `write` takes whole lines."""

    write: Callable[[str], None] = field(default=to_stderr)

    def say(self, text: str) -> None:
        self.write(f"==> {text}")

    @contextmanager
    def step(self, text: str) -> Iterator[None]:
        """Says what begins and, when it ends well, how long it took."""
        self.say(text)
        begun = time.monotonic()
        yield
        self.write(f"    done in {time.monotonic() - begun:.1f} s")

    def sign_of_life(self, doing: str) -> Callable[[], None]:
        """What to call again and again while waiting: now and then it says that it still does, and since when."""
        begun = said = time.monotonic()

        def still() -> None:
            nonlocal said
            if (now := time.monotonic()) - said >= SIGN_OF_LIFE_SECONDS:
                self.write(f"    {doing}, {now - begun:.0f} s so far")
                said = now

        return still

    def wait(self, process: subprocess.Popen[bytes], doing: str) -> int:
        """Waits for the process with a line every few seconds; returns its exit code."""
        begun = time.monotonic()
        while True:
            try:
                return process.wait(timeout=SIGN_OF_LIFE_SECONDS)
            except subprocess.TimeoutExpired:
                self.write(f"    {doing}, {time.monotonic() - begun:.0f} s so far")


SILENT = Progress(write=lambda line: None)
