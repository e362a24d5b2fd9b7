"""Lambda: containers, cold and reused; invokes at least once and late; calls that may stay without an answer."""

from __future__ import annotations

import json
from collections import defaultdict
from collections.abc import Callable
from typing import TYPE_CHECKING, Any

from tests.simulation.containers import EXECUTOR_SECONDS, Container
from tests.simulation.kernel import Died
from tests.simulation.weather import LEASE_SECONDS
from thunderagent.errors import DispatchError
from thunderagent.leased_batch import Batch
from thunderagent.service import Service

if TYPE_CHECKING:
    from tests.simulation.cloud import Cloud


class NoAnswer(Exception):
    """The container that served a call ended before it answered."""


class Invocations:
    """Of every function, in containers."""

    def __init__(self, cloud: Cloud) -> None:
        self._cloud = cloud
        self._rules = cloud.rules
        self._kernel = cloud.kernel
        self._idle: defaultdict[str, list[Container]] = defaultdict(list)

    def _container(self, function: str) -> Container:
        """An idle one of the version that is deployed, mostly; else a new one."""
        idle = [
            each for each in self._idle[function] if each.version == self._cloud.version and not each.process.is_dead
        ]
        if idle and self._kernel.random.random() < 0.9:
            chosen = idle[-1]
            self._idle[function] = [each for each in idle if each is not chosen]
            return chosen
        self._idle[function] = idle
        return Container(self._cloud, function)

    def run_in(
        self, function: str, work: Callable[[Container], Any], *, seconds: float, done: Callable[[], None] | None = None
    ) -> Container:
        """One invocation. It is ended when it takes longer than `seconds`."""
        container = self._container(function)
        process = container.process
        actor = self._kernel.spawn(process, process.name, lambda: work(container))

        def ended() -> None:
            if not process.is_dead:
                self._idle[function].append(container)
            if done is not None:
                done()

        def too_long() -> None:
            if not actor.is_done and not process.is_dead:
                self._kernel.kill(process, "the invocation took too long")

        actor.when_done.append(ended)
        self._kernel.after(seconds, too_long)
        return container

    def and_wait(self, function: str, work: Callable[[Container], Any], *, seconds: float) -> None:
        """One invocation, and the caller waits for its end, however it ends."""
        waiter, done = self._kernel.current, [False]

        def ended() -> None:
            done[0] = True
            self._kernel.wake(waiter)

        self.run_in(function, work, seconds=seconds, done=ended)
        while not done[0]:
            self._kernel.wait()

    def call(self, work: Callable[[Service], Any]) -> Any:
        """One HTTP call of a client. Raises what the use case raises, or NoAnswer."""
        answers: list[Any] = []
        errors: list[Exception] = []

        def serve(container: Container) -> None:
            try:
                answers.append(work(container.service))
            except Exception as error:  # noqa: BLE001  the client's answer
                errors.append(error)

        self._kernel.pause(self._cloud.wire.journey())
        self.and_wait("api", serve, seconds=29)
        if errors:
            raise errors[0]
        if not answers:
            raise NoAnswer
        return answers[0]

    # ---- executors ---------------------------------------------------------------------------------------------------

    def invoke(self, function: str, event: bytes) -> None:
        """Asynchronous: accepted proves nothing."""
        kernel, weather, chance = self._kernel, self._cloud.weather, self._kernel.random
        caller = kernel.current.process
        kernel.pause(self._cloud.wire.journey())
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
        weather, chance = self._cloud.weather, self._kernel.random
        if chance.random() < weather.event_dropped:
            self._kernel.note(f"aws: the event of {token} is dropped")
            self._kernel.faults["event_dropped"] += 1
            return
        times = 1 + (chance.random() < weather.event_repeated)
        self._kernel.faults["event_repeated"] += times - 1
        for _ in range(times):
            late = chance.random() < weather.event_late
            self._kernel.faults["event_late"] += late
            delay = chance.random() * 2 * LEASE_SECONDS if late else 0.01 + chance.random() * 0.1
            self._kernel.after(delay, lambda: self._execute(function, event, token))

    def _execute(self, function: str, event: bytes, token: str) -> None:
        batch = Batch.from_event(json.loads(event))
        until = self._kernel.now + EXECUTOR_SECONDS
        profile = function.removeprefix("executor-")

        def work(container: Container) -> None:
            self._kernel.note(f"{container.process.name}: event of {token}")
            container.runner(profile).run(batch, lambda: until - self._kernel.now)

        def done() -> None:
            if self._rules.active.get(token) is container.process:
                self._rules.active.pop(token)

        container = self.run_in(function, work, seconds=EXECUTOR_SECONDS, done=done)
        if not container.process.is_dead:
            self._rules.active.setdefault(token, container.process)
