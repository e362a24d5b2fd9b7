"""How long a task waits from its submit to the start of its handler: sweep alone, doorbell, and SQS with Lambda.

    python -m bench.latency [--rates 1,10,50] [--seconds 20] [--ways sweep,doorbell,sqsLambda]

Prints one JSON object. One embedded AWS, one run; tasks that do nothing are submitted at a steady rate past any API, in
turn to each way. Ours is `startedAt` less `createdAt`; for the queue, when its function has the message less when its
row was made, just before the message is sent. All instants are of one machine's clock. The sweep keeps its schedule:
what is submitted in the gap between two windows of the poller waits for the next one.
"""

from __future__ import annotations

import argparse
import json
import statistics
import time
import uuid
from collections.abc import Callable, Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from typing import Any, Protocol

from bench.arena import Arena, arena
from bench.report import conditions
from bench.rivals.queue_stack import QueueStack, Submits
from thunder.local.aws import client
from thunder.local.progress import Progress
from thunderagent.codec import from_item

RATES, WAYS = "1,10,50", "sweep,doorbell,sqsLambda"
WARM_UP_RATE = 10.0  # containers start, connections open: a cold start is another figure
FEWEST = 40
SUBMITTERS = 8
WAIT_SECONDS = 180
BATCH_GET_KEYS = 100

Submit = Callable[[str], None]


class Stored(Protocol):
    """Whoever has a table of tasks with `createdAt` and `startedAt`."""

    @property
    def endpoint(self) -> str: ...
    @property
    def table_name(self) -> str: ...


def main(arguments: Sequence[str] | None = None) -> None:
    parser = argparse.ArgumentParser(prog="bench.latency", description="Submit to start, side by side.")
    parser.add_argument("--rates", default=RATES, help="tasks per second")
    parser.add_argument("--seconds", type=float, default=20, help="of submits at each rate")
    parser.add_argument("--ways", default=WAYS)
    given = parser.parse_args(arguments)
    rates = [float(each) for each in given.rates.split(",")]
    with arena() as place:
        rows = run(place, rates, given.seconds, given.ways.split(","))
    print(json.dumps(report(rows)))


def run(
    place: Arena, rates: Sequence[float], seconds: float, ways: Sequence[str], *, fewest: int = FEWEST
) -> list[dict[str, Any]]:
    """One row for each rate and way, in turn: what disturbs the machine disturbs all ways. `fewest` tasks are submitted
    at least, however slow the rate: a percentile of a handful says nothing."""
    progress, rows = Progress(), []
    for way in ways:
        with progress.step(f"warming up: {way}"), started(place, way) as submit:
            waits_of(place, way, submit, WARM_UP_RATE, fewest)
    for rate in rates:
        for way in ways:
            load = conditions()["loadOneMinute"]
            with progress.step(f"{way} at {rate:g} a second"), started(place, way) as submit:
                waits = waits_of(place, way, submit, rate, max(fewest, round(rate * seconds)))
            rows.append({"rate": rate, "way": way, **summary(waits), "load": load})
    return rows


def report(rows: Sequence[Mapping[str, Any]]) -> dict[str, Any]:
    columns = ["tasks", "p50", "p95", "p99", "max", "load"]
    lines = [[f"{row['way']}, {row['rate']:g} a second", *(row[name] for name in columns)] for row in rows]
    table = {"title": "Milliseconds from submit to start", "columns": ["way and rate", *columns], "rows": lines}
    text = (
        "Tasks that do nothing, submitted past any API to one embedded AWS, each way in turn. `load` is the machine's "
        "when that row began. Both doorbell and queue are pushed here; on AWS a stream is polled four times a second."
    )
    return {"text": [text], "tables": [table]}


@contextmanager
def started(place: Arena, way: str) -> Iterator[Submit]:
    """That way and no other takes tasks; what submits one to it."""
    if way == "sqsLambda":
        place.queue.switch(on=True)
        try:
            yield Submits.to(place.queue).submit
        finally:
            place.queue.switch(on=False)
        return
    place.ours.switch_stream("Doorbell", on=way == "doorbell")
    place.meter.settle()  # what the stream kept while the doorbell was off is delivered first
    place.ours.switch_schedules(on=True)
    place.ours.sweep(wait=False)
    try:
        yield place.ours.submit
    finally:
        place.ours.switch_schedules(on=False)


def waits_of(place: Arena, way: str, submit: Submit, rate: float, count: int) -> list[float]:
    """Seconds that each of so many tasks waited."""
    table = _table_of(place, way)
    run_id, begun = uuid.uuid4().hex[:8], time.monotonic()
    ids = [f"{way.lower()}-{run_id}-{number:05d}" for number in range(count)]
    wanted = place.meter.became(table, "SUCCESS") + count
    with ThreadPoolExecutor(SUBMITTERS) as pool:
        submits = []
        for number, task_id in enumerate(ids):
            time.sleep(max(0.0, begun + number / rate - time.monotonic()))
            submits.append(pool.submit(submit, task_id))
        for each in submits:
            each.result()
    place.meter.wait_until(
        lambda reading: reading.total("became", table, "SUCCESS") >= wanted, seconds=WAIT_SECONDS, doing=way
    )
    return [task["startedAt"] - task["createdAt"] for task in read_items(place.endpoint, table, ids)]


def _table_of(place: Arena, way: str) -> str:
    stored: QueueStack | Any = place.queue if way == "sqsLambda" else place.ours
    return str(stored.table)


def read(stack: Stored, ids: Sequence[str]) -> list[dict[str, Any]]:
    """The tasks of a stack as they are stored; those that are not there are missing."""
    return read_items(stack.endpoint, stack.table_name, ids)


def read_items(endpoint: str, table_name: str, ids: Sequence[str]) -> list[dict[str, Any]]:
    table = client("dynamodb", endpoint)
    found: list[dict[str, Any]] = []
    for first in range(0, len(ids), BATCH_GET_KEYS):
        keys = [{"taskId": {"S": task_id}} for task_id in ids[first : first + BATCH_GET_KEYS]]
        answer = table.batch_get_item(RequestItems={table_name: {"Keys": keys, "ConsistentRead": True}})
        found += [from_item(raw) for raw in answer["Responses"][table_name]]
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
