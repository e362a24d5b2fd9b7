"""Any order of what may happen: submits, sweeps, late and doubled events, deaths, lost replies, cancels, redrives.

hypothesis drives a whole small deployment against a plain model of what was promised. After every step the stored
invariants of ARCHITECTURE §8 hold; in the end, with the faults gone, every task has ended.
"""

from __future__ import annotations

from contextlib import suppress
from dataclasses import dataclass, field
from typing import Any

from hypothesis import HealthCheck, settings
from hypothesis import strategies as st
from hypothesis.stateful import Bundle, RuleBasedStateMachine, initialize, invariant, rule

from tests.support.memory_dynamodb import Call, Fault
from tests.support.world import GRACE_SECONDS, LEASE_SECONDS, Died, World, die
from thunderagent import Fail, task
from thunderagent.codec import Item
from thunderagent.errors import Conflict, NotFound, StoreError
from thunderagent.operations import Operations, Operator
from thunderagent.states import TERMINAL

TERMINAL_KEYS = ("SUCCESS#", "FAILED#", "DONE#")
OPEN_KEYS = ("OPEN#", "RUNNING#", "BLOCKED#")
FAULTS = st.sampled_from([Fault.LOST_REPLY, Fault.LOST_REQUEST, Fault.THROTTLED, Fault.CONFLICT])
starts: list[tuple[str, int]] = []


def note_start(ctx: Any) -> None:
    starts.append((ctx.task_id, ctx.fence))


@task("good")
def good(payload: Any, ctx: Any) -> str:
    note_start(ctx)
    return "done"


@task("flaky")
def flaky(payload: Any, ctx: Any) -> str:
    note_start(ctx)
    if ctx.attempt == 1:
        raise ValueError("the first time")
    return "done"


@task("bad")
def bad(payload: Any, ctx: Any) -> str:
    note_start(ctx)
    raise Fail("never")


@dataclass
class Promise:
    """What was told to somebody about one task."""

    max_retry_number: int
    cancelled: bool = False
    redrives: int = 0
    fence: int = 0
    last: Item = field(default_factory=dict)


