"""Names and keys of what is stored: disjoint, stable, and free of hot partitions."""

from __future__ import annotations

import re

import pytest

from thunderagent import schema
from thunderagent.errors import NotFound
from thunderagent.model import LeaseToken
from thunderagent.schema import Layout, kept_shard, shard_of
from thunderagent.states import LEASED, LISTED, Status
from thunderagent.validation import check_parameters, operations

IDS = [f"task-{number}" for number in range(4_000)]


def may_be_a_task_id(text: str) -> bool:
    """As the API takes it."""
    try:
        check_parameters(operations()["GET /tasks/{taskId}"], {"path": {"taskId": text}})
    except NotFound:
        return False
    return True


def test_shards_are_the_same_in_every_process_and_release() -> None:
    assert [shard_of(task_id, 4) for task_id in ("a", "b", "c", "d", "order-1", "order-2")] == [3, 1, 3, 0, 3, 1]


@pytest.mark.parametrize("shards", [1, 2, 4, 16])
def test_ta30_tasks_spread_over_all_shards(shards: int) -> None:
    counts = [0] * shards
    for task_id in IDS:
        counts[shard_of(task_id, shards)] += 1
    assert min(counts) > 0.8 * len(IDS) / shards


def test_no_key_of_one_kind_can_be_taken_for_one_of_another() -> None:
    keys = {
        schema.open_key("q", "normal", 0),
        schema.running_key("q", 0),
        schema.blocked_key("q", 0),
        schema.lease_key("q", 0),
        schema.edge_key("q"),
        schema.SCHEDULE_KEY,
        schema.QUEUE_CONTROL_KEY,
        *(schema.listed_key(status, "q", 0) for status in (Status.SUCCESS, Status.FAILED, Status.DONE)),
    }
    assert len({key.partition("#")[0] for key in keys}) == len(keys)


def test_ids_of_side_items_are_no_task_ids() -> None:
    ids = [
        schema.lease_id(LeaseToken("x")),
        schema.payload_id("t", "d"),
        schema.result_id("t", 1),
        schema.edge_id("p", "c"),
        schema.unique_id("f"),
        schema.queue_control_id("q"),
        schema.slot_id("q", "k", 1),
        schema.bucket_id("q", "k"),
        schema.schedule_id("s"),
    ]
    assert all("#" in each and not may_be_a_task_id(each) for each in ids)
    assert len({each.partition("#")[0] for each in ids}) == len(ids)


@pytest.mark.parametrize(("text", "size"), [("", 0), ("a", 1), ('"a中"', 6), ("😀", 4)])
def test_sizes_are_utf8_bytes(text: str, size: int) -> None:
    assert schema.utf8_size(text) == size


def test_a_body_stands_in_the_bucket_as_in_the_table() -> None:
    assert schema.body_key(schema.result_id("order-1", 3)) == "bodies/result/order-1/3"


@pytest.mark.parametrize("task_id", ["", "a#b", "-a", ".a", "a/b", "a b", "é", "a" * 129, "a\n", "#"])
def test_what_no_task_id_may_be(task_id: str) -> None:
    assert not may_be_a_task_id(task_id)


@pytest.mark.parametrize("task_id", ["a", "A-1", "0:1.2_3", "a" * 128, "cron.nightly.1800000000"])
def test_what_a_task_id_may_be(task_id: str) -> None:
    assert may_be_a_task_id(task_id)


def test_a_task_keeps_its_shard_when_their_number_changes() -> None:
    before, after = Layout(shards=4), Layout(shards=16)
    for task_id in IDS[:50]:
        key = before.open("q", "low", task_id)
        kept = kept_shard(key)
        assert after.running("q", task_id, key).endswith(f"#{kept}")
        assert (after.listed(Status.FAILED, "q", task_id, key) or "").endswith(f"#{kept}")


@pytest.mark.parametrize("key", [None, "", "OPEN#q#low#", "OPEN#q#low#x", "OPEN#q#low#-1", "OPEN#q#low#99999999"])
def test_a_key_without_a_shard_names_none(key: str | None) -> None:
    assert kept_shard(key) is None
    assert Layout().open("q", "low", "a", key) == Layout().open("q", "low", "a")


def test_only_failures_are_listed_when_completed_tasks_are_not() -> None:
    layout = Layout(list_completed=False)
    listed = {status: layout.listed(status, "q", "a") for status in (Status.SUCCESS, Status.FAILED, Status.DONE)}
    assert listed == {Status.SUCCESS: None, Status.FAILED: "FAILED#q#3", Status.DONE: None}


def test_every_attribute_has_a_type_and_an_owner() -> None:
    assert set(schema.TASK_ATTRIBUTES.values()) <= {"S", "N", "M", "L", "BOOL"}
    assert schema.TASK_ATTRIBUTES.keys() >= LEASED | LISTED | {schema.TABLE_KEY, schema.TTL_ATTRIBUTE}
    assert all(re.fullmatch("[a-z][A-Za-z]*", name) for name in schema.TASK_ATTRIBUTES)


def test_an_open_item_leaves_room_for_its_end() -> None:
    """The terminal write of an item that steps and progress have filled must fit into DynamoDB's 400 KB."""
    history = schema.ATTEMPTS_KEPT * (schema.ERROR_MESSAGE_BYTES + 300)
    assert schema.OPEN_ITEM_BYTES + history + 2 * schema.ERROR_MESSAGE_BYTES + 1024 < 400 * 1024
