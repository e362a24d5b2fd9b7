"""What the embedded AWS does otherwise than ministack: queries cost less and answer alike, a save counts as a whole."""

from __future__ import annotations

import json
import os
import subprocess
from pathlib import Path
from types import SimpleNamespace

import pytest

from thunder.local import emulator
from thunder.local.checkout import Checkout
from thunder.local.emulator import (
    KEY_CONDITION,
    KeyConditions,
    OrderValues,
    Tokens,
    WriteMeter,
    finish_saving,
    forget_own_settings,
    save_as_a_whole,
)

BY_HASH = "#k = :k"
BY_HASH_AND_RANGE = "#k = :k AND #d <= :now"
BETWEEN = "#k = :k AND #d BETWEEN :now AND :later"


class Database:
    """Stands in for ministack's DynamoDB module, and counts full evaluations, readings and tokenizations."""

    def __init__(self, answer=True):
        self.full = []
        self.read = []
        self.tokenized = []
        self.answer = answer
        self.module = SimpleNamespace(
            _tokenize=self._tokenize,
            _evaluate_condition=self._evaluate,
            _ExprEval=self._reader,
            _compare_ddb=lambda left, side, right: (left, side, right),
        )

    def _tokenize(self, expression):
        self.tokenized.append(expression)
        return expression.split()

    def _evaluate(self, expression, item, values, names, slot="ConditionExpression"):
        self.full.append((expression, slot))
        if self.answer is ValueError:
            raise ValueError("Invalid KeyConditionExpression")
        return self.answer

    def _reader(self, tokens, item, values, names):
        self.read.append(tokens)
        return SimpleNamespace(evaluate=lambda: item["match"])


@pytest.fixture
def database():
    return Database()


@pytest.fixture
def evaluate(database):
    return KeyConditions(database.module, Tokens(database.module._tokenize))


PROGRAM = """
import importlib, json, sys
sys.path.insert(0, sys.argv[1])
emulator, dynamodb = importlib.import_module("emulator"), importlib.import_module("ministack.services.dynamodb")
names, values = {"#k": "dispatchKey", "#d": "dueAt"}, {":k": {"S": "a"}, ":d": {"N": "5"}}
rows = [{"dispatchKey": {"S": "a"}, "dueAt": {"N": number}} for number in ("4.5", "5", "5.0", "10", "-1")]
conditions = ["#k = :k", *(f"#k = :k AND #d {side} :d" for side in ("<", "<=", ">", ">="))]

def answers():
    slot = {"slot": "KeyConditionExpression"}
    held = [dynamodb._evaluate_condition(each, row, dict(values), names, **slot) for each in conditions for row in rows]
    return [held, [str(dynamodb._index_order_value(row, "dueAt", "N")) for row in rows]]

def over_one_query():
    held = []
    for each in conditions:
        own = dict(values)
        held += [dynamodb._evaluate_condition(each, row, own, names, slot="KeyConditionExpression") for row in rows]
    return [held, [str(dynamodb._index_order_value(row, "dueAt", "N")) for row in rows]]

plain = answers()
reader, made = dynamodb._ExprEval, []
emulator.remember_key_conditions(dynamodb)
emulator.remember_order(dynamodb)
dynamodb._evaluate_condition._reader = lambda *of: made.append(of) or reader(*of)
print(json.dumps({"plain": plain, "remembered": over_one_query(), "readings": len(made)}))
"""


@pytest.fixture(scope="module")
def embedded_conditions():
    python = Checkout.of_this_installation().embedded_python
    command = [str(python), "-c", PROGRAM, str(Path(emulator.__file__).parent)]
    return json.loads(subprocess.run(command, capture_output=True, text=True, check=True, timeout=60).stdout)


def test_a_query_is_validated_on_its_first_row_only(database, evaluate):
    values = {":k": {"S": "a"}, ":now": {"N": "1"}}

    answers = [evaluate(BETWEEN, {"match": row}, values, {}, slot=KEY_CONDITION) for row in (1, 2, 0)]

    assert database.full == [(BETWEEN, KEY_CONDITION)]
    assert answers == [True, 2, 0]


def test_of_a_query_to_one_side_of_the_range_only_that_side_is_compared(database, evaluate):
    values, names = {":k": {"S": "a"}, ":now": {"N": "7"}}, {"#k": "key", "#d": "due"}

    rows = ({"due": {"N": "1"}}, {"due": {"N": "2"}}, {})
    answers = [evaluate(BY_HASH_AND_RANGE, row, values, names, slot=KEY_CONDITION) for row in rows]

    assert answers == [True, ({"N": "2"}, "<=", {"N": "7"}), (None, "<=", {"N": "7"})]
    assert database.read == []


def test_rows_of_a_query_by_hash_key_alone_all_match(database, evaluate):
    values = {":k": {"S": "a"}}

    assert all(evaluate(BY_HASH, {"match": False}, values, {}, slot=KEY_CONDITION) for _ in range(3))
    assert database.read == []


