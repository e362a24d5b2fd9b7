"""The handlers of simulated tasks. What each attempt does is written in its payload, one word for each start."""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping
from typing import TYPE_CHECKING, Any

from tests.simulation.table import LEDGER
from tests.support.batches import handlers_of
from thunderagent.context import Context
from thunderagent.errors import LeaseLost
from thunderagent.outcomes import Done, Fail, RetryLater
from thunderagent.registry import Handler, task
from thunderagent.running_task import RunningTask

if TYPE_CHECKING:
    from tests.simulation.cloud import Cloud

TYPES = ("plain", "ledger", "limited", "second", "paced")
LATER_SECONDS = 2.0


class _Refused(Exception):
    """A handler's own failure."""


def handlers(cloud: Cloud) -> dict[str, Handler]:
    """One handler for each type; they all follow their payload."""

    def declared(name: str) -> Callable[..., Any]:
        @task(name)
        def handler(payload: Any, ctx: Any) -> Any:
            return Performance(cloud, payload, ctx).run()

        return handler

    return {handler.declaration.name: handler for handler in handlers_of(*map(declared, TYPES))}


class Performance:
    """One start of one handler."""

    def __init__(self, cloud: Cloud, payload: Mapping[str, Any], ctx: Context) -> None:
        running: RunningTask = ctx._running
        self._cloud = cloud
        self._rules = cloud.rules
        self._payload = payload
        self._ctx = ctx
        self._item = running.task.item
        self._rules.handler_starts(ctx.task_id, running.lease.token, ctx.fence, self._item)

    def run(self) -> Any:
        ctx, script = self._ctx, self._payload["script"]
        life = self._rules.life_under(ctx.task_id, ctx._running.lease.token)
        word = script[min(self._rules.starts_in_life[life], len(script)) - 1]
        return getattr(self, f"_{word}")()

    def _work(self, share: float = 1) -> None:
        self._cloud.kernel.pause(float(self._payload["seconds"]) * share)

    def _says(self, word: str, *, done: bool = False) -> None:
        self._rules.handler_says(self._ctx.task_id, self._ctx.fence, word, done=done)

    def _result(self, **more: Any) -> dict[str, Any]:
        self._says("done", done=True)
        return {"task": self._ctx.task_id, "fence": self._ctx.fence, **more}

    def _return(self) -> Any:
        self._work()
        return self._result()

    def _big(self) -> Any:
        self._work()
        return self._result(filler="x" * 3000)

    def _raise(self) -> Any:
        self._work(0.5)
        self._says("error")
        raise _Refused("not today")

    def _fail(self) -> Any:
        self._work(0.5)
        raise Fail("never", reason="never")

    def _skip(self) -> Any:
        self._work(0.2)
        return Done("nothing to do")

    def _later(self) -> Any:
        self._work(0.2)
        self._says("later")
        raise RetryLater(LATER_SECONDS)

    def _hang(self) -> Any:
        """Sleeps on past its time: an interrupt meets it when it comes back."""
        self._says("hangs")
        self._cloud.kernel.pause(self._ctx.remaining_seconds + 3)  # the interrupt is raised here
        self._cloud.kernel.pause(0.1)
        return self._result()

    def _stuck(self) -> Any:
        """Does not come back for long: its end is written without it, and its process ends."""
        self._says("is stuck")
        self._cloud.kernel.pause(self._ctx.remaining_seconds + 40)
        return self._result()

    def _kill(self) -> Any:
        self._work(0.3)
        self._says("kills its process")
        self._cloud.kernel.kill(self._cloud.kernel.current.process, f"{self._ctx.task_id} killed it")
        self._work()

    def _loop(self) -> Any:
        """Checks in like an orderly handler of a long task."""
        for turn in range(6):
            self._work(0.5)
            if self._ctx.cancelled:
                raise LeaseLost(self._ctx.task_id, reason="told to stop")
            self._ctx.heartbeat()
            if turn % 2:
                self._ctx.progress(turn / 6, "on my way")
        return self._result()

    def _steps(self) -> Any:
        first = self._ctx.step("one", lambda: self._stepped(1))
        second = self._ctx.step("two", lambda: self._stepped(2))
        return self._result(steps=[first, second])

    def _stepped(self, number: int) -> int:
        self._work(0.3)
        return number

    def _spawn(self) -> Any:
        self._work(0.3)
        child = self._ctx.submit("plain", {"script": ["return"], "seconds": 0.5}, name="child")
        self._rules.accepted[child.task_id] = "plain"
        self._work(0.3)
        return self._result(child=child.task_id)

    def _commit(self) -> Any:
        """Once per task, whatever happens: the user's own counter rises in the transaction of the commit."""
        self._work()
        self._says("commit", done=True)
        result = {"task": self._ctx.task_id, "fence": self._ctx.fence}
        entry = {
            "Update": {
                "TableName": LEDGER,
                "Key": {"id": {"S": self._ctx.task_id}},
                "UpdateExpression": "ADD n :one",
                "ExpressionAttributeValues": {":one": {"N": "1"}},
            }
        }
        self._ctx.commit_with([entry], result)
        self._work(0.2)
        return None


def text_of(payload: Mapping[str, Any]) -> str:
    return json.dumps(payload, separators=(",", ":"))
