"""One version of the library, in a process of its own: a snapshot of a release holds this file beside its library.

Reads one JSON command a line and answers with one: the table goes in whole and comes out whole, so that two versions
can take turns on the same items. Only the library it finds on its path is used, and nothing else of this repository.

    {"do": "submit|sweep|execute|reap", "now": …, "items": […], …} → {"items": […], "events": […], …}
"""

from __future__ import annotations

import json
import sys
from typing import Any

from thunderagent import Backoff, Fail, RetryLater, task
from thunderagent.codec import from_item, to_item
from thunderagent.leased_batch import Batch
from thunderagent.registry import Registry, handlers_of
from thunderagent.runner import Runner
from thunderagent.settings import Executor, Settings
from thunderagent.submit import Submission
from thunderagent.testing.fakes import FakeClock, FakeRandomness, InlineThreads, Recorder
from thunderagent.testing.memory_dynamodb import MemoryDynamoDB
from thunderagent.wiring import Parts, Seams

LEASE_SECONDS = 60.0
TYPES = ("side.echo", "side.flaky", "side.fail", "side.snooze", "side.steps")


@task("side.echo")
def echo(payload: Any, ctx: Any) -> Any:
    return payload


@task("side.flaky", backoff=Backoff(base=1, cap=1))
def flaky(payload: Any, ctx: Any) -> Any:
    if ctx.attempt < 3:
        raise ValueError("not yet")
    return ctx.attempt


@task("side.fail")
def fail(payload: Any, ctx: Any) -> Any:
    raise Fail("never")


@task("side.snooze")
def snooze(payload: Any, ctx: Any) -> Any:
    if ctx.fence < 2:
        raise RetryLater(1)
    return ctx.fence


@task("side.steps", backoff=Backoff(base=1, cap=1))
def steps(payload: Any, ctx: Any) -> Any:
    first = ctx.step("first", lambda: ctx.attempt)
    if ctx.attempt == 1:
        raise ValueError("after the first step")
    return first


HANDLERS = (echo, flaky, fail, snooze, steps)


class Side:
    """The parts of this version over a table that is given and taken back with every command."""

    def __init__(self, name: str) -> None:
        self.db = MemoryDynamoDB()
        self.clock = FakeClock()
        self.events: list[dict[str, Any]] = []
        threads, notes = InlineThreads(self.clock), Recorder()
        executor = Executor("default", "executor", max_in_flight=20, lease_seconds=LEASE_SECONDS, threads=4)
        settings = Settings("tasks", executors={"default": executor}, lease_seconds=LEASE_SECONDS, dispatch_shards=1)
        seams = Seams(
            send=self.db,
            invoke=lambda function, event: self.events.append(json.loads(event)),
            clock=self.clock,
            randomness=FakeRandomness(prefix=f"{name}-"),
            threads=threads,
        )
        registry = Registry.from_dict(
            {
                "formatVersion": 1,
                "profiles": {"default": {"modules": ["m"], "timeoutSeconds": 900}},
                "queues": {"default": {}},
                "types": {name: {"profile": "default"} for name in TYPES},
            }
        )
        self.parts = Parts(settings, seams, registry=registry, telemetry=notes)  # type: ignore[arg-type]
        self.runner = Runner(
            self.parts.store,
            self.parts.bodies,
            {each.declaration.name: each for handler in HANDLERS for each in handlers_of(handler)},
            threads=threads,
            concurrency=4,
            lease_seconds=LEASE_SECONDS,
            observer=notes,  # type: ignore[arg-type]
            submitter=self.parts.submitter,
            relatives=self.parts.dependencies,
            end_process=lambda: None,
        )

    def answer(self, command: dict[str, Any]) -> dict[str, Any]:
        self.events.clear()
        for item_id in self.db.items():
            self.db.remove(item_id)
        for raw in command["items"]:
            self.db.put(from_item(raw))
        self.clock.advance(max(0.0, command["now"] - self.clock.now()))
        said = getattr(self, command["do"])(command)
        items = [to_item(item) for item in self.db.items().values()]
        return {"items": items, "events": list(self.events), "said": said}

    def submit(self, command: dict[str, Any]) -> str:
        submission = Submission(**{**command["task"], "depends_on": tuple(command["task"].get("depends_on", ()))})
        return str(self.parts.submitter.submit(submission, key=None, body=command["task"]).task.task_id)

    def sweep(self, command: dict[str, Any]) -> int:
        return int(self.parts.sweeper.run_pass().claimed)

    def execute(self, command: dict[str, Any]) -> dict[str, Any]:
        return dict(self.runner.run(Batch.from_event(command["event"]), lambda: 900.0).as_dict())

    def reap(self, command: dict[str, Any]) -> int:
        return int(self.parts.reaper.run().leases)


def main(name: str) -> None:
    side = Side(name)
    for line in sys.stdin:
        print(json.dumps(side.answer(json.loads(line))), flush=True)


if __name__ == "__main__":
    main(sys.argv[1])
