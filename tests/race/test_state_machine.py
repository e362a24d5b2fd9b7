"""Any order of what may happen: submits, sweeps, late and doubled events, deaths, lost replies, cancels, redrives.

hypothesis drives a whole small deployment against a plain model of what was promised. After every step the stored
invariants of ARCHITECTURE §8 hold; in the end, with the faults gone, every task has ended.
"""

from __future__ import annotations

from collections.abc import Callable
from contextlib import suppress
from dataclasses import dataclass
from typing import Any

from hypothesis import HealthCheck, settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, rule

from tests.support.memory_dynamodb import Call, Fault
from tests.support.world import LEASE_SECONDS, Died, World, die
from thunderagent import Fail, task
from thunderagent.codec import Item
from thunderagent.errors import Conflict, NotFound, StoreError
from thunderagent.operations import Operations, Operator
from thunderagent.states import TERMINAL

TERMINAL_KEYS = ("SUCCESS#", "FAILED#", "DONE#")
OPEN_KEYS = ("OPEN#", "RUNNING#", "BLOCKED#")
FAULTS = {fault.name: fault for fault in (Fault.LOST_REPLY, Fault.LOST_REQUEST, Fault.THROTTLED, Fault.CONFLICT)}
MEETINGS = [
    "again",
    "delivered meanwhile",
    "another sweep",
    "another reaper",
    "lapse",
    "taken",
    "taken and claimed",
    "taken, claimed and run",
]
STEPS = st.sampled_from(
    [
        "deliver",
        "deliver",
        "deliver",
        "sweep",
        "deliver again",
        "lapse and reap",
        "lapse and reap",
        "reap",
        "lose",
        "wait",
    ]
)
TYPES = st.sampled_from(["good", "good", "flaky", "bad"])
ACCIDENTS = st.sampled_from(["none", "none", "outage", "death before", "death after", "cancel", *FAULTS, *MEETINGS])
starts: list[tuple[str, int]] = []
deployments: list[World] = []
violations: list[str] = []


def note_start(ctx: Any) -> None:
    """A handler starts: on record, and where nothing came between, under an open lease of a task that is its holder's.

    Handlers that are recorded together run one after another here: what the first ones do comes between.
    """
    starts.append((ctx.task_id, ctx.fence))
    world = deployments[-1]
    item = world.item(ctx.task_id)
    lease = world.db.item(f"lease#{item.get('leaseToken')}")
    if world.settings.executors["default"].threads > 1:
        return
    if (item["status"], item["fence"]) != ("RUNNING", ctx.fence):
        violations.append("started without owning the task")
    elif lease is None or "closed" in lease:
        violations.append("started after the lease was closed")
    elif ctx.task_id not in lease["started"]:
        violations.append("started without a record")


@task("good")
def good(payload: Any, ctx: Any) -> int:
    note_start(ctx)
    return int(ctx.fence)


@task("flaky")
def flaky(payload: Any, ctx: Any) -> int:
    note_start(ctx)
    if ctx.attempt == 1:
        raise ValueError(ctx.fence)
    return int(ctx.fence)


@task("bad")
def bad(payload: Any, ctx: Any) -> None:
    note_start(ctx)
    raise Fail(str(ctx.fence))


@dataclass
class Promise:
    """What was told to somebody about one task."""

    max_retry_number: int
    cancelled: bool = False
    redrives: int = 0
    fence: int = 0


