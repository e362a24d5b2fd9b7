"""DynamoDB in a dictionary behind the `send` seam: for unit and protocol tests, interleavings and the simulator.

Conditions, updates, the sparse KEYS_ONLY index, paging, transactions, ALL_OLD on a failed condition and consumed
capacity follow AWS's rules; what AWS refuses with ValidationException is refused here. Atomic and thread-safe. Faults
and hooks make a reply or a request disappear, or let somebody else write just before or after one request.

    db = MemoryDynamoDB()
    db.inject(Fault.LOST_REPLY, where=lambda call: call.sets.get("status") == "SUCCESS")
    db.before(lambda call: "lease#x" in call.item_ids, lambda: close_the_lease())
"""

from __future__ import annotations

import base64
import json
import threading
from collections.abc import Callable, Iterator, Mapping
from copy import deepcopy
from dataclasses import dataclass, field
from decimal import Decimal, InvalidOperation
from enum import Enum
from math import ceil
from typing import Any

from tests.support.dynamodb_expressions import Expression, Invalid, Raw, comparable, number_form
from thunderagent.codec import Item, from_item, item_bytes, to_item
from thunderagent.errors import (
    ConditionFailed,
    OutcomeUnknown,
    StoreRefused,
    StoreThrottled,
    TransactionCancelled,
)
from thunderagent.schema import INDEX_HASH, INDEX_NAME, INDEX_RANGE, TABLE_KEY

KEY_BYTES = 2048
ITEM_BYTES = 400 * 1024
PAGE_BYTES = 1024 * 1024
TRANSACTION_ITEMS = 100
INDEX_TYPES = {INDEX_HASH: "S", INDEX_RANGE: "N"}
WRITES = {"Put": "PutItem", "Update": "UpdateItem", "Delete": "DeleteItem", "ConditionCheck": "ConditionCheck"}


class Fault(Enum):
    LOST_REPLY = "the request takes effect, its answer never comes"
    LOST_REQUEST = "nothing takes effect, and no answer comes"
    THROTTLED = "refused for lack of throughput"
    CONFLICT = "refused because a transaction is in progress on the item"
    REFUSED = "refused as such (access denied)"


@dataclass(frozen=True)
class Call:
    """One request as it was sent, and what became of it."""

    operation: str
    arguments: Mapping[str, Any] = field(repr=False)
    outcome: str = "sent"

    @property
    def entries(self) -> list[tuple[str, Mapping[str, Any]]]:
        """The single writes of this request, those of a transaction one by one."""
        if self.operation != "TransactWriteItems":
            return [(self.operation, self.arguments)]
        return [(WRITES[kind], entry) for each in self.arguments["TransactItems"] for kind, entry in each.items()]

    @property
    def item_ids(self) -> list[str]:
        if self.operation == "BatchGetItem":
            requests = self.arguments["RequestItems"].values()
            return [key[TABLE_KEY]["S"] for request in requests for key in request["Keys"]]
        return [_id_of(arguments) for _, arguments in self.entries if "Key" in arguments or "Item" in arguments]

    @property
    def sets(self) -> Item:
        """What the request's updates set and its puts contain, as plain values (top-level attributes)."""
        found: Item = {}
        for operation, arguments in self.entries:
            if operation == "PutItem":
                found |= from_item(arguments["Item"])
            elif operation == "UpdateItem":
                found |= _set_by(arguments)
        return found


Where = Callable[[Call], bool]
Action = Callable[[], None]


@dataclass
class _Rule:
    """A fault or a hook, for the `skip`-th matching request on, `times` times (None: always)."""

    where: Where
    effect: Fault | Exception | Action
    times: int | None
    skip: int

    def takes(self, call: Call) -> bool:
        if self.times == 0 or not self.where(call):
            return False
        if self.skip > 0:
            self.skip -= 1
            return False
        if self.times is not None:
            self.times -= 1
        return True