def test_the_order_of_rows_is_reckoned_once_for_each_number():
    reckoned = []

    def reckon(item, name, type_hint):
        reckoned.append(item.get(name))
        return float(item[name]["N"]) if name in item else 0

    value = OrderValues(reckon)
    rows = ({"due": {"N": "2.5"}}, {"due": {"N": "2.5"}}, {"due": {"N": "7"}}, {})

    assert [value(row, "due", "N") for row in rows] == [2.5, 2.5, 7, 0]
    assert reckoned == [{"N": "2.5"}, {"N": "7"}, None]
    assert value({"id": {"S": "a"}}, "id", "S") == "a"


def test_the_memory_for_numbers_is_bounded(monkeypatch):
    monkeypatch.setattr(emulator, "REMEMBERED_NUMBERS", 2)
    value = OrderValues(lambda item, name, type_hint: float(item[name]["N"]))

    assert [value({"due": {"N": str(number)}}, "due", "N") for number in range(5)] == list(range(5))
    assert len(value._known) <= 2


def test_the_real_conditions_and_order_answer_as_without_a_memory(embedded_conditions):
    """ministack itself, in its own interpreter: each of the library's conditions over rows to both sides."""
    assert embedded_conditions["remembered"] == embedded_conditions["plain"]
    assert embedded_conditions["readings"] == 0


def test_every_query_is_validated_even_when_it_equals_the_one_before(database, evaluate):
    for _ in range(2):
        evaluate(BY_HASH, {}, {":k": {"S": "a"}}, {}, slot=KEY_CONDITION)

    assert len(database.full) == 2


def test_another_expression_over_the_same_values_is_validated(database, evaluate):
    values = {":k": {"S": "a"}}

    for expression in (BY_HASH, BY_HASH_AND_RANGE):
        evaluate(expression, {}, values, {}, slot=KEY_CONDITION)

    assert [expression for expression, _ in database.full] == [BY_HASH, BY_HASH_AND_RANGE]


def test_an_invalid_condition_is_refused_on_every_row():
    database = Database(answer=ValueError)
    evaluate = KeyConditions(database.module, Tokens(database.module._tokenize))
    values = {":k": {"S": "a"}}

    for _ in range(2):
        with pytest.raises(ValueError, match="Invalid"):
            evaluate(BY_HASH, {}, values, {}, slot=KEY_CONDITION)


@pytest.mark.parametrize("slot", ["ConditionExpression", "FilterExpression"])
def test_other_conditions_are_left_to_ministack(database, evaluate, slot):
    values = {}
    for _ in range(2):
        evaluate(BY_HASH, {}, values, {}, slot=slot)

    assert database.full == [(BY_HASH, slot)] * 2


def test_tokens_are_remembered_and_a_callers_changes_are_not(database):
    tokens = Tokens(database.module._tokenize)
    tokens(BY_HASH).clear()

    assert tokens(BY_HASH) == ["#k", "=", ":k"]
    assert database.tokenized == [BY_HASH]


def test_the_memory_for_tokens_is_bounded(database, monkeypatch):
    monkeypatch.setattr(emulator, "CACHED_EXPRESSIONS", 2)
    tokens = Tokens(database.module._tokenize)

    for expression in ("a", "b", "c", "a"):
        tokens(expression)

    assert database.tokenized == ["a", "b", "c", "a"]


def test_settings_that_mean_something_to_the_functions_are_forgotten(monkeypatch):
    monkeypatch.setenv("LOG_LEVEL", "WARNING")
    monkeypatch.setenv("AUTH", "true")

    forget_own_settings()

    assert "LOG_LEVEL" not in os.environ
    assert "AUTH" not in os.environ


class Metrics:
    """Stands in for ministack's CloudWatch module."""

    def __init__(self):
        self.points = {}

    def _dims_key(self, dimensions):
        return tuple(sorted(dimensions.items()))

    def _metric_bucket(self, key):
        return self.points.setdefault(key, [])

    def sums(self):
        return {
            tuple(value for _, value in dimensions): sum(point["Value"] for point in points)
            for (_, _, dimensions), points in self.points.items()
        }


def reckon(result, data, table_name, write=False, units=1, index_units=0, index_name=None):
    if data.get("ReturnConsumedCapacity", "NONE") != "NONE":
        consumed = {"TableName": table_name, "Table": {"CapacityUnits": units}}
        if index_units:
            consumed["GlobalSecondaryIndexes"] = {"by-due": {"CapacityUnits": index_units}}
        result["ConsumedCapacity"] = consumed


def test_every_write_counts_for_its_table_and_index_whether_asked_for_or_not():
    metrics = Metrics()
    meter = WriteMeter(reckon, metrics)
    asked, unasked = {}, {}

    meter(asked, {"ReturnConsumedCapacity": "TOTAL"}, "tasks", write=True, units=2, index_units=1)
    meter(unasked, {}, "tasks", write=True)
    meter({}, {}, "others", write=True, units=5)

    assert metrics.sums() == {("tasks",): 3, ("by-due", "tasks"): 1, ("others",): 5}
    assert "ConsumedCapacity" in asked
    assert unasked == {}


