"""`MemoryDynamoDB` for a million items: its index kept in order, its items kept small, what is read counted.

The semantics are the fake's own; only where it would go through all items does this one look into an index, so that
what is measured above it is not drowned in what stands in for DynamoDB.
"""

from __future__ import annotations

import json
import re
import time
from collections import defaultdict
from collections.abc import Iterable, Iterator, Mapping, MutableMapping
from decimal import Decimal
from itertools import islice
from typing import Any

from sortedcontainers import SortedList

from thunderagent.codec import Item, to_item
from thunderagent.schema import INDEX_HASH, INDEX_NAME, INDEX_RANGE, TABLE_KEY
from thunderagent.testing.dynamodb_expressions import Invalid, Raw, number_form
from thunderagent.testing.item_rules import in_index, index_order, normal
from thunderagent.testing.memory_dynamodb import MemoryDynamoDB

KEY_CONDITION = re.compile(r"#k = :k(?: AND #d (<=|>=|<|>) :d)?")
MOST_ROWS = 25_000  # more than a page of 1 MiB can hold of the index's entries
FIRST, LAST = "", "\U0010ffff"


class Rows(MutableMapping[str, Raw]):
    """Items by id, kept as text; with the index over them."""

    def __init__(self) -> None:
        self._texts: dict[str, str] = {}
        self._places: dict[str, tuple[str, tuple[Decimal, str]]] = {}
        self.partitions: defaultdict[str, SortedList] = defaultdict(SortedList)

    def __getitem__(self, item_id: str) -> Raw:
        raw: Raw = json.loads(self._texts[item_id])
        return raw

    def __setitem__(self, item_id: str, raw: Raw) -> None:
        self._texts[item_id] = json.dumps(raw, separators=(",", ":"))
        place = (raw[INDEX_HASH]["S"], index_order(raw)) if in_index(raw) else None
        before = self._places.get(item_id)
        if place == before:
            return
        if before is not None:
            self._leave(item_id)
        if place is not None:
            self._places[item_id] = place
            self.partitions[place[0]].add(place[1])

    def __delitem__(self, item_id: str) -> None:
        del self._texts[item_id]
        if item_id in self._places:
            self._leave(item_id)

    def __contains__(self, item_id: object) -> bool:
        return item_id in self._texts

    def __iter__(self) -> Iterator[str]:
        return iter(self._texts)

    def __len__(self) -> int:
        return len(self._texts)

    def _leave(self, item_id: str) -> None:
        partition, order = self._places.pop(item_id)
        self.partitions[partition].remove(order)


class OrderedDynamoDB(MemoryDynamoDB):
    """The task table. `keys_read` counts items and index entries read, `seconds` the processor time spent in here."""

    def __init__(self, table: str = "tasks") -> None:
        super().__init__(table)
        self.rows_in_order = Rows()
        self._items = self._tables[table] = self.rows_in_order  # type: ignore[assignment]
        self.reset()

    def load(self, items: Iterable[Item]) -> None:
        """Plain items, stored as they are and unmetered."""
        for item in items:
            self.rows_in_order[str(item[TABLE_KEY])] = normal(to_item(item))

    def reset(self) -> None:
        """The meters to zero."""
        self.calls.clear()
        self.write_units = self.read_units = self.seconds = 0.0
        self.keys_read = 0

    def __call__(self, operation: str, arguments: Mapping[str, Any]) -> Mapping[str, Any]:
        began = time.process_time()
        try:
            return super().__call__(operation, arguments)
        finally:
            self.seconds += time.process_time() - began

    def _get(self, arguments: Mapping[str, Any]) -> Mapping[str, Any]:
        self.keys_read += 1
        return super()._get(arguments)

    def _batch_get(self, arguments: Mapping[str, Any]) -> Mapping[str, Any]:
        ((_, request),) = arguments["RequestItems"].items()
        self.keys_read += len(request["Keys"])
        return super()._batch_get(arguments)

    def _query(self, arguments: Mapping[str, Any]) -> Mapping[str, Any]:
        found = KEY_CONDITION.fullmatch(arguments["KeyConditionExpression"])
        if found is None or arguments.get("IndexName") != INDEX_NAME:
            raise Invalid(f"not a query of the dispatch index: {arguments['KeyConditionExpression']}")
        partition = arguments["ExpressionAttributeValues"][":k"]["S"]
        orders = self._range(partition, found[1], arguments)
        rows = [_entry(partition, order) for order in islice(orders, arguments.get("Limit", MOST_ROWS))]
        answer = self._page(arguments, rows, index_order)
        self.keys_read += answer["ScannedCount"]
        return answer

    def _range(self, partition: str, side: str | None, arguments: Mapping[str, Any]) -> Iterator[tuple[Decimal, str]]:
        """A partition's entries on the side that is asked for, from the starting key on, in the order asked for."""
        entries = self.rows_in_order.partitions.get(partition)
        if entries is None:
            return iter(())
        low: tuple[Decimal, str] | None = None
        high: tuple[Decimal, str] | None = None
        if side is not None:
            bound = Decimal(arguments["ExpressionAttributeValues"][":d"]["N"])
            if side in ("<", "<="):
                high = (bound, FIRST if side == "<" else LAST)
            else:
                low = (bound, LAST if side == ">" else FIRST)
        ascending = arguments.get("ScanIndexForward", True)
        start = arguments.get("ExclusiveStartKey")
        if start is not None and ascending:
            low = max(low, index_order(start)) if low is not None else index_order(start)
        elif start is not None:
            high = min(high, index_order(start)) if high is not None else index_order(start)
        found: Iterator[tuple[Decimal, str]] = entries.irange(
            low, high, inclusive=(False, False), reverse=not ascending
        )
        return found


def _entry(partition: str, order: tuple[Decimal, str]) -> Raw:
    return {TABLE_KEY: {"S": order[1]}, INDEX_HASH: {"S": partition}, INDEX_RANGE: {"N": number_form(order[0])}}
