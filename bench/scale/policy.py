"""The library's own pollers at work in simulated time: what their dispatch asks of the table for each task.

Sweep and doorbell are the real ones (queues, candidates, windows, packing, limits, caps, claims), each container with
its own caches and chance, over a model table through the `send` seam. Requests take time and meet the capacity of the
index key they touch; containers interleave at every request. The stream is read four times a second, as Lambda does.
Executors are modelled: an event arrives after a moment, its tasks end after theirs, and what they write is charged to
the same keys.
"""

from __future__ import annotations

import json
from collections import Counter, defaultdict, deque
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from bench.mixture import PAYLOAD
from bench.ordered_table import OrderedDynamoDB
from bench.scale.capacity import BURST_SECONDS, WRITE_UNITS
from bench.scale.functions import INVOKE_SECONDS
from bench.small_task import small_task
from tests.simulation.kernel import Kernel, Process
from tests.simulation.seams import SimClock, SimRandomness, SimThreads
from tests.support.polling import registry
from thunderagent.claims import Claims
from thunderagent.codec import Item, to_item
from thunderagent.dispatch import Sweeper
from thunderagent.doorbell import Doorbell
from thunderagent.errors import StoreThrottled
from thunderagent.queues import Queues
from thunderagent.schema import TABLE_KEY, Layout, lease_id
from thunderagent.settings import Executor, Settings
from thunderagent.states import Status
from thunderagent.store import Send, Store

QUEUE = "default"
REQUEST_SECONDS = (0.004, 0.008)  # of a request to DynamoDB from a function of its region
RETRY_SECONDS = 0.1
STREAM_SECONDS = 0.25  # between two looks of Lambda into a shard of the stream
STREAM_RECORDS = 100  # of one batch, as the doorbell's mapping has it
WRITES = frozenset({"PutItem", "UpdateItem", "DeleteItem"})


@dataclass(frozen=True)
class Load:
    """So many tasks a second for so long, each of them `task_seconds` long."""

    rate: float
    seconds: float
    pollers: int = 1
    doorbells: int = 0  # batches of the table's stream that are in work at the same time
    shards: int = 4
    max_in_flight: int = 1_000
    task_seconds: float = 0.05
    batch: int = 10
    drain: float = 0.0  # seconds more in which nothing new comes
    burst: float = 0.0  # seconds of capacity that each index key has saved when it begins

    def settings(self, table: str = "tasks") -> Settings:
        executor = Executor("default", "executor", max_in_flight=self.max_in_flight)
        return Settings(table, executors={"default": executor}, dispatch_shards=self.shards, poll_batch_size=self.batch)


@dataclass
class Measured:
    """What the pollers did. `calls` are theirs by operation; waits are from due to claimed, in seconds."""

    submitted: int = 0
    claimed: int = 0
    batches: int = 0
    conflicts: int = 0
    throttled: int = 0
    seconds: float = 0.0
    read_units: float = 0.0
    calls: Counter[str] = field(default_factory=Counter)
    waits: list[float] = field(default_factory=list)

    @property
    def calls_per_task(self) -> float:
        return sum(self.calls.values()) / max(1, self.claimed)

    @property
    def tasks_per_batch(self) -> float:
        return self.claimed / max(1, self.batches)

    @property
    def per_second(self) -> float:
        return self.claimed / max(0.001, self.seconds)

    def wait(self, share: float) -> float:
        """The wait that so many of a hundred tasks did not exceed."""
        ordered = sorted(self.waits) or [0.0]
        return ordered[min(len(ordered) - 1, int(share * len(ordered) / 100))]


@dataclass(frozen=True)
class Container:
    """One poller's worth of the library: `sweep` makes one pass and the pause after it, `ring` takes records of the
    stream. Both say how many tasks they claimed."""

    sweep: Callable[[], int]
    ring: Callable[[Sequence[Mapping[str, Any]]], int]


