"""The command `thunder` on a machine whose clock jumps: `jumped_clock.py FILE ARGUMENTS...`.

The clock is off by the seconds that FILE holds, from the moment it holds any. Signatures keep the right time: AWS
refuses those that are five minutes off, and then nothing of this is seen.
"""

from __future__ import annotations

import sys
import time
from collections.abc import Callable
from pathlib import Path


def jumping(clock: Callable[[], float], offset: Path) -> Callable[[], float]:
    """The clock, off by what the file says when it is read."""

    def now() -> float:
        text = offset.read_text() if offset.exists() else ""
        return clock() + float(text or 0)

    return now


if __name__ == "__main__":
    time.time = jumping(time.time, Path(sys.argv.pop(1)))

    from thunder.cli.main import main

    sys.exit(main())
