"""The deployment under simulation: containers of every function, events and stream batches on their way, and faults.

The code in the containers is the real one, put together by `wiring.Parts`. What AWS does is done here: invoking, at
least once and late; delivering the stream, in order and more than once; ending and freezing processes.
"""

from __future__ import annotations

import json
import random
import zlib
from collections import defaultdict, deque
from collections.abc import Callable, Mapping, Sequence
from functools import partial
from typing import Any

from tests.simulation.handlers import TYPES, handlers
from tests.simulation.kernel import Actor, Died, Kernel, Process
from tests.simulation.rules import Rules, Watch
from tests.simulation.seams import SimClock, SimRandomness, SimThreads
from tests.simulation.side_rules import LIMITED_QUEUE, PACED_QUEUE, limits_of_queues
from tests.simulation.table import SimulatedTable
from tests.simulation.weather import GRACE_SECONDS, LEASE_SECONDS, REAPER_SECONDS, Weather
from thunderagent.errors import (
    ConditionFailed,
    DispatchError,
    OutcomeUnknown,
    StoreRefused,
    StoreThrottled,
    TransactionCancelled,
)
from thunderagent.leased_batch import Batch
from thunderagent.recorder import RecordingDelayed
from thunderagent.recording import Recording
from thunderagent.registry import Registry
from thunderagent.runner import Runner
from thunderagent.schema import EXECUTOR_MARGIN_SECONDS, queue_control_id
from thunderagent.service import Service
from thunderagent.settings import Executor, Settings
from thunderagent.store import Send
from thunderagent.testing.dynamodb_expressions import Raw
from thunderagent.upkeep import Upkeep
from thunderagent.wiring import Parts, Seams

EXECUTOR_SECONDS = 150.0
TASK_SECONDS = 33.0  # a task's timeout
LONG_SECONDS = 110.0  # what a long task may take: longer than a lease
POLLER_SECONDS = 60.0
UPKEEP_SHARE = 1 / 3
STREAM_SHARDS = 2
QUEUE_OF = {"limited": LIMITED_QUEUE, "paced": PACED_QUEUE}  # by type
READ_TIMEOUT_SECONDS = 2.0
LATEST_REQUEST_SECONDS = 12.0  # a request given up by its sender is applied no later than this
FAULTS = (
    "throttled",
    "conflict",
    "lost_request",
    "lost_reply",
    "late_request",
    "slow",
    "crash_before",
    "crash_after",
    "freeze",
    "outage",
)
READS = frozenset({"GetItem", "BatchGetItem", "Query", "Scan"})
READ_WEIGHT, WRITE_WEIGHT = 0.5, 3.0
FREEZES = (1.0, 5.0, 15.0, LEASE_SECONDS + 5, LEASE_SECONDS + 20, 3 * LEASE_SECONDS)
MOST_CHANGES = 4  # by others, for which a frozen process or a late request may wait
TRANSPORT_ERRORS = (ConditionFailed, TransactionCancelled, StoreRefused, StoreThrottled, OutcomeUnknown)


class NoAnswer(Exception):
    """The container that served a call ended before it answered."""


class Notes:
    """The observer of every container: log lines of consequence go into the history."""

    def __init__(self, process: Process) -> None:
        self._process = process

    def log(self, event: str, *, level: str = "INFO", **fields: Any) -> None:
        if level != "DEBUG" and not self._process.is_dead:
            told = " ".join(f"{name}={value}" for name, value in fields.items() if value is not None)
            self._process.kernel.note(f"{self._process.name}: log {event} {told}")

    def measure(self, metric: str, value: float = 1, *, queue: str | None = None, type: str | None = None) -> None:
        return None

    def flush_old(self) -> None:
        return None

    def flush(self) -> None:
        return None


