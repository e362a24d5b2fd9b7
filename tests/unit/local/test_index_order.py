"""Queries of the embedded AWS over an index in order answer as ministack's own do, whatever was written between."""

from __future__ import annotations

import json
import subprocess
from pathlib import Path
from typing import Any

import pytest

from thunder.local import emulator
from thunder.local.checkout import Checkout

PROGRAM = r"""
import importlib, json, random, sys
sys.path.insert(0, sys.argv[1])
emulator, db = importlib.import_module("emulator"), importlib.import_module("ministack.services.dynamodb")
plain = db._query
emulator.remember_key_conditions(db)
emulator.remember_order(db)
emulator.keep_indexes_in_order(db)
TYPES = (("id", "S"), ("key", "S"), ("due", "N"))
ID, KEY, DUE = ({"AttributeName": name, "AttributeType": type} for name, type in TYPES)
key = lambda name, kind: {"AttributeName": name, "KeyType": kind}
db._create_table({
    "TableName": "tasks", "BillingMode": "PAY_PER_REQUEST", "KeySchema": [key("id", "HASH")],
    "AttributeDefinitions": [ID, KEY, DUE],
    "GlobalSecondaryIndexes": [{
        "IndexName": "index", "KeySchema": [key("key", "HASH"), key("due", "RANGE")],
        "Projection": {"ProjectionType": "KEYS_ONLY"}}]})
draw, starts, asked, read = random.Random(4), [], 0, []
kept = db._index_members.__self__
window = kept._window_of
kept._window_of = lambda *of: read.append(of) or window(*of)
NUMBERS = ["1", "1.0", "2.5", "10", "3", "-4", "2.50", "7e0"]

def write():
    chosen, id = draw.random(), {"S": f"t{draw.randrange(40)}"}
    number = {"N": draw.choice(NUMBERS)}
    if chosen < 0.7:
        entry = {"key": {"S": draw.choice("AB")}, "due": number} if draw.random() < 0.85 else {}
        db._put_item({"TableName": "tasks", "Item": {"id": id, **entry}})
    elif chosen < 0.85:
        db._delete_item({"TableName": "tasks", "Key": {"id": id}})
    else:
        db._update_item({"TableName": "tasks", "Key": {"id": id}, "UpdateExpression": "SET due = :d",
                         "ExpressionAttributeValues": {":d": number}})

def query():
    asking = {"TableName": "tasks", "IndexName": "index", "ScanIndexForward": draw.random() < 0.5,
              "KeyConditionExpression": "#k = :k", "ExpressionAttributeNames": {"#k": "key"},
              "ExpressionAttributeValues": {":k": {"S": draw.choice("ABC")}}}
    if draw.random() < 0.9:
        asking["Limit"] = draw.randint(1, 8)
    if draw.random() < 0.6:
        asking["KeyConditionExpression"] += f" AND #d {draw.choice(['<', '<=', '>', '>='])} :d"
        asking["ExpressionAttributeNames"]["#d"] = "due"
        asking["ExpressionAttributeValues"][":d"] = {"N": draw.choice(NUMBERS)}
    if draw.random() < 0.2:
        asking["Select"] = "COUNT"
    if starts and draw.random() < 0.5:
        asking["ExclusiveStartKey"] = draw.choice(starts)
        asking["ExpressionAttributeValues"][":k"] = asking["ExclusiveStartKey"]["key"]
    return json.dumps(asking)

for _ in range(2000):
    if draw.random() < 0.55:
        write()
        continue
    asking, asked = query(), asked + 1
    ours, theirs = db._query(json.loads(asking)), plain(json.loads(asking))
    assert (ours[0], json.loads(ours[2])) == (theirs[0], json.loads(theirs[2])), (asking, ours, theirs)
    if "LastEvaluatedKey" in json.loads(ours[2]):
        starts.append(json.loads(ours[2])["LastEvaluatedKey"])
print(json.dumps({"asked": asked, "looked": len(read), "continued": len(starts), "kept": len(kept._orders)}))
"""


@pytest.fixture(scope="module")
def run(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Any]:
    python = Checkout.of_this_installation().embedded_python
    command = [str(python), "-c", PROGRAM, str(Path(emulator.__file__).parent)]
    ended = subprocess.run(command, capture_output=True, text=True, cwd=tmp_path_factory.mktemp("order"), timeout=120)
    assert ended.returncode == 0, ended.stderr[-2000:]
    found: dict[str, Any] = json.loads(ended.stdout)
    return found


def test_they_answer_as_queries_of_the_whole_partition(run: dict[str, Any]) -> None:
    assert run["asked"] > 800
    assert run["continued"] > 100


def test_they_do_read_the_index_in_order(run: dict[str, Any]) -> None:
    assert run["looked"] > 500
    assert run["kept"] >= 2
