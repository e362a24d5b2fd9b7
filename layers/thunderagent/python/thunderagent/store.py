"""What DynamoDB's answers mean: writes applied or refused (and why), reads, pages. The only caller of the `send` seam.

`send(operation, arguments)` carries one low-level request to DynamoDB and returns its answer, or raises the errors of
`thunderagent.errors`. Retries live here, not below the seam, so that a refusal after a lost reply is always classified.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from enum import StrEnum
from typing import Any, Literal, Protocol

from thunderagent.clock import Clock, Randomness
from thunderagent.codec import Item, from_item
from thunderagent.conditions import Write
from thunderagent.errors import (
    ConditionFailed,
    MalformedItem,
    OutcomeUnknown,
    StoreRefused,
    StoreThrottled,
    TransactionCancelled,
)
from thunderagent.model import IndexKey, Lease, LeaseToken, Task, TaskId
from thunderagent.schema import INDEX_HASH, INDEX_NAME, INDEX_RANGE, TABLE_KEY, Layout, lease_id
from thunderagent.states import is_terminal

ATTEMPTS = 6  # per request, with full jitter between: at most about 4 s of waiting
BACKOFF_BASE_SECONDS, BACKOFF_CAP_SECONDS = 0.05, 1.6
BATCH_GET_KEYS = 100  # DynamoDB's limit for BatchGetItem
CONFLICTS = frozenset({"TransactionConflictException", "TransactionConflict", "TransactionInProgressException"})


class Send(Protocol):
    def __call__(self, operation: str, arguments: Mapping[str, Any]) -> Mapping[str, Any]: ...


class Refusal(StrEnum):
    GONE = "gone"  # there is no such item
    TERMINAL = "terminal"  # the task has ended
    CANCELLED = "cancelled"  # RUNNING, and a cancel was requested
    OTHER = "other"  # another holder's, or a premise no longer holds


@dataclass(frozen=True)
class Written:
    """The write took effect. `item` is the new item where the write asked for it, the stored one when `replayed`:
    an earlier reply was lost, and this answer recognised our own write."""

    item: Item | None = None
    replayed: bool = False


@dataclass(frozen=True)
class Refused:
    """The write's condition did not hold, and this very write had not been applied before. `item` is what is stored."""

    reason: Refusal
    item: Item | None = None


Answer = Written | Refused
Bound = tuple[Literal["<", "<=", ">", ">="], float]


@dataclass(frozen=True)
class Page:
    """Index keys in order, and where to go on. An empty page with `next_key` is not the end."""

    keys: tuple[IndexKey, ...]
    next_key: Mapping[str, Any] | None


@dataclass(frozen=True)
class Tally:
    """How many entries one page of a partition has, and where to go on."""

    count: int
    next_key: Mapping[str, Any] | None


