"""The embedded AWS itself: reachable from this machine only, ended without remains, two at once."""

from __future__ import annotations

import socket
import time
from dataclasses import replace
from pathlib import Path

import pytest

from thunder.local import aws
from thunder.local.aws import LOOPBACK, client, free_port, settings
from thunder.local.checkout import Checkout
from thunder.local.errors import LocalError
from thunder.local.processes import end, group_members, open_addresses
from thunder.local.state import StateDir

CHECKOUT = Checkout.of_this_installation()
KEYS = {
    "TableName": "tasks",
    "BillingMode": "PAY_PER_REQUEST",
    "AttributeDefinitions": [
        {"AttributeName": "k", "AttributeType": "S"},
        {"AttributeName": "n", "AttributeType": "N"},
    ],
    "KeySchema": [{"AttributeName": "k", "KeyType": "HASH"}, {"AttributeName": "n", "KeyType": "RANGE"}],
}


@pytest.fixture
def start(tmp_path: Path):
    """Starts an embedded AWS in a state directory of the given name; ends all of them with the test."""
    started = []

    def in_directory(name="one"):
        state = StateDir(tmp_path / name)
        state.create()
        return aws.start(CHECKOUT, state, started.append)

    in_directory.launched = started
    yield in_directory
    for running in started:
        end(running.child)


def test_only_this_machine_reaches_it(start):
    running = start()

    assert open_addresses(group_members(running.child.pid)) == {(LOOPBACK, running.port)}


def test_it_is_ended_when_it_listens_on_more_than_loopback(start, monkeypatch):
    before = settings
    monkeypatch.setattr(aws, "settings", lambda *given: {**before(*given), "BIND_HOST": "0.0.0.0"})

    with pytest.raises(LocalError, match=r"0\.0\.0\.0"):
        start()

    assert group_members(start.launched[-1].child.pid) == set()


def test_nothing_of_the_shell_reaches_it(monkeypatch, tmp_path):
    monkeypatch.setenv("AWS_PROFILE", "production")

    assert "AWS_PROFILE" not in settings(StateDir(tmp_path), 1)


def test_ended_it_leaves_no_process_and_no_port(start):
    running = start()

    end(running.child)

    assert group_members(running.child.pid) == set()
    assert not aws.is_ready(running.port)


def test_two_run_at_once_and_keep_their_data_apart(start):
    one, two = start("one"), start("two")

    client("sqs", one.endpoint).create_queue(QueueName="only-here")

    assert one.port != two.port
    assert client("sqs", one.endpoint).list_queues().get("QueueUrls")
    assert not client("sqs", two.endpoint).list_queues().get("QueueUrls")


def test_started_again_it_has_its_port_and_its_data(start):
    first = start()
    client("dynamodb", first.endpoint).create_table(**KEYS)
    end(first.child)

    again = start()

    assert again.port == first.port
    assert client("dynamodb", again.endpoint).list_tables()["TableNames"] == ["tasks"]


def test_it_moves_to_another_port_when_its_own_is_taken(start):
    first = start()
    end(first.child)

    with socket.create_server((LOOPBACK, first.port)):
        again = start()

    assert again.port != first.port


def test_a_server_that_cannot_start_shows_the_end_of_its_log(tmp_path, monkeypatch):
    script = tmp_path / "broken.py"
    script.write_text("raise SystemExit('no such module: anything')")
    monkeypatch.setattr(aws, "EMULATOR", script)
    state = StateDir(tmp_path / "state")
    state.create()

    with pytest.raises(LocalError, match="no such module: anything"):
        aws.start(CHECKOUT, state, lambda launched: None)


def test_a_port_is_remembered_only_while_it_is_free():
    with socket.create_server((LOOPBACK, 0)) as taken:
        port = taken.getsockname()[1]
        assert free_port(remembered=port) != port
    chosen = free_port()
    assert free_port(remembered=chosen) == chosen


def test_queries_answer_as_before_the_memory(start):
    database = client("dynamodb", start().endpoint)
    database.create_table(**KEYS)
    for number in range(6):
        key = "a" if number % 2 else "b"
        database.put_item(TableName="tasks", Item={"k": {"S": key}, "n": {"N": str(number)}})

    def numbers(condition, **values):
        answer = database.query(
            TableName="tasks",
            KeyConditionExpression=condition,
            ExpressionAttributeNames={f"#{name}": name for name in "kn" if f"#{name}" in condition},
            ExpressionAttributeValues={f":{name}": value for name, value in values.items()},
        )
        return [int(item["n"]["N"]) for item in answer["Items"]]

    assert numbers("#k = :k", k={"S": "a"}) == [1, 3, 5]
    assert numbers("#k = :k AND #n <= :n", k={"S": "a"}, n={"N": "3"}) == [1, 3]
    assert numbers("#k = :k AND #n <= :n", k={"S": "b"}, n={"N": "3"}) == [0, 2]
    assert numbers("#k = :k AND #n BETWEEN :n AND :m", k={"S": "a"}, n={"N": "3"}, m={"N": "9"}) == [3, 5]
    with pytest.raises(database.exceptions.ClientError, match="ValidationException"):
        numbers("#k = :k AND k = :n", k={"S": "a"}, n={"N": "3"})


def test_a_large_partition_is_read_in_half_the_time(start, tmp_path, monkeypatch):
    """Against ministack as it comes, on the same machine at the same moment; measured: a third."""
    quick = LargePartition(client("dynamodb", start("quick").endpoint))
    plain_script = tmp_path / "plain.py"
    plain_script.write_text("from ministack.app import main\nmain()\n")
    monkeypatch.setattr(aws, "EMULATOR", plain_script)
    plain = LargePartition(client("dynamodb", start("plain").endpoint))

    pairs = [(quick.seconds(), plain.seconds()) for _ in range(7)]

    assert min(ours for ours, _ in pairs) < 0.65 * min(theirs for _, theirs in pairs)


class LargePartition:
    """A table with 3,000 rows in one partition, and the time a query of it takes."""

    def __init__(self, database):
        self._database = database
        database.create_table(**KEYS)
        rows = [{"PutRequest": {"Item": {"k": {"S": "a"}, "n": {"N": str(number)}}}} for number in range(3_000)]
        for begin in range(0, len(rows), 25):
            database.batch_write_item(RequestItems={"tasks": rows[begin : begin + 25]})

    def seconds(self):
        begun = time.perf_counter()
        answer = self._database.query(
            TableName="tasks",
            Limit=100,
            KeyConditionExpression="#k = :k AND #n <= :n",
            ExpressionAttributeNames={"#k": "k", "#n": "n"},
            ExpressionAttributeValues={":k": {"S": "a"}, ":n": {"N": "9999"}},
        )
        assert answer["Count"] == 100
        return time.perf_counter() - begun


def test_a_stale_record_of_a_running_one_is_not_it(start):
    running = start()

    assert not replace(running.child, started="another time").alive
    assert running.child.alive


def test_functions_can_be_led_to_a_service_by_another_way(tmp_path):
    by_proxy = settings(StateDir(tmp_path), 1, {"DYNAMODB": "http://127.0.0.1:9"})

    assert by_proxy["AWS_ENDPOINT_URL_DYNAMODB"] == "http://127.0.0.1:9"
    assert not any(name.startswith("AWS_ENDPOINT_URL") for name in settings(StateDir(tmp_path), 1))
