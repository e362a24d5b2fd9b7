"""One run: a seed, some lives in bad weather, then calm until all is at rest, then years until all is gone."""

from __future__ import annotations

import gzip
import json
from collections import Counter
from collections.abc import Callable
from contextlib import AbstractContextManager, nullcontext
from dataclasses import dataclass, field

from tests.simulation import weather as skies
from tests.simulation.clients import Clients, plans
from tests.simulation.cloud import Cloud
from tests.simulation.containers import Container
from tests.simulation.kernel import START, Kernel, Violation
from tests.simulation.seams import simulated_threading
from tests.simulation.table import LEDGER
from tests.simulation.weather import Weather
from thunderagent.audit import audit
from thunderagent.audit_rules import OWN_LIFE
from thunderagent.codec import from_item
from thunderagent.schema import DAY_SECONDS
from thunderagent.states import TERMINAL

LIVES = 50
SECONDS_PER_LIFE = 3.0
REST_SECONDS = 3600.0  # within which all must be at rest once faults stop
LOOK_EVERY = 400  # steps


@dataclass
class Result:
    """What became of one run. `again` counts starts of a handler beyond the first of a life, `repeats` those among them
    that no handler had asked for, `unexplained` those that no fault explains either."""

    seed: int
    lives: int
    weather: str
    digest: str = ""
    violation: str | None = None
    history: list[str] = field(default_factory=list, repr=False)
    steps: int = 0
    starts: int = 0
    repeats: int = 0
    again: int = 0
    unexplained: int = 0
    double_commits: int = 0
    worked_twice: int = 0
    seconds: float = 0
    rest_seconds: float = 0
    faults: Counter[str] = field(default_factory=Counter, repr=False)


def run(
    seed: int,
    *,
    lives: int = LIVES,
    weather: Weather | None = None,
    keep: bool = False,
    years: bool = True,
    mutation: Callable[[], AbstractContextManager[object]] = nullcontext,
) -> Result:
    """Run one seed to its end or to its first violation."""
    kernel = Kernel(seed, keep=keep)
    sky = weather or skies.draw(kernel.random)
    result = Result(seed, lives, sky.faults())
    with simulated_threading(kernel), mutation():
        episode = _Episode(kernel, sky, lives, result)
        try:
            episode.run(years=years)
        except Violation as broken:
            result.violation = str(broken)
        result.digest, result.history, result.steps = kernel.digest(), list(kernel.history), kernel.steps
        result.seconds, result.faults = kernel.now - START, kernel.faults
        kernel.close()
    rules = episode.cloud.rules
    result.starts, result.repeats = rules.starts, rules.repeats
    result.again = sum(count - 1 for count in rules.starts_in_life.values() if count)
    result.unexplained, result.double_commits = rules.unexplained, rules.double_commits
    result.worked_twice = sum(count > 1 + rules.life[task_id] for task_id, count in rules.worked.items())
    return result