class MemoryDynamoDB:
    """One table. Call it as `send(operation, arguments)`; look into it with `item`, `items`, `calls` and the meters."""

    def __init__(self, table: str = "tasks") -> None:
        self.table = table
        self.calls: list[Call] = []
        self.write_units: float = 0
        self.read_units: float = 0
        self._items: dict[str, Raw] = {}
        self._transactions: dict[str, str] = {}
        self._lock = threading.RLock()
        self._faults: list[_Rule] = []
        self._before: list[_Rule] = []
        self._after: list[_Rule] = []

    # ---- for tests ---------------------------------------------------------------------------------------------------

    def put(self, item: Mapping[str, Any]) -> None:
        """Store a plain item as it is, unconditionally, unmetered and without a record in `calls`."""
        with self._lock:
            self._items[str(item[TABLE_KEY])] = _normal(to_item(item))

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

    def writes(self) -> list[Call]:
        """The requests that may have changed something, in order."""
        return [call for call in self.calls if call.operation not in {"GetItem", "BatchGetItem", "Query", "Scan"}]

    def inject(
        self, fault: Fault | Exception, *, where: Where = lambda call: True, times: int | None = 1, skip: int = 0
    ) -> None:
        """The next `times` matching requests (after `skip` others) meet the fault; an exception is raised as it is."""
        self._faults.append(_Rule(where, fault, times, skip))

    def before(self, where: Where, action: Action, *, times: int | None = 1, skip: int = 0) -> None:
        """Run `action` just before a matching request reaches the table (it may itself send)."""
        self._before.append(_Rule(where, action, times, skip))

    def after(self, where: Where, action: Action, *, times: int | None = 1, skip: int = 0) -> None:
        """Run `action` after a matching request took effect, before its answer is seen."""
        self._after.append(_Rule(where, action, times, skip))

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
            raise _error_of(fault, call)
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

    def _due(self, rules: list[_Rule], call: Call) -> Iterator[Action]:
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
        self._check_table(arguments)
        change = _change(operation, arguments, self._items.get(_id_of(arguments)))
        if change.refused:
            units = max(1, ceil(_bytes(change.old) / 1024))
            self.write_units += units
            asked = arguments.get("ReturnValuesOnConditionCheckFailure") == "ALL_OLD"
            raise ConditionFailed(operation, deepcopy(change.old) if asked else None)
        self._store(change)
        units = _write_units(change.old, change.new)
        self.write_units += units
        return {**_returned(arguments, change), **self._consumed(arguments, units)}

    def _store(self, change: _Change) -> None:
        if change.new is None:
            self._items.pop(change.item_id, None)
        else:
            self._items[change.item_id] = change.new

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
        changes = [self._transact_change(operation, entry) for operation, entry in entries]
        if len({change.item_id for change in changes}) < len(changes):
            raise Invalid("a transaction cannot include two operations on one item")
        units = sum(2 * _write_units(change.old, change.new) for change in changes)
        self.write_units += units
        if any(change.refused for change in changes):
            reasons = [_reason_of(change, entry) for change, (_, entry) in zip(changes, entries, strict=True)]
            raise TransactionCancelled("TransactWriteItems", reasons)
        for change, (operation, _) in zip(changes, entries, strict=True):
            if operation != "ConditionCheck":
                self._store(change)
        if token is not None:
            self._transactions[token] = frozen
        return self._consumed(arguments, units, listed=True)

    def _transact_change(self, operation: str, arguments: Mapping[str, Any]) -> _Change:
        self._check_table(arguments)
        return _change(operation, arguments, self._items.get(_id_of(arguments)))

    # ---- reads -------------------------------------------------------------------------------------------------------

    def _get(self, arguments: Mapping[str, Any]) -> Mapping[str, Any]:
        self._check_table(arguments)
        raw = self._items.get(_id_of(arguments))
        units = self._read(_bytes(raw), consistent=bool(arguments.get("ConsistentRead")))
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
        units = sum(self._read(_bytes(self._items.get(item_id)), consistent=consistent) for item_id in ids)
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
        rows = [_index_entry(raw) for raw in self._items.values() if _in_index(raw)] if index else self._items.values()
        condition = arguments["KeyConditionExpression"]
        names, values = arguments.get("ExpressionAttributeNames", {}), arguments["ExpressionAttributeValues"]
        start = arguments.get("ExclusiveStartKey")
        if start is not None:
            keys = {TABLE_KEY, *(INDEX_TYPES if index else ())}
            if set(start) != keys or not Expression(condition, names, values).holds(dict(start)):
                raise Invalid("the provided starting key is invalid, or outside the query's boundaries")
        matching = [row for row in rows if Expression(condition, names, values).holds(row)]
        matching.sort(key=_index_order if index else _table_order, reverse=not arguments.get("ScanIndexForward", True))
        return self._page(arguments, matching, _index_order if index else _table_order)

    def _scan(self, arguments: Mapping[str, Any]) -> Mapping[str, Any]:
        self._check_table(arguments)
        return self._page(arguments, sorted(self._items.values(), key=_table_order), _table_order)

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
            size += _bytes(row)
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

    def _check_table(self, arguments: Mapping[str, Any]) -> None:
        if arguments.get("TableName") != self.table:
            raise StoreRefused("request", "ResourceNotFoundException", str(arguments.get("TableName")))

    def _consumed(self, arguments: Mapping[str, Any], units: float, *, listed: bool = False) -> dict[str, Any]:
        if arguments.get("ReturnConsumedCapacity", "NONE") == "NONE":
            return {}
        consumed = {"TableName": self.table, "CapacityUnits": units}
        return {"ConsumedCapacity": [consumed] if listed else consumed}


