"""How fast a backlog of tasks that do nothing is worked off: our stack and its rivals, on one embedded AWS, in one run.

    python -m bench.throughput --tasks 10000 [--seed-tasks 2000] [--pollers 1,2,4] [--library-tasks 2000]

Prints one JSON object. Every backlog is put into place while nothing works on it; the clock runs from the word to go to
the last task's SUCCESS. The embedded AWS is one process that answers one request at a time, so what is compared is how
much each asks of DynamoDB and Lambda for a task: the requests are counted in the same run.
"""

from __future__ import annotations

import argparse
import json
import subprocess
import sys
import time
import uuid
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any

from bench.arena import Arena, arena
from bench.library_claims import measure_claims
from bench.meter import Reading
from bench.report import conditions
from bench.rivals.queue_stack import QueueStack
from bench.rivals.seed_agent import new_item
from thunder.local.aws import client
from thunder.local.progress import Progress

PATIENCE_SECONDS = 900
PUT_ITEMS = 25
WARM_UP_TASKS = 300  # containers start and open their connections: a cold start is another figure
ITEM_CALLS = ("PutItem", "UpdateItem", "DeleteItem", "GetItem", "Query", "BatchGetItem")


LABELS = {
    "ours": "ours",
    "sqsLambda": "SQS and Lambda, three writes",
    "sqsLambdaTwoWrites": "SQS and Lambda, two writes",
    "seedAgent1": "seed's agent, 1 process",
    "seedAgent4": "seed's agent, 4 processes",
}
FIGURES = {
    "tasksPerSecond": "tasks/s",
    "tasks": "tasks",
    "seconds": "s",
    "databaseCallsPerTask": "DynamoDB requests/task",
    "invocationsPerTask": "invocations/task",
    "writeUnitsPerTask": "write units/task",
    "refusedWritesPerTask": "lost races/task",
    "loadBefore": "load before",
}
CLAIM_FIGURES = {
    "claimsPerSecond": "claims/s",
    "callsPerClaim": "DynamoDB requests/claim",
    "lostRacesPerTask": "lost races/task",
}
CONDITIONS = """Each backlog of tasks that do nothing stands before anything works on it (so no submit is in these
figures), containers are warm, and the clock runs from the first change of a task to the last SUCCESS. Ours is the
deployed stack as it is, with doorbell, recorder and schedules; the queue's writes are PENDING, RUNNING and SUCCESS, or
without RUNNING. The seed's agent does not pause after a full batch, which its description has it do. The embedded AWS
answers one request at a time: what asks for little is fast here."""


@dataclass(frozen=True)
class Drained:
    """One backlog worked off."""

    tasks: int
    seconds: float
    used: Reading
    table: str

    def figures(self) -> dict[str, Any]:
        calls = {name: value for name, value in self.used.below("calls", self.table).items() if name in ITEM_CALLS}
        return {
            "tasksPerSecond": round(self.tasks / self.seconds, 1),
            "tasks": self.tasks,
            "seconds": round(self.seconds, 1),
            "databaseCallsPerTask": round(sum(calls.values()) / self.tasks, 2),
            "callsPerTask": {name: round(value / self.tasks, 3) for name, value in sorted(calls.items())},
            "invocationsPerTask": round(self.used.total("invocations") / self.tasks, 3),
            "refusedWritesPerTask": round(self.used.total("refused", self.table) / self.tasks, 4),
            "writeUnitsPerTask": round(self.used.total("writes", self.table) / self.tasks, 2),
        }


def main(arguments: Sequence[str] | None = None) -> None:
    parser = argparse.ArgumentParser(prog="bench.throughput", description="Backlogs worked off, side by side.")
    parser.add_argument("--tasks", type=int, default=10_000)
    parser.add_argument("--seed-tasks", type=int, help="of the seed's agent alone (default: as many)")
    parser.add_argument("--pollers", default="1,2,4", help="how many pollers claim through the library alone")
    parser.add_argument("--library-tasks", type=int, default=2_000, help="for those")
    given = parser.parse_args(arguments)
    pollers = [int(each) for each in given.pollers.split(",") if each]
    with arena() as place:
        drains = run(place, given.tasks, given.seed_tasks or given.tasks)
    with Progress().step("claims through the library alone"):
        claims = {each: measure_claims(given.library_tasks, each) for each in pollers}
    print(json.dumps(report(drains, claims)))


def run(place: Arena, tasks: int, seed_tasks: int, *, warm_up: int = WARM_UP_TASKS) -> dict[str, dict[str, Any]]:
    """What each system made of its backlog."""
    progress, result = Progress(), {}
    with progress.step("warming up"):
        drain_ours(place, warm_up)
        for queue in (place.queue, place.lean):
            drain_queue(place, queue, warm_up)
    drains: dict[str, Callable[[], Drained]] = {
        "ours": lambda: drain_ours(place, tasks),
        "sqsLambda": lambda: drain_queue(place, place.queue, tasks),
        "sqsLambdaTwoWrites": lambda: drain_queue(place, place.lean, tasks),
        "seedAgent1": lambda: drain_seed(place, seed_tasks, processes=1),
        "seedAgent4": lambda: drain_seed(place, seed_tasks, processes=4),
    }
    for name, drain in drains.items():
        load = conditions()["loadOneMinute"]
        with progress.step(f"working off a backlog: {name}"):
            result[name] = {**drain().figures(), "loadBefore": load}
    return result