class Bucket:
    """S3: as reliable as the weather."""

    def __init__(self, cloud: Cloud) -> None:
        self._cloud = cloud
        self.stored: dict[str, bytes] = {}

    def put(self, key: str, data: bytes) -> None:
        self._cloud.travel("PutObject")
        self.stored[key] = data

    def get(self, key: str) -> bytes | None:
        self._cloud.travel("GetObject")
        return self.stored.get(key)

    def delete(self, key: str) -> None:
        self._cloud.travel("DeleteObject")
        self.stored.pop(key, None)

    def url(self, key: str, *, seconds: int) -> str:
        return f"https://bucket/{key}"


class Container:
    """One process of one function, with the library put together in it once."""

    def __init__(self, cloud: Cloud, function: str) -> None:
        kernel = cloud.kernel
        skew = cloud.weather.skew_seconds
        cloud.containers += 1
        self.function = function
        self.version = cloud.version
        self.process = Process(
            kernel, f"{function}{cloud.containers}", offset=(2 * kernel.random.random() - 1) * skew if skew else 0
        )
        cloud.processes.append(self.process)
        self.notes = Notes(self.process)
        seams = Seams(
            send=cloud.transport(self.process),
            invoke=lambda name, event: cloud.invoke(name, event),
            clock=SimClock(self.process),
            randomness=SimRandomness(self.process),
            threads=SimThreads(self.process),
            objects=cloud.bucket,
        )
        self.parts = Parts(cloud.settings, seams, registry=cloud.registry, telemetry=self.notes)  # type: ignore[arg-type]
        self.service = Service(self.parts)
        self.upkeep = Upkeep(self.parts, undelivered=None)
        self.recording = Recording(self.parts, put_events=cloud.put_events, send_failure=cloud.failures.append)
        self._runners: dict[str, Runner] = {}
        self._cloud = cloud

    def runner(self, profile: str) -> Runner:
        """As functions/executor builds it."""
        if profile not in self._runners:
            own, executor = self.parts, self._cloud.settings.executors[profile]
            types = self.parts.registry.types
            known = {name: each for name, each in handlers(self._cloud).items() if name in types}
            self._runners[profile] = Runner(
                own.store,
                own.bodies,
                known,
                threads=own.seams.threads,
                concurrency=executor.threads,
                lease_seconds=own.settings.lease_seconds,
                observer=self.notes,
                submitter=own.submitter,
                relatives=own.dependencies,
                task_seconds=executor.timeout_seconds - EXECUTOR_MARGIN_SECONDS,
                end_process=lambda: self._cloud.kernel.kill(self.process, "it ends itself"),
            )
        return self._runners[profile]


def _upkeep(container: Container) -> None:
    container.upkeep.run()


def _reaping(container: Container) -> None:
    container.parts.reaper.run()


def _ring(records: Sequence[Mapping[str, Any]], container: Container) -> None:
    container.parts.doorbell.ring(records)


