"""How fast tasks are accepted, one by one and in batches, and what a full queue does: on the embedded AWS.

    python -m bench.submit --singles 300 --threads 8 --batches 5 --entries 500 [--state-dir .thunder]

Prints one JSON object, and a table on stderr. All goes through the HTTP API, signed, into queues that are paused:
nothing runs beside it. Times are those of a call as the client sees it, in milliseconds. Every task answered for is
then looked up in the table; one that is missing, or one too many, ends the bench with an error.
"""

from __future__ import annotations

import argparse
import json
import sys
import time
from collections.abc import Callable, Iterable, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from botocore.credentials import Credentials

from bench.latency import read, summary
from bench.report import conditions, table
from examples.stack import LocalStack
from thunder.local.aws import client
from thunderagent.backpressure import COUNT_SECONDS
from thunderagent.client import ApiError, NewTask, ThunderClient

TYPE = "demo.echo"
QUEUE, FULL_QUEUE = "bench-submit", "bench-full"
WARM_UP = 20  # containers start, connections open
PERCENTILE_CALLS = 50
PAYLOAD = {"region": "eu", "year": 2012, "note": "x" * 100}


@dataclass(frozen=True)
class Load:
    """How much is submitted. `backlog` is the `maxBacklog` of a queue that is sent as much again."""

    singles: int
    threads: int
    batches: int
    entries: int
    backlog: int


def main(arguments: Sequence[str] | None = None) -> None:
    parser = argparse.ArgumentParser(prog="bench.submit", description="Throughput of submits, on the embedded AWS.")
    parser.add_argument("--singles", type=int, default=300, help="tasks submitted one by one")
    parser.add_argument("--threads", type=int, default=8)
    parser.add_argument("--batches", type=int, default=5, help="batches, one after another")
    parser.add_argument("--entries", type=int, default=500, help="tasks of a batch")
    parser.add_argument("--backlog", type=int, default=60)
    parser.add_argument("--state-dir", type=Path, default=Path(".thunder"))
    given = vars(parser.parse_args(arguments))
    stack = LocalStack.of_record(given.pop("state_dir") / "local.json")
    load = Load(**given)
    before = conditions()
    result = {"conditions": before, "load": vars(load), **run(stack, load)}
    print(table(result), file=sys.stderr)
    print(json.dumps(result))


def run(stack: LocalStack, load: Load) -> dict[str, Any]:
    api = client_of(stack)
    api.set_queue(QUEUE, {"paused": True})
    api.set_queue(FULL_QUEUE, {"paused": True, "maxBacklog": load.backlog})
    in_parallel(load.threads, lambda number: submit(api, number), range(WARM_UP))
    return {
        "single": singles(stack, api, load),
        "batch": batches(stack, api, load),
        "fullQueue": full_queue(stack, load),
    }


def client_of(stack: LocalStack, **options: Any) -> ThunderClient:
    key = Credentials(stack.access_key_id, stack.secret_access_key)
    return ThunderClient(stack.api_url, credentials=key, region=stack.region, **options)


def submit(api: ThunderClient, number: int, queue: str = QUEUE) -> str:
    return api.submit(TYPE, {**PAYLOAD, "number": number}, queue=queue).task_id


def singles(stack: LocalStack, api: ThunderClient, load: Load) -> dict[str, Any]:
    began = time.monotonic()
    answers = in_parallel(load.threads, lambda number: timed(lambda: submit(api, number)), range(load.singles))
    seconds = time.monotonic() - began
    all_are_stored(stack, [task_id for task_id, _ in answers])
    return {"perSecond": round(load.singles / seconds, 1), **_calls([took for _, took in answers])}


def batches(stack: LocalStack, api: ThunderClient, load: Load) -> dict[str, Any]:
    tasks = [NewTask(TYPE, {**PAYLOAD, "number": number}, {"queue": QUEUE}) for number in range(load.entries)]
    began = time.monotonic()
    answers = [timed(lambda: api.submit_many(tasks)) for _ in range(load.batches)]
    seconds = time.monotonic() - began
    rejected = sum(len(report.rejected) for report, _ in answers)
    if rejected:
        raise SystemExit(f"{rejected} entries were rejected")
    all_are_stored(stack, [task.task_id for report, _ in answers for task in report.accepted])
    total = load.batches * load.entries
    return {"perSecond": round(total / seconds, 1), **_calls([took for _, took in answers])}


def full_queue(stack: LocalStack, load: Load) -> dict[str, Any]:
    """A queue filled to its `maxBacklog`, and as much again sent: who is refused, and what is stored.

    Containers count every few seconds: within those they let in what they do not see of one another.
    """
    api = client_of(stack, attempts=1)  # clients that do not try again
    filled = api.submit_many(NewTask(TYPE, number, {"queue": FULL_QUEUE}) for number in range(load.backlog))
    time.sleep(COUNT_SECONDS)

    def outcome(number: int) -> str | ApiError:
        try:
            return submit(api, number, FULL_QUEUE)
        except ApiError as error:
            return error

    outcomes = in_parallel(load.threads, lambda number: timed(lambda: outcome(number)), range(load.backlog))
    refused = [(each, took) for each, took in outcomes if isinstance(each, ApiError)]
    others = [error for error, _ in refused if (error.status, error.code) != (429, "backlog_full")]
    if others:
        raise SystemExit(f"a full queue answered {others[0]}")
    accepted = {task.task_id for task in filled.accepted} | {each for each, _ in outcomes if isinstance(each, str)}
    if (stored := rows_of(stack, FULL_QUEUE)) != accepted:
        raise SystemExit(f"{len(accepted)} tasks were accepted, {len(stored)} are stored")
    late = {"accepted": len(outcomes) - len(refused), "refused": len(refused)}
    return {"maxBacklog": load.backlog, "sentWhenFull": len(outcomes), **late, **_calls([took for _, took in outcomes])}


def in_parallel(threads: int, call: Callable[[int], Any], numbers: Iterable[int]) -> list[Any]:
    with ThreadPoolExecutor(threads) as pool:
        return list(pool.map(call, numbers))


def timed(call: Callable[[], Any]) -> tuple[Any, float]:
    began = time.monotonic()
    return call(), time.monotonic() - began


def _calls(seconds: Sequence[float]) -> dict[str, Any]:
    """Of a few calls the middle and the worst; a percentile of five is none."""
    figures = summary(seconds)
    calls = figures.pop("tasks")
    kept = figures if calls >= PERCENTILE_CALLS else {name: figures[name] for name in ("p50", "max")}
    return {"calls": calls, **{f"{name}Ms": value for name, value in kept.items()}}


def all_are_stored(stack: LocalStack, ids: Sequence[str]) -> None:
    stored = {task["taskId"] for task in read(stack, ids)}
    if missing := len(set(ids) - stored):
        raise SystemExit(f"{missing} of {len(ids)} accepted tasks are not in the table")


def rows_of(stack: LocalStack, queue: str) -> set[str]:
    pages = (
        client("dynamodb", stack.endpoint)
        .get_paginator("scan")
        .paginate(
            TableName=stack.table_name,
            FilterExpression="#queue = :queue AND attribute_exists(#type)",
            ExpressionAttributeNames={"#queue": "queue", "#type": "type"},
            ExpressionAttributeValues={":queue": {"S": queue}},
        )
    )
    return {item["taskId"]["S"] for page in pages for item in page["Items"]}


if __name__ == "__main__":
    main()