def report(drains: Mapping[str, Mapping[str, Any]], claims: Mapping[int, Mapping[str, Any]]) -> dict[str, Any]:
    ours = drains["ours"]["tasksPerSecond"]
    calls = sorted({name for each in drains.values() for name in each["callsPerTask"]})
    return {
        "text": [CONDITIONS],
        "tables": [
            {
                "title": "A backlog worked off",
                "columns": ["system", *FIGURES.values(), "ours to this one"],
                "rows": [
                    [LABELS[name], *(each[figure] for figure in FIGURES), round(ours / each["tasksPerSecond"], 2)]
                    for name, each in drains.items()
                ],
            },
            {
                "title": "Requests to DynamoDB for a task",
                "columns": ["system", *calls],
                "rows": [
                    [LABELS[name], *(each["callsPerTask"].get(call, 0) for call in calls)]
                    for name, each in drains.items()
                ],
            },
            {
                "title": "Claims through the library alone",
                "columns": ["pollers", *CLAIM_FIGURES.values()],
                "rows": [[str(number), *(each[figure] for figure in CLAIM_FIGURES)] for number, each in claims.items()],
            },
        ],
    }


def names(prefix: str, count: int) -> list[str]:
    run = uuid.uuid4().hex[:8]
    return [f"{prefix}-{run}-{number:06d}" for number in range(count)]


# ---- ours ------------------------------------------------------------------------------------------------------------


def drain_ours(place: Arena, tasks: int) -> Drained:
    """The deployed stack as it is: schedules on, doorbell and recorder on the stream. The queue is paused until the
    backlog stands and the doorbell has seen it, then the poller is woken as its schedule would."""
    ours = place.ours
    with ours.paused():
        ours.put_all(names("drain", tasks))
        place.meter.settle(seconds=120)
    ours.switch_schedules(on=True)
    try:
        with drained(place, ours.table, tasks) as done:
            ours.sweep(wait=False)
    finally:
        ours.switch_schedules(on=False)
    return done[0]


# ---- the rivals ------------------------------------------------------------------------------------------------------


def drain_queue(place: Arena, queue: QueueStack, tasks: int) -> Drained:
    queue.submit_all(names("drain", tasks), "nothing", "")
    place.meter.settle()
    with drained(place, queue.table, tasks) as done:
        queue.switch(on=True)
    queue.switch(on=False)
    return done[0]


def drain_seed(place: Arena, tasks: int, *, processes: int) -> Drained:
    dynamodb, table = client("dynamodb", place.endpoint), place.seed_table
    ids = names(f"drain{processes}", tasks)
    for first in range(0, tasks, PUT_ITEMS):
        entries = [
            {"PutRequest": {"Item": new_item(task_id, "nothing", "", max_retries=3, now=time.time())}}
            for task_id in ids[first : first + PUT_ITEMS]
        ]
        assert not dynamodb.batch_write_item(RequestItems={table: entries}).get("UnprocessedItems")
    place.meter.settle()
    agents: list[subprocess.Popen[str]] = []
    try:
        with drained(place, table, tasks) as done:
            agents += [seed_process(place, table) for _ in range(processes)]
    finally:
        for agent in agents:
            agent.terminate()
        for agent in agents:
            agent.wait(timeout=30)
    return done[0]


def seed_process(place: Arena, table: str, *, batch: int = 10) -> subprocess.Popen[str]:
    command = [sys.executable, "-m", "bench.rivals.seed_agent", "--endpoint", place.endpoint, "--table", table]
    return subprocess.Popen([*command, "--batch", str(batch)], stdout=subprocess.DEVNULL, text=True)


@contextmanager
def drained(place: Arena, table: str, tasks: int) -> Iterator[list[Drained]]:
    """Within it, give the word to go. Leaving it waits for so many more tasks to succeed, and yields what that took,
    from when the first of them changed to when the last one succeeded."""
    done: list[Drained] = []
    before = place.meter.read()
    wanted = before.total("became", table, "SUCCESS") + tasks
    yield done
    changed = before.total("became", table)
    place.meter.wait_until(
        lambda reading: reading.total("became", table) > changed, seconds=PATIENCE_SECONDS, doing=f"a start in {table}"
    )
    begun = time.time()
    after = place.meter.wait_until(
        lambda reading: reading.total("became", table, "SUCCESS") >= wanted,
        seconds=PATIENCE_SECONDS,
        doing=f"{tasks} tasks of {table}",
    )
    seconds = after.total("last", table, "SUCCESS") - begun
    done.append(Drained(tasks, seconds, place.meter.settle(seconds=15).since(before), table))


if __name__ == "__main__":
    main()