class Cloud:
    """Everything around the code."""

    def __init__(self, kernel: Kernel, weather: Weather) -> None:
        self.kernel = kernel
        self.weather = weather
        self.table = SimulatedTable(kernel, weather)
        self.rules = Rules(kernel, self.table, lambda: self.weather)
        self.table.on_change = self.rules.on_change
        self.table.on_ledger = self.rules.on_ledger
        self.table.stream = self._into_stream
        self.bucket = Bucket(self)
        self.events: list[dict[str, Any]] = []
        self.failures: list[str] = []
        self.containers = 0
        self.version = 1
        self.processes: list[Process] = []
        self.is_calm = False
        self.is_over = False
        chance = kernel.random
        self.agents = chance.choice([1, 2, 2, 3])
        self.settings = _settings(chance)
        self.registry = _registry(TYPES)
        self._idle: defaultdict[str, list[Container]] = defaultdict(list)
        self._streams: dict[tuple[str, int], deque[dict[str, Any]]] = {}
        self._consumers: dict[tuple[str, int], Actor] = {}
        self._storm_until = 0.0
        self._thresholds: list[tuple[float, str]] = []
        self._outside = Process(kernel, "aws")
        self._sequence = 0
        self._put_control()
        self.change_weather(weather)

    def _put_control(self) -> None:
        for queue, limits in limits_of_queues().items():
            self.table.put({"taskId": queue_control_id(queue), "createdAt": 0, **limits})

    # ---- faults ------------------------------------------------------------------------------------------------------

    def change_weather(self, weather: Weather) -> None:
        self.weather = weather
        self.table._weather = weather
        chances = {
            **{name: getattr(weather, name) for name in FAULTS if hasattr(weather, name)},
            "crash_before": weather.crash / 2,
            "crash_after": weather.crash / 2,
        }
        total, self._thresholds = 0.0, []
        for name in FAULTS:
            total += chances[name]
            if chances[name]:
                self._thresholds.append((total, name))

    def calm(self) -> None:
        """Faults stop: clocks are right again, what is frozen thaws, nothing is lost or late any more."""
        self.is_calm = True
        self.kernel.note("CALM")
        self.change_weather(self.weather.after())
        self._storm_until = 0
        for process in self.processes:
            process.offset = 0
            process.cut_until = 0
            process.touch()
            self.kernel.thaw(process)
        self.redeploy(TYPES)

    def _fault(self, operation: str) -> str | None:
        if not self._thresholds:
            return None
        drawn = self.kernel.random.random() / (READ_WEIGHT if operation in READS else WRITE_WEIGHT)
        if drawn >= self._thresholds[-1][0]:
            return None
        return next(name for limit, name in self._thresholds if drawn < limit)

    def _journey(self) -> float:
        return 0.001 + self.kernel.random.random() * 0.006

    def travel(self, operation: str) -> None:
        """A call to another service than the table."""
        self.kernel.pause(self._journey())
        fault = self._fault(operation)
        if fault in {"throttled", "lost_request"}:
            self.kernel.current.process.touch()
            raise OutcomeUnknown(operation, "ConnectionError", "no answer")

    # ---- the table ---------------------------------------------------------------------------------------------------

    def transport(self, process: Process) -> Send:
        kernel = self.kernel

        def send(operation: str, arguments: Mapping[str, Any]) -> Mapping[str, Any]:
            if process.is_dead:
                raise Died
            fault = self._fault(operation)
            if kernel.now < process.cut_until:
                fault = "lost_request" if kernel.random.random() < 0.5 else "lost_reply"
            if fault is None and kernel.now >= self._storm_until:
                kernel.pause(self._journey())
                answer = self._apply(process, operation, arguments)
                kernel.pause(self._journey())
                return answer
            return self._send_badly(process, operation, arguments, fault or "throttled")

        return send

    def _apply(self, process: Process, operation: str, arguments: Mapping[str, Any]) -> Mapping[str, Any]:
        """The request takes effect at this instant; a refusal travels back like any answer."""
        self.rules.doer = process
        try:
            answer = self.table.execute(operation, arguments)
        except (ConditionFailed, TransactionCancelled) as refused:
            self.kernel.note(f"{process.name}: {operation} {_ids(operation, arguments)} refused")
            refusal: Exception = refused
        else:
            self.rules.after_step()
            if self.weather.unprocessed and operation == "BatchGetItem":
                return self._unprocessed(answer, arguments)
            return answer
        finally:
            self.rules.doer = None
        self.kernel.pause(self._journey())
        raise refusal

    def _unprocessed(self, answer: Mapping[str, Any], arguments: Mapping[str, Any]) -> Mapping[str, Any]:
        ((table, request),) = arguments["RequestItems"].items()
        chance, weather = self.kernel.random, self.weather
        left = [key for key in request["Keys"] if chance.random() < weather.unprocessed]
        if not left:
            return answer
        names = {key["taskId"]["S"] for key in left}
        kept = [raw for raw in answer["Responses"][table] if raw["taskId"]["S"] not in names]
        return {"Responses": {table: kept}, "UnprocessedKeys": {table: {**request, "Keys": left}}}

    def _send_badly(
        self, process: Process, operation: str, arguments: Mapping[str, Any], fault: str
    ) -> Mapping[str, Any]:
        kernel, chance = self.kernel, self.kernel.random
        kernel.note(f"{process.name}: {operation} {_ids(operation, arguments)} meets {fault}")
        kernel.faults[fault] += 1
        process.touch()
        kernel.pause(self._journey() if fault != "slow" else chance.random() * 4)
        match fault:
            case "throttled":
                raise StoreThrottled(operation, "ThrottlingException")
            case "conflict":
                raise _conflict(operation, arguments)
            case "lost_request":
                kernel.pause(chance.random() * READ_TIMEOUT_SECONDS)
                raise OutcomeUnknown(operation, "ReadTimeoutError", "the request was lost")
            case "late_request":
                self._send_late(process, operation, arguments)
                kernel.pause(chance.random() * READ_TIMEOUT_SECONDS)
                raise OutcomeUnknown(operation, "ReadTimeoutError", "the request is late")
            case "crash_before":
                kernel.kill(process, f"before {operation} {_ids(operation, arguments)}")
                raise Died
            case "freeze":
                kernel.freeze(process, self._freeze_seconds(process, operation, arguments))
                kernel.pause(0)
            case "outage":
                process.cut_until = kernel.now + chance.random() * 1.5 * LEASE_SECONDS
                process.touched_at = max(process.touched_at, process.cut_until)
                raise OutcomeUnknown(operation, "ConnectionError", "the table is out of reach")
        try:
            answer = self._apply(process, operation, arguments)
        except TRANSPORT_ERRORS:
            if fault != "lost_reply":
                raise
            answer = {}
        if fault == "crash_after":
            kernel.kill(process, f"after {operation} {_ids(operation, arguments)}")
            raise Died
        if fault == "lost_reply":
            kernel.pause(chance.random() * READ_TIMEOUT_SECONDS)
            raise OutcomeUnknown(operation, "ReadTimeoutError", "the answer was lost")
        kernel.pause(self._journey() if fault != "slow" else chance.random() * 4)
        return answer

    def _freeze_seconds(self, process: Process, operation: str, arguments: Mapping[str, Any]) -> float:
        """A pause at the worst moment: until others have changed what this request is about, once or a few times."""
        chance = self.kernel.random
        if operation in READS or chance.random() < 0.3:
            return chance.choice(FREEZES)

        def thaw() -> None:
            self.kernel.after(chance.random() ** 4 * 0.5, lambda: self.kernel.thaw(process))

        self._watch(process, operation, arguments, thaw)
        return 5 * LEASE_SECONDS

    def _send_late(self, process: Process, operation: str, arguments: Mapping[str, Any]) -> None:
        sent: list[bool] = []

        def arrive() -> None:
            if not sent:
                sent.append(True)
                self._late(process, operation, arguments)

        seconds = self.kernel.random.random() * LATEST_REQUEST_SECONDS
        if operation not in READS and self.kernel.random.random() < 0.7:
            self._watch(process, operation, arguments, lambda: self.kernel.after(0.001, arrive))
            seconds = LATEST_REQUEST_SECONDS
        self.kernel.after(seconds, arrive)

    def _watch(self, process: Process, operation: str, arguments: Mapping[str, Any], then: Callable[[], None]) -> None:
        item_id = _ids(operation, arguments).split(" ")[0]
        left = 1 + int(self.kernel.random.random() ** 2 * MOST_CHANGES)
        self.rules.watches[item_id].append(Watch(process, left, then))

    def _late(self, process: Process, operation: str, arguments: Mapping[str, Any]) -> None:
        self.kernel.note(f"{process.name}: {operation} {_ids(operation, arguments)} arrives late")
        self.rules.doer = process
        try:
            self.table.execute(operation, arguments)
            self.rules.after_step()
        except TRANSPORT_ERRORS:
            self.kernel.note(f"{process.name}: the late {operation} is refused")
        finally:
            self.rules.doer = None

    # ---- containers --------------------------------------------------------------------------------------------------

    def container(self, function: str) -> Container:
        """An idle one of the version that is deployed, mostly; else a new one."""
        idle = [each for each in self._idle[function] if each.version == self.version and not each.process.is_dead]
        if idle and self.kernel.random.random() < 0.9:
            chosen = idle[-1]
            self._idle[function] = [each for each in idle if each is not chosen]
            return chosen
        self._idle[function] = idle
        return Container(self, function)

    def run_in(
        self, function: str, work: Callable[[Container], Any], *, seconds: float, done: Callable[[], None] | None = None
    ) -> Container:
        """One invocation. It is ended when it takes longer than `seconds`."""
        container = self.container(function)
        process = container.process
        actor = self.kernel.spawn(process, process.name, lambda: work(container))

        def ended() -> None:
            if not process.is_dead:
                self._idle[function].append(container)
            if done is not None:
                done()

        def too_long() -> None:
            if not actor.is_done and not process.is_dead:
                self.kernel.kill(process, "the invocation took too long")

        actor.when_done.append(ended)
        self.kernel.after(seconds, too_long)
        return container

    def redeploy(self, types: Sequence[str]) -> None:
        self.version += 1
        self.registry = _registry(types)
        self.kernel.note(f"DEPLOYED version {self.version} with {' '.join(types)}")

    # ---- executors ---------------------------------------------------------------------------------------------------

    def invoke(self, function: str, event: bytes) -> None:
        """Asynchronous: accepted proves nothing."""
        kernel, weather, chance = self.kernel, self.weather, self.kernel.random
        caller = kernel.current.process
        kernel.pause(self._journey())
        if caller.is_dead:
            raise Died
        token = json.loads(event)["leaseToken"]
        drawn = chance.random()
        if drawn < weather.invoke_refused:
            caller.touch()
            kernel.note(f"{caller.name}: invoke {token} refused")
            kernel.faults["invoke_refused"] += 1
            raise DispatchError(function, "TooManyRequestsException", accepted=False)
        unknown = drawn < weather.invoke_refused + weather.invoke_unknown
        if not unknown or chance.random() < 0.5:
            self._deliver(function, event, token)
        if unknown:
            caller.touch()
            kernel.note(f"{caller.name}: invoke {token} unknown")
            kernel.faults["invoke_unknown"] += 1
            kernel.pause(chance.random() * 2)
            raise DispatchError(function, "ReadTimeoutError", accepted=None)
        kernel.note(f"{caller.name}: invoke {token} accepted")

    def _deliver(self, function: str, event: bytes, token: str) -> None:
        weather, chance = self.weather, self.kernel.random
        if chance.random() < weather.event_dropped:
            self.kernel.note(f"aws: the event of {token} is dropped")
            self.kernel.faults["event_dropped"] += 1
            return
        times = 1 + (chance.random() < weather.event_repeated)
        self.kernel.faults["event_repeated"] += times - 1
        for _ in range(times):
            late = chance.random() < weather.event_late
            self.kernel.faults["event_late"] += late
            delay = chance.random() * 2 * LEASE_SECONDS if late else 0.01 + chance.random() * 0.1
            self.kernel.after(delay, lambda: self._execute(function, event, token))

    def _execute(self, function: str, event: bytes, token: str) -> None:
        batch = Batch.from_event(json.loads(event))
        until = self.kernel.now + EXECUTOR_SECONDS
        profile = function.removeprefix("executor-")

        def work(container: Container) -> None:
            self.kernel.note(f"{container.process.name}: event of {token}")
            container.runner(profile).run(batch, lambda: until - self.kernel.now)

        def done() -> None:
            if self.rules.active.get(token) is container.process:
                self.rules.active.pop(token)

        container = self.run_in(function, work, seconds=EXECUTOR_SECONDS, done=done)
        if not container.process.is_dead:
            self.rules.active.setdefault(token, container.process)

    # ---- by the minute -----------------------------------------------------------------------------------------------

    def start(self) -> None:
        chance = self.kernel.random
        for number in range(self.agents):
            first = chance.random() * POLLER_SECONDS * (number > 0)
            self._every(POLLER_SECONDS, first, partial(self._poll, number))
        for _ in range(1 if self.weather.is_fair else chance.choice([1, 1, 2])):
            self._every(REAPER_SECONDS, chance.random() * REAPER_SECONDS, self._reap)
        for consumer in ("doorbell", "recorder"):
            for shard in range(STREAM_SHARDS):
                key = (consumer, shard)
                self._streams[key] = deque()
                self._consumers[key] = self.kernel.spawn(
                    self._outside, f"stream/{consumer}/{shard}", partial(self._consume, *key)
                )
        self._every(20, 20 * chance.random(), self._misfortune)
        self._every(300, 300 * chance.random(), self._ttl)

    def _every(self, seconds: float, first: float, action: Callable[[], Any]) -> None:
        def again() -> None:
            if not self.is_over:
                action()
                self.kernel.after(seconds, again)

        self.kernel.after(first, again)

    def _poll(self, number: int) -> None:
        for _ in range(0 if number and self.is_calm else self._times()):
            self.run_in("poller", self._sweep, seconds=POLLER_SECONDS + 20)

    def _sweep(self, container: Container) -> None:
        """As functions/poller does it."""
        own = container.parts
        own.seams.clock.sleep(own.seams.randomness.uniform(0, own.settings.poll_start_jitter_seconds))
        own.sweeper.run(window_seconds=own.settings.poll_window_seconds)

    def _reap(self) -> None:
        """As functions/reaper does it. Its counting, which changes no task, is left out of two runs of three."""
        for _ in range(self._times()):
            counts = self.kernel.random.random() < UPKEEP_SHARE
            work = _upkeep if counts else _reaping
            self.run_in("reaper", work, seconds=120)

    def _times(self) -> int:
        """Scheduled events come at least once, and sometimes not at all."""
        weather, drawn = self.weather, self.kernel.random.random()
        if drawn < weather.event_dropped:
            return 0
        return 2 if drawn < weather.event_dropped + weather.event_repeated / 2 else 1

    def _ttl(self) -> None:
        if self.weather.ttl_is_prompt:
            self.table.expire(at_most=20)

    def _misfortune(self) -> None:
        """What strikes between requests: executors ended or frozen at work, a throttled table, a deployment."""
        weather, chance = self.weather, self.kernel.random
        per_look = 20 / 3600
        busy = [each for each in self.rules.active.values() if not each.is_dead]
        if busy and chance.random() < weather.crashes_per_hour * per_look * len(busy):
            chosen = busy[int(chance.random() * len(busy))]
            if chance.random() < 0.3:
                self.kernel.freeze(chosen, chance.random() * 3 * LEASE_SECONDS)
                self.kernel.faults["frozen_at_work"] += 1
            else:
                self.kernel.faults["killed_at_work"] += 1
                self.kernel.kill(chosen, "struck at work")
        if chance.random() < weather.storms_per_hour * per_look:
            self._storm_until = self.kernel.now + chance.random() * LEASE_SECONDS / 3
            self.kernel.note("STORM: the table is throttled")
            self.kernel.faults["storm"] += 1
        if chance.random() < weather.redeploys_per_hour * per_look:
            self.kernel.faults["redeploy"] += 1
            self.redeploy([name for name in TYPES if name == "plain" or chance.random() < 0.7])
        if weather.skew_is_wild and self.processes and chance.random() < 0.1:
            process = self.processes[int(chance.random() * len(self.processes))]
            process.offset = (2 * chance.random() - 1) * weather.skew_seconds
            self.kernel.note(f"{process.name}: its clock is set to {process.offset:+.1f} s")
            self.kernel.faults["clock_set"] += 1

    # ---- the stream --------------------------------------------------------------------------------------------------

    def _into_stream(self, item_id: str, old: Raw | None, new: Raw | None, by_ttl: bool) -> None:
        if "#" in item_id or not self._streams:
            return
        self._sequence += 1
        record = _record(self._sequence, item_id, old, new, by_ttl, self.kernel.now)
        shard = zlib.crc32(item_id.encode()) % STREAM_SHARDS
        status = None if new is None else new["status"]["S"]
        if status == "PENDING" and new is not None and new["dispatchKey"]["S"].startswith("OPEN#"):
            self._put_record(("doorbell", shard), record)
        if status is None or status in {"SUCCESS", "FAILED", "DONE"}:
            self._put_record(("recorder", shard), record)

    def _put_record(self, key: tuple[str, int], record: dict[str, Any]) -> None:
        self._streams[key].append(record)
        if len(self._streams[key]) == 1:
            self.kernel.wake(self._consumers[key])

    def _consume(self, consumer: str, shard: int) -> None:
        """An event source mapping: one batch at a time, in order, again until it is done (the doorbell's: once)."""
        chance, stream = self.kernel.random, self._streams[(consumer, shard)]
        while True:
            while not stream:
                self.kernel.wait()
            late = chance.random() < self.weather.record_late
            self.kernel.faults["record_late"] += late
            self.kernel.pause(chance.random() * 30 if late else 0.02 + chance.random() * 0.2)
            size = 1 + int(chance.random() * 20)
            batch = [stream.popleft() for _ in range(min(size, len(stream)))]
            if consumer == "doorbell":
                self._ring(batch)
            else:
                self._record(batch)

    def _ring(self, batch: list[dict[str, Any]]) -> None:
        """Dropped, repeated and out of order: none of it may matter."""
        weather, chance = self.weather, self.kernel.random
        if chance.random() < weather.record_dropped:
            self.kernel.note(f"aws: a doorbell batch of {len(batch)} is dropped")
            self.kernel.faults["record_dropped"] += 1
            return
        times = 1 + (chance.random() < weather.record_repeated)
        self.kernel.faults["record_repeated"] += times - 1
        for _ in range(times):
            shuffled = weather.record_repeated and chance.random() < 0.3
            self.kernel.faults["record_reordered"] += bool(shuffled)
            records = sorted(batch, key=lambda record: chance.random()) if shuffled else batch
            self.run_in("doorbell", partial(_ring, records), seconds=60)

    def _record(self, batch: list[dict[str, Any]]) -> None:
        weather, chance = self.weather, self.kernel.random
        repeats = chance.random() < weather.record_repeated
        self.kernel.faults["record_repeated"] += repeats
        while True:
            fine: list[bool] = []

            def work(container: Container, fine: list[bool] = fine) -> None:
                try:
                    container.recording.recorder.record({"Records": batch})
                except RecordingDelayed:
                    return
                fine.append(True)

            self._and_wait("recorder", work)
            if fine and not repeats:
                return
            repeats = repeats and not fine
            self.kernel.pause(1)

    def _and_wait(self, function: str, work: Callable[[Container], Any]) -> None:
        waiter, done = self.kernel.current, [False]

        def ended() -> None:
            done[0] = True
            self.kernel.wake(waiter)

        self.run_in(function, work, seconds=60, done=ended)
        while not done[0]:
            self.kernel.wait()

    @property
    def has_records(self) -> bool:
        return any(self._streams.values())

    def put_events(self, entries: Sequence[Mapping[str, Any]]) -> list[str | None]:
        self.travel("PutEvents")
        details = [json.loads(entry["Detail"]) for entry in entries]
        self.rules.told |= {(detail["taskId"], detail["fence"]) for detail in details}
        return [None for _ in entries]

    # ---- the API -----------------------------------------------------------------------------------------------------

    def call(self, work: Callable[[Service], Any]) -> Any:
        """One HTTP call of a client. Raises what the use case raises, or NoAnswer."""
        waiter, answers, errors, done = self.kernel.current, [], [], [False]

        def serve(container: Container) -> None:
            try:
                answers.append(work(container.service))
            except Exception as error:  # noqa: BLE001  the client's answer
                errors.append(error)

        def ended() -> None:
            done[0] = True
            self.kernel.wake(waiter)

        self.kernel.pause(self._journey())
        self.run_in("api", serve, seconds=29, done=ended)
        while not done[0]:
            self.kernel.wait()
        if errors:
            raise errors[0]
        if not answers:
            raise NoAnswer
        return answers[0]


