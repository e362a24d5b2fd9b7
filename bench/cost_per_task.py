"""What a task costs, metered: our stack, the seed's agent and SQS with Lambda, on one embedded AWS, in one run.

    python -m bench.cost_per_task [--tasks 30] [--payloads 200,5120,51200] [--batches 1,10,30]

Prints one JSON object. For every case so many tasks are submitted past any API, worked off in batches of the given
size, and all that was consumed until everything has come to rest is divided by their number. Ours includes the lease of
each batch, the recorder and its events; sweeps that find nothing, schedules and the doorbell are off. `overhead` is
what the functions write about themselves (`cost#` items), whatever the number of tasks.
"""

from __future__ import annotations

import argparse
import json
import subprocess
import time
import uuid
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any

from bench.arena import Arena, arena
from bench.list_prices import dollars_per_million
from bench.meter import Reading
from bench.ours import OurStack
from bench.rivals.queue_stack import Submits
from bench.rivals.seed_agent import new_item
from bench.throughput import seed_process
from thunder.local.aws import client
from thunder.local.progress import Progress
from thunderagent.cost import load_prices

PATIENCE_SECONDS = 120
WARM_UP_TASKS = 20  # as many executors as there may be at once: their start would be on the first case's bill
RETRY_SECONDS = 3  # after which the queue delivers a failed message again: a test waits no longer than it has to
ENDS = ("SUCCESS", "FAILED")
OVERHEAD = ("cost", "control", "counter")


SYSTEMS = ("ours", "sqsLambda", "seedAgent")
LABELS = {"ours": "ours", "sqsLambda": "SQS and Lambda", "seedAgent": "seed's agent"}
BESIDE = {"writeUnits": "write units", "dollarsPerMillion": "$ a million"}
FIGURES = {
    "writeUnits": "write units",
    "readUnits": "read units",
    "databaseCalls": "DynamoDB requests",
    "queueRequests": "SQS requests",
    "invocations": "invocations",
    "milliseconds": "ms of functions here",
    "logBytes": "log bytes",
    "overheadWriteUnits": "write units of overhead in all",
    "dollarsOfTimeHere": "$ a million for that time",
}
CONDITIONS = """
{tasks} tasks of each case, submitted past any API, worked off in batches of the size named; all that was
consumed from the first submit until everything had come to rest, divided by the tasks. Ours includes the lease of each
batch, the sweep that found the tasks, and the recorder; an API in front (of any of the three) adds its request and its
function. SQS with Lambda writes a row PENDING at the submit, RUNNING and SUCCESS or FAILED in the function, and has no
index to list tasks by; its message carries the payload. The seed's agent is written from its description: an index of
all attributes by status and time of creation. Dollars are list prices of {date}, {region}: write and read units, SQS
requests (those of Lambda's pollers included), invocations and log bytes. The time of functions stands in a column of
its own, because here it is the time of a busy machine, start-up included. Not counted: completion events on the bus
(ours, $1 a million, can be switched off), the host of the seed's agent, storage, idle polling, and the window of our
poller, a fixed sum a month (docs/cost.md). Overhead is what the functions write about their own cost, once a minute
and container, whatever the number of tasks. A batch of 30 is no cheaper for us than three of 10: it runs on ten
threads, and each start beyond the first ten is recorded in the lease before it happens, so that a crash charges the
right tasks."""


@dataclass(frozen=True)
class Case:
    """So many bytes of payload, in batches of that size, ending that way."""

    name: str
    payload: int
    batch: int
    work: str = "nothing"
    listed: bool = True


