"""Edges, settling, cascade and firings over every store: what the fake accepts, DynamoDB's other likenesses do too."""

from __future__ import annotations

import itertools
from collections.abc import Callable, Mapping
from typing import Any

from tests.support.fakes import FakeClock, FakeRandomness
from tests.support.stores import Backend, LosesReplies
from thunderagent import expressions
from thunderagent.bodies import Bodies
from thunderagent.dependencies import Dependencies
from thunderagent.expressions import Result
from thunderagent.model import Attempt, Failure, LeaseToken, Task
from thunderagent.operations import Operations, Operator
from thunderagent.queues import Queues
from thunderagent.schedules import Schedules
from thunderagent.schema import Layout, blocked_key, schedule_id
from thunderagent.store import Send, Store, Written
from thunderagent.submit import Submission, Submitter

_libraries = itertools.count(1)  # tokens of two containers differ
OPERATOR = Operator("arn:aws:iam::1:user/a")


class Types:
    def defaults_of(self, type_name: str) -> dict[str, Any]:
        return {}

    def timeout_limit(self, type_name: str) -> float:
        return 870


class Silent:
    def log(self, event: str, *, level: str = "INFO", **fields: Any) -> None: ...
    def measure(self, metric: str, value: float = 1, *, queue: str | None = None, type: str | None = None) -> None: ...


class Library:
    """The library over one backend."""

    def __init__(self, backend: Backend, send: Send | None = None) -> None:
        self.clock = FakeClock()
        self.store = Store(
            table=backend.table,
            send=send or backend.send,
            clock=self.clock,
            randomness=FakeRandomness(prefix=f"{next(_libraries)}-"),
            layout=Layout(),
        )
        bodies = Bodies(self.store, None)
        self.dependencies = Dependencies(self.store, bodies, observer=Silent())
        queues = Queues(self.store, [], clock=self.clock)
        self.submitter = Submitter(self.store, bodies, queues, Types(), self.dependencies)
        self.operations = Operations(self.store, bodies, self.dependencies)
        self.schedules = Schedules(self.store, self.submitter, observer=Silent())

    def task(self, task_id: str) -> Task:
        found = self.store.get_task(task_id, consistent=True)
        assert found is not None
        return found

    def submit(self, task_id: str, *parents: str) -> Task:
        submission = Submission("demo.echo", task_id=task_id, depends_on=parents)
        return self.submitter.submit(submission, body={"id": task_id}).task

    def end(self, task_id: str, *, well: bool = True) -> None:
        """Claim a task and end it; whoever waits is told."""
        task, now, layout = self.task(task_id), self.clock.now(), self.store.layout
        token = LeaseToken(f"{task_id}-{task.fence}")
        claim = expressions.claim(task, token=token, lock_time=now + 60, owner="p", now=now, region=layout.region)
        assert isinstance(self.store.apply(claim), Written)
        attempt, failure = Attempt(1, now, now, "x"), Failure("ValueError", "no")
        task = self.task(task_id)
        write = (
            expressions.commit(task, token, result=Result("1"), attempt=attempt, layout=layout, now=now)
            if well
            else expressions.fail(task, token, failure=failure, attempt=attempt, layout=layout, now=now)
        )
        answer = self.store.apply(write)
        assert isinstance(answer, Written)
        self.dependencies.on_end(answer.item)


def test_a_diamond_fails_is_revived_and_runs(backend: Backend, new_id: Callable[[], str]) -> None:
    library = Library(backend)
    top, left, right, bottom = (new_id() for _ in range(4))
    library.submit(top)
    library.submit(left, top)
    library.submit(right, top)
    library.submit(bottom, left, right)

    library.end(top, well=False)
    assert {library.task(each).status for each in (left, right, bottom)} == {"FAILED"}
    library.operations.redrive(top, OPERATOR, key=None, cascade=True)
    for each in (top, left, right):
        assert library.task(bottom).blocked_count == (2 if each != right else 1)
        library.end(each)
    library.end(bottom)

    assert library.task(bottom).status == "SUCCESS"
    assert library.dependencies.results_of_parents(library.task(bottom)) == {left: 1, right: 1}


def test_a_chain_whose_settlers_lost_every_first_reply(backend: Backend, new_id: Callable[[], str]) -> None:
    transactions = LosesReplies(backend.send, times=3, where=lambda operation, _: operation == "TransactWriteItems")
    library = Library(backend, transactions)
    parent, child = new_id(), new_id()
    library.submit(parent)
    library.submit(child, parent)
    library.end(parent)
    assert library.task(child).blocked_count == 0
    assert library.task(child).dispatch_key == library.store.layout.open("default", "normal", child)


def test_more_parents_than_one_transaction_holds(backend: Backend, new_id: Callable[[], str]) -> None:
    library = Library(backend)
    parents, child = [new_id() for _ in range(120)], new_id()
    for parent in parents:
        library.submit(parent)
    assert library.submit(child, *parents).blocked_count == 120
    assert library.dependencies.blocked_by(library.task(child)) == parents
    for parent in parents:
        backend.remove(parent)
    library.clock.advance(61)
    library.dependencies.repair([blocked_key("default", shard) for shard in range(4)])
    assert library.task(child).item["error"]["message"] == f"parent {parents[0]} is gone"


def test_a_firing_is_one_task_whoever_looks(backend: Backend, new_id: Callable[[], str]) -> None:
    name = new_id()
    first, second = Library(backend), Library(backend)
    schedule, _ = first.schedules.put(name, {"cron": "* * * * *", "task": {"type": "demo.echo"}})
    for library in (first, second):
        library.clock.advance(schedule.next - library.clock.now())
    raw = backend.raw(schedule_id(name))
    assert raw is not None

    assert first.schedules.fire_due() == 1
    backend.put_raw(_with_due(raw, schedule.next))  # the other one looked before
    assert second.schedules.fire_due() == 0

    task = first.task(f"cron.{name}.{int(schedule.next)}")
    assert task.status == "PENDING"
    assert first.schedules.get(name).next == schedule.next + 60
    first.schedules.delete(name)


def _with_due(raw: Mapping[str, Any], due_at: float) -> Mapping[str, Any]:
    return {**raw, "dueAt": {"N": str(int(due_at))}}