def _settings(chance: random.Random) -> Settings:
    batch = chance.choice([1, 3, 10])
    executors = {
        name: Executor(
            name,
            f"executor-{name}",
            timeout_seconds=EXECUTOR_SECONDS,
            threads=threads,
            max_in_flight=most,
            lease_seconds=LEASE_SECONDS,
        )
        for name, threads, most in (
            ("default", chance.choice([1, 2, 10]), chance.choice([3, 20])),
            ("side", chance.choice([1, 4]), chance.choice([2, 10])),
        )
    }
    return Settings(
        table_name="tasks",
        executors=executors,
        lease_seconds=LEASE_SECONDS,
        lease_grace_seconds=GRACE_SECONDS,
        poll_batch_size=batch,
        dispatch_shards=chance.choice([1, 2]),
        event_bus="bus",
    )


def _registry(types: Sequence[str]) -> Registry:
    backoff = {"base": 1, "factor": 2, "cap": 20}
    entries = {
        name: {
            "profile": "side" if name == "second" else "default",
            "queue": QUEUE_OF.get(name, "default"),
            "timeoutSeconds": LONG_SECONDS if name == "second" else TASK_SECONDS,
            "backoff": backoff,
        }
        for name in types
    }
    return Registry.from_dict(
        {
            "formatVersion": 1,
            "profiles": {name: {"modules": ["m"], "timeoutSeconds": EXECUTOR_SECONDS} for name in ("default", "side")},
            "queues": {"default": {}, **{queue: {} for queue in QUEUE_OF.values()}},
            "types": entries,
        }
    )


