"""A backlog that takes hours to work off."""

from __future__ import annotations

import time
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from typing import Any

from drills.session import Session
from drills.work import eventually
from thunderagent import transact_submit
from thunderagent.client import ApiError, NewTask
from thunderagent.deep_counts import KEYS_A_RUN

QUEUE = "bulk"
WRITERS = 4
ITEMS_A_WRITE = 25


def rehearse(session: Session) -> None:
    """What waits in the same queue, what in another, what overtakes, and who is refused."""
    tasks, probes, within = (2_000, 5, 15.0) if session.quick else (session.tasks or 20_000, 10, 60.0)
    session.heading(f"A queue with {tasks:,} tasks that nobody expected")
    session.thunder("queue", "set", QUEUE, "--max-concurrency", "20")
    began = time.monotonic()
    load(session, tasks)
    loaded = time.monotonic()
    session.figure("tasks", tasks)
    session.figure("loaded in, s", loaded - began)
    session.heading("What you see")
    session.thunder("queue", "list")
    behind = session.waits("same queue", [NewTask("demo.echo", 1, {"queue": QUEUE})] * probes, within=within)
    session.thunder("stats")
    session.heading("What it does not do: other queues do not wait for it")
    beside = session.waits("another queue", [NewTask("demo.echo", 1)] * probes, within=within)
    session.heading("What you do: urgent work overtakes it, and whoever makes it worse is told so")
    urgent = NewTask("demo.echo", 1, {"queue": QUEUE, "priority": "high"})
    ahead = session.waits("same queue, high priority", [urgent] * probes, within=within)
    session.thunder("queue", "set", QUEUE, "--max-backlog", str(tasks // 2), "--reason", "no more of it")
    refused_after = refused(session, within=90)
    session.figure("a submit is refused with 429 after, s", refused_after)
    if not session.quick:
        eventually(lambda: is_counted_whole(session), "a whole count", within=180 + 60 * tasks / KEYS_A_RUN)
        session.figure("counted to the last after, s", time.monotonic() - loaded)
        session.thunder("queue", "list")
    session.heading("What is not wanted any more is cancelled: ask first, then do")
    session.thunder("task", "cancel", "--queue", QUEUE, "--type", "demo.sleep", "--dry-run", "--limit", "500")
    session.require(ahead["p50"] < behind["p50"] / 2, "urgent tasks wait as long as all others")
    session.require(beside["p50"] < behind["p50"] / 2, "another queue waits as long")


def is_counted_whole(session: Session) -> bool:
    """Whether the queue's backlog is a figure, and not the least that it must be."""
    return not session.stack.api().queue(QUEUE)["backlog"].get("atLeast", False)


def load(session: Session, tasks: int) -> None:
    """Writes the tasks past the API, as the library makes them: an API would take ten times as long."""
    table = str(session.stack.record["tableName"])
    dynamodb = session.stack.aws("dynamodb")

    def write(items: list[dict[str, Any]]) -> None:
        left = {table: [{"PutRequest": {"Item": item}} for item in items]}
        while left:
            left = dynamodb.batch_write_item(RequestItems=left).get("UnprocessedItems", {})

    with ThreadPoolExecutor(WRITERS) as pool:
        list(pool.map(write, batches(table, tasks)))


def batches(table: str, tasks: int) -> Iterator[list[dict[str, Any]]]:
    """The task items, as many at a time as one BatchWriteItem takes."""
    task = NewTask("demo.sleep", {"seconds": 0.2}, {"queue": QUEUE})
    for first in range(0, tasks, ITEMS_A_WRITE):
        entries = transact_submit(table, *[task] * min(ITEMS_A_WRITE, tasks - first), shards=4)
        yield [entry["Put"]["Item"] for entry in entries]


def refused(session: Session, *, within: float) -> float:
    """Submits until the queue is said to be full; returns how long that took, in seconds."""
    api = session.stack.api(attempts=1)
    began = time.monotonic()
    while time.monotonic() - began < within:
        try:
            api.submit("demo.echo", 1, queue=QUEUE)
        except ApiError as error:
            session.say(f"a submit is answered {error.status} {error.code}: {error}")
            session.require(error.status == 429, "it is refused for another reason")
            return time.monotonic() - began
        time.sleep(1)
    session.require(False, "a full queue goes on accepting")
    return within
