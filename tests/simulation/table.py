"""The simulated table: DynamoDB's semantics, its delays included, over `MemoryDynamoDB`.

The index follows the table after a random lag, item by item in order; reads that do not ask for consistency may see an
item as it was a moment ago; what has outlived its time to live goes at a random time after it; every change goes into
the stream, in order for each item. `ledger` is a table of the users' own.
"""

from __future__ import annotations

import heapq
import re
from bisect import bisect_left, bisect_right
from collections import defaultdict, deque
from collections.abc import Callable, Mapping, Sequence
from decimal import Decimal
from functools import partial
from operator import itemgetter
from typing import Any

from tests.simulation.compiled import Changes
from tests.simulation.kernel import Kernel
from tests.simulation.weather import Weather
from thunderagent.errors import ConditionFailed, StoreRefused
from thunderagent.schema import INDEX_HASH, INDEX_RANGE, TABLE_KEY, TTL_ATTRIBUTE
from thunderagent.testing.dynamodb_expressions import Invalid, Raw
from thunderagent.testing.item_rules import INDEX_TYPES, Change, index_order, table_order
from thunderagent.testing.memory_dynamodb import MemoryDynamoDB

STALE_SECONDS = 2.0  # how far back a read that is not consistent may see
VERSIONS = 4
LEDGER = "ledger"
KEY_CONDITION = re.compile(r"#k = :k(?: AND #d (<|<=|>|>=) :d)?")

OnChange = Callable[[str, Raw | None, Raw | None], None]


class Partition:
    """Of the index: its entries in order."""

    def __init__(self) -> None:
        self._order: list[tuple[Decimal, str]] = []
        self._rows: list[Raw] = []

    def __len__(self) -> int:
        return len(self._rows)

    def add(self, row: Raw) -> None:
        key = index_order(row)
        place = bisect_left(self._order, key)
        self._order.insert(place, key)
        self._rows.insert(place, row)

    def remove(self, row: Raw) -> None:
        place = bisect_left(self._order, index_order(row))
        del self._order[place], self._rows[place]

    def between(self, arguments: Mapping[str, Any]) -> list[Raw]:
        """What a query asks for, in its order, from its start on."""
        condition = KEY_CONDITION.fullmatch(arguments["KeyConditionExpression"])
        if condition is None:
            raise NotImplementedError(arguments["KeyConditionExpression"])
        low, high = self._bounds(condition[1], arguments["ExpressionAttributeValues"])
        start, ascending = arguments.get("ExclusiveStartKey"), arguments.get("ScanIndexForward", True)
        if start is not None:
            edge = index_order(start)
            low = max(low, bisect_right(self._order, edge)) if ascending else low
            high = high if ascending else min(high, bisect_left(self._order, edge))
        rows = self._rows[low:high]
        return rows if ascending else rows[::-1]

    def _bounds(self, operator: str | None, values: Mapping[str, Any]) -> tuple[int, int]:
        if operator is None:
            return 0, len(self._order)
        bisect = bisect_left if operator in ("<", ">=") else bisect_right
        place = bisect(self._order, Decimal(values[":d"]["N"]), key=itemgetter(0))
        return (0, place) if operator in ("<", "<=") else (place, len(self._order))


class SimulatedTable(MemoryDynamoDB):
    """`execute` is one request, at one instant. Faults and the journey to and fro are the transport's."""

    def __init__(self, kernel: Kernel, weather: Weather, *, table: str = "tasks") -> None:
        super().__init__(table, others={LEDGER: ("id",)})
        self._kernel = kernel
        self.weather = weather
        self._random = kernel.random
        self._pending: list[tuple[float, int, str, Raw | None]] = []  # index changes on their way
        self._visible_at: dict[str, float] = {}
        self._entries: dict[str, Raw] = {}  # item id -> what is visible of it
        self._partitions: defaultdict[str, Partition] = defaultdict(Partition)
        self._versions: defaultdict[str, deque[tuple[float, Raw | None]]] = defaultdict(lambda: deque(maxlen=VERSIONS))
        self._mortal: set[str] = set()
        self.on_change: OnChange = lambda item_id, old, new: None
        self.on_ledger: OnChange = lambda item_id, old, new: None
        self.stream: Callable[[str, Raw | None, Raw | None, bool], None] = lambda item_id, old, new, by_ttl: None
        self._by_ttl = False
        self.stored = self._items
        self._changes = Changes()
        self._operations: dict[str, Callable[[Mapping[str, Any]], Mapping[str, Any]]] = {
            "GetItem": self._get,
            "BatchGetItem": self._batch_get,
            "Query": self._query,
            "Scan": self._scan,
            "TransactWriteItems": self._transact,
            **{operation: partial(self._write, operation) for operation in ("PutItem", "UpdateItem", "DeleteItem")},
        }

    def execute(self, operation: str, arguments: Mapping[str, Any]) -> Mapping[str, Any]:
        try:
            return self._operations[operation](arguments)
        except Invalid as error:
            raise StoreRefused(operation, "ValidationException", str(error)) from error

    # ---- writes ------------------------------------------------------------------------------------------------------

    def _change(self, operation: str, arguments: Mapping[str, Any]) -> Change:
        if arguments["TableName"] != self.table:
            return super()._change(operation, arguments)
        holder = arguments["Key"] if "Key" in arguments else arguments["Item"]
        old = self._items.get(holder.get(TABLE_KEY, {}).get("S"))
        return self._changes.change_of(operation, arguments, old)

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
            at = max(self._visible_at.get(item_id, 0), now + self.weather.index_lag(self._random))
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
        partition = self._partitions.get(values[":k"]["S"])
        if not partition:
            return {"Count": 0, "Items": []}
        return _first(arguments, partition.between(arguments), keys=(TABLE_KEY, *INDEX_TYPES))

    def _scan(self, arguments: Mapping[str, Any]) -> Mapping[str, Any]:
        rows = sorted(self._items.values(), key=table_order)
        start = arguments.get("ExclusiveStartKey")
        if start is not None:
            rows = rows[bisect_right(rows, table_order(start), key=table_order) :]
        return _first(arguments, rows, keys=(TABLE_KEY,))

    def _seen(self, item_id: str, *, consistent: bool) -> Raw | None:
        stale = None if consistent else self._stale(item_id)
        return self._items.get(item_id) if stale is None else stale[0]

    def _stale(self, item_id: str) -> tuple[Raw | None] | None:
        """An earlier state of a recently changed item, sometimes."""
        versions = self._versions.get(item_id)
        if not versions or self._random.random() >= self.weather.stale_reads:
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
                self._partitions[before[INDEX_HASH]["S"]].remove(before)
            if entry is not None:
                self._entries[item_id] = entry
                self._partitions[entry[INDEX_HASH]["S"]].add(entry)


def _first(arguments: Mapping[str, Any], rows: list[Raw], *, keys: Sequence[str]) -> Mapping[str, Any]:
    """One page of them."""
    limit = arguments.get("Limit", len(rows) + 1)
    page = rows[:limit]
    answer: dict[str, Any] = {"Count": len(page), "Items": page}
    if len(page) == limit:
        answer["LastEvaluatedKey"] = {name: page[-1][name] for name in keys}
    return answer


def _entry(raw: Raw | None) -> Raw | None:
    if raw is None or INDEX_HASH not in raw or INDEX_RANGE not in raw:
        return None
    return {TABLE_KEY: raw[TABLE_KEY], INDEX_HASH: raw[INDEX_HASH], INDEX_RANGE: raw[INDEX_RANGE]}
