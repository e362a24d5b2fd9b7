"""Two versions of the library on the same items: pollers of one with executors of the other, in processes of their own.

The table is handed from one to the other with each command, so that every order is the test's own choice.
"""

from __future__ import annotations

import json
import subprocess
import sys
import zipfile
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from tests.support.fakes import START, FakeClock
from tests.support.memory_dynamodb import MemoryDynamoDB
from tests.support.releases import LIBRARY, RELEASED, SIDE, ordered
from tests.support.stores import Backend
from thunderagent.audit import audit
from thunderagent.codec import from_item, to_item
from thunderagent.model import is_of_newer_format
from thunderagent.schema import FORMAT_VERSION, Layout

RELEASES = ordered([path.name for path in RELEASED.iterdir() if path.is_dir()])
ROUNDS = 12
LAPSE_SECONDS = 70.0  # a lease of a side is 60 s, the grace 5
TASKS = [
    *({"type": "side.echo", "task_id": f"echo-{n}", "payload": json.dumps({"n": n})} for n in range(6)),
    {"type": "side.echo", "task_id": "large", "payload": json.dumps("x" * 5_000)},
    {"type": "side.flaky", "task_id": "flaky"},
    {"type": "side.fail", "task_id": "fail"},
    {"type": "side.snooze", "task_id": "snooze"},
    {"type": "side.steps", "task_id": "steps"},
    {"type": "side.echo", "task_id": "child", "depends_on": ("flaky", "echo-1")},
    {"type": "side.echo", "task_id": "orphan", "depends_on": ("fail",)},
]
ENDS = {"fail": "FAILED", "orphan": "FAILED"}


class Process:
    """One version, as `release_side.py` runs it."""

    def __init__(self, name: str, library: Path) -> None:
        self.process = subprocess.Popen(
            [sys.executable, "-E", str(library / "side.py"), name],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            text=True,
            cwd=library,
        )

    def do(self, **command: Any) -> dict[str, Any]:
        assert self.process.stdin is not None
        assert self.process.stdout is not None
        self.process.stdin.write(json.dumps(command) + "\n")
        self.process.stdin.flush()
        line = self.process.stdout.readline()
        assert line, "the process ended: its traceback is on stderr"
        answer: dict[str, Any] = json.loads(line)
        return answer

    def end(self) -> None:
        assert self.process.stdin is not None
        assert self.process.stdout is not None
        self.process.stdin.close()
        self.process.stdout.close()
        self.process.wait(10)


class World:
    """The table and the time; processes take turns on it."""

    def __init__(self) -> None:
        self.items: list[dict[str, Any]] = []
        self.now = START
        self.events: list[dict[str, Any]] = []

    def do(self, process: Process, what: str, **more: Any) -> Any:
        answer = process.do(do=what, now=self.now, items=self.items, **more)
        self.items = answer["items"]
        self.events += answer["events"]
        return answer["said"]

    def plain(self) -> dict[str, dict[str, Any]]:
        return {item["taskId"]: item for item in map(from_item, self.items)}

    def findings(self) -> list[Any]:
        memory, clock = MemoryDynamoDB(), FakeClock(self.now)
        for item in self.plain().values():
            memory.put(item)
        store = Backend("memory", memory).store(layout=Layout(shards=1), clock=clock)
        return audit(store, settle_seconds=0).findings


@pytest.fixture(scope="module")
def libraries(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Path]:
    """Each version's library with its side in a directory of its own. `now` is the one under test."""
    found = {}
    for version in RELEASES:
        found[version] = tmp_path_factory.mktemp(f"release-{version}")
        with zipfile.ZipFile(RELEASED / version / "library.zip") as archive:
            archive.extractall(found[version])
    found["now"] = tmp_path_factory.mktemp("now")
    (found["now"] / "thunderagent").symlink_to(LIBRARY)
    (found["now"] / "side.py").write_bytes(SIDE.read_bytes())  # no link: Python would look beside its target
    return found


@pytest.fixture(params=[(version, order) for version in RELEASES for order in ("old polls", "new polls")], ids=str)
def sides(request: pytest.FixtureRequest, libraries: dict[str, Path]) -> Iterator[tuple[Process, Process]]:
    """A poller's process and an executor's, of different versions. Each also submits and reaps in turn."""
    version, order = request.param
    old, new = Process("old", libraries[version]), Process("new", libraries["now"])
    yield (old, new) if order == "old polls" else (new, old)
    old.end()
    new.end()


def test_every_task_ends_as_it_should(sides: tuple[Process, Process]) -> None:
    poller, executor = sides
    world = World()
    for number, task in enumerate(TASKS):
        world.do(sides[number % 2], "submit", task=task)
    for _ in range(ROUNDS):
        world.do(poller, "sweep")
        while world.events:
            world.do(executor, "execute", event=world.events.pop(0))
        world.now += 5
        world.do(executor, "reap")
    ended = world.plain()
    assert {task["task_id"]: ended[task["task_id"]]["status"] for task in TASKS} == {
        task["task_id"]: ENDS.get(task["task_id"], "SUCCESS") for task in TASKS
    }
    assert ended["steps"]["result"] == "1", "a step remembered by one version is remembered for the other"
    assert not [item_id for item_id in ended if item_id.startswith("lease#")]
    assert world.findings() == []


def test_a_lost_batch_of_one_is_taken_back_by_the_other(sides: tuple[Process, Process]) -> None:
    poller, other = sides
    world = World()
    world.do(poller, "submit", task=TASKS[0])
    assert world.do(poller, "sweep") == 1
    late = world.events.pop()
    world.now += LAPSE_SECONDS
    assert world.do(other, "reap") == 1
    assert world.plain()["echo-0"]["status"] == "PENDING"
    assert world.do(other, "execute", event=late)["begun"] is False, "its lease was closed by the other version"
    world.now += 5
    assert world.do(poller, "sweep") == 1
    world.do(other, "execute", event=world.events.pop())
    assert world.plain()["echo-0"]["status"] == "SUCCESS"
    assert world.findings() == []


@pytest.mark.parametrize(
    "row",
    [
        {},
        {"payload": {"of": "a later form"}},  # malformed, as far as this version knows
        {"deadline": START - 1},
        {"status": "RUNNING", "leaseToken": "t", "lockTime": START - 600, "owner": "later"},
        {"dispatchKey": "BLOCKED#default#0", "blockedCount": 1, "deadline": START - 1},
    ],
    ids=["due", "unreadable", "past its deadline", "past its lock", "blocked past its deadline"],
)
def test_a_newer_format_than_known_is_left_alone(row: dict[str, Any], libraries: dict[str, Path]) -> None:
    """Byte for byte, by sweep and reaper, however often they look; and it hides nobody behind it."""
    process, world = Process("now", libraries["now"]), World()
    try:
        world.do(process, "submit", task=TASKS[0])
        (made,) = [item for item in world.plain().values() if item["taskId"] == "echo-0"]
        newer = {**made, "taskId": "newer", "dueAt": START - 100, "formatVersion": FORMAT_VERSION + 1, **row}
        assert is_of_newer_format(newer)
        world.items.append(to_item(newer))
        for _ in range(3):
            world.do(process, "sweep")
            while world.events:
                world.do(process, "execute", event=world.events.pop())
            world.do(process, "reap")
            world.now += 61
        assert to_item(world.plain()["newer"]) == to_item(newer)
        assert world.plain()["echo-0"]["status"] == "SUCCESS"
    finally:
        process.end()