class Deployment(RuleBasedStateMachine):
    """See the module."""

    @initialize(concurrency=st.sampled_from([1, 1, 10]), types=st.lists(TYPES, min_size=1, max_size=3))
    def start(self, concurrency: int, types: list[str]) -> None:
        starts.clear()
        violations.clear()
        self.world = World(good, flaky, bad, batch=3, concurrency=concurrency)
        deployments.append(self.world)
        self.promises: dict[str, Promise] = {}
        self.delivered: list[dict[str, Any]] = []
        self.commits: set[tuple[str, str]] = set()
        self.seen = 0
        for number, type in enumerate(types):
            self.submit(type, max_retry_number=number)

    # ---- clients -----------------------------------------------------------------------------------------------------

    @rule(what=st.sampled_from(["submit", "cancel", "redrive", "acknowledge"]), index=st.integers(0, 9), type=TYPES)
    def somebody_asks(self, what: str, index: int, type: str) -> None:
        task_id = list(self.promises)[index % len(self.promises)]
        with suppress(Conflict, NotFound, StoreError):
            match what:
                case "submit":
                    self.submit(type, max_retry_number=index % 3, within=900 if index > 7 else None)
                case "cancel":
                    self.cancel(task_id)
                case "redrive":
                    promise = self.promises[task_id]
                    promise.redrives += 1
                    self.operations().redrive(task_id, Operator("somebody"), key=f"{promise.redrives}")
                case "acknowledge":
                    self.operations().acknowledge(task_id)

    def submit(self, type: str, *, max_retry_number: int, within: int | None = None) -> None:
        task_id = f"task-{len(self.promises)}"
        self.world.submit(type, task_id=task_id, max_retry_number=max_retry_number, start_within_seconds=within)
        self.promises[task_id] = Promise(max_retry_number)

    def cancel(self, task_id: str) -> None:
        self.operations().cancel(task_id, Operator("somebody"))
        self.promises[task_id].cancelled = True

    def operations(self) -> Operations:
        api = self.world.process("api")
        return Operations(api.store, api.bodies, api.dependencies)

    # ---- machinery, with accidents -----------------------------------------------------------------------------------

    @rule(what=STEPS, accident=ACCIDENTS, at=st.integers(0, 4), index=st.integers(0, 9))
    def something_happens(self, what: str, accident: str, at: int, index: int) -> None:
        world = self.world
        match what:
            case "sweep":
                world.answers = [[True, True, None, False][index % 4]]
                self.under(accident, at, world.sweep)
                world.answers = []
            case "deliver":
                self.sweep_if_nothing_is_held()
                if world.events:
                    self.delivered.append(world.events.pop(0))
                    self.under(accident, at, lambda: self.execute(self.delivered[-1]), self.delivered[-1])
            case "deliver again" if self.delivered:
                event = self.delivered[index % len(self.delivered)]
                self.under(accident, at, lambda: self.execute(event), event)
            case "lose" if world.events:
                world.events.pop()
            case "reap" | "lapse and reap":
                if what != "reap":
                    world.lapse()
                self.under(accident, at, world.reap)
            case "wait":
                world.advance([0.5, 3.0, 20.0, LEASE_SECONDS, 400.0][index % 5])

    def sweep_if_nothing_is_held(self) -> None:
        if not self.world.events:
            self.world.advance(400)  # so that whatever backs off is due
            self.world.sweep()

    def execute(self, event: dict[str, Any]) -> None:
        self.world.deliver(event)

    def under(self, accident: str, at: int, act: Callable[[], Any], event: dict[str, Any] | None = None) -> None:
        """Do it; at the write number `at` of those to come the accident happens."""
        db = self.world.db
        if accident in FAULTS:
            db.inject(FAULTS[accident], where=is_write, skip=at, times=1)
        elif accident == "outage":
            db.inject(Fault.LOST_REQUEST, where=is_write, skip=at, times=6)
        elif accident == "death before":
            db.before(lambda call: is_write(call) and not is_clients(call), die, skip=at)
        elif accident == "death after":
            db.after(lambda call: is_write(call) and not is_clients(call), die, skip=at)
        elif accident != "none":
            db.before(is_write, lambda: harmless(lambda: self.interfere(accident, event)), skip=at)
        harmless(act)
        db.calm()

    def interfere(self, accident: str, event: dict[str, Any] | None) -> None:
        """Another process acts between two requests."""
        world = self.world
        match accident:
            case "again":
                if event is not None:
                    self.execute(event)
            case "another sweep":
                world.sweep(world.process("poller"))
            case "another reaper":
                world.reap(world.process("reaper"))
            case "lapse":
                world.lapse()
            case "taken":
                world.lapse()
                world.reap(world.process("reaper"))
            case "taken and claimed" | "taken, claimed and run":
                world.lapse()
                world.reap(world.process("reaper"))
                world.advance(400)
                world.sweep(world.process("poller"))
                if accident.endswith("run") and world.events:
                    self.execute(world.events[-1])
            case "delivered meanwhile":
                if world.events:
                    self.execute(world.events[-1])
            case "cancel":
                for task_id in (event or {"taskIds": list(self.promises)[-1:]})["taskIds"][:1]:
                    self.cancel(task_id)

    # ---- what must hold ----------------------------------------------------------------------------------------------

    @invariant()
    def stored_rows_keep_their_form(self) -> None:
        for task_id, promise in getattr(self, "promises", {}).items():
            item = self.world.db.item(task_id)
            if item is None:
                continue
            check_row(item)
            self.check_budget(item)
            assert item["fence"] >= promise.fence, "the fence fell"
            assert item["retryCount"] <= item["maxRetryNumber"]
            promise.fence = item["fence"]
            if promise.cancelled:
                ended = item["status"] == "DONE" and item["outcome"] == "cancelled"
                assert ended or (item["status"] == "RUNNING" and item["cancelRequested"]), "a cancel was overtaken"

    def check_budget(self, item: Item) -> None:
        """Whatever started was charged, but for the attempt under way: nothing is handed back for free."""
        redriven = int(item["redriveIds"][-1].split(":")[0]) if "redriveIds" in item else -1
        started = sum(task_id == item["taskId"] and fence > redriven for task_id, fence in starts)
        if item["status"] == "PENDING":
            assert started <= item["retryCount"], "a start was handed back uncharged"
        assert started <= item["retryCount"] + 1, "a start was not charged"

    @invariant()
    def a_claim_is_committed_and_started_at_most_once(self) -> None:
        for call in getattr(self, "world", World()).db.calls[getattr(self, "seen", 0) :]:
            if call.outcome == "done" and call.sets.get("status") == "SUCCESS" and call.operation == "UpdateItem":
                item = self.world.item(call.item_ids[0])
                commit = (call.item_ids[0], str(item.get("leaseToken")))
                assert commit not in self.commits, "two commits of one claim"
                self.commits.add(commit)
        self.seen = len(self.world.db.calls) if hasattr(self, "world") else 0
        assert len(starts) == len(set(starts)), "one claim was started twice"
        assert violations == []

    def teardown(self) -> None:
        """Once nothing fails any more, everything ends, and nothing is left over."""
        if not hasattr(self, "world"):
            return
        self.world.db.calm()
        self.world.answers = []
        for _ in range(60):
            if all(self.is_over(task_id) for task_id in self.promises) and not self.world.leases():
                break
            self.world.sweep()
            self.world.deliver_all()
            self.world.reap()
            self.world.advance(LEASE_SECONDS)
        assert {t: self.world.status(t) for t in self.promises if not self.is_over(t)} == {}
        assert self.world.leases() == []
        for task_id, promise in self.promises.items():
            budget = (promise.max_retry_number + 1) * (promise.redrives + 1)
            assert sum(started == task_id for started, _ in starts) <= budget, "more starts than the budget"
        self.stored_rows_keep_their_form()

    def is_over(self, task_id: str) -> bool:
        item = self.world.db.item(task_id)
        return item is None or item["status"] in TERMINAL


