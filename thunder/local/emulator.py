"""The process of the embedded AWS: ministack, made quick on large index partitions, and with meters AWS has.

A script, run by the interpreter of `.venv/embedded` and importing nothing of ours, so that no path of the checkout
reaches the Lambda functions it runs. Configured by environment variables, as ministack is.

ministack reads and orders the whole partition for every query, and parses and validates the key condition again for
each of its rows. Here the index is kept in order, and only the rows that a query can answer with are looked at, with a
condition that is validated on the first of them: 100 of 10,000 keys take 1.5 ms here instead of 150.

AWS counts the write units of each table and index in CloudWatch; ministack only tells those who ask. Here writes of
single items count; batches and transactions do not. And AWS counts every invocation of a function; ministack only
those of one API call. Alarms are judged by the bridge (`thunder.local.bridge`) and by nobody else.

A stream's records do not outlive the process, but how far each consumer has read them does: after a restart it would
wait until as many new ones have come. Here it begins with the first.

ministack saves its services one by one when it ends. Killed meanwhile, it would find a table of now beside a stack of
before. Here a save counts as a whole or not at all, and a run that was ended without one is known by it.
"""

from __future__ import annotations

import bisect
import os
import re
import shutil
import sys
import threading
import time
from importlib import import_module
from importlib.metadata import version
from pathlib import Path
from types import ModuleType
from typing import Any

SUPPORTED_VERSION = "1.5.33"
KEY_CONDITION = "KeyConditionExpression"
HASH_ALONE = re.compile(r"[#\w]+ = :\w+")
HASH_AND_SIDE = re.compile(r"[#\w]+ = :\w+ AND (#?\w+) (<=|>=|<|>) (:\w+)")
CACHED_EXPRESSIONS = 4096
REMEMBERED_NUMBERS = 500_000
ORDERED_PARTITIONS = 4096
WRITE_UNITS = "ConsumedWriteCapacityUnits"
UNSAVED = "unsaved"  # there while it runs: what it holds is in memory alone
SAVING, SAVED = "saving", "saved"  # a save being written, and one that is complete but not in its place yet
METRICS_KEPT_SECONDS = 3 * 3600  # what the dashboard shows; each request to CloudWatch goes through all that is kept


def main() -> None:
    finish_saving(Path(os.environ["STATE_DIR"]))
    if version("ministack") == SUPPORTED_VERSION:
        dynamodb = import_module("ministack.services.dynamodb")
        remember_key_conditions(dynamodb)
        remember_order(dynamodb)
        keep_indexes_in_order(dynamodb)
        cloudwatch = import_module("ministack.services.cloudwatch")
        count_write_units(dynamodb, cloudwatch)
        leave_alarms_to_the_bridge(cloudwatch)
        functions = import_module("ministack.services.lambda_svc")
        count_every_invocation(functions)
        read_streams_anew(functions)
        app = import_module("ministack.app")
        save_as_a_whole(app, import_module("ministack.core.persistence"))
    else:
        print(f"ministack {version('ministack')} is not {SUPPORTED_VERSION}: large queries are slow", file=sys.stderr)
        app = import_module("ministack.app")
    forget_own_settings()
    app.main()


def forget_own_settings() -> None:
    """Removes what ministack has read already: its whole environment is inherited by the Lambda workers, and names
    like LOG_LEVEL mean something to the functions."""
    for name in ("LOG_LEVEL", "AUTH"):
        os.environ.pop(name, None)


def finish_saving(state: Path) -> None:
    """Puts a complete save into its place and drops one that is not: before anything is read. Repeatable."""
    saved = state / SAVED
    for path in saved.iterdir() if saved.is_dir() else ():
        path.replace(state / path.name)
    for directory in (saved, state / SAVING):
        shutil.rmtree(directory, ignore_errors=True)


def save_as_a_whole(app: ModuleType, persistence: ModuleType) -> None:
    """Makes ministack's save write beside what was saved before; one rename then decides that it counts."""
    state, save_all = Path(persistence.STATE_DIR), app.save_all
    (state / UNSAVED).touch()

    def save(services: Any) -> None:
        finish_saving(state)
        (state / SAVING).mkdir()
        persistence.STATE_DIR = str(state / SAVING)  # type: ignore[attr-defined]
        save_all(services)
        (state / SAVING).rename(state / SAVED)
        finish_saving(state)
        (state / UNSAVED).unlink(missing_ok=True)

    app.save_all = save  # type: ignore[attr-defined]


def remember_key_conditions(dynamodb: ModuleType) -> None:
    """Replaces the tokenizer and the condition evaluator of ministack's DynamoDB with remembering ones."""
    tokenize = Tokens(dynamodb._tokenize)
    dynamodb._tokenize = tokenize  # type: ignore[attr-defined]
    dynamodb._evaluate_condition = KeyConditions(dynamodb, tokenize)  # type: ignore[attr-defined]


