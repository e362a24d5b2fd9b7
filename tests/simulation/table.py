"""The simulated table: DynamoDB's semantics, its delays included, over `MemoryDynamoDB`.

The index follows the table after a random lag, item by item in order; reads that do not ask for consistency may see an
item as it was a moment ago; what has outlived its time to live goes at a random time after it; every change goes into
the stream, in order for each item. `ledger` is a table of the users' own.
"""

from __future__ import annotations

import heapq
from collections import defaultdict, deque
from collections.abc import Callable, Mapping
from typing import Any

from tests.simulation.kernel import Kernel
from tests.simulation.weather import Weather
from thunderagent.errors import ConditionFailed
from thunderagent.schema import INDEX_HASH, TABLE_KEY, TTL_ATTRIBUTE
from thunderagent.testing.dynamodb_expressions import Expression, Invalid, Raw
from thunderagent.testing.faults import Call
from thunderagent.testing.item_rules import INDEX_TYPES, Change, in_index, index_entry, index_order
from thunderagent.testing.memory_dynamodb import MemoryDynamoDB

STALE_SECONDS = 2.0  # how far back a read that is not consistent may see
VERSIONS = 4
LEDGER = "ledger"
_EMPTY: dict[str, Raw] = {}

OnChange = Callable[[str, Raw | None, Raw | None], None]