def container(
    load: Load, store: Store, threads: Any, invoke: Callable[[str, bytes], None], measured: Measured
) -> Container:
    declared, settings, observer = registry({"echo": "default"}), load.settings(store.table), _Conflicts(measured)
    queues = Queues(store, declared.queues, clock=store.clock)
    claims = Claims(store, invoke, threads=threads, owner=store.randomness.token()[:8], observer=observer)
    parts = (store, claims, declared, queues, settings)
    sweeper = Sweeper(*parts, reap_stray=lambda item: None, threads=threads, observer=observer)
    doorbell = Doorbell(*parts, threads=threads, observer=observer)

    def sweep() -> int:
        done = sweeper.run_pass()
        store.clock.sleep(sweeper.pause_after(done))
        return done.claimed

    return Container(sweep, lambda records: doorbell.ring(records).claimed)


class _Conflicts:
    """An observer that counts lost races, and nothing else: there are millions of events."""

    def __init__(self, measured: Measured) -> None:
        self._measured = measured

    def log(self, event: str, *, level: str = "INFO", **fields: Any) -> None:
        return None

    def measure(self, metric: str, value: float = 1, *, queue: str | None = None, type: str | None = None) -> None:
        if metric == "ClaimConflicts":
            self._measured.conflicts += int(value)


def task_of(number: int, load: Load, now: float) -> Item:
    """A small task as a submit leaves it, due at once."""
    layout = Layout(shards=load.shards)
    return small_task(f"task-{number:07d}", type="echo", payload=PAYLOAD, now=now, layout=layout, queue=QUEUE)


class ModelTable(OrderedDynamoDB):
    """Keeps no record of calls: there are millions."""

    def _record(self, call: Any, outcome: str) -> None:
        return None


class Tank:
    """Write units of one index key, refilled continuously: 1,000 a second, and what was saved of 300 s."""

    def __init__(self, now: float, burst: float) -> None:
        self._at, self.units = now, WRITE_UNITS * (1 + burst)

    def take(self, units: float, now: float) -> bool:
        """Whether there were so many. Of nothing, nothing is taken."""
        self.units = min(WRITE_UNITS * (1 + BURST_SECONDS), self.units + WRITE_UNITS * (now - self._at))
        self._at = now
        if units > self.units:
            return False
        self.units -= units
        return True