def is_write(call: Call) -> bool:
    return call.operation in {"PutItem", "UpdateItem", "DeleteItem", "TransactWriteItems"}


def harmless(act: Any) -> None:
    """What the other process does; its own death is not this one's."""
    with suppress(Died, Conflict, NotFound, StoreError):
        act()


def is_clients(call: Call) -> bool:
    """Submits and operator actions: their sender is alive, or nobody would know what was promised."""
    sets = call.sets
    return "operator" in sets or "payload" in sets or sets.get("outcome") == "acknowledged" or "cancelled" in sets


def check_row(item: Item) -> None:
    status, key = item["status"], item.get("dispatchKey", "")
    if status in TERMINAL:
        assert key.startswith(TERMINAL_KEYS), "a terminal task under an open key"
        assert isinstance(item["expiresAt"], int)
        assert "lockTime" not in item
    else:
        assert key.startswith(OPEN_KEYS), "an open task without an open key"
        assert "expiresAt" not in item, "an open task with a time to live"
        assert "finishedAt" not in item
    if status == "SUCCESS":
        assert item["result"] == str(item["fence"]), "the result of a stale holder"
    if status == "FAILED" and item["error"]["reason"] == "permanent":
        assert item["error"]["message"] == str(item["fence"]), "the failure of a stale holder"
    if status == "RUNNING":
        assert item["leaseToken"]
        assert item["lockTime"] > 0
    if status == "PENDING":
        assert not {"leaseToken", "lockTime", "owner"} & item.keys()


Deployment.TestCase.settings = settings(
    max_examples=200,
    stateful_step_count=25,
    deadline=None,
    derandomize=True,
    suppress_health_check=list(HealthCheck),
)
TestDeployment = Deployment.TestCase