class Deployment(RuleBasedStateMachine):
    """See the module. Faults are armed for one request to come; a death ends the process that sends it."""

    tasks = Bundle("tasks")

    @initialize(concurrency=st.sampled_from([1, 10]))
    def start(self, concurrency: int) -> None:
        starts.clear()
        self.world = World(good, flaky, bad, batch=3, concurrency=concurrency)
        self.promises: dict[str, Promise] = {}
        self.delivered: list[dict[str, Any]] = []
        self.commits: set[tuple[str, str]] = set()
        self.seen = 0

    # ---- clients -----------------------------------------------------------------------------------------------------

    @rule(
        target=tasks,
        type=st.sampled_from(["good", "flaky", "bad"]),
        max_retry_number=st.integers(0, 2),
        within=st.none() | st.just(90),
    )
    def submit(self, type: str, max_retry_number: int, within: int | None) -> str:
        number = len(self.promises)
        task_id = f"task-{number}"
        with suppress(StoreError):
            self.world.submit(type, task_id=task_id, max_retry_number=max_retry_number, start_within_seconds=within)
        self.promises[task_id] = Promise(max_retry_number)
        return task_id

    @rule(task_id=tasks)
    def cancel(self, task_id: str) -> None:
        with suppress(Conflict, NotFound, StoreError):
            self.operations().cancel(task_id, Operator("somebody"))
            self.promises[task_id].cancelled = True

    @rule(task_id=tasks)
    def redrive(self, task_id: str) -> None:
        promise = self.promises[task_id]
        with suppress(Conflict, NotFound):
            promise.redrives += 1  # even unanswered it may have happened
            with suppress(StoreError):
                self.operations().redrive(task_id, Operator("somebody"), key=f"{promise.redrives}")

    @rule(task_id=tasks)
    def acknowledge(self, task_id: str) -> None:
        with suppress(Conflict, NotFound, StoreError):
            self.operations().acknowledge(task_id)

    def operations(self) -> Operations:
        api = self.world.process("api")
        return Operations(api.store, api.bodies, api.dependencies)

    # ---- machinery ---------------------------------------------------------------------------------------------------

    @rule(answer=st.sampled_from([True, True, None, False]))
    def sweep(self, answer: bool | None) -> None:
        self.world.answers = [answer]
        with suppress(Died):
            self.world.sweep()
        self.world.answers = []

    @rule()
    def sweep_from_another_poller(self) -> None:
        with suppress(Died):
            self.world.sweep(self.world.process("poller"))

    @rule(index=st.integers(0, 20))
    def deliver(self, index: int) -> None:
        if self.world.events:
            event = self.world.events.pop(index % len(self.world.events))
            self.delivered.append(event)
            self.execute(event)

    @rule(index=st.integers(0, 20))
    def deliver_again(self, index: int) -> None:
        if self.delivered:
            self.execute(self.delivered[index % len(self.delivered)])

    def execute(self, event: dict[str, Any]) -> None:
        with suppress(Died):
            self.world.deliver(event)

    @rule()
    def lose_an_event(self) -> None:
        if self.world.events:
            self.world.events.pop()

    @rule()
    def reap(self) -> None:
        with suppress(Died):
            self.world.reap()

    @rule(seconds=st.sampled_from([0.5, 3.0, 20.0, LEASE_SECONDS, LEASE_SECONDS + GRACE_SECONDS + 1, 400.0]))
    def wait(self, seconds: float) -> None:
        self.world.advance(seconds)

    # ---- what goes wrong ---------------------------------------------------------------------------------------------

    @rule(fault=FAULTS, skip=st.integers(0, 6), times=st.sampled_from([1, 1, 6]))
    def arm_fault(self, fault: Fault, skip: int, times: int) -> None:
        self.world.db.inject(fault, where=is_write, skip=skip, times=times)

    @rule(skip=st.integers(0, 8), after=st.booleans())
    def arm_death(self, skip: int, after: bool) -> None:
        hook = self.world.db.after if after else self.world.db.before
        hook(lambda call: is_write(call) and not is_clients(call), die, skip=skip)

    @rule(action=st.sampled_from(["sweep", "reap", "wait"]), skip=st.integers(0, 6))
    def arm_interleaving(self, action: str, skip: int) -> None:
        """Somebody else acts just before one of the requests to come."""
        acts = {
            "sweep": self.sweep_from_another_poller,
            "reap": self.reap,
            "wait": lambda: self.world.advance(LEASE_SECONDS + GRACE_SECONDS + 1),
        }
        self.world.db.before(is_write, acts[action], skip=skip)

    @rule()
    def calm(self) -> None:
        self.world.db.calm()

    # ---- what must hold ----------------------------------------------------------------------------------------------

    @invariant()
    def stored_rows_keep_their_form(self) -> None:
        for task_id, promise in getattr(self, "promises", {}).items():
            item = self.world.db.item(task_id)
            if item is None:
                continue
            check_row(item)
            assert item["fence"] >= promise.fence, "the fence fell"
            assert item["retryCount"] <= item["maxRetryNumber"]
            promise.fence = item["fence"]
            if promise.cancelled:
                ended = item["status"] == "DONE" and item["outcome"] == "cancelled"
                assert ended or (item["status"] == "RUNNING" and item["cancelRequested"]), "a cancel was overtaken"

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
    if status == "RUNNING":
        assert item["leaseToken"]
        assert item["lockTime"] > 0
    if status == "PENDING":
        assert not {"leaseToken", "lockTime", "owner"} & item.keys()


Deployment.TestCase.settings = settings(
    max_examples=60,
    stateful_step_count=40,
    deadline=None,
    derandomize=True,
    suppress_health_check=list(HealthCheck),
)
TestDeployment = Deployment.TestCase