@dataclass(frozen=True)
class Consumed:
    """What a system used for one case."""

    tasks: int
    used: Reading
    table: str

    def figures(self, functions: Sequence[str] = (), *, queue: bool = False) -> dict[str, Any]:
        """Per task, and dollars per million. `functions` is how the names of those begin that work for the tasks."""
        used, per = self.used, self.tasks
        writes = used.below("writes", self.table)
        overhead = sum(writes.pop(kind, 0) for kind in OVERHEAD)
        totals = {
            "writeUnits": sum(writes.values()),
            "readUnits": used.total("reads", self.table),
            "databaseCalls": used.total("calls", self.table),
            "queueRequests": used.total("sqs") if queue else 0,
            "invocations": _of_functions(used, "invocations", functions),
            "milliseconds": _of_functions(used, "ms", functions),
            "logBytes": _of_functions(used, "logBytes", functions),
        }
        return {
            **{name: round(value / per, 2) for name, value in totals.items()},
            "overheadWriteUnits": overhead,
            **dollars_per_million(totals, per),
        }


def _of_functions(used: Reading, kind: str, names: Sequence[str]) -> float:
    return sum(used.by_function(kind, name) for name in names)


def main(arguments: Sequence[str] | None = None) -> None:
    parser = argparse.ArgumentParser(prog="bench.cost_per_task", description="What a task costs, side by side.")
    parser.add_argument("--tasks", type=int, default=30, help="of each case")
    parser.add_argument("--payloads", default="200,5120,51200", help="bytes")
    parser.add_argument("--batches", default="1,10,30")
    given = parser.parse_args(arguments)
    payloads, batches = ([int(each) for each in text.split(",")] for text in (given.payloads, given.batches))
    with arena() as place:
        found = run(place, cases(payloads, batches), given.tasks)
    print(json.dumps(report(found, given.tasks)))


def cases(payloads: Sequence[int], batches: Sequence[int]) -> list[Case]:
    found = [Case(f"{payload} B, batch {batch}", payload, batch) for payload in payloads for batch in batches]
    first, usual = payloads[0], batches[min(1, len(batches) - 1)]
    found += [
        Case(f"{payload} B, batch {usual}, ends not listed", payload, usual, listed=False) for payload in payloads
    ]
    found += [
        Case(f"{first} B, batch {usual}, one retry", first, usual, "once"),
        Case(f"{first} B, batch {usual}, dead letter", first, usual, "never"),
    ]
    return found


def run(place: Arena, chosen: Sequence[Case], tasks: int) -> dict[str, dict[str, Any]]:
    """By case and system."""
    progress = Progress()
    result: dict[str, dict[str, Any]] = {}
    prepare(place)
    with progress.step("warming up"):
        of_ours(place, Case("", 0, 1), WARM_UP_TASKS)
        of_queue(place, Case("", 0, 1), WARM_UP_TASKS)
    for case in chosen:
        with progress.step(f"cost of {case.name}"):
            result[case.name] = side_by_side(place, case, tasks)
    return result


def prepare(place: Arena) -> None:
    """The poller makes one pass when it is told to, and nothing else takes tasks."""
    place.ours.switch_stream("Doorbell", on=False)
    place.ours.configure("Poller", POLL_WINDOW_SECONDS="0", POLL_START_JITTER_SECONDS="0")
    place.queue.retry_after(RETRY_SECONDS)


def report(found: Mapping[str, Mapping[str, Any]], tasks: int) -> dict[str, Any]:
    """As the page has it: a grid of write units and dollars side by side, and one of everything for each system."""
    prices = load_prices()
    beside = [
        [case, *(systems.get(name, {}).get(figure, "") for figure in BESIDE for name in SYSTEMS)]
        for case, systems in found.items()
    ]
    everything = [
        [f"{case}: {LABELS[name]}", *(systems[name][figure] for figure in FIGURES)]
        for case, systems in found.items()
        for name in SYSTEMS
        if name in systems
    ]
    labels = [f"{LABELS[name]}: {word}" for word in BESIDE.values() for name in SYSTEMS]
    return {
        "text": [CONDITIONS.strip().format(tasks=tasks, date=prices.date, region=prices.region)],
        "tables": [
            {"title": "Side by side, per task", "columns": ["case", *labels], "rows": beside},
            {"title": "What was counted, per task", "columns": ["case", *FIGURES.values()], "rows": everything},
        ],
    }