# ---- one write ------------------------------------------------------------------------------------------------------


@dataclass(frozen=True)
class _Change:
    item_id: str
    old: Raw | None
    new: Raw | None
    touched: frozenset[str] = frozenset()
    refused: bool = False


def _change(operation: str, arguments: Mapping[str, Any], old: Raw | None) -> _Change:
    """What one write would do to the item it names. Raises Invalid."""
    item_id = _id_of(arguments)
    if not 1 <= len(item_id.encode()) <= KEY_BYTES:
        raise Invalid(f"the key has 1 to {KEY_BYTES} bytes")
    names, values = arguments.get("ExpressionAttributeNames", {}), arguments.get("ExpressionAttributeValues", {})
    used: set[str] = set()
    refused = False
    if (condition := arguments.get("ConditionExpression")) is not None:
        expression = Expression(condition, names, values)
        refused = not expression.holds(old or {})
        used |= expression.used
    new, touched = _outcome(operation, arguments, old, used)
    for placeholder in {*names, *values} - used:
        raise Invalid(f"{placeholder} is defined but not used in expressions")
    if new is not None and not refused:
        new = _normal(new)
        _check_index_keys(new)
        if _bytes(new) > ITEM_BYTES:
            raise Invalid("Item size has exceeded the maximum allowed size")
    return _Change(item_id, old, old if refused else new, frozenset(touched), refused)


def _outcome(
    operation: str, arguments: Mapping[str, Any], old: Raw | None, used: set[str]
) -> tuple[Raw | None, set[str]]:
    if operation == "PutItem":
        return deepcopy(dict(arguments["Item"])), set(arguments["Item"])
    if operation == "DeleteItem":
        return None, set()
    if operation == "ConditionCheck":
        return old, set()
    start: Raw = deepcopy(old) if old is not None else {TABLE_KEY: arguments["Key"][TABLE_KEY]}
    if "UpdateExpression" not in arguments:
        return start, set()
    names, values = arguments.get("ExpressionAttributeNames", {}), arguments.get("ExpressionAttributeValues", {})
    expression = Expression(arguments["UpdateExpression"], names, values)
    new, touched = expression.update(start)
    used |= expression.used
    if TABLE_KEY in touched:
        raise Invalid(f"cannot update attribute {TABLE_KEY}: it is part of the key")
    return new, touched


def _returned(arguments: Mapping[str, Any], change: _Change) -> dict[str, Any]:
    wanted = arguments.get("ReturnValues", "NONE")
    source = {"ALL_OLD": change.old, "UPDATED_OLD": change.old}.get(wanted, change.new)
    if wanted == "NONE" or not source:
        return {}
    if wanted.startswith("UPDATED"):
        source = {name: value for name, value in source.items() if name in change.touched}
    return {"Attributes": deepcopy(source)}


def _reason_of(change: _Change, arguments: Mapping[str, Any]) -> tuple[str, Raw | None]:
    if not change.refused:
        return "None", None
    asked = arguments.get("ReturnValuesOnConditionCheckFailure") == "ALL_OLD"
    return "ConditionalCheckFailed", deepcopy(change.old) if asked else None


