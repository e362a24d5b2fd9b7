"""How quick the console is over a large table: each list page and the others, many times, on the embedded AWS.

    python -m bench.console_list --tasks 100000 --asks 20 [--state-dir .thunder]

Prints one JSON object, and a table on stderr. The tasks (see bench.mixture) are put into the table in bulk; the console
is started as an operator starts it; its pages are asked for in turn, and nothing else is asked meanwhile. Times are
those of a page as a browser waits for it, in milliseconds. Nothing drains the queue: it is paused, and no function
reads the table's stream. Then each page is built once more in this process, by the same code over the same table, to
see which requests it makes: a Scan ends the bench with an error, and so does a role of the API that may scan.
"""

from __future__ import annotations

import argparse
import http.client
import json
import os
import re
import signal
import statistics
import subprocess
import sys
import time
from collections import Counter
from collections.abc import Callable, Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from itertools import chain, islice
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

from bench.latency import summary
from bench.mixture import RARE_TYPE, TYPES, Mixture
from bench.report import conditions, table
from bench.submit import client_of
from examples.stack import LocalStack
from functions.api import handler
from tests.support.api import Api
from tests.support.console import Site, make_site
from tests.support.stores import embedded_client
from thunder.local.aws import client
from thunderagent.clock import SystemClock
from thunderagent.codec import to_item
from thunderagent.store import Send
from thunderagent.transport import boto_send

QUEUE = "bench-list"
TARGET_MS = 1000  # of a list page, at the 95th percentile
LISTS = "/tasks?"
PUT_ITEMS = 25  # of one BatchWriteItem
PUT_THREADS = 4
ASK_SECONDS = 60
FOLLOWING = re.compile(r'href="(/tasks\?[^"]*after=[^"]+)" rel="next"')


def main(arguments: Sequence[str] | None = None) -> None:
    parser = argparse.ArgumentParser(prog="bench.console_list", description="The console over a large table.")
    parser.add_argument("--tasks", type=int, default=100_000)
    parser.add_argument("--asks", type=int, default=20, help="how often each page is asked for")
    parser.add_argument("--state-dir", type=Path, default=Path(".thunder"))
    given = parser.parse_args(arguments)
    stack = LocalStack.of_record(given.state_dir / "local.json")
    before = conditions()
    load = fill(stack, given.tasks)
    pages, work, requests = measured(stack, given.state_dir, asks=given.asks)
    lists = [each for name, times in pages.items() if name.startswith(("list", "next")) for each in times]
    result = {
        "conditions": before,
        "tasks": given.tasks,
        "loadSeconds": load,
        "asksOfEachPage": given.asks,
        "listPages": dict(zip(("p50Ms", "p95Ms", "maxMs"), _figures(lists), strict=True)),
        "targetP95Ms": TARGET_MS,
        "p50, p95, max in ms": {name: _figures(times) for name, times in pages.items()},
        "processor time of the embedded AWS, ms": work,
        "requests": requests,
        "scans": 0,
    }
    print(table(result), file=sys.stderr)
    print(json.dumps(result))


# ---- the table ------------------------------------------------------------------------------------------------------


def fill(stack: LocalStack, tasks: int) -> float:
    """Puts the tasks into the table; how long that took. The queue is paused, and the stream's readers are off."""
    client_of(stack).set_queue(QUEUE, {"paused": True})
    functions = client("lambda", stack.endpoint)
    for mapping in functions.list_event_source_mappings()["EventSourceMappings"]:
        functions.update_event_source_mapping(UUID=mapping["UUID"], Enabled=False)
    mixture = Mixture(tasks, round(time.time(), 3), queue=QUEUE)
    send = boto_send(embedded_client(stack.endpoint))

    def put(items: Sequence[Mapping[str, Any]]) -> None:
        entries = [{"PutRequest": {"Item": to_item(item)}} for item in items]
        answer = send("BatchWriteItem", {"RequestItems": {stack.table_name: entries}})
        if answer.get("UnprocessedItems"):
            raise SystemExit("the embedded AWS left items of a batch unprocessed")

    began = time.monotonic()
    items = chain(mixture.tasks(), mixture.running())
    with ThreadPoolExecutor(PUT_THREADS) as pool:
        while wave := [batch for _ in range(PUT_THREADS * 10) if (batch := list(islice(items, PUT_ITEMS)))]:
            list(pool.map(put, wave))
    took = round(time.monotonic() - began, 1)
    count(stack)
    return took


