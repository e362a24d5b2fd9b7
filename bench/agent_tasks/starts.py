"""A handler that leaves a line for each time it really runs, in a file of its process: the judge of duplicates."""

import os
import time
from pathlib import Path
from typing import Any

from thunderagent import task


@task("bench.start", timeout=60)
def start(payload: Any, ctx: Any) -> None:
    """`{"directory": …, "seconds": 0.05}`"""
    line = f"{ctx.task_id} {time.time():.3f}\n".encode()
    file = os.open(Path(payload["directory"]) / f"{os.getpid()}.starts", os.O_CREAT | os.O_APPEND | os.O_WRONLY)
    try:
        os.write(file, line)  # one write that appends: lines of several threads never mix
    finally:
        os.close(file)
    time.sleep(payload["seconds"])
