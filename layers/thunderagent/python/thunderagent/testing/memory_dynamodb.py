"""DynamoDB in a dictionary behind the `send` seam: for unit and protocol tests, interleavings and the simulator.

Conditions, updates, the sparse KEYS_ONLY index, paging, transactions, ALL_OLD on a failed condition and consumed
capacity follow AWS's rules; what AWS refuses with ValidationException is refused here. Atomic and thread-safe. Faults
and hooks make a reply or a request disappear, or let somebody else write just before or after one request.

    db = MemoryDynamoDB()
    db.inject(Fault.LOST_REPLY, where=lambda call: call.sets.get("status") == "SUCCESS")
    db.before(lambda call: "lease#x" in call.item_ids, lambda: close_the_lease())
"""

from __future__ import annotations

import json
import threading
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from copy import deepcopy
from math import ceil
from typing import Any

from thunderagent.codec import Item, from_item, to_item
from thunderagent.errors import ConditionFailed, OutcomeUnknown, StoreRefused, TransactionCancelled
from thunderagent.schema import INDEX_NAME, TABLE_KEY
from thunderagent.testing.dynamodb_expressions import Expression, Invalid, Raw
from thunderagent.testing.faults import Action, Call, Fault, Rule, Where, error_of
from thunderagent.testing.item_rules import (
    INDEX_TYPES,
    Change,
    change_of,
    id_of,
    in_index,
    index_entry,
    index_order,
    normal,
    reason_of,
    returned,
    size_of,
    table_order,
    write_units,
)

PAGE_BYTES = 1024 * 1024
TRANSACTION_ITEMS = 100