def count(stack: LocalStack) -> None:
    """What the reaper does each minute, once: until it has counted, whoever asks for figures counts for himself."""
    functions = client("lambda", stack.endpoint)
    pages = functions.get_paginator("list_functions").paginate()
    names = [each["FunctionName"] for page in pages for each in page["Functions"] if "-Reaper" in each["FunctionName"]]
    for name in names:
        functions.invoke(FunctionName=name, Payload=b"{}")


# ---- the pages ------------------------------------------------------------------------------------------------------


def measured(
    stack: LocalStack, state_dir: Path, *, asks: int
) -> tuple[dict[str, list[float]], dict[str, int], dict[str, str]]:
    """By page: seconds of each ask; what the embedded AWS worked for one, in milliseconds (the median: once a minute
    the reaper is in it); the requests that it makes."""
    times: dict[str, list[float]] = {}
    worked: dict[str, list[float]] = {}
    pid = int(json.loads((state_dir / "local.json").read_text())["pid"])
    with console(state_dir) as ask:
        pages = dict(addresses(ask))
        for name, address in pages.items():
            ask(address)  # templates are compiled, the API's containers are started
            times[name], worked[name] = [], []
        for _ in range(asks):  # in turn: what the minute's reaper costs falls on all alike
            for name, address in pages.items():
                before, began = processor_seconds(pid), time.monotonic()
                ask(address)
                times[name].append(time.monotonic() - began)
                worked[name].append(processor_seconds(pid) - before)
    require_no_scan_allowed(stack)
    work = {name: round(statistics.median(each) * 1000) for name, each in worked.items()}
    return times, work, traced(stack, pages)


def processor_seconds(pid: int) -> float:
    """What a process has worked so far; Linux only (proc(5), `utime` and `stime`)."""
    fields = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()
    return (int(fields[11]) + int(fields[12])) / os.sysconf("SC_CLK_TCK")


def addresses(ask: Callable[[str], str]) -> Iterator[tuple[str, str]]:
    """What is asked for, by name: every kind of list page, those that follow, and the other pages with figures."""
    for status in ("PENDING", "RUNNING", "SUCCESS", "FAILED", "DONE"):
        address = f"{LISTS}status={status}"
        yield f"list {status}", address
        if (following := FOLLOWING.search(ask(address))) is not None:
            yield f"next {status}", following[1].replace("&amp;", "&")
    yield "list FAILED of a queue", f"{LISTS}status=FAILED&queue={QUEUE}"
    yield "list FAILED of a type", f"{LISTS}status=FAILED&type={TYPES[1]}"
    yield "list FAILED of a rare type", f"{LISTS}status=FAILED&type={RARE_TYPE}"
    yield "list PENDING of no type", f"{LISTS}status=PENDING&type=demo.none"
    yield "tabs", "/part/tasks/tabs?status=FAILED"
    yield "dead letters", "/dead-letters"
    yield "overview", "/"
    yield "queues", "/queues"
    yield "task", "/task/row-0000000"