class Tokens:
    """ministack's tokenizer with a memory. Callers may change the list they get, so each gets its own."""

    def __init__(self, tokenize: Any) -> None:
        self._tokenize = tokenize
        self._known: dict[str, tuple[Any, ...]] = {}

    def __call__(self, expression: str) -> list[Any]:
        tokens = self._known.get(expression)
        if tokens is None:
            if len(self._known) >= CACHED_EXPRESSIONS:
                self._known.clear()
            tokens = self._known[expression] = tuple(self._tokenize(expression))
        return list(tokens)


class KeyConditions:
    """ministack's condition evaluator; for a query's key condition only the first row pays for the validation.

    A query is recognised by the identity of its values, which ministack takes from the request's own JSON object. The
    reference is held until the next query, so the identity cannot be used again meanwhile. ministack has narrowed the
    rows to the partition already: what the condition says of the hash key holds for all of them.
    """

    def __init__(self, dynamodb: ModuleType, tokenize: Tokens) -> None:
        self._evaluate = dynamodb._evaluate_condition
        self._reader = dynamodb._ExprEval
        self._compare = dynamodb._compare_ddb
        self._tokenize = tokenize
        self._query = threading.local()

    def __call__(
        self,
        expression: str,
        item: dict[str, Any],
        values: dict[str, Any],
        names: dict[str, str],
        slot: str = "ConditionExpression",
    ) -> Any:
        if slot != KEY_CONDITION or not expression or not expression.strip():
            return self._evaluate(expression, item, values, names, slot=slot)
        query = self._query
        if getattr(query, "values", None) is not values or query.expression != expression:
            return self._first_row(expression, item, values, names)
        if query.side is None:
            return query.hash_only or self._reader(self._tokenize(expression), item, values, names).evaluate()
        return self._compare(item.get(query.name), query.side, query.edge)

    def _first_row(self, expression: str, item: dict[str, Any], values: dict[str, Any], names: dict[str, str]) -> Any:
        answer = self._evaluate(expression, item, values, names, slot=KEY_CONDITION)
        query = self._query
        query.values, query.expression, query.side = values, expression, None
        query.hash_only = HASH_ALONE.fullmatch(expression) is not None
        if (found := HASH_AND_SIDE.fullmatch(expression)) is not None:
            query.name, query.side, query.edge = names.get(found[1], found[1]), found[2], values.get(found[3])
        return answer


def remember_order(dynamodb: ModuleType) -> None:
    """Replaces what ministack orders the rows of an index by: each number is read once, and not for every query."""
    dynamodb._index_order_value = OrderValues(dynamodb._index_order_value)  # type: ignore[attr-defined]


class OrderValues:
    """ministack's place of a row in an index, with a memory for numbers."""

    def __init__(self, reckon: Any) -> None:
        self._reckon = reckon
        self._known: dict[str, Any] = {}

    def __call__(self, item: dict[str, Any], name: str, type_hint: str) -> Any:
        attribute = item.get(name)
        if not attribute or type_hint not in attribute or type_hint not in ("S", "N"):
            return self._reckon(item, name, type_hint)
        value = attribute[type_hint]
        if type_hint == "S":
            return value
        number = self._known.get(value)
        if number is None:
            if len(self._known) >= REMEMBERED_NUMBERS:
                self._known.clear()
            number = self._known[value] = self._reckon(item, name, type_hint)
        return number


def keep_indexes_in_order(dynamodb: ModuleType) -> None:
    """Gives queries with a limit the rows they can answer with, and no others: an index is kept in order."""
    order = IndexOrder(dynamodb)
    dynamodb._query = order.query  # type: ignore[attr-defined]
    dynamodb._index_members = order.members  # type: ignore[attr-defined]
    dynamodb._index_item = order.change  # type: ignore[attr-defined]