class Model:
    """The table, its capacity, the executors and the pollers in one simulated world."""

    def __init__(self, load: Load, *, seed: int = 1) -> None:
        self.load = load
        self.kernel = Kernel(seed, keep=False)
        self.db = ModelTable()
        self.measured = Measured()
        self.layout = Layout(shards=load.shards)
        self._tanks: defaultdict[str, Tank] = defaultdict(lambda: Tank(self.kernel.now, load.burst))
        self._began = self._last_claim = self.kernel.now
        self._stream: deque[Mapping[str, Any]] = deque()

    def run(self) -> Measured:
        """Feed the load, and let the pollers work until its end."""
        step = 1 / self.load.rate
        for number in range(int(self.load.rate * self.load.seconds)):
            self.kernel.at(self._began + number * step, lambda number=number: self._submit(number))  # type: ignore[misc]
        for number in range(self.load.pollers):
            self._start(f"poller{number}", self._sweep_on)
        for number in range(self.load.doorbells):
            self._start(f"doorbell{number}", self._ring_on)
        self.kernel.run_until(self._began + self.load.seconds + self.load.drain)
        self.measured.seconds = max(self._last_claim - self._began, self.load.seconds)
        self.measured.read_units = self.db.read_units
        self.kernel.close()
        return self.measured

    # ---- what happens by itself --------------------------------------------------------------------------------------

    def _submit(self, number: int) -> None:
        item = task_of(number, self.load, round(self.kernel.now, 3))
        if not self._tanks[item["dispatchKey"]].take(1, self.kernel.now):
            self.measured.throttled += 1
            self.kernel.after(RETRY_SECONDS, lambda: self._submit(number))
            return
        self.measured.submitted += 1
        self.db.load([item])
        if self.load.doorbells:
            image = {"NewImage": to_item(item), "Keys": {TABLE_KEY: {"S": item["taskId"]}}}
            self._stream.append({"eventID": str(number), "eventName": "INSERT", "dynamodb": image})

    def _invoke(self, function: str, event: bytes) -> None:
        batch = json.loads(event)
        self.measured.batches += 1
        now = self._last_claim = self.kernel.now
        for task_id in batch["taskIds"]:
            raw = self.db.rows_in_order[task_id]
            self.measured.claimed += 1
            self.measured.waits.append(now - float(raw["dueAt"]["N"]))
        arrives = self.kernel.random.uniform(*INVOKE_SECONDS) + self.load.task_seconds
        self.kernel.after(arrives, lambda: self._end(batch["leaseToken"], list(batch["taskIds"])))

    def _end(self, token: str, task_ids: list[str]) -> None:
        """The batch's tasks succeed, each when its index keys have the units; then its lease goes."""
        left = []
        for task_id in task_ids:
            raw = self.db.rows_in_order[task_id]
            before = raw["dispatchKey"]["S"]
            after = self.layout.listed(Status.SUCCESS, QUEUE, task_id, before) or ""
            now = self.kernel.now
            if self._tanks[before].take(1, now) and self._tanks[after].take(1, now):
                ended = {"status": Status.SUCCESS.value, "dispatchKey": after, "dueAt": round(now, 3)}
                self.db.rows_in_order[task_id] = {**raw, **to_item(ended)}
            else:
                self.measured.throttled += 1
                left.append(task_id)
        if left:
            self.kernel.after(RETRY_SECONDS, lambda: self._end(token, left))
        else:
            self.db.rows_in_order.pop(lease_id(token), None)

    # ---- pollers -----------------------------------------------------------------------------------------------------

    def _start(self, name: str, work: Callable[[Container], None]) -> None:
        process = Process(self.kernel, name)
        store = Store(
            table="tasks",
            send=self._send_of(process),
            clock=SimClock(process),
            randomness=SimRandomness(process),
            layout=self.layout,
        )
        own = container(self.load, store, SimThreads(process), self._invoke, self.measured)
        self.kernel.spawn(process, name, lambda: work(own), after=process.random.random() * STREAM_SECONDS)

    def _sweep_on(self, own: Container) -> None:
        while True:
            own.sweep()

    def _ring_on(self, own: Container) -> None:
        while True:
            records = [self._stream.popleft() for _ in range(min(STREAM_RECORDS, len(self._stream)))]
            if records:
                own.ring(records)
            else:
                self.kernel.pause(STREAM_SECONDS)

    def _send_of(self, process: Process) -> Send:
        def send(operation: str, arguments: Mapping[str, Any]) -> Mapping[str, Any]:
            self.measured.calls[operation] += 1
            self.kernel.pause(process.random.uniform(*REQUEST_SECONDS))
            if operation in WRITES and not self._admit(arguments):
                self.measured.throttled += 1
                raise StoreThrottled(operation, "ThrottlingException")
            return self.db(operation, arguments)

        return send

    def _admit(self, arguments: Mapping[str, Any]) -> bool:
        """Whether the index key of a lease that is opened or goes has a unit. A claim touches no index key."""
        item_id = (arguments.get("Item") or arguments.get("Key") or {})[TABLE_KEY]["S"]
        if not item_id.startswith(lease_id("")):
            return True
        raw = arguments.get("Item") or self.db.rows_in_order.get(item_id) or {}
        key = raw.get("dispatchKey", {}).get("S")
        return key is None or self._tanks[key].take(1, self.kernel.now)


def measure(load: Load, *, seed: int = 1) -> Measured:
    """What the pollers did with a load."""
    return Model(load, seed=seed).run()