@contextmanager
def console(state_dir: Path) -> Iterator[Callable[[str], str]]:
    """`thunder console`, signed in: a function that gets a page."""
    running = subprocess.Popen(
        [sys.executable, "-c", "from thunder.cli.main import main; main()", "--local", "console"],
        env={**os.environ, "THUNDER_STATE_DIR": str(state_dir.resolve()), "PYTHONPATH": os.pathsep.join(sys.path)},
        stdout=subprocess.PIPE,
        stderr=subprocess.DEVNULL,
        text=True,
    )
    try:
        assert running.stdout is not None
        entrance = urlsplit(running.stdout.readline().strip())
        assert entrance.hostname, "the console did not start"
        cookie = _enter(entrance.hostname, int(entrance.port or 0), f"{entrance.path}?{entrance.query}")
        with _Browser(entrance.hostname, int(entrance.port or 0), cookie) as browser:
            yield browser.get
    finally:
        running.send_signal(signal.SIGINT)
        try:
            running.communicate(timeout=10)
        finally:
            running.kill()


def _enter(host: str, port: int, path: str) -> str:
    connection = http.client.HTTPConnection(host, port, timeout=ASK_SECONDS)
    try:
        connection.request("GET", path)
        return str(connection.getresponse().getheader("set-cookie")).partition(";")[0]
    finally:
        connection.close()


class _Browser:
    """One kept connection, as a browser has it."""

    def __init__(self, host: str, port: int, cookie: str) -> None:
        self._connection = http.client.HTTPConnection(host, port, timeout=ASK_SECONDS)
        self._cookie = cookie

    def __enter__(self) -> _Browser:
        return self

    def __exit__(self, *error: object) -> None:
        self._connection.close()

    def get(self, address: str) -> str:
        """A page, whole. Ends the bench when it is an error."""
        self._connection.request("GET", address, headers={"cookie": self._cookie})
        answer = self._connection.getresponse()
        text = answer.read().decode()
        if answer.status != 200:
            raise SystemExit(f"{address} answered {answer.status}")
        return text


# ---- what is asked of DynamoDB --------------------------------------------------------------------------------------


def traced(stack: LocalStack, pages: Mapping[str, str]) -> dict[str, str]:
    """The calls of the API, and the requests to DynamoDB, behind each page. Raises SystemExit when one is a Scan."""
    made: list[str] = []
    site = site_over(stack, boto_send(embedded_client(stack.endpoint)), made.append)
    found: dict[str, str] = {}
    for name, address in pages.items():
        made.clear()
        site.exchange.asked.clear()
        site.get(address)
        if "Scan" in made:
            raise SystemExit(f"{address} scans the table")
        operations = ", ".join(f"{count} {operation}" for operation, count in sorted(Counter(made).items()))
        found[name] = f"{len(site.exchange.asked)} of the API: {operations}"
    return found


def site_over(stack: LocalStack, send: Send, heard: Callable[[str], None]) -> Site:
    """The console and the API in this process, over the stack's table. `heard` is told of each operation."""

    def recording(operation: str, arguments: Mapping[str, Any]) -> Mapping[str, Any]:
        heard(operation)
        return send(operation, arguments)

    api = Api(table=recording, clock=SystemClock(), table_name=stack.table_name)  # type: ignore[arg-type]
    handler.service = lambda: api.service  # type: ignore[assignment]
    return make_site(api)


def require_no_scan_allowed(stack: LocalStack) -> None:
    """Raises SystemExit when the API's role may scan. The embedded AWS enforces roles: a Scan would be an error."""
    iam = client("iam", stack.endpoint)
    names = [each["RoleName"] for page in iam.get_paginator("list_roles").paginate() for each in page["Roles"]]
    ours = [name for name in names if "-Api" in name]
    if not ours:
        raise SystemExit("there is no role of the API")
    for role in ours:
        for policy in iam.list_role_policies(RoleName=role)["PolicyNames"]:
            document = iam.get_role_policy(RoleName=role, PolicyName=policy)["PolicyDocument"]
            if re.search(r"dynamodb:(Scan|\*)", json.dumps(document)):
                raise SystemExit(f"role {role} may scan")


def _figures(seconds: Sequence[float]) -> list[float]:
    figures = summary(seconds)
    return [figures["p50"], figures["p95"], figures["max"]]


if __name__ == "__main__":
    main()