class IndexOrder:
    """The order of the partitions that were queried, kept as they change.

    ministack reads and orders a whole partition for each query. Here it finds, where it looks for the rows of the
    partition, those between the starting key, the side asked for and the limit; the rest is its own. Only for indexes
    of one hash key and one number, of tables without a range key; all others are read as ministack reads them.
    """

    def __init__(self, dynamodb: ModuleType) -> None:
        self._dynamodb = dynamodb
        self._query, self._members, self._change = dynamodb._query, dynamodb._index_members, dynamodb._index_item
        self._asked = threading.local()
        self._lock = threading.RLock()
        self._orders: dict[int, tuple[Any, list[Any]]] = {}  # by id, with the partition itself, so that it is the same

    def query(self, data: dict[str, Any]) -> Any:
        self._asked.data = data
        try:
            return self._query(data)
        finally:
            self._asked.data = None

    def members(self, table: dict[str, Any]) -> Any:
        found = self._members(table)
        data = getattr(self._asked, "data", None) or {}
        reads = self._window_of(table, data)
        return found if reads is None else {data["IndexName"]: _Partitions(found[data["IndexName"]], reads)}

    def change(self, table: dict[str, Any], base_pk: Any, base_sk: Any, item: dict[str, Any], add: bool) -> None:
        """An entry comes or goes: in ministack's partitions, and in those that are kept in order."""
        with self._lock:
            for name, _, ranges in self._dynamodb._index_key_schemas(table) if self._orders else ():
                for _, partition in self._kept(table, name, item):
                    entry = (self._number(item[ranges[0]]["N"]), base_pk, base_sk)
                    place = bisect.bisect_left(partition, entry)
                    is_there = place < len(partition) and partition[place] == entry
                    if add and not is_there:
                        partition.insert(place, entry)
                    elif not add and is_there:
                        del partition[place]
            self._change(table, base_pk, base_sk, item, add)

    def _kept(self, table: dict[str, Any], name: str, item: dict[str, Any]) -> list[Any]:
        members = table.get(self._dynamodb._INDEX_MEMBERS) or {}
        keys = self._keys_of(table, name)
        if keys is None or any(key not in item for key in keys):
            return []
        partition = members.get(name, {}).get(self._dynamodb._extract_key_val(item[keys[0]]))
        kept = self._orders.get(id(partition))
        return [kept] if kept is not None and kept[0] is partition else []

    def _keys_of(self, table: dict[str, Any], name: str) -> tuple[str, str] | None:
        """Hash and range of an index that can be kept in order."""
        index = self._dynamodb._index_def(table, name)
        hashes, ranges = self._dynamodb._index_key_lists(index) if index else ([], [])
        if table.get("sk_name") or len(hashes) != 1 or len(ranges) != 1:
            return None
        return (hashes[0], ranges[0]) if self._dynamodb._get_attr_type(table, ranges[0]) == "N" else None

    def _window_of(self, table: dict[str, Any], data: dict[str, Any]) -> Any:
        """How a partition is read for this query; None where ministack reads it."""
        condition, limit, start = data.get("KeyConditionExpression"), data.get("Limit"), data.get("ExclusiveStartKey")
        keys = self._keys_of(table, data.get("IndexName") or "")
        if not condition or not limit or keys is None:
            return None
        found = HASH_AND_SIDE.fullmatch(condition)
        if found is None and HASH_ALONE.fullmatch(condition) is None:
            return None
        low, high, names = None, None, data.get("ExpressionAttributeNames") or {}
        if found is not None:
            if names.get(found[1], found[1]) != keys[1]:
                return None
            edge = self._number(data["ExpressionAttributeValues"][found[3]]["N"])
            low, high = ((edge, found[2] == ">="), None) if found[2][0] == ">" else (None, (edge, found[2] == "<="))
        ascending = data.get("ScanIndexForward", True)
        key = None
        if start:
            key = (self._number(start[keys[1]]["N"]), self._dynamodb._extract_key_val(start[table["pk_name"]]))

        def read(partition: dict[Any, None]) -> list[Any]:
            with self._lock:
                entries = self._ordered(table, keys[1], partition)
                first = 0 if low is None else _edge(entries, low[0], after=not low[1])
                last = len(entries) if high is None else _edge(entries, high[0], after=high[1])
                if key is not None and ascending:
                    first = max(first, bisect.bisect_right(entries, key, key=_without_range))
                elif key is not None:
                    last = min(last, bisect.bisect_left(entries, key, key=_without_range))
                first, last = (
                    (first, min(last, first + limit + 1)) if ascending else (max(first, last - limit - 1), last)
                )
                return [(base_pk, base_sk) for _, base_pk, base_sk in entries[first:last]]

        return read

    def _ordered(self, table: dict[str, Any], name: str, partition: dict[Any, None]) -> list[Any]:
        kept = self._orders.get(id(partition))
        if kept is None or kept[0] is not partition or len(kept[1]) != len(partition):
            items = table["items"]
            rows = [(self._number(items[pk][sk][name]["N"]), pk, sk) for pk, sk in partition]
            if len(self._orders) >= ORDERED_PARTITIONS:
                self._orders.clear()
            kept = self._orders[id(partition)] = (partition, sorted(rows))
        return kept[1]

    def _number(self, text: str) -> Any:
        return self._dynamodb._index_order_value({"n": {"N": text}}, "n", "N")


class _Partitions:
    """Of each partition only what the query can answer with."""

    def __init__(self, partitions: dict[Any, Any], read: Any) -> None:
        self._partitions = partitions
        self._read = read

    def get(self, value: Any, default: Any = ()) -> Any:
        partition = self._partitions.get(value)
        return default if partition is None else self._read(partition)