class SimulatedTable(MemoryDynamoDB):
    """`execute` is one request, at one instant. Faults and the journey to and fro are the transport's."""

    def __init__(self, kernel: Kernel, weather: Weather, *, table: str = "tasks") -> None:
        super().__init__(table, others={LEDGER: ("id",)})
        self._kernel = kernel
        self._weather = weather
        self._random = kernel.random
        self._pending: list[tuple[float, int, str, Raw | None]] = []  # index changes on their way
        self._visible_at: dict[str, float] = {}
        self._entries: dict[str, str] = {}  # item id -> the partition it is visible in
        self._partitions: defaultdict[str, dict[str, Raw]] = defaultdict(dict)
        self._versions: defaultdict[str, deque[tuple[float, Raw | None]]] = defaultdict(lambda: deque(maxlen=VERSIONS))
        self._mortal: set[str] = set()
        self.on_change: OnChange = lambda item_id, old, new: None
        self.on_ledger: OnChange = lambda item_id, old, new: None
        self.stream: Callable[[str, Raw | None, Raw | None, bool], None] = lambda item_id, old, new, by_ttl: None
        self._by_ttl = False
        self.stored = self._items

    def execute(self, operation: str, arguments: Mapping[str, Any]) -> Mapping[str, Any]:
        return self._execute(Call(operation, arguments))

    # ---- writes ------------------------------------------------------------------------------------------------------

    def _store(self, table: str, change: Change) -> None:
        super()._store(table, change)
        if table == self.table:
            self._note_change(change.item_id, change.old, change.new)
        elif change.new is not None:
            self.on_ledger(change.new["id"]["S"], change.old, change.new)

    def _note_change(self, item_id: str, old: Raw | None, new: Raw | None) -> None:
        now = self._kernel.now
        self._versions[item_id].append((now, old))
        entry = _entry(new)
        if entry != _entry(old):
            at = max(self._visible_at.get(item_id, 0), now + self._weather.index_lag(self._random))
            self._visible_at[item_id] = at
            heapq.heappush(self._pending, (at, self._kernel.number(), item_id, entry))
        if new is not None and TTL_ATTRIBUTE in new:
            self._mortal.add(item_id)
        else:
            self._mortal.discard(item_id)
        if old != new:
            self.stream(item_id, old, new, self._by_ttl)
        self.on_change(item_id, old, new)

    def expire(self, *, at_most: int = 1_000_000) -> int:
        """DynamoDB's own process: remove what is past its time to live. It looks at nothing else."""
        now = self._kernel.now
        due = sorted(item_id for item_id in self._mortal if float(self._items[item_id][TTL_ATTRIBUTE]["N"]) < now)
        self._random.shuffle(due)
        self._by_ttl = True
        for item_id in due[:at_most]:
            old = self._items.pop(item_id)
            self._note_change(item_id, old, None)
        self._by_ttl = False
        return len(due[:at_most])

    # ---- without the meters; stored items are never changed in place, so that answers need no copies ---------------

    def _write(self, operation: str, arguments: Mapping[str, Any]) -> Mapping[str, Any]:
        change = self._change(operation, arguments)
        if change.refused:
            asked = arguments.get("ReturnValuesOnConditionCheckFailure") == "ALL_OLD"
            raise ConditionFailed(operation, change.old if asked else None)
        self._store(arguments["TableName"], change)
        return {"Attributes": change.new} if arguments.get("ReturnValues") == "ALL_NEW" and change.new else {}

    def _get(self, arguments: Mapping[str, Any]) -> Mapping[str, Any]:
        item_id = arguments["Key"][TABLE_KEY]["S"]
        raw = self._seen(item_id, consistent=bool(arguments.get("ConsistentRead")))
        return {} if raw is None else {"Item": raw}

    def _batch_get(self, arguments: Mapping[str, Any]) -> Mapping[str, Any]:
        ((table, request),) = arguments["RequestItems"].items()
        consistent = bool(request.get("ConsistentRead"))
        ids = [key[TABLE_KEY]["S"] for key in request["Keys"]]
        if not 1 <= len(ids) <= 100 or len(set(ids)) < len(ids):
            raise Invalid("1 to 100 different keys are needed")
        found = [self._seen(item_id, consistent=consistent) for item_id in ids]
        return {"Responses": {table: [raw for raw in found if raw is not None]}, "UnprocessedKeys": {}}

    def _query(self, arguments: Mapping[str, Any]) -> Mapping[str, Any]:
        """Of the index as far as it has followed."""
        self._catch_up()
        values = arguments["ExpressionAttributeValues"]
        partition = self._partitions.get(values[":k"]["S"], _EMPTY)
        if not partition:
            return {"Count": 0, "Items": []}
        condition, names = arguments["KeyConditionExpression"], arguments["ExpressionAttributeNames"]
        rows = [row for row in partition.values() if Expression(condition, names, values).holds(row)]
        rows.sort(key=index_order, reverse=not arguments.get("ScanIndexForward", True))
        return self._page(arguments, rows, index_order)

    def _page(
        self, arguments: Mapping[str, Any], rows: list[Raw], order: Callable[[Mapping[str, Any]], Any]
    ) -> Mapping[str, Any]:
        start, limit = arguments.get("ExclusiveStartKey"), arguments.get("Limit", len(rows) + 1)
        if start is not None:
            edge, ascending = order(start), arguments.get("ScanIndexForward", True)
            rows = [row for row in rows if (order(row) > edge if ascending else order(row) < edge)]
        page = rows[:limit]
        answer: dict[str, Any] = {"Count": len(page), "Items": page}
        if len(page) == limit:
            keys = [TABLE_KEY, *(INDEX_TYPES if arguments.get("IndexName") else ())]
            answer["LastEvaluatedKey"] = {name: page[-1][name] for name in keys}
        return answer

    def _seen(self, item_id: str, *, consistent: bool) -> Raw | None:
        stale = None if consistent else self._stale(item_id)
        return self._items.get(item_id) if stale is None else stale[0]

    def _stale(self, item_id: str) -> tuple[Raw | None] | None:
        """An earlier state of a recently changed item, sometimes."""
        versions = self._versions.get(item_id)
        if not versions or self._random.random() >= self._weather.stale_reads:
            return None
        since = self._kernel.now - self._random.random() * STALE_SECONDS
        for at, old in versions:
            if at > since:
                return (old,)
        return None

    def _catch_up(self) -> None:
        now = self._kernel.now
        while self._pending and self._pending[0][0] <= now:
            _, _, item_id, entry = heapq.heappop(self._pending)
            before = self._entries.pop(item_id, None)
            if before is not None:
                self._partitions[before].pop(item_id, None)
            if entry is not None:
                key = entry[INDEX_HASH]["S"]
                self._entries[item_id] = key
                self._partitions[key][item_id] = entry


def _entry(raw: Raw | None) -> Raw | None:
    return index_entry(raw) if raw is not None and in_index(raw) else None