class _Episode:
    def __init__(self, kernel: Kernel, sky: Weather, lives: int, result: Result) -> None:
        self.kernel = kernel
        self.sky = sky
        self.cloud = Cloud(kernel, sky)
        self.result = result
        self.span = lives * SECONDS_PER_LIFE
        self.clients = Clients(
            self.cloud, plans(kernel.random, lives, span=self.span, cancels=sky.cancels, deadly=not sky.is_fair)
        )
        self.cloud.rules.nothing_may_repeat = sky.is_fair
        kernel.look_every(LOOK_EVERY, self._look)
        self._calm_at: float | None = None

    def run(self, *, years: bool) -> None:
        self.kernel.note(f"WEATHER {self.result.weather}")
        self.cloud.start()
        self.clients.start()
        self._go(self.kernel.now + self.span * 1.1)
        self.cloud.calm()
        self.clients.end_schedules()
        calm_at = self._calm_at = self.kernel.now
        while self._is_busy() and self.kernel.now < calm_at + REST_SECONDS:
            self._go(self.kernel.now + 10)
        self.result.rest_seconds = self.kernel.now - calm_at
        self._check_rest()
        if years:
            self._years_later()

    def _go(self, instant: float) -> None:
        self.kernel.run_until(instant)

    def _look(self) -> None:
        calm = self.kernel.now - self._calm_at if self._calm_at is not None else 0
        self.cloud.rules.look(calm_seconds=calm)

    # ---- at rest -----------------------------------------------------------------------------------------------------

    def _is_busy(self) -> bool:
        rules = self.cloud.rules
        return bool(self.clients.left or rules.unfinished() or self.cloud.streams.has_records or rules.active)

    def _require(self, holds: bool, problem: str) -> None:
        if not holds:
            self.kernel.violate(problem)
            raise self.kernel.broken or Violation(problem)

    def _check_rest(self) -> None:
        rules = self.cloud.rules
        self._require(not self._is_busy(), f"not at rest {REST_SECONDS:.0f} s after the last fault: {self._why()}")
        self._go(self.kernel.now + 30)  # what was still on its way
        rules.look()
        ledger = {row["id"] for row in self.cloud.table.rows(LEDGER)}
        for task_id, item in rules.tasks():
            self._require(item["status"] in TERMINAL, f"{task_id} is {item['status']} at rest")
            succeeded = item["status"] == "SUCCESS" or item.get("outcome") == "acknowledged"
            if rules.accepted.get(task_id) == "ledger":
                by_it = succeeded and rules.done_by_fence.get((task_id, item["fence"])) == "commit"
                self._require((task_id in ledger) == by_it, f"{task_id}: {item['status']}, and its ledger differs")
            if succeeded:
                self._check_result(task_id)
            if "nonce" in item or "unique" not in item:
                self._require(
                    (task_id, item["fence"]) in rules.told or item["fence"] == 0 or bool(item.get("redriveIds")),
                    f"{task_id}: nobody was told of its end",
                )
        self._audit()

    def _why(self) -> str:
        rules = self.cloud.rules
        records = self.cloud.streams.has_records
        return f"clients {self.clients.left}, {rules.unfinished()}, records {records}, {rules.active}"

    def _check_result(self, task_id: str) -> None:
        """The result that readers see is the one of the attempt that committed."""
        item = self.cloud.rules._item(task_id) or {}
        text = item.get("result")
        if text is None:
            body = self.cloud.table.stored.get(str(item.get("resultRef")))
            self._require(body is not None, f"{task_id}: its result is gone")
            text = from_item(body or {})["body"]
        result = json.loads(text)
        self._require(
            result["task"] == task_id and result["fence"] == item["fence"],
            f"{task_id}: holds the result of attempt {result['fence']}, its fence is {item['fence']}",
        )

    def _audit(self) -> None:
        """The library's own auditor finds nothing."""
        findings: list[str] = []
        done: list[bool] = []

        def work(container: Container) -> None:
            own = container.parts
            submitted = set(self.cloud.rules.accepted) - self.cloud.rules.erased - self.cloud.rules.archived
            found = audit(own.store, grace_seconds=own.settings.lease_grace_seconds, submitted=submitted)
            findings.extend(f"{each.item_id}: {each.problem}" for each in found.findings)
            done.append(True)

        self.cloud.invocations.run_in("auditor", work, seconds=600)
        self._go(self.kernel.now + 120)
        self._require(bool(done), "the audit did not end")
        self._require(not findings, f"the auditor finds {findings}")

    # ---- years later -------------------------------------------------------------------------------------------------

    def _years_later(self) -> None:
        """Everything outlives its time: tasks go to the archive, and nothing is left but the service's own."""
        cloud, rules = self.cloud, self.cloud.rules
        cloud.is_over = True
        self._go(self.kernel.now + 400)
        expected = {task_id for task_id, _ in rules.tasks()} | rules.surely_erased
        self._calm_at = None  # no reaper runs in those years
        for days in (8, 92, 410, 410):
            cloud.change_weather(self.sky.for_the_recorder() if days == 8 else self.sky.after())
            self.kernel.now += days * DAY_SECONDS
            rules.archived |= set(rules.accepted)
            cloud.table.expire()
            until = self.kernel.now + 3600
            while cloud.streams.has_records and self.kernel.now < until:
                self._go(self.kernel.now + 5)
            self._go(self.kernel.now + 60)
        archived = self._archived()
        self._require(expected <= archived, f"not in the archive: {sorted(expected - archived)}")
        left = [each for each in cloud.table.stored if not each.startswith(OWN_LIFE)]
        self._require(not left, f"left behind for ever: {left}")

    def _archived(self) -> set[str]:
        lines = [
            json.loads(line)
            for key, data in self.cloud.bucket.stored.items()
            if key.startswith("archive/")
            for line in gzip.decompress(data).decode().splitlines()
        ]
        return {str(line["taskId"]) for line in lines}
