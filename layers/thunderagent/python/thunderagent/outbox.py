"""Tasks inside somebody else's transaction: the order row and its task are written together or not at all.

items = transact_submit("ThunderAgent-prod-tasks", NewTask("order.confirm", {"order": 7}))
boto3.client("dynamodb").transact_write_items(TransactItems=[{"Put": {…the order…}}, *items])
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, Protocol

from thunderagent.bodies import Bodies
from thunderagent.clock import Clock, Randomness, SystemClock, SystemRandomness
from thunderagent.dependencies import Dependencies
from thunderagent.errors import InvalidInput
from thunderagent.expressions import submit, take_unique
from thunderagent.intake import submission_of
from thunderagent.new_task import NewTask
from thunderagent.queues import Queues, QueueSettings, Shards
from thunderagent.registry import Registry
from thunderagent.schema import TABLE_KEY, Layout
from thunderagent.store import Store
from thunderagent.submit import Submitter
from thunderagent.telemetry import Silence

ITEMS_MAX = 100  # of one TransactWriteItems (DynamoDB quotas)


class NamedTable(Protocol):
    """A table resource of boto3, as far as it is used here."""

    @property
    def name(self) -> str: ...


class TransactItems(list[dict[str, Any]]):
    """Entries for `TransactItems` of a low-level client, and the ids the tasks will have."""

    def __init__(self, entries: Sequence[dict[str, Any]], task_ids: Sequence[str]) -> None:
        super().__init__(entries)
        self.task_ids = tuple(task_ids)


def transact_submit(
    table: str | NamedTable,
    *tasks: NewTask | Mapping[str, Any],
    registry: Registry | None = None,
    region: str | None = None,
    shards: int = 1,
    clock: Clock | None = None,
    randomness: Randomness | None = None,
) -> TransactItems:
    """The entries that make tasks exist: for each the task, its payload where it needs an item of its own, and the
    pointer of a unique one. Nothing is written or read here.

    Tasks are given as `NewTask` or in the HTTP contract's form. Defaults of a type count only if its `registry` is
    given; queues are not checked: a task in a queue nobody sweeps waits there. `shards` may be raised to the
    deployment's DISPATCH_SHARDS, never above. A unique task fails the whole transaction while its pointer exists, also
    of an equal task long done; an own `taskId` that exists fails it too.

    Raises InvalidInput (a bad task, `dependsOn`, more than 100 entries) and TooLarge (a payload that would need S3,
    from about 350 KiB on). It needs PutItem on the table: for trusted code.
    """
    writer = _Writer(_name_of(table), registry or Registry(), region, shards, clock, randomness)
    task_ids = [writer.add(task) for task in tasks]
    if len(writer.entries) > ITEMS_MAX:
        raise InvalidInput(f"{len(writer.entries)} entries are needed; a transaction holds at most {ITEMS_MAX}")
    return TransactItems(writer.entries, task_ids)


def _name_of(table: str | NamedTable) -> str:
    return table if isinstance(table, str) else table.name


class _Writer:
    """A Submitter whose table only writes down what it is asked to store."""

    def __init__(
        self,
        table: str,
        registry: Registry,
        region: str | None,
        shards: int,
        clock: Clock | None,
        randomness: Randomness | None,
    ) -> None:
        self.entries: list[dict[str, Any]] = []
        self._region = region
        self._store = Store(
            table=table,
            send=self._note_put,
            clock=clock or SystemClock(),
            randomness=randomness or SystemRandomness(),
            layout=Layout(shards=shards, region=region or ""),
        )
        bodies = Bodies(self._store, None)
        self._submitter = Submitter(
            self._store,
            bodies,
            _AnyQueue(self._store, Shards(shards, shards)),
            registry,
            Dependencies(self._store, bodies, observer=Silence()),
        )

    def add(self, task: NewTask | Mapping[str, Any]) -> str:
        body = task.as_body() if isinstance(task, NewTask) else dict(task)
        submission = submission_of(body)
        if submission.depends_on:
            raise InvalidInput(
                "dependsOn: parents must be read first; submit through the API instead", path="dependsOn"
            )
        item = self._submitter.new_item(submission, key=None, body=body)
        if self._region is None:
            item.pop("homeRegion")  # then any region's poller may claim it
        writes = [submit(item), *(take_unique(item, pointer=None, holder=None) if "unique" in item else ())]
        self.entries += self._store.transact_entries(writes)
        return str(item[TABLE_KEY])

    def _note_put(self, operation: str, arguments: Mapping[str, Any]) -> Mapping[str, Any]:
        """The only thing a new item asks for is to store its payload."""
        if operation != "PutItem":
            raise AssertionError(f"{operation} in a transaction that only puts")
        self.entries.append({"Put": dict(arguments)})
        return {}


class _AnyQueue(Queues):
    """Every name is a queue without settings: to know better, the table would have to be read."""

    def __init__(self, store: Store, shards: Shards) -> None:
        super().__init__(store, (), clock=store.clock)
        self._shards = shards

    def get(self, name: str) -> QueueSettings:
        return QueueSettings(name, shards=self._shards)
