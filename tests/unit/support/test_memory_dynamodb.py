"""The store fake answers like DynamoDB as moto plays it, and meters like AWS: what other tests rest on."""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterator, Mapping
from typing import Any

import pytest
from moto import mock_aws

from tests.support.fakes import START, FakeClock, FakeRandomness
from tests.support.memory_dynamodb import Fault, MemoryDynamoDB
from thunderagent import expressions
from thunderagent.codec import to_item
from thunderagent.conditions import Write
from thunderagent.errors import ConditionFailed, OutcomeUnknown, StoreRefused, StoreThrottled, TransactionCancelled
from thunderagent.model import Attempt, Failure, Lease, LeaseToken, Task, TaskId
from thunderagent.schema import INDEX_HASH, INDEX_NAME, INDEX_RANGE, TABLE_KEY, Layout
from thunderagent.store import Refusal, Refused, Send, Store, Written
from thunderagent.transport import boto_client, boto_send

LAYOUT = Layout(shards=1)
TOKEN = LeaseToken("token-a")
ATTEMPT = Attempt(1, START, START + 1.5, "success")
FAILURE = Failure("ValueError", "no")


def pending(task_id: str = "t1", **more: Any) -> dict[str, Any]:
    return {
        "taskId": task_id,
        "type": "demo.echo",
        "queue": "default",
        "priority": "normal",
        "status": "PENDING",
        "payload": "{}",
        "retryCount": 0,
        "maxRetryNumber": 3,
        "fence": 0,
        "createdAt": START,
        "dispatchKey": LAYOUT.open("default", "normal", task_id),
        "dueAt": START,
        **more,
    }


def claimed(**more: Any) -> dict[str, Any]:
    held = {"status": "RUNNING", "leaseToken": TOKEN, "lockTime": START + 300, "owner": "me", "fence": 1}
    return pending(**{**held, **more})


def task(item: Mapping[str, Any]) -> Task:
    return Task.from_item(dict(item))


@pytest.fixture
def moto_send() -> Iterator[Send]:
    with mock_aws():
        client: Any = boto_client("dynamodb", region="us-east-1")
        client.create_table(
            TableName="tasks",
            KeySchema=[{"AttributeName": TABLE_KEY, "KeyType": "HASH"}],
            AttributeDefinitions=[
                {"AttributeName": TABLE_KEY, "AttributeType": "S"},
                {"AttributeName": INDEX_HASH, "AttributeType": "S"},
                {"AttributeName": INDEX_RANGE, "AttributeType": "N"},
            ],
            GlobalSecondaryIndexes=[
                {
                    "IndexName": INDEX_NAME,
                    "KeySchema": [
                        {"AttributeName": INDEX_HASH, "KeyType": "HASH"},
                        {"AttributeName": INDEX_RANGE, "KeyType": "RANGE"},
                    ],
                    "Projection": {"ProjectionType": "KEYS_ONLY"},
                }
            ],
            BillingMode="PAY_PER_REQUEST",
        )
        yield boto_send(client)
        client.close()