def test_reads_do_not_count():
    metrics = Metrics()

    WriteMeter(reckon, metrics)({}, {"ReturnConsumedCapacity": "TOTAL"}, "tasks", index_name="by-due")

    assert metrics.points == {}


def test_the_writes_of_one_second_are_one_point(monkeypatch):
    metrics, now = Metrics(), [100.2]
    monkeypatch.setattr(emulator.time, "time", lambda: now[0])
    meter = WriteMeter(reckon, metrics)

    for now[0] in (100.2, 100.9, 101.0):
        meter({}, {}, "tasks", write=True)

    ((_, points),) = metrics.points.items()
    assert [(point["Timestamp"], point["Value"]) for point in points] == [(100.2, 2), (101.0, 1)]


def test_every_invocation_counts_once_whoever_invoked_and_throttled_ones_by_themselves():
    counted, logged = [], []
    functions = SimpleNamespace(
        _emit_lambda_metrics=lambda name, milliseconds, error, throttle: counted.append((name, error, throttle)),
        _emit_lambda_logs=lambda *arguments, **options: logged.append((arguments, options)),
    )
    emulator.count_every_invocation(functions)

    functions._emit_lambda_logs({"config": {"FunctionName": "executor"}}, "id", "text", True, 12, log_source="rie")
    functions._emit_lambda_metrics("executor", duration_ms=12.0, error=True, throttle=False)
    functions._emit_lambda_metrics("executor", duration_ms=0.0, error=False, throttle=True)

    assert counted == [("executor", True, False), ("executor", False, True)]
    assert len(logged) == 1


def test_the_embedded_aws_judges_no_alarm_itself():
    def judge(alarm):
        raise AssertionError("an alarm was judged")

    cloudwatch = SimpleNamespace(_evaluate_alarm=judge, TWO_WEEKS_SECONDS=1_209_600)
    emulator.leave_alarms_to_the_bridge(cloudwatch)

    cloudwatch._evaluate_alarm({})
    assert cloudwatch.TWO_WEEKS_SECONDS == emulator.METRICS_KEPT_SECONDS


def test_consumers_of_a_stream_begin_with_its_first_record_after_a_restart():
    streams, other = SimpleNamespace(_data={"restored at import": 7}), SimpleNamespace(_data={})
    functions = SimpleNamespace(
        _dynamodb_stream_positions=streams,
        _restore_esm_positions=lambda store, positions: store._data.update(positions),
    )
    emulator.read_streams_anew(functions)
    functions._restore_esm_positions(streams, {"doorbell": 412, "recorder": 397})
    functions._restore_esm_positions(other, {"queue": 5})

    assert streams._data == {"restored at import": 0, "doorbell": 0, "recorder": 0}
    assert other._data == {"queue": 5}


class Killed(BaseException):
    """Stands in for SIGKILL: nothing after it is done."""


class Persistence:
    """Stands in for ministack's persistence: saves the services one by one, and may be killed at one of them."""

    def __init__(self, state):
        self.state = state
        self.killed_at = None
        self.persistence = SimpleNamespace(STATE_DIR=str(state))
        self.app = SimpleNamespace(save_all=self._save_all)
        save_as_a_whole(self.app, self.persistence)

    def _save_all(self, services):
        for name, text in services.items():
            if name == self.killed_at:
                raise Killed
            (Path(self.persistence.STATE_DIR) / f"{name}.json").write_text(text)

    def save(self, **services):
        self.app.save_all(services)

    @property
    def saved(self):
        return {path.name: path.read_text() for path in self.state.iterdir() if path.is_file()}


def test_a_save_that_is_killed_changes_nothing(tmp_path):
    (tmp_path / "table.json").write_text("before")
    (tmp_path / "stack.json").write_text("before")
    run = Persistence(tmp_path)
    run.killed_at = "stack"

    with pytest.raises(Killed):
        run.save(table="now", stack="now")
    finish_saving(tmp_path)

    assert run.saved == {"table.json": "before", "stack.json": "before", "unsaved": ""}
    assert not any(path.is_dir() for path in tmp_path.iterdir())


def test_a_complete_save_counts_although_it_was_not_put_into_place(tmp_path):
    (tmp_path / "table.json").write_text("before")
    (tmp_path / "stack.json").write_text("now")  # the one that was
    (tmp_path / "saved").mkdir()
    (tmp_path / "saved" / "table.json").write_text("now")

    finish_saving(tmp_path)

    assert {path.name: path.read_text() for path in tmp_path.iterdir()} == {"table.json": "now", "stack.json": "now"}


def test_a_run_that_saved_is_not_marked_as_unsaved(tmp_path):
    run = Persistence(tmp_path)
    assert "unsaved" in run.saved

    run.save(table="now")

    assert run.saved == {"table.json": "now"}