def _edge(entries: list[Any], number: Any, *, after: bool) -> int:
    place = bisect.bisect_right if after else bisect.bisect_left
    return place(entries, number, key=_number_of)


def _number_of(entry: Any) -> Any:
    return entry[0]


def _without_range(entry: Any) -> Any:
    return entry[:2]


def count_write_units(dynamodb: ModuleType, cloudwatch: ModuleType) -> None:
    """Makes every write of one item count in `AWS/DynamoDB` `ConsumedWriteCapacityUnits`, asked for or not.

    As on AWS the table and each index have their own metric. Refused writes, which AWS counts too, are not in it.
    """
    dynamodb._add_consumed_capacity = WriteMeter(dynamodb._add_consumed_capacity, cloudwatch)  # type: ignore[attr-defined]


class WriteMeter:
    """ministack's reckoning of consumed capacity, kept as metrics: one point per second, for writes are many."""

    def __init__(self, reckon: Any, cloudwatch: ModuleType) -> None:
        self._reckon = reckon
        self._cloudwatch = cloudwatch
        self._lock = threading.Lock()

    def __call__(
        self, result: dict[str, Any], data: dict[str, Any], table_name: str, write: bool = False, **items: Any
    ) -> None:
        self._reckon(result, data, table_name, write=write, **items)
        if write:
            reckoned: dict[str, Any] = {}
            self._reckon(reckoned, {"ReturnConsumedCapacity": "INDEXES"}, table_name, write=True, **items)
            self._count(table_name, reckoned["ConsumedCapacity"])

    def _count(self, table_name: str, consumed: dict[str, Any]) -> None:
        table = {"TableName": table_name}
        self._add(table, consumed["Table"]["CapacityUnits"])
        for index_name, index in consumed.get("GlobalSecondaryIndexes", {}).items():
            self._add({**table, "GlobalSecondaryIndexName": index_name}, index["CapacityUnits"])

    def _add(self, dimensions: dict[str, str], units: float) -> None:
        now = time.time()
        key = ("AWS/DynamoDB", WRITE_UNITS, self._cloudwatch._dims_key(dimensions))
        with self._lock:
            points = self._cloudwatch._metric_bucket(key)
            if points and int(points[-1]["Timestamp"]) == int(now):
                points[-1]["Value"] += units
            else:
                points.append({"Timestamp": now, "Value": units, "Unit": "Count", "Dimensions": dimensions})


def leave_alarms_to_the_bridge(cloudwatch: ModuleType) -> None:
    """ministack judges alarms at each PutMetricData, by the metrics of one name whatever their dimensions: it would
    undo what the bridge finds, and tell SNS of it."""
    cloudwatch._evaluate_alarm = lambda alarm: None  # type: ignore[attr-defined]
    cloudwatch.TWO_WEEKS_SECONDS = METRICS_KEPT_SECONDS  # type: ignore[attr-defined]


def count_every_invocation(functions: ModuleType) -> None:
    """Counts in `AWS/Lambda` where ministack writes the log of an invocation, which it does whoever invoked."""
    meter = InvocationMeter(functions._emit_lambda_metrics, functions._emit_lambda_logs)
    functions._emit_lambda_metrics = meter.measure  # type: ignore[attr-defined]
    functions._emit_lambda_logs = meter.log  # type: ignore[attr-defined]


def read_streams_anew(functions: ModuleType) -> None:
    """Sets every restored position in a table's stream to the stream's beginning, which is empty after a restart."""
    restore = functions._restore_esm_positions

    def restore_and_begin_anew(store: Any, positions: Any) -> None:
        restore(store, positions)
        if store is functions._dynamodb_stream_positions:
            store._data.update(dict.fromkeys(store._data, 0))

    functions._restore_esm_positions = restore_and_begin_anew  # type: ignore[attr-defined]
    functions._dynamodb_stream_positions._data.update(dict.fromkeys(functions._dynamodb_stream_positions._data, 0))


class InvocationMeter:
    """ministack's two notes of an invocation, the metrics taken with the log. Throttled ones have metrics only."""

    def __init__(self, measure: Any, log: Any) -> None:
        self._measure = measure
        self._log = log

    def measure(self, function_name: str, duration_ms: float, error: bool, throttle: bool) -> None:
        if throttle:
            self._measure(function_name, duration_ms, error, throttle)

    def log(
        self, function: dict[str, Any], request_id: str, text: str, error: bool, duration_ms: int, **options: Any
    ) -> None:
        self._log(function, request_id, text, error, duration_ms, **options)
        config = function.get("config") or function
        self._measure(config.get("FunctionName", "unknown"), duration_ms, error, False)


if __name__ == "__main__":
    main()
