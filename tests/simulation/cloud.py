"""The deployment under simulation: everything around the code, put together.

The code in the containers is the real one, put together by `wiring.Parts`. What AWS does is done here and beside:
`wire` (requests to the table), `invocations` (Lambda), `streams`, `minutes` (what comes by the clock).
"""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from typing import Any

from tests.simulation.containers import Bucket, drawn_settings, registry_of
from tests.simulation.handlers import TYPES, handlers
from tests.simulation.invocations import Invocations
from tests.simulation.kernel import Kernel, Process
from tests.simulation.minutes import Minutes
from tests.simulation.rules import Rules
from tests.simulation.side_rules import limits_of_queues
from tests.simulation.streams import Streams
from tests.simulation.table import SimulatedTable
from tests.simulation.weather import Weather
from tests.simulation.wire import Wire
from thunderagent.schema import queue_control_id


class Cloud:
    """Everything around the code."""

    def __init__(self, kernel: Kernel, weather: Weather) -> None:
        self.kernel = kernel
        self.weather = weather
        self.table = SimulatedTable(kernel, weather)
        self.rules = Rules(kernel, self.table, lambda: self.weather)
        self.bucket = Bucket(self)
        self.failures: list[str] = []
        self.containers = 0
        self.version = 1
        self.processes: list[Process] = []
        self.is_calm = False
        self.is_over = False
        self.minutes = Minutes(self, pollers=kernel.random.choice([1, 2, 2, 3]))
        self.settings = drawn_settings(kernel.random)
        self.registry = registry_of(TYPES)
        self.handlers = handlers(self)
        self.wire = Wire(self)
        self.invocations = Invocations(self)
        self.streams = Streams(self)
        self.table.on_change = self.rules.on_change
        self.table.on_ledger = self.rules.on_ledger
        self.table.stream = self.streams.take
        self._put_control()
        self.change_weather(weather)

    def _put_control(self) -> None:
        for queue, limits in limits_of_queues().items():
            self.table.put({"taskId": queue_control_id(queue), "createdAt": 0, **limits})

    def start(self) -> None:
        self.minutes.start_functions()
        self.streams.start()
        self.minutes.start_the_rest()

    def change_weather(self, weather: Weather) -> None:
        self.weather = weather
        self.table.weather = weather
        self.wire.change_weather(weather)

    def calm(self) -> None:
        """Faults stop: clocks are right again, what is frozen thaws, nothing is lost or late any more."""
        self.is_calm = True
        self.kernel.note("CALM")
        self.change_weather(self.weather.after())
        self.wire.storm_until = 0
        for process in self.processes:
            process.set_clock(0)
            process.cut_until = 0
            process.touch()
            self.kernel.thaw(process)
        self.redeploy(TYPES)

    def redeploy(self, types: Sequence[str]) -> None:
        self.version += 1
        self.registry = registry_of(types)
        self.kernel.note(f"DEPLOYED version {self.version} with {' '.join(types)}")

    def put_events(self, entries: Sequence[Mapping[str, Any]]) -> list[str | None]:
        """EventBridge."""
        self.wire.travel("PutEvents")
        details = [json.loads(entry["Detail"]) for entry in entries]
        self.rules.told |= {(detail["taskId"], detail["fence"]) for detail in details}
        return [None for _ in entries]