def writes() -> list[tuple[str, list[dict[str, Any]], Write]]:
    """Every builder, on an item that allows it, and on ones that do not."""
    running, now = claimed(), START + 2
    lease = {"taskId": "lease#token-a", "profile": "default", "taskIds": ["t1"], "lockTime": START + 300, "dueAt": 1}
    begun = {**lease, "begun": "n1"}
    one = task(running)
    builders: list[tuple[str, list[dict[str, Any]], Callable[[], Write]]] = [
        ("claim", [pending()], lambda: _claim(task(pending()))),
        ("claim of another fence", [pending(fence=2)], lambda: _claim(task(pending()))),
        ("claim when blocked", [pending(blockedCount=1)], lambda: _claim(task(pending(blockedCount=1)))),
        ("claim of nothing", [], lambda: _claim(task(pending()))),
        ("step", [running], lambda: expressions.step(one.task_id, TOKEN, steps={"a": {"n": 1}}, now=now)),
        (
            "progress",
            [running],
            lambda: expressions.progress(one.task_id, TOKEN, fraction=0.5, message="half", now=now),
        ),
        ("commit", [running], lambda: _commit(one, TOKEN)),
        ("commit with another token", [running], lambda: _commit(one, LeaseToken("token-b"))),
        ("commit after cancel", [claimed(cancelRequested=True)], lambda: _commit(one, TOKEN)),
        ("commit twice", [claimed(status="SUCCESS")], lambda: _commit(one, TOKEN)),
        (
            "retry",
            [running],
            lambda: expressions.retry(one, TOKEN, due_at=now, failure=FAILURE, attempt=ATTEMPT, layout=LAYOUT, now=now),
        ),
        ("release", [running], lambda: expressions.release(one, TOKEN, due_at=now, layout=LAYOUT, now=now)),
        ("cancel", [pending()], lambda: _cancel(task(pending()))),
        (
            "unlisted end",
            [running],
            lambda: expressions.finish(
                one, TOKEN, reason=None, attempt=ATTEMPT, layout=Layout(list_completed=False), now=now
            ),
        ),
        ("begin", [lease], lambda: expressions.begin(TOKEN, nonce="n1", lock_time=START + 600, now=now)),
        ("begin again", [begun], lambda: expressions.begin(TOKEN, nonce="n2", lock_time=START + 600, now=now)),
        ("begin of nothing", [], lambda: expressions.begin(TOKEN, nonce="n1", lock_time=START + 600, now=now)),
        (
            "start",
            [{**begun, "started": frozenset({"t0"})}],
            lambda: expressions.heartbeat(TOKEN, nonce="n1", lock_time=START + 700, starting=[TaskId("t1")]),
        ),
        ("settle", [begun], lambda: expressions.settle(TOKEN, nonce="n1")),
        ("settle when closed", [{**begun, "closed": START}], lambda: expressions.settle(TOKEN, nonce="n1")),
        ("close", [begun], lambda: expressions.close(Lease.from_item(begun), now=now)),
        ("tell", [begun], lambda: expressions.tell_lease(TOKEN, TaskId("t1"))),
        ("submit", [], lambda: expressions.submit(pending())),
        ("submit again", [pending()], lambda: expressions.submit(pending())),
    ]
    return [(name, items, build()) for name, items, build in builders]


def _claim(of: Task) -> Write:
    return expressions.claim(of, token=TOKEN, lock_time=START + 300, owner="me", now=START + 1, region="us-east-1")


def _commit(of: Task, token: LeaseToken) -> Write:
    result = expressions.Result(text="1")
    return expressions.commit(of, token, result=result, attempt=ATTEMPT, layout=LAYOUT, now=START + 2)


def _cancel(of: Task) -> Write:
    return expressions.cancel(of, reason="why", operator={"arn": "x"}, layout=LAYOUT, now=START)


def _outcome(send: Send, write: Write) -> tuple[Any, ...]:
    try:
        answer = send(write.operation, {"TableName": "tasks", **write.arguments})
    except ConditionFailed as failed:
        return ("refused", _comparable(failed.item or None))
    return ("applied", _comparable(answer.get("Attributes")))


def _comparable(raw: Any) -> Any:
    if raw is None:
        return None
    return {name: sorted(v["SS"]) if "SS" in v else v for name, v in raw.items()}


@pytest.mark.parametrize(("items", "write"), [pytest.param(i, w, id=name) for name, i, w in writes()])
def test_a_write_has_the_same_outcome_as_on_moto(moto_send: Send, items: list[dict[str, Any]], write: Write) -> None:
    memory = MemoryDynamoDB()
    for item in items:
        memory.put(item)
        moto_send("PutItem", {"TableName": "tasks", "Item": to_item(item)})

    assert _outcome(memory, write) == _outcome(moto_send, write)

    item_id = write.arguments.get("Key", write.arguments.get("Item"))[TABLE_KEY]["S"]
    stored = moto_send("GetItem", {"TableName": "tasks", "Key": {TABLE_KEY: {"S": item_id}}}).get("Item")
    assert _comparable(memory.raw(item_id)) == _comparable(stored)


def store(send: Send) -> Store:
    return Store(table="tasks", send=send, clock=FakeClock(), randomness=FakeRandomness(), layout=LAYOUT)