def _set_by(arguments: Mapping[str, Any]) -> Item:
    """The top-level attributes an update assigns, by evaluating it on an empty item where that is possible."""
    names, values = arguments.get("ExpressionAttributeNames", {}), arguments.get("ExpressionAttributeValues", {})
    try:
        new, _ = Expression(arguments["UpdateExpression"], names, values).update({})
    except Invalid:
        return {}
    return from_item(new)


def _error_of(fault: Fault, call: Call) -> Exception:
    match fault:
        case Fault.THROTTLED:
            return StoreThrottled(call.operation, "ProvisionedThroughputExceededException")
        case Fault.CONFLICT if call.operation == "TransactWriteItems":
            return TransactionCancelled(call.operation, [("TransactionConflict", None) for _ in call.entries])
        case Fault.CONFLICT:
            return StoreRefused(call.operation, "TransactionConflictException")
        case Fault.REFUSED:
            return StoreRefused(call.operation, "AccessDeniedException")
    return OutcomeUnknown(call.operation, "ConnectionError", "the request was lost")


# ---- items, keys, units ---------------------------------------------------------------------------------------------


def _id_of(arguments: Mapping[str, Any]) -> str:
    key = arguments["Key"] if "Key" in arguments else arguments["Item"]
    if set(key.get(TABLE_KEY, {})) != {"S"} or ("Key" in arguments and len(key) != 1):
        raise Invalid("the provided key element does not match the schema")
    return str(key[TABLE_KEY]["S"])


def _normal(raw: Mapping[str, Any]) -> Raw:
    return {name: _normal_value(attribute) for name, attribute in raw.items()}


def _normal_value(attribute: Mapping[str, Any]) -> dict[str, Any]:
    ((tag, value),) = attribute.items()
    match tag:
        case "N":
            return {"N": _normal_number(value)}
        case "SS" | "NS" | "BS":
            if not value or len(set(value)) < len(value):
                raise Invalid("a set is not empty and has no duplicates")
            return {tag: sorted(_normal_number(entry) for entry in value) if tag == "NS" else sorted(value)}
        case "L":
            return {"L": [_normal_value(entry) for entry in value]}
        case "M":
            return {"M": _normal(value)}
        case "S":
            value.encode()
    return {tag: value}


def _normal_number(text: str) -> str:
    try:
        return number_form(Decimal(text))
    except InvalidOperation as error:
        raise Invalid(f"{text!r} is not a number") from error


def _check_index_keys(raw: Raw) -> None:
    for name, tag in INDEX_TYPES.items():
        if name in raw and (tag not in raw[name] or raw[name][tag] == ""):
            raise Invalid(f"type mismatch for index key {name}: {tag} expected, and not empty")


def _in_index(raw: Raw | None) -> bool:
    return raw is not None and all(name in raw for name in INDEX_TYPES)


def _index_entry(raw: Raw) -> Raw:
    return {name: raw[name] for name in (TABLE_KEY, *INDEX_TYPES)}


def _index_order(row: Mapping[str, Any]) -> tuple[Decimal, str]:
    return Decimal(row[INDEX_RANGE]["N"]), row[TABLE_KEY]["S"]


def _table_order(row: Mapping[str, Any]) -> str:
    return str(row[TABLE_KEY]["S"])


def _bytes(raw: Raw | None) -> int:
    if raw is None:
        return 0
    plain = {name: value for name, value in raw.items() if "B" not in value}
    binary = sum(len(name) + len(base64.b64decode(raw[name]["B"])) for name in raw if "B" in raw[name])
    return item_bytes(from_item(plain)) + binary


def _write_units(old: Raw | None, new: Raw | None) -> int:
    """Table: the larger of the two, 1 KiB a unit. Index: one for each entry that goes, one for each that comes."""
    units = max(1, ceil(max(_bytes(old), _bytes(new)) / 1024))
    entries = [_index_entry(raw) if raw is not None and _in_index(raw) else None for raw in (old, new)]
    if _comparable(entries[0]) != _comparable(entries[1]):
        units += sum(ceil(_bytes(entry) / 1024) for entry in entries if entry is not None)
    return units


def _comparable(entry: Raw | None) -> Any:
    return None if entry is None else {name: comparable(value) for name, value in entry.items()}
