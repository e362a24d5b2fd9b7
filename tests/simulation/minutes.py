"""What happens by the clock: pollers and reapers come, items outlive their time, and misfortune strikes."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from typing import TYPE_CHECKING, Any

from tests.simulation.containers import Container
from tests.simulation.handlers import TYPES
from tests.simulation.weather import LEASE_SECONDS, REAPER_SECONDS

if TYPE_CHECKING:
    from tests.simulation.cloud import Cloud

POLLER_SECONDS = 60.0
UPKEEP_SHARE = 1 / 3


class Minutes:
    """Everything that comes again and again."""

    def __init__(self, cloud: Cloud, *, pollers: int) -> None:
        self._cloud = cloud
        self._rules = cloud.rules
        self._kernel = cloud.kernel
        self._pollers = pollers

    def start_functions(self) -> None:
        chance = self._kernel.random
        for number in range(self._pollers):
            first = chance.random() * POLLER_SECONDS * (number > 0)
            self._every(POLLER_SECONDS, first, partial(self._poll, number))
        for _ in range(1 if self._cloud.weather.is_fair else chance.choice([1, 1, 2])):
            self._every(REAPER_SECONDS, chance.random() * REAPER_SECONDS, self._reap)

    def start_the_rest(self) -> None:
        chance = self._kernel.random
        self._every(20, 20 * chance.random(), self._misfortune)
        self._every(300, 300 * chance.random(), self._ttl)

    def _every(self, seconds: float, first: float, action: Callable[[], Any]) -> None:
        def again() -> None:
            if not self._cloud.is_over:
                action()
                self._kernel.after(seconds, again)

        self._kernel.after(first, again)

    def _poll(self, number: int) -> None:
        for _ in range(0 if number and self._cloud.is_calm else self._times()):
            self._cloud.invocations.run_in("poller", self._sweep, seconds=POLLER_SECONDS + 20)

    def _sweep(self, container: Container) -> None:
        """As functions/poller does it."""
        own = container.parts
        own.seams.clock.sleep(own.seams.randomness.uniform(0, own.settings.poll_start_jitter_seconds))
        own.sweeper.run(window_seconds=own.settings.poll_window_seconds, backlog_seconds=POLLER_SECONDS)

    def _reap(self) -> None:
        """As functions/reaper does it. Its counting, which changes no task, is left out of two runs of three."""
        for _ in range(self._times()):
            counts = self._kernel.random.random() < UPKEEP_SHARE
            work = _upkeep if counts else _reaping
            self._cloud.invocations.run_in("reaper", work, seconds=120)

    def _times(self) -> int:
        """Scheduled events come at least once, and sometimes not at all."""
        weather, drawn = self._cloud.weather, self._kernel.random.random()
        if drawn < weather.event_dropped:
            return 0
        return 2 if drawn < weather.event_dropped + weather.event_repeated / 2 else 1

    def _ttl(self) -> None:
        if self._cloud.weather.ttl_is_prompt:
            self._cloud.table.expire(at_most=20)

    def _misfortune(self) -> None:
        """What strikes between requests: executors ended or frozen at work, a throttled table, a deployment."""
        weather, chance = self._cloud.weather, self._kernel.random
        per_look = 20 / 3600
        busy = [each for each in self._rules.active.values() if not each.is_dead]
        if busy and chance.random() < weather.crashes_per_hour * per_look * len(busy):
            chosen = busy[int(chance.random() * len(busy))]
            if chance.random() < 0.3:
                self._kernel.freeze(chosen, chance.random() * 3 * LEASE_SECONDS)
                self._kernel.faults["frozen_at_work"] += 1
            else:
                self._kernel.faults["killed_at_work"] += 1
                self._kernel.kill(chosen, "struck at work")
        if chance.random() < weather.storms_per_hour * per_look:
            self._cloud.wire.storm_until = self._kernel.now + chance.random() * LEASE_SECONDS / 3
            self._kernel.note("STORM: the table is throttled")
            self._kernel.faults["storm"] += 1
        if chance.random() < weather.redeploys_per_hour * per_look:
            self._kernel.faults["redeploy"] += 1
            self._cloud.redeploy([name for name in TYPES if name == "plain" or chance.random() < 0.7])
        if weather.skew_is_wild and self._cloud.processes and chance.random() < 0.1:
            process = self._cloud.processes[int(chance.random() * len(self._cloud.processes))]
            process.set_clock((2 * chance.random() - 1) * weather.skew_seconds)
            self._kernel.note(f"{process.name}: its clock is set to {process.offset:+.1f} s")
            self._kernel.faults["clock_set"] += 1


def _upkeep(container: Container) -> None:
    container.upkeep.run()


def _reaping(container: Container) -> None:
    container.parts.reaper.run()
