"""How long a task waits: from its acceptance by the API to the start of its handler, on the embedded AWS.

    python -m bench.latency --rate 10 --seconds 30 [--doorbell off] [--state-dir .thunder]

Prints one JSON object. Tasks are submitted one by one through the HTTP API at a steady rate; both instants are the
service's own (`createdAt`, `startedAt`), from one machine's clock. `--doorbell off` disables the stream's mapping for
the run: what is left is the sweep.
"""

from __future__ import annotations

import argparse
import json
import statistics
import time
from collections.abc import Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from botocore.credentials import Credentials

from examples.stack import LocalStack
from thunder.local.aws import client
from thunderagent.client import ThunderClient
from thunderagent.codec import from_item

WARM_UP_SECONDS = 5  # containers start, connections open; a cold stack on a busy machine is another figure
WAIT_SECONDS = 60
BATCH_GET_KEYS = 100
ENDED = {"SUCCESS", "FAILED", "DONE"}


def main(arguments: Sequence[str] | None = None) -> None:
    parser = argparse.ArgumentParser(prog="bench.latency", description="Submit to start, on the embedded AWS.")
    parser.add_argument("--rate", type=float, default=10, help="tasks per second")
    parser.add_argument("--seconds", type=float, default=30)
    parser.add_argument("--doorbell", choices=("on", "off"), default="on")
    parser.add_argument("--state-dir", type=Path, default=Path(".thunder"))
    given = parser.parse_args(arguments)
    stack = LocalStack.of_record(given.state_dir / "local.json")
    with doorbell(stack, enabled=given.doorbell == "on"):
        stack.start_poller()
        run(stack, rate=given.rate, seconds=WARM_UP_SECONDS)
        waits = run(stack, rate=given.rate, seconds=given.seconds)
    print(json.dumps({"rate": given.rate, "doorbell": given.doorbell, **summary(waits)}))


@contextmanager
def doorbell(stack: LocalStack, *, enabled: bool) -> Iterator[None]:
    """The stream's mapping switched for a while, and on again afterwards."""
    functions = client("lambda", stack.endpoint)
    mappings = functions.list_event_source_mappings()["EventSourceMappings"]
    ours = [each["UUID"] for each in mappings if "Doorbell" in each["FunctionArn"]]
    for uuid in ours:
        functions.update_event_source_mapping(UUID=uuid, Enabled=enabled)
    try:
        yield
    finally:
        for uuid in ours:
            functions.update_event_source_mapping(UUID=uuid, Enabled=True)


def run(stack: LocalStack, *, rate: float, seconds: float) -> list[float]:
    """Submit at the rate, wait for the end of all, and return what each waited, in seconds."""
    api = ThunderClient(
        stack.api_url,
        credentials=Credentials(stack.access_key_id, stack.secret_access_key),
        region=stack.region,
    )
    began = time.monotonic()
    with ThreadPoolExecutor(4) as pool:
        submits = []
        for number in range(max(1, round(rate * seconds))):
            time.sleep(max(0.0, began + number / rate - time.monotonic()))
            submits.append(pool.submit(api.submit, "demo.echo", {"number": number}))
        ids = [submit.result().task_id for submit in submits]
    tasks = wait_for(stack, ids)
    unfinished = [task["taskId"] for task in tasks if task["status"] != "SUCCESS"]
    if unfinished:
        raise SystemExit(f"{len(unfinished)} tasks did not succeed within {WAIT_SECONDS} s, {unfinished[0]} for one")
    return [task["startedAt"] - task["createdAt"] for task in tasks]


def wait_for(stack: LocalStack, ids: Sequence[str]) -> list[dict[str, Any]]:
    """The tasks once all have ended, or as they are when the time is up."""
    until = time.monotonic() + WAIT_SECONDS
    while True:
        tasks = read(stack, ids)
        if all(task["status"] in ENDED for task in tasks) or time.monotonic() > until:
            return tasks
        time.sleep(1)


def read(stack: LocalStack, ids: Sequence[str]) -> list[dict[str, Any]]:
    table = client("dynamodb", stack.endpoint)
    found: list[dict[str, Any]] = []
    for first in range(0, len(ids), BATCH_GET_KEYS):
        keys = [{"taskId": {"S": task_id}} for task_id in ids[first : first + BATCH_GET_KEYS]]
        answer = table.batch_get_item(RequestItems={stack.table_name: {"Keys": keys, "ConsistentRead": True}})
        found += [from_item(raw) for raw in answer["Responses"][stack.table_name]]
    return found


def summary(waits: Sequence[float]) -> dict[str, float]:
    """Milliseconds."""
    cuts = statistics.quantiles(waits, n=100, method="inclusive")
    return {
        "tasks": len(waits),
        "p50": round(cuts[49] * 1000),
        "p90": round(cuts[89] * 1000),
        "p95": round(cuts[94] * 1000),
        "p99": round(cuts[98] * 1000),
        "max": round(max(waits) * 1000),
    }


if __name__ == "__main__":
    main()
