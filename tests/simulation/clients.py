"""Clients of the API: they submit, cancel, redrive, acknowledge and erase, and repeat what was not answered."""

from __future__ import annotations

import random
from collections.abc import Callable
from dataclasses import dataclass, field
from functools import partial
from typing import Any

from tests.simulation.cloud import Cloud
from tests.simulation.handlers import text_of
from tests.simulation.invocations import NoAnswer
from tests.simulation.kernel import Process
from tests.simulation.side_rules import KEY_TAG
from thunderagent.errors import Conflict, NotFound, OutcomeUnknown, StoreError, Unprocessable
from thunderagent.operations import Operator
from thunderagent.service import Service
from thunderagent.submit import Submission, task_id_of

SCRIPTS: tuple[tuple[float, tuple[str, ...]], ...] = (
    (30, ("return",)),
    (6, ("raise", "return")),
    (4, ("raise", "raise", "raise", "raise", "raise")),
    (3, ("fail", "return")),
    (3, ("skip",)),
    (4, ("later", "later", "return")),
    (3, ("hang", "return")),
    (1.5, ("stuck", "return")),
    (3, ("kill", "return")),
    (1.5, ("kill", "kill", "kill", "kill", "kill")),
    (6, ("loop",)),
    (5, ("steps",)),
    (8, ("big",)),
    (3, ("spawn",)),
    (3, ("raise", "big")),
)
TYPE_SHARES = (("plain", 40), ("ledger", 18), ("limited", 18), ("second", 14), ("paced", 10))
RUSHES = {"limited": 0.6, "paced": 0.4}  # when most of them come at once, of the span
SCHEDULES: dict[str, dict[str, Any]] = {  # by name
    "each": {"cron": "* * * * *", "catchUp": "all", "task": {"type": "plain", "payload": {"script": ["return"]}}},
    "other": {"cron": "*/2 * * * *", "task": {"type": "ledger", "payload": {"script": ["raise", "commit"]}}},
}
TURN_SECONDS, LATE_SECONDS = 70.0, 20.0  # a schedule's turn in calm, and how late a firing may then be
SECONDS = ((50, 0.0, 2.0), (25, 2.0, 10.0), (10, 10.0, 30.0))


@dataclass(frozen=True)
class Plan:
    """One task's life as its client means it."""

    key: str
    type: str
    payload: dict[str, Any]
    wait: float
    options: dict[str, Any] = field(default_factory=dict)
    parents: tuple[str, ...] = ()
    acts: tuple[tuple[str, float], ...] = ()
    twice: bool = False

    @property
    def task_id(self) -> str:
        return task_id_of(self.key)


def plans(chance: random.Random, lives: int, *, span: float, cancels: float, deadly: bool) -> list[Plan]:
    """What is asked of the service in one run; `deadly`: some handlers end their process."""
    made: list[Plan] = []
    for number in range(lives):
        type_name = _weighted(chance, [(share, name) for name, share in TYPE_SHARES])
        script = ("commit",) if type_name == "ledger" else _weighted(chance, SCRIPTS)
        if type_name == "ledger" and chance.random() < 0.3:
            script = chance.choice([("raise", "commit"), ("kill", "commit"), ("hang", "commit"), ("later", "commit")])
        if not deadly and "kill" in script:
            script = ("return",) if type_name != "ledger" else ("commit",)
        low, high = _weighted(chance, [(share, (low, high)) for share, low, high in SECONDS])
        if type_name == "second" and chance.random() < 0.3:
            low, high = 30.0, 100.0
        payload: dict[str, Any] = {"script": list(script), "seconds": round(low + (high - low) * chance.random(), 3)}
        if chance.random() < 0.06:
            payload["filler"] = "y" * 1500
        options: dict[str, Any] = {"max_retry_number": chance.choice([0, 1, 2, 3, 3, 3])}
        if chance.random() < 0.15:
            options["priority"] = chance.choice(["high", "low"])
        if chance.random() < 0.1:
            options["delay_seconds"] = round(chance.random() * 60, 3)
        if chance.random() < 0.06:
            options["start_within_seconds"] = round(1 + chance.random() * 60, 3)
        if type_name == "limited" and chance.random() < 0.6:
            options["tags"] = {KEY_TAG: chance.choice(["one", "other"])}
        if type_name == "plain" and chance.random() < 0.2:
            payload = {"script": ["return"], "seconds": 1.0, "equal": int(chance.random() * 2)}
            options["unique_seconds"] = chance.choice([0, 30])
        parents: tuple[str, ...] = ()
        if made and chance.random() < 0.15:
            parents = tuple({chance.choice(made).key: None for _ in range(1 + int(chance.random() * 3))})
        acts = tuple(
            (word, chance.random() * 60)
            for word, share in (("cancel", cancels), ("redrive", 0.35), ("redrive", 0.1), ("ack", 0.1), ("erase", 0.1))
            if chance.random() < share
        )
        wait = chance.random() * span
        if "equal" in payload:  # at one instant, as far as their journeys allow
            wait = span * (0.2 + 0.3 * payload["equal"]) + chance.random() * 0.02
        elif type_name in RUSHES and chance.random() < 0.6:
            wait = span * RUSHES[type_name] + chance.random() * 3
        twice = chance.random() < 0.1 and all(word != "erase" for word, _ in acts)  # or the twin would make it anew
        made.append(Plan(f"k{number}", type_name, payload, wait, options, parents, acts, twice))
    return made


