"""What one look costs with nothing, a thousand, a hundred thousand and a million tasks in the table.

    python -m bench.growth [--sizes 0 1000 100000 1000000]

Prints one JSON object, and a table on stderr. The library, the API function and the console run in this process over
a table in memory that meters as DynamoDB does (bench.ordered_table). For each look, and each number of tasks: the
requests to DynamoDB, read and write units, items and index entries read, processor time of the code above the table,
and time in all, the table in memory included. `MOST` says what a look may cost whatever the number of tasks: a look
that costs more ends the bench with an error.
"""

from __future__ import annotations

import argparse
import json
import sys
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from bench.mixture import RARE_TYPE, Mixture
from bench.ordered_table import OrderedDynamoDB
from bench.report import conditions, table
from functions.api import handler
from tests.support.api import Api
from tests.support.console import make_site
from tests.support.fakes import START
from thunderagent.upkeep import Upkeep

SIZES = (0, 1_000, 100_000, 1_000_000)
STATUSES = ("PENDING", "RUNNING", "SUCCESS", "FAILED", "DONE")
TASK, WAITING = "row-0000000", "row-0000082"


@dataclass(frozen=True)
class Look:
    """What one look cost."""

    calls: int
    read_units: float
    write_units: float
    keys: int
    cpu_ms: float
    wall_ms: float


@dataclass(frozen=True)
class Most:
    """What a look may cost at most, with any number of tasks in the table."""

    calls: int
    units: float  # read and written
    keys: int


LISTS = {status: Most(40, 120, 330) for status in STATUSES}
MOST: Mapping[str, Most] = {
    "sweep": Most(210, 300, 1_000),
    "sweep, nothing due": Most(35, 20, 600),
    "census": Most(120, 350, 30_000),
    "task": Most(1, 1, 1),
    "why": Most(8, 6, 20),
    "GET /queues": Most(4, 4, 8),
    "GET /stats": Most(4, 4, 8),
    **{f"list {status}": most for status, most in LISTS.items()},
    "list FAILED, a rare type": Most(30, 320, 1_600),
    "list PENDING, the next page": Most(50, 150, 480),
    "console /": Most(4, 4, 8),
    "console /dead-letters": Most(40, 150, 800),
    "console /queues": Most(4, 4, 8),
    **{f"console /tasks {status}": most for status, most in LISTS.items()},
    "console /tasks tabs": Most(4, 4, 8),
    "console /task": Most(2, 2, 2),
}


def main(arguments: Sequence[str] | None = None) -> None:
    parser = argparse.ArgumentParser(prog="bench.growth", description="What a look costs as the table grows.")
    parser.add_argument("--sizes", type=int, nargs="+", default=SIZES, help="tasks in the table")
    given = parser.parse_args(arguments)
    before = conditions()
    by_size = [looks(size) for size in given.sizes]
    result = {"conditions": before, "tasks in the table": list(given.sizes), **as_figures(by_size)}
    print(table(result), file=sys.stderr)
    print(json.dumps(result))
    if over := [name for found in by_size for name in beyond(found)]:
        raise SystemExit(f"more than they may cost: {', '.join(over)}")


def as_figures(by_size: Sequence[Mapping[str, Look]]) -> dict[str, dict[str, list[float]]]:
    """By look and measure, one figure for each number of tasks. What writes nowhere has no row of write units."""
    return {
        name: {
            "calls": [found[name].calls for found in by_size],
            "readUnits": [found[name].read_units for found in by_size],
            **({"writeUnits": written} if any(written := [found[name].write_units for found in by_size]) else {}),
            "keysRead": [found[name].keys for found in by_size],
            "cpuMs": [found[name].cpu_ms for found in by_size],
            "wallMs": [found[name].wall_ms for found in by_size],
        }
        for name in by_size[0]
    }


def beyond(found: Mapping[str, Look]) -> list[str]:
    """Looks that cost more than they may."""
    return [
        f"{name} ({look.calls} calls, {look.read_units + look.write_units:g} units, {look.keys} keys)"
        for name, look in found.items()
        if look.calls > MOST[name].calls
        or look.read_units + look.write_units > MOST[name].units
        or look.keys > MOST[name].keys
    ]