def side_by_side(place: Arena, case: Case, tasks: int) -> dict[str, Any]:
    functions = [place.ours.prefix + part for part in ("Executor", "Recorder")]
    found = {"ours": of_ours(place, case, tasks).figures(functions)}
    if case.listed:  # nothing changes for those who list nothing, or everything
        found["sqsLambda"] = of_queue(place, case, tasks).figures([place.queue.name], queue=True)
        found["seedAgent"] = of_seed(place, case, tasks).figures()
    return found


def names(count: int) -> list[str]:
    """Ids as long as UUIDs, because their bytes are paid for."""
    return [str(uuid.uuid4()) for _ in range(count)]


@contextmanager
def consumed(place: Arena, table: str, tasks: int) -> Iterator[list[Consumed]]:
    """What happens inside and until all has come to rest."""
    done: list[Consumed] = []
    before = place.meter.settle()
    yield done
    done.append(Consumed(tasks, place.meter.settle().since(before), table))


def wait_for_ends(place: Arena, table: str, number: int, meanwhile: Callable[[], object] = lambda: None) -> None:
    """Until so many tasks have ended, whatever the end. `meanwhile` is done again and again."""
    until = time.monotonic() + PATIENCE_SECONDS
    while place.meter.became(table, *ENDS) < number:
        if time.monotonic() > until:
            raise SystemExit(f"{table}: not all tasks ended within {PATIENCE_SECONDS} s")
        meanwhile()
        time.sleep(0.2)


def of_ours(place: Arena, case: Case, tasks: int) -> Consumed:
    ours = place.ours
    ours.configure("Poller", POLL_BATCH_SIZE=str(case.batch))
    _list_ends(ours, case.listed)
    before = place.meter.read()
    wanted = place.meter.became(ours.table, *ENDS) + tasks
    with consumed(place, ours.table, tasks) as done:
        for task_id in names(tasks):
            ours.submit(task_id, case.work, "x" * case.payload)
        wait_for_ends(place, ours.table, wanted, lambda: _sweep_if_needed(place, before))
    if not case.listed:
        _list_ends(ours, True)
    return done[0]


def _sweep_if_needed(place: Arena, before: Reading) -> None:
    """A pass only while something waits for one: tasks in flight are none of its business."""
    reading, table = place.meter.read().since(before), place.ours.table
    if reading.total("became", table, "PENDING") > reading.total("became", table, "RUNNING"):
        place.ours.sweep()


def _list_ends(ours: OurStack, listed: bool) -> None:
    ours.configure("Executor", LIST_COMPLETED="true" if listed else "false")


def of_queue(place: Arena, case: Case, tasks: int) -> Consumed:
    queue = place.queue
    queue.resize(case.batch)
    wanted = place.meter.became(queue.table, *ENDS) + tasks
    with consumed(place, queue.table, tasks) as done:
        submits = Submits.to(queue)
        for task_id in names(tasks):
            submits.submit(task_id, case.work, "x" * case.payload)
        queue.switch(on=True)
        wait_for_ends(place, queue.table, wanted)
    queue.switch(on=False)
    return done[0]


def of_seed(place: Arena, case: Case, tasks: int) -> Consumed:
    dynamodb, table = client("dynamodb", place.endpoint), place.seed_table
    wanted = place.meter.became(table, *ENDS) + tasks
    retries = 0 if case.work == "never" else 3
    with consumed(place, table, tasks) as done:
        for task_id in names(tasks):
            item = new_item(task_id, case.work, "x" * case.payload, max_retries=retries, now=time.time())
            dynamodb.put_item(TableName=table, Item=item)
        agent = seed_process(place, table, batch=case.batch)
        try:
            wait_for_ends(place, table, wanted)
        finally:
            _end(agent)
    return done[0]


def _end(process: subprocess.Popen[str]) -> None:
    process.terminate()
    process.wait(timeout=30)


if __name__ == "__main__":
    main()
