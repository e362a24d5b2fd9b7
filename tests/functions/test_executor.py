"""The executor's entry point: its handlers, its settings, and events that are no batch."""

from __future__ import annotations

import importlib.util
import io
import json
import sys
from collections.abc import Iterator
from pathlib import Path
from types import ModuleType
from typing import Any

import pytest

from tests.support.batches import LAYOUT, TOKEN, Bench
from tests.support.fakes import FakeClock, FakeRandomness, InlineThreads
from thunderagent.registry import Registry
from thunderagent.registry_build import build_registry
from thunderagent.settings import load_settings
from thunderagent.telemetry import Telemetry
from thunderagent.wiring import Parts, Seams

ROOT = Path(__file__).parents[2]
ENVIRONMENT = {
    "TABLE_NAME": "tasks",
    "EXECUTOR_PROFILE": "default",
    "LEASE_SECONDS": "60",
    "DISPATCH_SHARDS": str(LAYOUT.shards),
    "EXECUTORS": json.dumps({"default": {"function": "", "timeoutSeconds": 900, "threads": 4}}),
}


class LambdaContext:
    def __init__(self, milliseconds: int) -> None:
        self._milliseconds = milliseconds

    def get_remaining_time_in_millis(self) -> int:
        return self._milliseconds


class Executor:
    """The function in its container: the module, its table, and what it printed."""

    def __init__(self, module: ModuleType, bench: Bench, output: io.StringIO) -> None:
        self.module = module
        self.bench = bench
        self.output = output

    def invoke(self, event: Any, milliseconds: int = 890_000) -> dict[str, Any]:
        answer: dict[str, Any] = self.module.handler(event, LambdaContext(milliseconds))
        return answer

    def event(self) -> dict[str, Any]:
        batch = self.bench.open_lease()
        return {
            "formatVersion": 1,
            "leaseToken": TOKEN,
            "profile": "default",
            "lockTime": batch.lock_time,
            "taskIds": list(batch.task_ids),
        }

    def lines(self) -> list[dict[str, Any]]:
        return [json.loads(line) for line in self.output.getvalue().splitlines()]


@pytest.fixture
def executor(monkeypatch: pytest.MonkeyPatch) -> Iterator[Executor]:
    monkeypatch.syspath_prepend(ROOT / "functions" / "executor")
    spec = importlib.util.spec_from_file_location("executor_handler", ROOT / "functions" / "executor" / "handler.py")
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    bench, output, clock = Bench(), io.StringIO(), FakeClock()
    bench.clock = clock
    seams = Seams(
        send=bench.db,
        invoke=lambda function, event: None,
        clock=clock,
        randomness=FakeRandomness(),
        threads=InlineThreads(clock),
        objects=bench.objects,
    )
    registry = Registry.from_dict(build_registry({"default": [ROOT / "functions" / "executor" / "tasks"]}))
    telemetry = Telemetry(service="test", stream=output, clock_ms=lambda: 0)
    parts = Parts(load_settings(ENVIRONMENT), seams, registry=registry, telemetry=telemetry)
    monkeypatch.setattr(module, "parts", lambda: parts)
    yield Executor(module, bench, output)
    for name in [name for name in sys.modules if name.partition(".")[0] == "tasks"]:
        del sys.modules[name]


def test_it_runs_the_handlers_of_its_profile(executor: Executor) -> None:
    executor.bench.claim("t1", '{"name": "Ada"}', type="hello.greet")
    executor.bench.claim("t2", "5", type="hello.greet", retryCount=3)
    answer = executor.invoke(executor.event())
    assert answer == {"begun": True, "settled": True, "stuck": 0, "ends": {"succeeded": 1, "failed": 1}}
    assert executor.bench.item("t1")["result"] == '{"greeting":"Hello, Ada!"}'
    assert executor.bench.item("t2")["error"]["reason"] == "permanent"


def test_it_reports_state_changes_metrics_and_what_the_table_charged_but_no_payload(executor: Executor) -> None:
    executor.bench.claim("t1", '{"name": "Secretive"}', type="hello.greet")
    executor.invoke(executor.event())
    lines = executor.lines()
    assert [line["event"] for line in lines if "event" in line] == ["task.succeeded"]
    metrics = {
        name: line[name] for line in lines for name in ("Succeeded", "QueueLatency", "WriteUnits") if name in line
    }
    # begin 1, start 1, commit 3, settle 2
    assert metrics == {"Succeeded": 1, "QueueLatency": 2.0, "WriteUnits": 7.0}
    assert "Secretive" not in executor.output.getvalue()
    assert TOKEN not in executor.output.getvalue()


@pytest.mark.parametrize("event", [None, {}, [], "text", {"Records": []}, {"formatVersion": 1, "leaseToken": 5}])
def test_a_malformed_event_is_logged_and_never_raises(executor: Executor, event: Any) -> None:
    assert executor.invoke(event) == {"begun": False}
    assert [line["event"] for line in executor.lines()] == ["batch.malformed"]
    assert executor.bench.db.calls == []


@pytest.mark.parametrize("milliseconds", [0, 1, -5])
def test_ta20_a_remaining_time_of_zero_is_no_time_not_a_missing_one(executor: Executor, milliseconds: int) -> None:
    executor.bench.claim("t1", '{"name": "Ada"}', type="hello.greet")
    answer = executor.invoke(executor.event(), milliseconds)
    assert answer["ends"] == {"released": 1}
    assert (executor.bench.item()["status"], executor.bench.item()["retryCount"]) == ("PENDING", 0)


def test_ta03_a_second_delivery_is_a_normal_exit_without_effect(executor: Executor) -> None:
    executor.bench.claim("t1", '{"name": "Ada"}', type="hello.greet")
    event = executor.event()
    executor.invoke(event)
    frozen = executor.bench.db.raw("t1")
    assert executor.invoke(event)["begun"] is False
    assert executor.bench.db.raw("t1") == frozen