def test_write_units_of_a_task_are_those_of_the_design() -> None:
    """Submit 1+1, claim 1+0, commit 1+2 (listed) or 1+1; open 2, begin 1, start 1, settle 2 (ARCHITECTURE 5)."""
    memory = MemoryDynamoDB()
    spent: list[float] = []

    def send(write: Write) -> None:
        before = memory.write_units
        assert isinstance(store(memory).apply(write), Written)
        spent.append(memory.write_units - before)

    send(expressions.submit(pending()))
    send(_claim(task(memory.item("t1") or {})))
    send(_commit(task(memory.item("t1") or {}), TOKEN))
    assert spent == [2, 1, 3]

    spent.clear()
    memory.put(claimed())
    unlisted = Layout(shards=1, list_completed=False)
    result = expressions.Result(text="1")
    send(expressions.commit(task(claimed()), TOKEN, result=result, attempt=ATTEMPT, layout=unlisted, now=START))
    assert spent == [2]

    spent.clear()
    send(expressions.open_lease(TOKEN, profile="default", task_ids=[TaskId("t1")], lock_time=START + 300, now=START))
    send(expressions.begin(TOKEN, nonce="n", lock_time=START + 300, now=START))
    send(expressions.heartbeat(TOKEN, nonce="n", lock_time=START + 300, starting=[TaskId("t1")]))
    send(expressions.settle(TOKEN, nonce="n"))
    assert spent == [2, 1, 1, 2]


def test_the_index_is_sparse_keys_only_and_paged() -> None:
    memory = MemoryDynamoDB()
    for number in range(7):
        memory.put(pending(f"t{number}", dueAt=START + number))
    memory.put(pending("other", dispatchKey="OPEN#default#high#0"))
    memory.put({"taskId": "no-key", "dueAt": START})
    key = LAYOUT.open("default", "normal", "t0")

    page = store(memory).query(key, limit=3)
    assert [entry.task_id for entry in page.keys] == ["t0", "t1", "t2"]
    assert page.next_key is not None
    assert [entry.task_id for entry in store(memory).walk(key, page=3)] == [f"t{n}" for n in range(7)]
    assert [entry.task_id for entry in store(memory).walk(key, page=2, ascending=False)][:2] == ["t6", "t5"]
    assert store(memory).count(key, until=START + 3) == 4
    assert store(memory).count(key, at_least=2) == 2
    answer = memory("Query", _query(key))
    assert set(answer["Items"][0]) == {TABLE_KEY, INDEX_HASH, INDEX_RANGE}


def _query(key: str) -> dict[str, Any]:
    return {
        "TableName": "tasks",
        "IndexName": INDEX_NAME,
        "KeyConditionExpression": "#k = :k",
        "ExpressionAttributeNames": {"#k": INDEX_HASH},
        "ExpressionAttributeValues": {":k": {"S": key}},
    }


def test_a_transaction_is_all_or_nothing_and_says_which_write_was_the_obstacle() -> None:
    memory = MemoryDynamoDB()
    memory.put(claimed())
    good, bad = _commit(task(claimed()), TOKEN), expressions.settle(TOKEN, nonce="n")
    before = memory.raw("t1")

    refused = store(memory).transact([good, bad], request_token="a")
    assert refused == (None, Refused(Refusal.GONE))
    assert memory.raw("t1") == before

    memory.put({"taskId": "lease#token-a", "begun": "n"})
    assert isinstance(store(memory).transact([good, bad], request_token="b"), Written)
    assert memory.item("lease#token-a") is None
    assert (memory.item("t1") or {})["status"] == "SUCCESS"


def test_a_repeated_transaction_token_changes_nothing() -> None:
    memory = MemoryDynamoDB()
    memory.put({"taskId": "counter#a", "count": 0})
    entry = {
        "Update": {
            "TableName": "tasks",
            "Key": {TABLE_KEY: {"S": "counter#a"}},
            "UpdateExpression": "ADD #c :one",
            "ExpressionAttributeNames": {"#c": "count"},
            "ExpressionAttributeValues": {":one": {"N": "1"}},
        }
    }
    request = {"TransactItems": [entry], "ClientRequestToken": "same"}
    memory("TransactWriteItems", request)
    memory("TransactWriteItems", request)
    assert memory.item("counter#a") == {"taskId": "counter#a", "count": 1}
    with pytest.raises(StoreRefused, match="IdempotentParameterMismatch"):
        memory("TransactWriteItems", {"TransactItems": [entry, _check("other")], "ClientRequestToken": "same"})