def looks(size: int) -> dict[str, Look]:
    """Each look, once, with so many tasks in the table."""
    db = OrderedDynamoDB()
    mixture = Mixture(size, START)
    db.load(mixture.tasks())
    if size:
        db.load(mixture.running())
    api = Api(table=db)
    site = make_site(api)
    kept = handler.service
    handler.service = lambda: api.service  # type: ignore[assignment]
    try:
        return _looks(db, api, site.get, bool(size))
    finally:
        handler.service = kept


def _looks(db: OrderedDynamoDB, api: Api, page: Callable[..., Any], has_tasks: bool) -> dict[str, Look]:
    found: dict[str, Look] = {}

    def look(name: str, action: Callable[[], Any]) -> Any:
        db.reset()
        processor, began = time.process_time(), time.monotonic()
        answer = action()
        wall, processor = time.monotonic() - began, time.process_time() - processor
        if any(call.operation == "Scan" for call in db.calls):
            raise SystemExit(f"{name} scans the table")
        found[name] = Look(
            len(db.calls),
            round(db.read_units, 1),
            round(db.write_units, 1),
            db.keys_read,
            round((processor - db.seconds) * 1000, 1),
            round(wall * 1000, 1),
        )
        return answer

    def get(path: str) -> Any:
        answer = api.call("GET", path.partition("?")[0], query=path.partition("?")[2])
        if has_tasks and answer.status != 200:
            raise SystemExit(f"{path} answered {answer.status}: {answer.text[:200]}")
        return answer.json

    def shown(path: str) -> str:
        return str(page(path, status=200 if has_tasks or "/task/" not in path else 404))

    settle(api)  # templates are compiled, the queues' settings are read: a container and a console in their stride
    look("census", lambda: settle(api))
    look("task", lambda: get(f"/tasks/{TASK}"))
    look("why", lambda: get(f"/tasks/{WAITING}/why"))
    look("GET /queues", lambda: get("/queues"))
    look("GET /stats", lambda: get("/stats"))
    for status in STATUSES:
        look(f"list {status}", lambda: get(f"/tasks?status={status}&limit=100"))  # noqa: B023  # called at once
    look("list FAILED, a rare type", lambda: get(f"/tasks?status=FAILED&type={RARE_TYPE}&limit=100"))
    token = get("/tasks?status=PENDING&limit=100").get("nextToken", "")
    following = f"/tasks?status=PENDING&limit=100{f'&nextToken={token}' if token else ''}"
    look("list PENDING, the next page", lambda: get(following))
    for address in ("/", "/tasks?status=PENDING", "/dead-letters", "/queues", f"/task/{TASK}"):
        shown(address)
    look("console /", lambda: shown("/"))
    look("console /dead-letters", lambda: shown("/dead-letters"))
    look("console /queues", lambda: shown("/queues"))
    for status in STATUSES:
        look(f"console /tasks {status}", lambda: shown(f"/tasks?status={status}"))  # noqa: B023
    look("console /tasks tabs", lambda: shown("/part/tasks/tabs?status=FAILED"))
    look("console /task", lambda: shown(f"/task/{TASK}"))
    look("sweep, nothing due", lambda: _sweep_before_all(api))
    look("sweep", lambda: api.parts.sweeper.run_pass())
    return found


def settle(api: Api) -> None:
    """What the reaper does each minute for those who ask for figures."""
    Upkeep(api.parts, undelivered=None).census.publish(
        list(api.parts.queues.all(fresh=True).values()), observer=api.parts.telemetry
    )


def _sweep_before_all(api: Api) -> Any:
    """A pass of another poller two hours ago: everything that waits is due later."""
    api.clock.advance(-7200)
    try:
        return api.parts.sweeper.run_pass()
    finally:
        api.clock.advance(7200)


if __name__ == "__main__":
    main()