class Store:
    """One table behind one `send`. Thread-safe as far as `send` is."""

    def __init__(self, *, table: str, send: Send, clock: Clock, randomness: Randomness, layout: Layout) -> None:
        self.table = table
        self.clock = clock
        self.randomness = randomness
        self.layout = layout
        self._send_once = send

    # ---- writes ------------------------------------------------------------------------------------------------------

    def apply(self, write: Write, *, once: bool = False) -> Answer:
        """Send one conditional write and say what its answer means.

        `once` sends it a single time: a lost reply is then OutcomeUnknown at once. Raises StoreThrottled or
        StoreRefused (not applied), OutcomeUnknown (perhaps applied).
        """
        arguments = {"TableName": self.table, **write.arguments}
        try:
            answer = self._send(write.operation, arguments, attempts=1 if once else ATTEMPTS)
        except ConditionFailed as failed:
            return self._classify(write, failed.item)
        raw = answer.get("Attributes")
        return Written(from_item(raw) if raw else None)

    def transact(
        self, writes: Sequence[Write], *, request_token: str | None = None
    ) -> Written | tuple[Refused | None, ...]:
        """Apply all writes or none. When refused: one entry per write, None where that write was not the obstacle.

        `request_token` (at most 36 characters) makes repeats harmless; keep it for the same writes only. Without one,
        a token is drawn for this call and its own repeats.
        """
        arguments = {
            "TransactItems": [self._transact_entry(write) for write in writes],
            "ClientRequestToken": request_token or self.randomness.token(),
        }
        try:
            self._send("TransactWriteItems", arguments)
        except TransactionCancelled as cancelled:
            return self._classify_transaction(writes, cancelled)
        return Written()

    def transact_entries(self, writes: Sequence[Write]) -> list[dict[str, Any]]:
        """The writes in the form of `TransactItems`, for a transaction of somebody else's."""
        return [self._transact_entry(write) for write in writes]

    def delete_body(self, item_id: str) -> None:
        """Delete a side item, whether it is there or not."""
        self._send("DeleteItem", {"TableName": self.table, "Key": {TABLE_KEY: {"S": item_id}}})

    # ---- reads -------------------------------------------------------------------------------------------------------

    def get_item(self, item_id: str, *, consistent: bool = False) -> Item | None:
        answer = self._send(
            "GetItem",
            {"TableName": self.table, "Key": {TABLE_KEY: {"S": item_id}}, "ConsistentRead": consistent},
        )
        raw = answer.get("Item")
        return from_item(raw) if raw else None

    def get_items(self, item_ids: Iterable[str], *, consistent: bool = False) -> dict[str, Item]:
        """Items by id; ids that are not stored are left out. Unprocessed keys are asked for again."""
        wanted = list(dict.fromkeys(item_ids))
        found: dict[str, Item] = {}
        for start in range(0, len(wanted), BATCH_GET_KEYS):
            for raw in self._batch_get(wanted[start : start + BATCH_GET_KEYS], consistent):
                item = from_item(raw)
                found[str(item[TABLE_KEY])] = item
        return found

    def get_task(self, task_id: str, *, consistent: bool = False) -> Task | None:
        """The task, or None. Raises MalformedItem for a row that is no task."""
        item = self.get_item(task_id, consistent=consistent)
        return Task.from_item(item) if item is not None else None

    def get_lease(self, token: LeaseToken) -> Lease | None:
        """The lease, read consistently. Raises MalformedItem."""
        item = self.get_item(lease_id(token), consistent=True)
        return Lease.from_item(item) if item is not None else None

    def query(
        self,
        dispatch_key: str,
        *,
        limit: int,
        until: float | None = None,
        bound: Bound | None = None,
        start: Mapping[str, Any] | None = None,
        ascending: bool = True,
    ) -> Page:
        """One page of an index partition in order of `dueAt`; with `until`, only entries due by then (inclusive), with
        `bound` only those on its side."""
        names = {"#k": INDEX_HASH}
        values: dict[str, Any] = {":k": {"S": dispatch_key}}
        condition = "#k = :k"
        side = ("<=", until) if until is not None else bound
        if side is not None:
            names["#d"], values[":d"] = INDEX_RANGE, {"N": repr(side[1])}
            condition += f" AND #d {side[0]} :d"
        arguments: dict[str, Any] = {
            "TableName": self.table,
            "IndexName": INDEX_NAME,
            "KeyConditionExpression": condition,
            "ExpressionAttributeNames": names,
            "ExpressionAttributeValues": values,
            "Limit": limit,
            "ScanIndexForward": ascending,
        }
        if start is not None:
            arguments["ExclusiveStartKey"] = start
        answer = self._send("Query", arguments)
        keys = tuple(_index_key(from_item(raw)) for raw in answer.get("Items", []))
        return Page(keys, answer.get("LastEvaluatedKey"))

    def walk(
        self, dispatch_key: str, *, page: int = 100, until: float | None = None, ascending: bool = True
    ) -> Iterator[IndexKey]:
        """Every key of a partition, page after page (empty pages are followed)."""
        start: Mapping[str, Any] | None = None
        while True:
            got = self.query(dispatch_key, limit=page, until=until, start=start, ascending=ascending)
            yield from got.keys
            start = got.next_key
            if start is None:
                return

    def count(self, dispatch_key: str, *, until: float | None = None, at_least: int | None = None) -> int:
        """How many entries a partition has; stops early once `at_least` is reached (a bounded look)."""
        total = 0
        start: Mapping[str, Any] | None = None
        while True:
            arguments: dict[str, Any] = {
                "TableName": self.table,
                "IndexName": INDEX_NAME,
                "KeyConditionExpression": "#k = :k" + ("" if until is None else " AND #d <= :d"),
                "ExpressionAttributeNames": {"#k": INDEX_HASH} | ({} if until is None else {"#d": INDEX_RANGE}),
                "ExpressionAttributeValues": {":k": {"S": dispatch_key}}
                | ({} if until is None else {":d": {"N": repr(until)}}),
                "Select": "COUNT",
            }
            if at_least is not None:
                arguments["Limit"] = max(1, at_least - total)
            if start is not None:
                arguments["ExclusiveStartKey"] = start
            answer = self._send("Query", arguments)
            total += int(answer.get("Count", 0))
            start = answer.get("LastEvaluatedKey")
            if start is None or (at_least is not None and total >= at_least):
                return total

    def tally(
        self,
        dispatch_key: str,
        *,
        limit: int,
        bound: Bound | None = None,
        start: Mapping[str, Any] | None = None,
        ascending: bool = True,
    ) -> Tally:
        """Count one page of a partition, at most `limit` entries, from `start` on. The entries do not travel."""
        side = "" if bound is None else f" AND #d {bound[0]} :d"
        arguments: dict[str, Any] = {
            "TableName": self.table,
            "IndexName": INDEX_NAME,
            "KeyConditionExpression": f"#k = :k{side}",
            "ExpressionAttributeNames": {"#k": INDEX_HASH} | ({"#d": INDEX_RANGE} if bound else {}),
            "ExpressionAttributeValues": {":k": {"S": dispatch_key}} | ({":d": {"N": repr(bound[1])}} if bound else {}),
            "Select": "COUNT",
            "Limit": limit,
            "ScanIndexForward": ascending,
        }
        if start is not None:
            arguments["ExclusiveStartKey"] = start
        answer = self._send("Query", arguments)
        return Tally(int(answer.get("Count", 0)), answer.get("LastEvaluatedKey"))

    def scan(
        self, *, limit: int, start: Mapping[str, Any] | None = None
    ) -> tuple[list[Item], Mapping[str, Any] | None]:
        """A page of the whole table, side items included, in no order; and where to go on. For audits only."""
        arguments: dict[str, Any] = {"TableName": self.table, "Limit": limit}
        if start is not None:
            arguments["ExclusiveStartKey"] = start
        answer = self._send("Scan", arguments)
        return [from_item(raw) for raw in answer.get("Items", [])], answer.get("LastEvaluatedKey")

    # ---- below -------------------------------------------------------------------------------------------------------

    def _send(self, operation: str, arguments: Mapping[str, Any], *, attempts: int = ATTEMPTS) -> Mapping[str, Any]:
        """Send with retries. Once a reply was lost, running out of attempts is OutcomeUnknown, whatever came last."""
        lost: OutcomeUnknown | None = None
        for attempt in range(attempts):
            try:
                return self._send_once(operation, arguments)
            except OutcomeUnknown as unknown:
                lost, error = unknown, unknown
            except StoreThrottled as throttled:
                error = throttled  # type: ignore[assignment]
            except StoreRefused as refused:
                if refused.code not in CONFLICTS:
                    if lost is not None:  # an earlier attempt may have been applied
                        raise lost from refused
                    raise
                error = StoreThrottled(operation, refused.code)  # type: ignore[assignment]
            except TransactionCancelled as cancelled:
                if not _only_conflicts(cancelled):
                    raise
                error = StoreThrottled(operation, "TransactionConflict")  # type: ignore[assignment]
            if attempt + 1 < attempts:
                self.clock.sleep(
                    self.randomness.uniform(0, min(BACKOFF_CAP_SECONDS, BACKOFF_BASE_SECONDS * 2**attempt))
                )
        raise lost or error

    def _batch_get(self, ids: Sequence[str], consistent: bool) -> Iterator[Mapping[str, Any]]:
        request: Mapping[str, Any] = {
            self.table: {"Keys": [{TABLE_KEY: {"S": item_id}} for item_id in ids], "ConsistentRead": consistent}
        }
        rounds = 0
        while request:
            answer = self._send("BatchGetItem", {"RequestItems": request})
            yield from answer.get("Responses", {}).get(self.table, [])
            request = answer.get("UnprocessedKeys") or {}
            if request:
                rounds += 1
                if rounds > ATTEMPTS:
                    raise StoreThrottled("BatchGetItem", "UnprocessedKeys")
                self.clock.sleep(self.randomness.uniform(0, min(BACKOFF_CAP_SECONDS, BACKOFF_BASE_SECONDS * 2**rounds)))

    def _classify(self, write: Write, raw: Mapping[str, Any] | None) -> Answer:
        if not raw:
            return Refused(Refusal.GONE)
        item = from_item(raw)
        if write.applied(item):
            return Written(item, replayed=True)
        return Refused(_reason(item), item)

    def _classify_transaction(
        self, writes: Sequence[Write], cancelled: TransactionCancelled
    ) -> Written | tuple[Refused | None, ...]:
        entries: list[Answer | None] = []
        for write, (code, raw) in zip(writes, cancelled.reasons, strict=True):
            entries.append(self._classify(write, raw) if code == "ConditionalCheckFailed" else None)
        failed = [entry for entry in entries if entry is not None]
        if not failed:
            raise StoreRefused("TransactWriteItems", str(cancelled))
        if isinstance(entries[0], Written):
            return entries[0]  # the first write of a transaction tells whether it was applied before
        return tuple(entry if isinstance(entry, Refused) else None for entry in entries)

    def _transact_entry(self, write: Write) -> dict[str, Any]:
        kind = {"PutItem": "Put", "UpdateItem": "Update", "DeleteItem": "Delete"}.get(write.operation, "ConditionCheck")
        arguments = {name: value for name, value in write.arguments.items() if name != "ReturnValues"}
        return {kind: {"TableName": self.table, **arguments}}


def _index_key(item: Item) -> IndexKey:
    return IndexKey(str(item[TABLE_KEY]), str(item[INDEX_HASH]), item[INDEX_RANGE])


def _only_conflicts(cancelled: TransactionCancelled) -> bool:
    codes = {code for code, _ in cancelled.reasons if code != "None"}
    return bool(codes) and codes <= (CONFLICTS | {"ThrottlingError", "ProvisionedThroughputExceeded"})


def _reason(item: Item) -> Refusal:
    status = item.get("status")
    if is_terminal(status):
        return Refusal.TERMINAL
    if item.get("cancelRequested") and status == "RUNNING":
        return Refusal.CANCELLED
    return Refusal.OTHER


def readable(items: Mapping[str, Item]) -> tuple[dict[TaskId, Task], list[MalformedItem]]:
    """Tasks of a batch read, and the rows that are none: one bad row never hides the others."""
    tasks: dict[TaskId, Task] = {}
    bad: list[MalformedItem] = []
    for item_id, item in items.items():
        try:
            tasks[TaskId(item_id)] = Task.from_item(item)
        except MalformedItem as problem:
            bad.append(problem)
    return tasks, bad