def _weighted(chance: random.Random, choices: Any) -> Any:
    drawn = chance.random() * sum(share for share, _ in choices)
    for share, value in choices:
        drawn -= share
        if drawn < 0:
            return value
    return choices[-1][1]


class Clients:
    """Every plan is followed by an actor of its own."""

    def __init__(self, cloud: Cloud, asked: list[Plan]) -> None:
        self._cloud = cloud
        self._plans = asked
        self._by_key = {plan.key: plan for plan in asked}
        self._real_id: dict[str, str] = {}
        self._process = Process(cloud.kernel, "client")
        self.refused: dict[str, str] = {}
        self.left = 0
        self._scheduled: list[str] = []

    def start(self) -> None:
        for name in SCHEDULES:
            self.left += 1
            actor = self._cloud.kernel.spawn(self._process, f"client/{name}", partial(self._schedule, name))
            actor.when_done.append(self._one_less)
        for plan in self._plans:
            for copy in range(1 + plan.twice):
                self.left += 1
                actor = self._cloud.kernel.spawn(
                    self._process, f"client/{plan.key}/{copy}", partial(self._follow, plan), after=plan.wait
                )
                actor.when_done.append(self._one_less)

    def end_schedules(self) -> None:
        """In calm weather they fire in time; then they are deleted, so that the run can come to rest."""
        for name in self._scheduled:
            self.left += 1
            actor = self._cloud.kernel.spawn(self._process, f"client/{name}", partial(self._unschedule, name))
            actor.when_done.append(self._one_less)

    def _schedule(self, name: str) -> None:
        self._cloud.kernel.pause(self._process.random.random() * 60)
        body = SCHEDULES[name]
        payload = {**body["task"]["payload"], "seconds": 0.5}
        asked = {**body, "task": {**body["task"], "payload": payload}}
        self._until_answered(lambda service: service.parts.schedules.put(name, asked))
        self._scheduled.append(name)

    def _unschedule(self, name: str) -> None:
        kernel = self._cloud.kernel
        kernel.pause(TURN_SECONDS)
        schedule = self._until_answered(lambda service: service.parts.schedules.get(name))
        if schedule.next < kernel.now - LATE_SECONDS or schedule.problem is not None:
            kernel.violate(f"schedule {name}: next at {schedule.next} in calm weather, {schedule.problem}")
        self._asked(lambda service: service.parts.schedules.delete(name))

    def _one_less(self) -> None:
        self.left -= 1

    # ---- one life ----------------------------------------------------------------------------------------------------

    def _follow(self, plan: Plan) -> None:
        for _ in range(200):
            if all(parent in self._real_id or parent in self.refused for parent in plan.parents):
                break
            self._cloud.kernel.pause(2)
        task_id = self._submit(plan)
        if task_id is None:
            return
        for word, wait in plan.acts:
            self._cloud.kernel.pause(wait)
            getattr(self, f"_{word}")(plan, task_id)

    def _submit(self, plan: Plan) -> str | None:
        parents = tuple(self._real_id[parent] for parent in plan.parents if parent in self._real_id)
        submission = Submission(type=plan.type, payload=text_of(plan.payload), depends_on=parents, **plan.options)
        body = {"type": plan.type, "payload": plan.payload, "dependsOn": list(parents)}
        try:
            submitted = self._until_answered(lambda service: service.submit(submission, key=plan.key, body=body))
        except (Unprocessable, Conflict) as refusal:  # a parent is gone, or was when a twin asked
            self.refused[plan.key] = str(refusal)
            return None
        task_id = str(submitted.task.task_id)
        if task_id not in self._cloud.rules.erased:
            self._cloud.rules.accepted.setdefault(task_id, plan.type)
        self._real_id[plan.key] = task_id
        return task_id

    def _cancel(self, plan: Plan, task_id: str) -> None:
        def ended(service: Service) -> Any:
            return service.operations.cancel(task_id, Operator("sim"))

        if self._asked(ended) is not None and task_id not in self._cloud.rules.erased:
            self._cloud.kernel.note(f"client: cancel of {task_id} answered")
            self._cloud.rules.cancel_answered(task_id)

    def _redrive(self, plan: Plan, task_id: str) -> None:
        key = f"r{len(self._cloud.rules.starts_in_life)}{plan.key}"
        cascade = len(plan.key) % 2 == 0
        self._asked(lambda service: service.operations.redrive(task_id, Operator("sim"), key=key, cascade=cascade))

    def _ack(self, plan: Plan, task_id: str) -> None:
        self._asked(lambda service: service.operations.acknowledge(task_id))

    def _erase(self, plan: Plan, task_id: str) -> None:
        rules = self._cloud.rules
        item = rules._item(task_id)
        if item is None or item.get("status") not in {"SUCCESS", "DONE", "FAILED"}:
            return
        rules.erased.add(task_id)
        if self._asked(lambda service: service.operations.erase(task_id)) is not None:
            rules.surely_erased.add(task_id)

    def _asked(self, work: Callable[[Service], Any]) -> Any:
        try:
            return self._until_answered(work)
        except (Conflict, NotFound):
            return None

    def _until_answered(self, work: Callable[[Service], Any]) -> Any:
        while True:
            try:
                return self._cloud.invocations.call(work)
            except (StoreError, NoAnswer, OutcomeUnknown):
                self._cloud.kernel.pause(0.2 + self._process.random.random() * 2)