def _check(item_id: str) -> dict[str, Any]:
    arguments = {
        "TableName": "tasks",
        "Key": {TABLE_KEY: {"S": item_id}},
        "ConditionExpression": "attribute_not_exists(taskId)",
    }
    return {"ConditionCheck": arguments}


@pytest.mark.parametrize(
    ("arguments", "complaint"),
    [
        ({"UpdateExpression": "SET #a = :a REMOVE #a", "ExpressionAttributeNames": {"#a": "x"}}, "overlap"),
        ({"UpdateExpression": "SET #a = :a", "ExpressionAttributeNames": {"#a": "x", "#b": "y"}}, "not used"),
        ({"UpdateExpression": "SET #a = :b", "ExpressionAttributeNames": {"#a": "x"}}, "not defined"),
        ({"UpdateExpression": "SET dueAt = :a"}, "index key"),
        ({"UpdateExpression": "SET taskId = :a"}, "part of the key"),
        ({"UpdateExpression": "SET x = :a", "ConditionExpression": "x ="}, "ends early"),
    ],
)
def test_what_dynamodb_refuses_is_refused(arguments: dict[str, Any], complaint: str) -> None:
    memory = MemoryDynamoDB()
    values = {":a": {"S": "text"}}
    request = {"TableName": "tasks", "Key": {TABLE_KEY: {"S": "t"}}, "ExpressionAttributeValues": values, **arguments}
    with pytest.raises(StoreRefused, match=complaint):
        memory("UpdateItem", request)
    assert memory.item("t") is None


def test_faults_apply_or_do_not_apply_as_they_say() -> None:
    memory = MemoryDynamoDB()
    memory.put(claimed())
    commit = _commit(task(claimed()), TOKEN)
    arguments = {"TableName": "tasks", **commit.arguments}

    for fault, error in [
        (Fault.THROTTLED, StoreThrottled),
        (Fault.LOST_REQUEST, OutcomeUnknown),
        (Fault.CONFLICT, StoreRefused),
    ]:
        memory.inject(fault, where=lambda call: call.sets.get("status") == "SUCCESS")
        with pytest.raises(error):
            memory("UpdateItem", arguments)
        assert (memory.item("t1") or {})["status"] == "RUNNING"

    memory.inject(Fault.LOST_REPLY, where=lambda call: call.item_ids == ["t1"])
    assert store(memory).apply(commit) == Written(memory.item("t1"), replayed=True)
    assert [call.outcome for call in memory.calls][-2:] == ["OutcomeUnknown", "ConditionFailed"]


def test_conflicts_of_a_transaction_have_their_own_reason() -> None:
    memory = MemoryDynamoDB()
    memory.inject(Fault.CONFLICT)
    with pytest.raises(TransactionCancelled) as cancelled:
        memory("TransactWriteItems", {"TransactItems": [_check("a")]})
    assert cancelled.value.reasons == (("TransactionConflict", None),)


def test_hooks_let_another_write_slip_in_between() -> None:
    memory = MemoryDynamoDB()
    memory.put(claimed())
    memory.before(lambda call: call.item_ids == ["t1"], lambda: memory.put(claimed(leaseToken="token-b")))
    answer = store(memory).apply(_commit(task(claimed()), TOKEN))
    assert isinstance(answer, Refused)
    assert answer.reason is Refusal.OTHER


def test_writes_are_atomic_across_threads() -> None:
    memory = MemoryDynamoDB()
    memory.put(pending())
    won: list[str] = []

    def contend(name: str) -> None:
        write = expressions.claim(
            task(pending()), token=LeaseToken(name), lock_time=START, owner=name, now=START + 1, region="us-east-1"
        )
        if isinstance(store(memory).apply(write), Written):
            won.append(name)

    threads = [threading.Thread(target=contend, args=(f"w{n}",)) for n in range(8)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert len(won) == 1
    assert (memory.item("t1") or {})["leaseToken"] == won[0]
