"""The deployed stack as a bench drives it: what ticks by itself can be switched off, tasks are put past the API."""

from __future__ import annotations

import json
import time
from collections.abc import Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from pathlib import Path
from typing import Any, cast

from bench.small_task import small_task
from tests.support.fakes import Recorder
from thunder.local.aws import client
from thunderagent.clock import SystemClock, SystemRandomness
from thunderagent.codec import to_item
from thunderagent.registry import Registry
from thunderagent.schema import Layout
from thunderagent.settings import Settings
from thunderagent.submit import Submission
from thunderagent.threads import PoolThreads
from thunderagent.transport import boto_send
from thunderagent.wiring import Parts, Seams

REGISTRY = Path(__file__).resolve().parent.parent / "build/registry/local/python/thunderagent_registry/registry.json"
SHARDS = 4  # as infra/config.py has it
PUT_ITEMS = 25  # of one BatchWriteItem
QUEUE = "default"
CACHED_SECONDS = 6  # functions keep a queue's settings for 5 s

# The same three kinds of work as the rivals know.
WORK: Mapping[str, tuple[str, Mapping[str, Any]]] = {
    "nothing": ("demo.return", {"kind": "none"}),
    "once": ("demo.flaky", {"failures": 1}),
    "never": ("demo.permanent", {}),
}


class OurStack:
    """A stack that is up, by its record."""

    def __init__(self, record: Mapping[str, Any]) -> None:
        self.record = record
        self.endpoint: str = record["endpoint"]
        self.table: str = record["tableName"]
        self.prefix = f"{record['stacks'][0].removesuffix('-Data')}-"
        self.functions: Any = client("lambda", self.endpoint)
        pages = self.functions.get_paginator("list_functions").paginate()
        self._names: list[str] = [each["FunctionName"] for page in pages for each in page["Functions"]]
        self._parts = self._local_parts()

    def _local_parts(self) -> Parts:
        seams = Seams(
            send=boto_send(client("dynamodb", self.endpoint)),
            invoke=lambda function, event: None,
            clock=SystemClock(),
            randomness=SystemRandomness(),
            threads=PoolThreads(4),
        )
        settings = Settings(table_name=self.table, dispatch_shards=SHARDS)
        registry = Registry.from_dict(json.loads(REGISTRY.read_text()))
        return Parts(settings, seams, registry=registry, telemetry=cast(Any, Recorder()))

    def function(self, part: str) -> str:
        (name,) = [each for each in self._names if each.startswith(self.prefix + part)]
        return name

    # ---- what happens by itself --------------------------------------------------------------------------------------

    def switch_schedules(self, *, on: bool) -> None:
        """The rules that wake poller and reaper every minute."""
        events = client("events", self.endpoint)
        for rule in events.list_rules()["Rules"]:
            (events.enable_rule if on else events.disable_rule)(Name=rule["Name"])

    def switch_stream(self, part: str, *, on: bool) -> None:
        """The table's stream, as `Doorbell` or `Recorder` reads it."""
        mappings = self.functions.list_event_source_mappings(FunctionName=self.function(part))["EventSourceMappings"]
        for mapping in mappings:
            self.functions.update_event_source_mapping(UUID=mapping["UUID"], Enabled=on)

    def configure(self, part: str, **environment: str) -> None:
        """Changes environment variables of one function."""
        name = self.function(part)
        known = self.functions.get_function_configuration(FunctionName=name)["Environment"]["Variables"]
        self.functions.update_function_configuration(
            FunctionName=name, Environment={"Variables": {**known, **environment}}
        )
        self.functions.get_waiter("function_updated_v2").wait(FunctionName=name)

    def sweep(self, *, wait: bool = True) -> None:
        """One run of the poller, as long as its window is."""
        kind = "RequestResponse" if wait else "Event"
        self.functions.invoke(FunctionName=self.function("Poller"), InvocationType=kind, Payload=b"{}")

    @contextmanager
    def paused(self) -> Iterator[None]:
        """No task is sent meanwhile, and every function knows it at the beginning."""
        self._set_paused(True)
        time.sleep(CACHED_SECONDS)
        try:
            yield
        finally:
            self._set_paused(False)

    def _set_paused(self, paused: bool) -> None:
        self._parts.queues.put(QUEUE, {"paused": paused})

    # ---- tasks -------------------------------------------------------------------------------------------------------

    def submit(self, task_id: str, work: str = "nothing", pad: str = "") -> None:
        """As the API does it, without the API: body tiers, defaults, one conditional write."""
        type_name, payload = WORK[work]
        text = json.dumps({**payload, "pad": pad}, separators=(",", ":"))
        self._parts.submitter.submit(Submission(type=type_name, payload=text, task_id=task_id))

    def put_all(self, ids: Sequence[str]) -> None:
        """Tasks as submits leave them, by the batch: for runs in which submits are not what is measured."""
        with ThreadPoolExecutor(2) as pool:
            list(pool.map(lambda first: self._put(ids[first : first + PUT_ITEMS]), range(0, len(ids), PUT_ITEMS)))

    def _put(self, ids: Sequence[str]) -> None:
        entries = [{"PutRequest": {"Item": stored_task(task_id)}} for task_id in ids]
        answer = self._parts.seams.send("BatchWriteItem", {"RequestItems": {self.table: entries}})
        assert not answer.get("UnprocessedItems")

    def items(self, ids: Sequence[str]) -> list[Mapping[str, Any]]:
        found = self._parts.store.get_items(ids, consistent=True)
        return [found[task_id] for task_id in ids]


def stored_task(task_id: str) -> Mapping[str, Any]:
    """A task of the default queue, due now, in DynamoDB's form."""
    layout, now = Layout(shards=SHARDS), round(time.time(), 3)
    return to_item(small_task(task_id, type="demo.return", payload='{"kind":"none"}', now=now, layout=layout))
