"""The process of the embedded AWS: ministack, made quick on large index partitions, and with meters AWS has.

A script, run by the interpreter of `.venv/embedded` and importing nothing of ours, so that no path of the checkout
reaches the Lambda functions it runs. Configured by environment variables, as ministack is.

ministack parses and validates a query's key condition again for every row of the partition. The conditions here are
validated on the first row of a query and read once, and the numbers that the rows are ordered by are read once: a
query over 10,000 keys then takes a sixth of the processor time (25 instead of 150 ms here).

AWS counts the write units of each table and index in CloudWatch; ministack only tells those who ask. Here writes of
single items count; batches and transactions do not. And AWS counts every invocation of a function; ministack only
those of one API call. Alarms are judged by the bridge (`thunder.local.bridge`) and by nobody else.

A stream's records do not outlive the process, but how far each consumer has read them does: after a restart it would
wait until as many new ones have come. Here it begins with the first.

ministack saves its services one by one when it ends. Killed meanwhile, it would find a table of now beside a stack of
before. Here a save counts as a whole or not at all, and a run that was ended without one is known by it.
"""

from __future__ import annotations

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