def _record(number: int, item_id: str, old: Raw | None, new: Raw | None, by_ttl: bool, now: float) -> dict[str, Any]:
    body: dict[str, Any] = {
        "ApproximateCreationDateTime": now,
        "Keys": {"taskId": {"S": item_id}},
        "SequenceNumber": f"{number:025d}",
    }
    body |= {} if old is None else {"OldImage": old}
    body |= {} if new is None else {"NewImage": new}
    identity = {"type": "Service", "principalId": "dynamodb.amazonaws.com"}
    return {
        "eventID": f"event{number:012d}",
        "eventName": "INSERT" if old is None else "REMOVE" if new is None else "MODIFY",
        "dynamodb": body,
        **({"userIdentity": identity} if by_ttl else {}),
    }


def _conflict(operation: str, arguments: Mapping[str, Any]) -> Exception:
    if operation == "TransactWriteItems":
        return TransactionCancelled(operation, [("TransactionConflict", None) for _ in arguments["TransactItems"]])
    if operation in {"Query", "Scan", "GetItem", "BatchGetItem"}:
        return StoreThrottled(operation, "ThrottlingException")
    return StoreRefused(operation, "TransactionConflictException")


def _ids(operation: str, arguments: Mapping[str, Any]) -> str:
    if operation == "Query":
        return str(arguments["ExpressionAttributeValues"][":k"]["S"])
    if operation == "BatchGetItem":
        ((_, request),) = arguments["RequestItems"].items()
        return " ".join(key["taskId"]["S"] for key in request["Keys"][:5])
    if operation == "TransactWriteItems":
        return " ".join(_ids(kind, entry) for each in arguments["TransactItems"] for kind, entry in each.items())
    source = arguments.get("Key") or arguments.get("Item") or {}
    return str(source.get("taskId", source.get("id", {"S": "*"}))["S"])