class MemoryDynamoDB:
    """The task table. Call it as `send(operation, arguments)`; look into it with `item`, `items`, `calls`, the meters.

    `others` are tables of the user's own by name, each with the names of its key attributes: they take single writes,
    reads by key, and part in transactions.
    """

    def __init__(self, table: str = "tasks", *, others: Mapping[str, Sequence[str]] | None = None) -> None:
        self.table = table
        self._keys: dict[str, tuple[str, ...]] = {table: (TABLE_KEY,)}
        self._keys |= {name: tuple(keys) for name, keys in (others or {}).items()}
        self._tables: dict[str, dict[str, Raw]] = {name: {} for name in self._keys}
        self.calls: list[Call] = []
        self.write_units: float = 0
        self.read_units: float = 0
        self._items = self._tables[table]
        self._transactions: dict[str, str] = {}
        self._lock = threading.RLock()
        self._faults: list[Rule] = []
        self._before: list[Rule] = []
        self._after: list[Rule] = []

    # ---- for tests ---------------------------------------------------------------------------------------------------

    def put(self, item: Mapping[str, Any]) -> None:
        """Store a plain item as it is, unconditionally, unmetered and without a record in `calls`."""
        with self._lock:
            self._items[str(item[TABLE_KEY])] = normal(to_item(item))

    def remove(self, item_id: str) -> None:
        with self._lock:
            self._items.pop(item_id, None)

    def item(self, item_id: str) -> Item | None:
        """The stored item as plain values, or None."""
        raw = self.raw(item_id)
        return None if raw is None else from_item(raw)

    def raw(self, item_id: str) -> Raw | None:
        """A copy of the stored item in DynamoDB's form: for byte-for-byte comparisons."""
        with self._lock:
            return deepcopy(self._items.get(item_id))

    def items(self, prefix: str = "") -> dict[str, Item]:
        with self._lock:
            found = {item_id: deepcopy(raw) for item_id, raw in self._items.items() if item_id.startswith(prefix)}
        return {item_id: from_item(raw) for item_id, raw in found.items()}

    def fill(self, table: str, rows: Iterable[Mapping[str, Any]]) -> None:
        """Put plain items into a table of the user's own."""
        with self._lock:
            for row in rows:
                raw = normal(to_item(row))
                self._tables[table][id_of({"Item": raw}, self._keys[table])] = raw

    def rows(self, table: str) -> list[Item]:
        """What a table of the user's own holds."""
        with self._lock:
            return [from_item(raw) for raw in self._tables[table].values()]

    def writes(self) -> list[Call]:
        """The requests that may have changed something, in order."""
        return [call for call in self.calls if call.operation not in {"GetItem", "BatchGetItem", "Query", "Scan"}]

    def inject(
        self, fault: Fault | Exception, *, where: Where = lambda call: True, times: int | None = 1, skip: int = 0
    ) -> None:
        """The next `times` matching requests (after `skip` others) meet the fault; an exception is raised as it is."""
        self._faults.append(Rule(where, fault, times, skip))

    def before(self, where: Where, action: Action, *, times: int | None = 1, skip: int = 0) -> None:
        """Run `action` just before a matching request reaches the table (it may itself send)."""
        self._before.append(Rule(where, action, times, skip))

    def after(self, where: Where, action: Action, *, times: int | None = 1, skip: int = 0) -> None:
        """Run `action` after a matching request took effect, before its answer is seen."""
        self._after.append(Rule(where, action, times, skip))

    def calm(self) -> None:
        """Forget all faults and hooks."""
        self._faults, self._before, self._after = [], [], []

    # ---- the seam ----------------------------------------------------------------------------------------------------

    def __call__(self, operation: str, arguments: Mapping[str, Any]) -> Mapping[str, Any]:
        call = Call(operation, deepcopy(dict(arguments)))
        for action in self._due(self._before, call):
            action()
        try:
            answer = self._answer(call)
        except Exception as error:
            self._record(call, type(error).__name__)
            raise
        self._record(call, "done")
        for action in self._due(self._after, call):
            action()
        return answer

    def _answer(self, call: Call) -> Mapping[str, Any]:
        fault = self._fault(call)
        if isinstance(fault, Exception):
            raise fault
        if fault is not None and fault is not Fault.LOST_REPLY:
            raise error_of(fault, call)
        try:
            with self._lock:
                answer = self._execute(call)
        except (ConditionFailed, TransactionCancelled, StoreRefused):
            if fault is None:
                raise
        if fault is Fault.LOST_REPLY:
            raise OutcomeUnknown(call.operation, "ReadTimeoutError", "the answer was lost")
        return answer

    def _fault(self, call: Call) -> Fault | Exception | None:
        with self._lock:
            for rule in self._faults:
                if rule.takes(call):
                    return rule.effect  # type: ignore[return-value]
        return None

    def _due(self, rules: list[Rule], call: Call) -> Iterator[Action]:
        with self._lock:
            due = [rule.effect for rule in rules if rule.takes(call)]
        yield from due  # type: ignore[misc]

    def _record(self, call: Call, outcome: str) -> None:
        with self._lock:
            self.calls.append(Call(call.operation, call.arguments, outcome))

    def _execute(self, call: Call) -> Mapping[str, Any]:
        operations: dict[str, Callable[[Mapping[str, Any]], Mapping[str, Any]]] = {
            "GetItem": self._get,
            "BatchGetItem": self._batch_get,
            "Query": self._query,
            "Scan": self._scan,
            "TransactWriteItems": self._transact,
        }
        try:
            if call.operation in operations:
                return operations[call.operation](call.arguments)
            if call.operation in ("PutItem", "UpdateItem", "DeleteItem"):
                return self._write(call.operation, call.arguments)
        except Invalid as error:
            raise StoreRefused(call.operation, "ValidationException", str(error)) from error
        raise NotImplementedError(call.operation)

    # ---- writes ------------------------------------------------------------------------------------------------------

    def _write(self, operation: str, arguments: Mapping[str, Any]) -> Mapping[str, Any]:
        change = self._change(operation, arguments)
        if change.refused:
            units = max(1, ceil(size_of(change.old) / 1024))
            self.write_units += units
            asked = arguments.get("ReturnValuesOnConditionCheckFailure") == "ALL_OLD"
            raise ConditionFailed(operation, deepcopy(change.old) if asked else None)
        self._store(arguments["TableName"], change)
        units = write_units(change.old, change.new)
        self.write_units += units
        return {**returned(arguments, change), **self._consumed(arguments, units)}

    def _change(self, operation: str, arguments: Mapping[str, Any]) -> Change:
        keys = self._keys_of(arguments)
        old = self._tables[arguments["TableName"]].get(id_of(arguments, keys))
        return change_of(operation, arguments, old, keys=keys)

    def _store(self, table: str, change: Change) -> None:
        if change.new is None:
            self._tables[table].pop(change.item_id, None)
        else:
            self._tables[table][change.item_id] = change.new

    def _transact(self, arguments: Mapping[str, Any]) -> Mapping[str, Any]:
        entries = Call("TransactWriteItems", arguments).entries
        token, frozen = arguments.get("ClientRequestToken"), json.dumps(arguments, sort_keys=True, default=str)
        if not 1 <= len(entries) <= TRANSACTION_ITEMS:
            raise Invalid(f"a transaction has 1 to {TRANSACTION_ITEMS} items")
        if token is not None and not 1 <= len(token) <= 36:
            raise Invalid("ClientRequestToken has 1 to 36 characters")
        if token in self._transactions:
            if self._transactions[token] != frozen:
                raise StoreRefused("TransactWriteItems", "IdempotentParameterMismatchException")
            return {}
        changes = [self._change(operation, entry) for operation, entry in entries]
        places = {(entry["TableName"], change.item_id) for change, (_, entry) in zip(changes, entries, strict=True)}
        if len(places) < len(changes):
            raise Invalid("a transaction cannot include two operations on one item")
        units = sum(2 * write_units(change.old, change.new) for change in changes)
        self.write_units += units
        if any(change.refused for change in changes):
            reasons = [reason_of(change, entry) for change, (_, entry) in zip(changes, entries, strict=True)]
            raise TransactionCancelled("TransactWriteItems", reasons)
        for change, (operation, entry) in zip(changes, entries, strict=True):
            if operation != "ConditionCheck":
                self._store(entry["TableName"], change)
        if token is not None:
            self._transactions[token] = frozen
        return self._consumed(arguments, units, listed=True)

    # ---- reads -------------------------------------------------------------------------------------------------------

    def _get(self, arguments: Mapping[str, Any]) -> Mapping[str, Any]:
        raw = self._tables[arguments["TableName"]].get(id_of(arguments, self._keys_of(arguments)))
        units = self._read(size_of(raw), consistent=bool(arguments.get("ConsistentRead")))
        consumed = self._consumed(arguments, units)
        return {"Item": deepcopy(raw), **consumed} if raw is not None else consumed

    def _batch_get(self, arguments: Mapping[str, Any]) -> Mapping[str, Any]:
        ((table, request),) = arguments["RequestItems"].items()
        self._check_table({"TableName": table})
        ids = [key[TABLE_KEY]["S"] for key in request["Keys"]]
        if not 1 <= len(ids) <= 100 or len(set(ids)) < len(ids):
            raise Invalid("1 to 100 different keys are needed")
        found = [self._items[item_id] for item_id in ids if item_id in self._items]
        consistent = bool(request.get("ConsistentRead"))
        units = sum(self._read(size_of(self._items.get(item_id)), consistent=consistent) for item_id in ids)
        return {
            "Responses": {table: deepcopy(found)},
            "UnprocessedKeys": {},
            **self._consumed(arguments, units, listed=True),
        }

    def _query(self, arguments: Mapping[str, Any]) -> Mapping[str, Any]:
        self._check_table(arguments)
        index = arguments.get("IndexName")
        if index not in (None, INDEX_NAME):
            raise Invalid(f"the table has no index {index}")
        rows = [index_entry(raw) for raw in self._items.values() if in_index(raw)] if index else self._items.values()
        condition = arguments["KeyConditionExpression"]
        names, values = arguments.get("ExpressionAttributeNames", {}), arguments["ExpressionAttributeValues"]
        start = arguments.get("ExclusiveStartKey")
        if start is not None:
            keys = {TABLE_KEY, *(INDEX_TYPES if index else ())}
            if set(start) != keys or not Expression(condition, names, values).holds(dict(start)):
                raise Invalid("the provided starting key is invalid, or outside the query's boundaries")
        matching = [row for row in rows if Expression(condition, names, values).holds(row)]
        matching.sort(key=index_order if index else table_order, reverse=not arguments.get("ScanIndexForward", True))
        return self._page(arguments, matching, index_order if index else table_order)

    def _scan(self, arguments: Mapping[str, Any]) -> Mapping[str, Any]:
        self._check_table(arguments)
        return self._page(arguments, sorted(self._items.values(), key=table_order), table_order)

    def _page(
        self, arguments: Mapping[str, Any], rows: list[Raw], order: Callable[[Mapping[str, Any]], Any]
    ) -> Mapping[str, Any]:
        start = arguments.get("ExclusiveStartKey")
        if start is not None:
            descending = not arguments.get("ScanIndexForward", True)
            edge = order(start)
            rows = [row for row in rows if (order(row) < edge if descending else order(row) > edge)]
        page, size, limit = [], 0, arguments.get("Limit", len(rows) + 1)
        if limit < 1:
            raise Invalid("Limit is at least 1")
        for row in rows:
            page.append(deepcopy(row))
            size += size_of(row)
            if len(page) == limit or size >= PAGE_BYTES:
                break
        units = self._read(size, consistent=bool(arguments.get("ConsistentRead")))
        answer: dict[str, Any] = {"Count": len(page), "ScannedCount": len(page), **self._consumed(arguments, units)}
        if arguments.get("Select") != "COUNT":
            answer["Items"] = page
        # AWS gives a page key whenever the page is full, even if nothing follows.
        if page and (len(page) == limit or size >= PAGE_BYTES):
            keys = [TABLE_KEY, *(INDEX_TYPES if arguments.get("IndexName") else ())]
            answer["LastEvaluatedKey"] = {name: page[-1][name] for name in keys}
        return answer

    def _read(self, size: int, *, consistent: bool) -> float:
        units = max(1, ceil(size / 4096)) * (1 if consistent else 0.5)
        self.read_units += units
        return units

    # ---- shared ------------------------------------------------------------------------------------------------------

    def _keys_of(self, arguments: Mapping[str, Any]) -> tuple[str, ...]:
        """The key schema of the table a request names."""
        if arguments.get("TableName") not in self._keys:
            raise StoreRefused("request", "ResourceNotFoundException", str(arguments.get("TableName")))
        return self._keys[arguments["TableName"]]

    def _check_table(self, arguments: Mapping[str, Any]) -> None:
        if arguments.get("TableName") != self.table:
            raise StoreRefused("request", "ResourceNotFoundException", str(arguments.get("TableName")))

    def _consumed(self, arguments: Mapping[str, Any], units: float, *, listed: bool = False) -> dict[str, Any]:
        if arguments.get("ReturnConsumedCapacity", "NONE") == "NONE":
            return {}
        consumed = {"TableName": self.table, "CapacityUnits": units}
        return {"ConsumedCapacity": [consumed] if listed else consumed}
