"""How evenly agents share the work: so many `thunder agent` processes over one table of the embedded AWS.

    python -m bench.agents --tasks 10000 --agents 4 [--seconds 0.05] [--threads 10] [--batches 2]

Prints one JSON object. The table is the embedded AWS's own and empty but for the tasks; the handler writes a line to a
file each time it runs, so duplicates are counted from outside. Shares are counted from when all agents have claimed:
`spread` is the largest share less the smallest, relative to an even one (0.05: within 5 %).
"""

from __future__ import annotations

import argparse
import json
import os
import signal
import subprocess
import sys
import time
from collections import Counter
from collections.abc import Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

from bench.small_task import small_task
from tests.support.stores import TABLE, Backend, embedded_backend
from thunderagent.codec import to_item
from thunderagent.schema import Layout

SHARDS = 4
PUT_ITEMS = 25  # of one BatchWriteItem
HANDLERS = Path(__file__).with_name("agent_tasks")
PATIENCE_SECONDS = 120  # without any start at all


@dataclass(frozen=True)
class Load:
    """What is to be done, and by how many."""

    tasks: int
    agents: int
    seconds: float
    threads: int
    batches: int


def main(arguments: Sequence[str] | None = None) -> None:
    parser = argparse.ArgumentParser(prog="bench.agents", description="How evenly agents share the work.")
    parser.add_argument("--tasks", type=int, default=10_000)
    parser.add_argument("--agents", type=int, default=4)
    parser.add_argument("--seconds", type=float, default=0.05, help="how long each task takes")
    parser.add_argument("--threads", type=int, default=10)
    parser.add_argument("--batches", type=int, default=2)
    load = Load(**vars(parser.parse_args(arguments)))
    with TemporaryDirectory(prefix="thunder-bench-") as directory:
        starts = Path(directory) / "starts"
        starts.mkdir()
        with embedded_backend(Path(directory) / "aws") as backend:
            put_tasks(backend, load, starts)
            reports = run_agents(backend, load, starts)
        print(json.dumps({**vars(load), **summary(starts, load, reports)}, indent=1))


def put_tasks(backend: Backend, load: Load, starts: Path) -> None:
    """As submits leave them, by the batch: the submits are not what is measured."""
    layout, now = Layout(shards=SHARDS), round(time.time(), 3)
    payload = json.dumps({"directory": str(starts), "seconds": load.seconds})

    def item(number: int) -> Mapping[str, Any]:
        task = small_task(f"bench-{number:06d}", type="bench.start", payload=payload, now=now, layout=layout)
        return to_item(task)

    def put(first: int) -> None:
        numbers = range(first, min(first + PUT_ITEMS, load.tasks))
        entries = [{"PutRequest": {"Item": item(number)}} for number in numbers]
        answer = backend.send("BatchWriteItem", {"RequestItems": {TABLE: entries}})
        assert not answer.get("UnprocessedItems")

    with ThreadPoolExecutor(4) as pool:
        list(pool.map(put, range(0, load.tasks, PUT_ITEMS)))


def run_agents(backend: Backend, load: Load, starts: Path) -> list[dict[str, Any]]:
    """Start them together, stop them in the orderly way when every task has been started and has ended."""
    agents = [start_agent(backend, load, number) for number in range(load.agents)]
    try:
        wait_for_starts(starts, load)
        time.sleep(load.seconds + 5)  # the last ones end and are committed
    finally:
        for agent in agents:
            agent.send_signal(signal.SIGTERM)
        outputs = [agent.communicate(timeout=90)[0] for agent in agents]
    return [json.loads(output) for output in outputs]


def start_agent(backend: Backend, load: Load, number: int) -> subprocess.Popen[str]:
    endpoint = str(backend.endpoint)
    executor = {"kind": "agent", "threads": load.threads, "maxInFlight": 100, "timeoutSeconds": 900}
    environment = {
        "PATH": os.environ["PATH"],
        "TABLE_NAME": TABLE,
        "AWS_ENDPOINT_URL": endpoint,
        "AWS_REGION": "us-east-1",
        "AWS_ACCESS_KEY_ID": "test",
        "AWS_SECRET_ACCESS_KEY": "test",
        "NO_PROXY": "127.0.0.1",
        "EXECUTORS": json.dumps({"default": executor}),
        "DISPATCH_SHARDS": str(SHARDS),
        "LOG_LEVEL": "WARNING",
    }
    thunder = str(Path(sys.executable).with_name("thunder"))
    command = [thunder, "--output", "json", "agent", "--handlers", str(HANDLERS)]
    command += ["--batches", str(load.batches), "--name", f"agent-{number}"]
    return subprocess.Popen(command, env=environment, stdout=subprocess.PIPE, text=True)


def wait_for_starts(starts: Path, load: Load) -> None:
    last, changed = -1, time.monotonic()
    while (count := sum(len(lines) for lines in read(starts).values())) < load.tasks:
        if count != last:
            last, changed = count, time.monotonic()
        if time.monotonic() - changed > PATIENCE_SECONDS:
            raise SystemExit(f"no start for {PATIENCE_SECONDS} s, {count} of {load.tasks} so far")
        time.sleep(1)


def read(starts: Path) -> dict[str, list[tuple[str, float]]]:
    """Per process: the tasks it started, and when."""
    found = {}
    for file in starts.glob("*.starts"):
        lines = [line.split() for line in file.read_text().splitlines()]
        found[file.stem] = [(task_id, float(at)) for task_id, at in lines]
    return found


def summary(starts: Path, load: Load, reports: Sequence[Mapping[str, Any]]) -> dict[str, Any]:
    by_process = read(starts)
    times = Counter(task_id for lines in by_process.values() for task_id, _ in lines)
    together = max(min(at for _, at in lines) for lines in by_process.values())
    shares = sorted(sum(at >= together for _, at in lines) for lines in by_process.values())
    instants = [at for lines in by_process.values() for _, at in lines]
    return {
        "started": len(times),
        "duplicates": sum(times.values()) - len(times),
        "claimed": sorted(report["claimed"] for report in reports),
        "conflicts": sum(report["conflicts"] for report in reports),
        "succeeded": sum(report["ended"].get("succeeded", 0) for report in reports),
        "shares": shares,
        "spread": round((shares[-1] - shares[0]) / (sum(shares) / len(shares)), 3),
        "tasksPerSecond": round(load.tasks / max(0.001, max(instants) - min(instants)), 1),
    }


if __name__ == "__main__":
    main()
