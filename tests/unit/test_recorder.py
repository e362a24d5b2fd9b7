"""TA-31, and what else the recorder promises: one bad record blocks nothing, and whatever happens may happen twice."""

from __future__ import annotations

import gzip
import json
from typing import Any

import pytest

from tests.support.fakes import START
from tests.support.memory_dynamodb import Fault
from tests.support.protocol import stored_task
from tests.support.recording import Rig, batch, ending, lines_of, record, removal
from thunderagent.completion import DETAIL_TYPE, SOURCE
from thunderagent.recorder import RecordingDelayed
from thunderagent.schema import BODY_RETENTION_SECONDS, DAY_SECONDS, edge_id, payload_id, unique_id
from thunderagent.states import Status


@pytest.fixture
def rig() -> Rig:
    return Rig()


def done(task_id: str, **changes: Any) -> dict[str, Any]:
    return stored_task(task_id, Status.SUCCESS, **changes)


# ---- TA-31 -----------------------------------------------------------------------------------------------------------


def nine_and_one_bad() -> list[dict[str, Any]]:
    good = [removal(done(f"t{number}")) for number in range(9)]
    bad = removal(done("bad"))
    del bad["dynamodb"]["OldImage"]
    return [*good[:4], bad, *good[4:]]


def test_ta31_nine_are_archived_and_the_bad_one_is_given_up_with_its_key(rig: Rig) -> None:
    assert rig.record(*nine_and_one_bad()) == {"archived": 9, "givenUp": 1}
    assert [line["taskId"] for line in rig.lines()] == [f"t{number}" for number in range(9)]
    (failure,) = rig.failures
    assert failure["taskId"] == "bad"
    assert failure["stage"] == "read"
    assert failure["record"]["eventName"] == "REMOVE"
    assert rig.measured("Undelivered") == 1


def corrupt(name: str) -> dict[str, Any]:
    broken = removal(done("bad"))
    match name:
        case "an attribute without a type":
            broken["dynamodb"]["OldImage"]["payload"] = {}
        case "a number that is none":
            broken["dynamodb"]["OldImage"]["fence"] = {"N": "seven"}
        case "an image that is a list":
            broken["dynamodb"]["OldImage"] = []
        case "no time":
            del broken["dynamodb"]["ApproximateCreationDateTime"]
        case "a set where text belongs":
            broken["dynamodb"]["OldImage"]["payload"] = {"SS": ["a"]}
        case "a fingerprint without a birth":
            broken["dynamodb"]["OldImage"]["unique"] = {"S": "f"}
            del broken["dynamodb"]["OldImage"]["createdAt"]
        case "no key":
            broken["dynamodb"]["Keys"] = {}
    return broken


@pytest.mark.parametrize(
    "name",
    [
        "an attribute without a type",
        "a number that is none",
        "an image that is a list",
        "no time",
        "a set where text belongs",
        "a fingerprint without a birth",
        "no key",
    ],
)
def test_ta31_whatever_is_wrong_with_one_record_the_others_are_archived(rig: Rig, name: str) -> None:
    rig.record(removal(done("a")), corrupt(name), removal(done("b")))
    assert {"a", "b"} <= {line["taskId"] for line in rig.lines()}
    (failure,) = rig.failures
    assert failure["taskId"] == (None if name == "no key" else "bad")


@pytest.mark.parametrize(
    "attribute", ["fence", "status", "type", "queue", "outcome", "retryCount", "createdAt", "finishedAt", "error"]
)
@pytest.mark.parametrize(
    "value",
    [
        {"M": {}},
        {"L": [{"M": {}}]},
        {"SS": ["a"]},
        {"B": "e30="},
        {"NULL": True},
        {"S": "x"},
        {"N": "-5"},
        {"N": "1E30"},
        {"M": {"type": {"SS": ["a"]}}},
    ],
    ids=str,
)
def test_ta31_a_malformed_row_that_was_written_keeps_back_no_other(
    rig: Rig, attribute: str, value: dict[str, Any]
) -> None:
    for damaged in (["NewImage"], ["OldImage", "NewImage"]):
        bad = ending(stored_task("bad", Status.RUNNING), done("bad"))
        for image in damaged:
            bad["dynamodb"][image][attribute] = value
        rig.record(removal(done("a")), bad, ending(stored_task("b", Status.RUNNING), done("b")))
    assert rig.failures == []
    assert [json.loads(entry["Detail"])["taskId"] for entry in rig.bus.accepted].count("b") == 2


@pytest.mark.parametrize("event", [{}, {"Records": None}, batch("text"), batch(None), batch({"dynamodb": 5})])  # type: ignore[arg-type]
def test_an_event_that_is_none_raises_nothing(rig: Rig, event: dict[str, Any]) -> None:
    rig.recording.recorder.record(event)
    assert rig.objects.stored == {}


def test_ta31_while_s3_is_down_the_batch_is_held_back_and_then_archived_once(rig: Rig) -> None:
    records = nine_and_one_bad()
    rig.objects.down = True
    for _ in range(10):  # ten minutes
        with pytest.raises(RecordingDelayed, match="EndpointConnectionError"):
            rig.record(*records)
        rig.clock.advance(60)
    assert rig.failures == [], "the bad one is told of once, when the rest is done"
    rig.objects.down = False
    assert rig.record(*records) == {"archived": 9, "givenUp": 1}
    assert len(rig.lines()) == 9
    assert len(rig.failures) == 1


def test_ta31_a_replay_writes_the_same_objects(rig: Rig) -> None:
    records = nine_and_one_bad()
    rig.record(*records)
    before = dict(rig.objects.stored)
    rig.clock.advance(3000)
    rig.record(*records)
    assert rig.objects.stored == before
    assert rig.objects.puts == 2


def test_ta31_a_replay_writes_the_same_although_the_side_items_were_cleared(rig: Rig) -> None:
    body = payload_id("big", "digest")
    rig.table.put({"taskId": body, "body": '{"large":1}', "expiresAt": int(START) + BODY_RETENTION_SECONDS - 100})
    gone = removal(done("big", payload=None, payloadRef=body, payloadBytes=11))
    rig.record(gone)
    before = dict(rig.objects.stored)
    rig.clock.advance(DAY_SECONDS)  # as long as a stream keeps its records
    rig.record(gone)
    assert rig.objects.stored == before
    assert rig.lines()[0]["payload"] == '{"large":1}'


def test_ta31_a_batch_older_than_our_patience_is_given_up_whole_and_raises_nothing(rig: Rig) -> None:
    rig.objects.down = True
    rig.clock.advance(3601)
    rig.record(removal(done("a")), removal(done("b")))
    assert [failure["taskId"] for failure in rig.failures] == ["a", "b"]
    assert {failure["stage"] for failure in rig.failures} == {"archive"}
    assert rig.failures[0]["record"]["dynamodb"]["OldImage"]["payload"] == {"S": '{"a":1.0}'}
    rig.objects.down = False
    rig.record(*(failure["record"] for failure in rig.failures))
    assert [line["taskId"] for line in rig.lines()] == ["a", "b"], "what was given up can be recorded from its message"


def test_without_patience_nothing_is_held_back() -> None:
    """The embedded AWS delivers a refused batch for ever."""
    rig = Rig(patience_seconds=0)
    rig.objects.down, rig.bus.down = True, True
    rig.record(removal(done("a")), ending(stored_task("b", Status.RUNNING), done("b")))
    assert sorted((failure["taskId"], failure["stage"]) for failure in rig.failures) == [
        ("a", "archive"),
        ("b", "event"),
    ]


def test_a_failure_destination_that_is_down_raises_nothing_and_is_told_in_the_log(rig: Rig) -> None:
    rig.queue_down = True
    rig.record(*nine_and_one_bad())
    (line,) = rig.logged("record.lost")
    assert (line["taskId"], line["level"]) == ("bad", "ERROR")
    assert len(rig.lines()) == 9


def test_a_record_too_large_for_a_message_leaves_its_key(rig: Rig) -> None:
    rig.objects.down = True
    rig.clock.advance(3601)
    rig.record(removal(done("a", payload="x" * 300_000)))
    assert rig.failures[0]["taskId"] == "a"
    assert "record" not in rig.failures[0]
    assert rig.failures[0]["recordBytes"] > 300_000


def test_logs_hold_no_payload(rig: Rig) -> None:
    rig.objects.down = True
    rig.clock.advance(3601)
    rig.record(removal(done("a", payload='"secret"', result='"secret"')))
    assert "secret" not in rig.log.getvalue()


# ---- user deletes and side items -------------------------------------------------------------------------------------


def test_ta31_an_erased_task_leaves_a_tombstone_without_content(rig: Rig) -> None:
    task = done("a", tags={"tenant": "x"}, error={"type": "E", "message": "m", "reason": "error", "at": 1})
    assert rig.record(removal(task, ttl=False), removal(done("b"))) == {"archived": 1, "erased": 1}
    erased, kept = rig.lines()
    assert (erased["removedBy"], kept["removedBy"]) == ("user", "ttl")
    assert erased["taskId"] == "a"
    assert not set(erased) & {"payload", "result", "error", "tags", "attempts", "progress", "operator"}
    assert kept["payload"] == '{"a":1.0}'
    assert "leaseToken" not in kept


def test_removals_of_side_items_are_nobodys_business(rig: Rig) -> None:
    rig.record(
        record("REMOVE", "lease#t", old={"taskId": "lease#t", "lockTime": 5}),
        record("REMOVE", "payload#a#b", old={"taskId": "payload#a#b", "body": "x"}, ttl=True),
        record("REMOVE", "counter", old={"taskId": "counter", "count": 5}),
    )
    assert (rig.objects.stored, rig.failures, rig.bus.calls) == ({}, [], 0)


def leave_side_items(rig: Rig, *, since: float = START - 500) -> dict[str, Any]:
    """A task with everything a task may leave behind."""
    keep = int(since) + BODY_RETENTION_SECONDS
    body = payload_id("a", "d")
    rig.table.put({"taskId": body, "body": "1", "expiresAt": keep})
    rig.table.put({"taskId": "parents#a#d", "ids": ["p1", "p2"], "expiresAt": keep})
    rig.table.put({"taskId": unique_id("f"), "holder": "a", "createdAt": since})
    for parent in ("p1", "p2"):
        rig.table.put({"taskId": edge_id(parent, "a"), "createdAt": since, "expiresAt": keep})
    rig.objects.stored["bodies/result/a/5"] = b"2"
    return stored_task(
        "a",
        Status.FAILED,
        payload=None,
        payloadRef=body,
        resultRef="s3:bodies/result/a/5",
        dependsOnRef="parents#a#d",
        blockedCount=2,
        unique="f",
        createdAt=since,
    )


def test_side_items_go_with_an_erased_task(rig: Rig) -> None:
    rig.record(removal(leave_side_items(rig), ttl=False))
    assert rig.table.items() == {}
    assert "bodies/result/a/5" not in rig.objects.stored


def test_side_items_go_with_a_removed_task_those_its_archive_needs_two_days_later(rig: Rig) -> None:
    rig.record(removal(leave_side_items(rig)))
    left = rig.table.items()
    assert set(left) == {payload_id("a", "d"), "parents#a#d"}
    assert {item["expiresAt"] for item in left.values()} == {int(START) + 2 * DAY_SECONDS}
    assert "bodies/result/a/5" not in rig.objects.stored
    (line,) = rig.lines()
    assert (line["payload"], line["dependsOn"]) == ("1", ["p1", "p2"])


@pytest.mark.parametrize("ttl", [True, False])
def test_the_side_items_of_a_new_life_under_the_same_id_are_left_alone(rig: Rig, ttl: bool) -> None:
    """The same key and payload, submitted again just before the recorder came: also the body's id is the same."""
    task = leave_side_items(rig)
    again = leave_side_items(rig, since=START + 60)
    rig.table.put(again | {"status": "PENDING"})
    before = rig.table.items()
    rig.record(removal(task, ttl=ttl))
    assert rig.table.items() == before
    assert "bodies/result/a/5" in rig.objects.stored


@pytest.mark.parametrize("ttl", [True, False])
@pytest.mark.parametrize(
    "reference",
    ["payload#b#d", "other", "lease#x", "payload#a", "s3:bodies/payload/b/d", "s3:archive/x", "s3:", "s3:bodies/", ""],
)
@pytest.mark.parametrize("name", ["payloadRef", "resultRef", "dependsOnRef"])
def test_what_a_damaged_row_names_of_others_stays(rig: Rig, name: str, reference: str, ttl: bool) -> None:
    """It is given up alone: a delete that the bucket refuses would hold the whole batch back for hours."""
    for other in ("payload#b#d", "other", "lease#x"):
        rig.table.put({"taskId": other, "expiresAt": int(START)})
    rig.objects.stored |= {"bodies/payload/b/d": gzip.compress(b""), "archive/x": gzip.compress(b"")}
    before = rig.table.items()
    recorded = rig.record(removal(stored_task("a", Status.FAILED) | {name: reference}, ttl=ttl), removal(done("good")))
    assert recorded["givenUp"] == 1
    assert [(each["stage"], each["taskId"]) for each in rig.failures] == [("leftovers", "a")]
    assert rig.table.items() == before
    assert {"bodies/payload/b/d", "archive/x"} <= rig.objects.stored.keys()
    assert "good" in [line["taskId"] for line in rig.lines()]


def test_a_store_that_fails_holds_the_batch_back(rig: Rig) -> None:
    gone = removal(leave_side_items(rig))
    rig.table.inject(Fault.REFUSED, where=lambda call: call.operation == "DeleteItem", times=1)
    with pytest.raises(RecordingDelayed, match="leftovers: AccessDenied"):
        rig.record(gone)
    rig.record(gone)
    assert unique_id("f") not in rig.table.items()
    assert len(rig.lines()) == 1


def test_bodies_that_cannot_be_read_hold_the_batch_back_and_then_not(rig: Rig) -> None:
    gone = removal(leave_side_items(rig))
    rig.table.inject(Fault.REFUSED, where=lambda call: call.operation == "BatchGetItem", times=2)
    with pytest.raises(RecordingDelayed, match="bodies"):
        rig.record(gone)
    assert rig.objects.puts == 0
    rig.clock.advance(3601)
    rig.record(gone)
    assert "payload" not in rig.lines()[0]
    assert rig.logged("archive.without_bodies")


# ---- events ----------------------------------------------------------------------------------------------------------


def finished(task_id: str, status: Status = Status.SUCCESS, **changes: Any) -> dict[str, Any]:
    return ending(stored_task(task_id, Status.RUNNING), stored_task(task_id, status, **changes))


def test_an_end_is_told_with_ids_and_times_and_never_a_body(rig: Rig) -> None:
    rig.record(finished("a", result='"secret"', payload='"secret"', tags={"t": "secret"}))
    (entry,) = rig.bus.accepted
    assert (entry["Source"], entry["DetailType"], entry["EventBusName"]) == (SOURCE, DETAIL_TYPE, "bus")
    detail = json.loads(entry["Detail"])
    assert detail["taskId"] == "a"
    assert (detail["status"], detail["queue"], detail["type"]) == ("SUCCESS", "default", "demo.echo")
    assert detail["finishedAt"] == START - 20
    assert entry["Time"].timestamp() == START - 20
    assert "secret" not in entry["Detail"]
    assert not set(detail) & {"payload", "result", "tags", "leaseToken", "owner", "operator", "outcomeReason"}


def test_a_failure_is_told_with_its_type_and_reason_and_no_message(rig: Rig) -> None:
    error = {"type": "ValueError", "reason": "error", "message": "secret", "at": 1}
    rig.record(finished("a", Status.FAILED, error=error))
    (detail,) = rig.bus.details
    assert detail["error"] == {"type": "ValueError", "reason": "error"}


def test_every_way_to_end_is_told_once_and_nothing_else_is(rig: Rig) -> None:
    pending, running, failed = (stored_task("a", each) for each in (Status.PENDING, Status.RUNNING, Status.FAILED))
    success = done("a")
    acknowledged = success | {"status": "DONE", "outcome": "acknowledged"}
    parked = {name: value for name, value in pending.items() if name != "status"}
    told = [
        ending(running, success),
        ending(pending, stored_task("a", Status.DONE, outcome="cancelled")),
        ending(parked, failed),
        record("INSERT", "a", new=failed),
    ]
    silent = [
        ending(success, acknowledged),
        ending(success, success | {"dispatchKey": "SUCCESS#default#1"}),
        ending(failed, pending),
        ending(pending, running),
        record("INSERT", "a", new=pending),
        record("INSERT", "edge#a#b", new={"taskId": "edge#a#b", "status": "DONE"}),
    ]
    assert rig.record(*told, *silent) == {"events": 4}
    assert [detail["id"] for detail in rig.bus.details] == [each["eventID"] for each in told]


def test_which_statuses_are_told_is_a_setting() -> None:
    rig = Rig(statuses=frozenset({"FAILED"}))
    rig.record(finished("a"), finished("b", Status.FAILED), finished("c", Status.DONE))
    assert [detail["taskId"] for detail in rig.bus.details] == ["b"]


def test_what_eventbridge_refused_in_passing_is_sent_again_alone(rig: Rig) -> None:
    refusals = {"t3": 2, "t7": 1}

    def judge(detail: dict[str, Any]) -> str | None:
        left = refusals.get(detail["taskId"], 0)
        refusals[detail["taskId"]] = left - 1
        return "ThrottlingException" if left > 0 else None

    rig.bus.judge = judge
    assert rig.record(*(finished(f"t{number}") for number in range(12))) == {"events": 12}
    assert sorted(detail["taskId"] for detail in rig.bus.details) == sorted(f"t{number}" for number in range(12))
    assert rig.bus.calls == 4


def test_what_eventbridge_refuses_for_good_is_given_up_alone(rig: Rig) -> None:
    rig.bus.judge = lambda detail: "MalformedDetail" if detail["taskId"] == "t1" else None
    rig.record(*(finished(f"t{number}") for number in range(3)))
    assert [detail["taskId"] for detail in rig.bus.details] == ["t0", "t2"]
    assert [(failure["taskId"], failure["stage"], failure["error"]) for failure in rig.failures] == [
        ("t1", "event", "MalformedDetail")
    ]
    assert rig.bus.calls == 1


def test_while_eventbridge_is_down_the_batch_is_held_back_and_none_is_lost(rig: Rig) -> None:
    rig.bus.down = True
    with pytest.raises(RecordingDelayed, match="events"):
        rig.record(finished("a"), removal(done("b")))
    assert [line["taskId"] for line in rig.lines()] == ["b"], "the archive does not wait for the bus"
    rig.bus.down = False
    assert rig.record(finished("a"), removal(done("b")))["events"] == 1


def test_without_a_bus_nothing_is_told(rig: Rig) -> None:
    rig.recording = type(rig.recording)(rig.recording.parts, put_events=None, send_failure=rig._fail)
    assert rig.record(finished("a")) == {}


# ---- objects ---------------------------------------------------------------------------------------------------------


def test_objects_stand_under_the_hour_of_removal_by_shard_and_first_sequence_number(rig: Rig) -> None:
    hour = 1_800_000_000 - 1_800_000_000 % 3600
    early, late = removal(done("a"), at=hour - 1), removal(done("b"), at=hour)
    later = removal(done("c"), at=hour + 5)
    event = batch(early, late, later) | {"shardId": "shardId-7"}
    rig.clock.advance(hour - START)
    rig.recording.recorder.record(event)
    first, second = sorted(rig.objects.stored)
    assert first == f"archive/dt=2027-01-15/hour=07/shardId-7-{early['dynamodb']['SequenceNumber']}.jsonl.gz"
    assert second == f"archive/dt=2027-01-15/hour=08/shardId-7-{late['dynamodb']['SequenceNumber']}.jsonl.gz"
    assert [line["taskId"] for line in lines_of(rig.objects.stored[second])] == ["b", "c"]


def test_where_the_event_names_no_shard_the_first_records_unique_id_stands_for_it(rig: Rig) -> None:
    gone = removal(done("a"))
    rig.record(gone)
    (key,) = rig.objects.stored
    assert key.endswith(f"/{gone['eventID'][:16]}-{gone['dynamodb']['SequenceNumber']}.jsonl.gz")


def test_a_line_holds_what_the_api_showed_and_the_bodies_as_json_text(rig: Rig) -> None:
    rig.record(removal(done("a", payload='{"n":12345678901234567890123,"f":1.0}')))
    (line,) = rig.lines()
    assert line["payload"] == '{"n":12345678901234567890123,"f":1.0}'
    assert (line["fence"], line["status"], line["removedAt"]) == (5, "SUCCESS", START)
    assert not set(line) & {"leaseToken", "lockTime", "owner", "dispatchKey", "idempotencyHash", "redriveIds", "steps"}


# ---- the auditor's ear -----------------------------------------------------------------------------------------------


def test_a_second_end_is_a_violation_and_a_repeated_record_is_none(rig: Rig) -> None:
    first = done("a")
    rig.record(finished("a"), finished("a"))
    assert rig.measured("AuditViolations") == 0
    rig.record(ending(first, first | {"finishedAt": START + 5}))
    assert rig.measured("AuditViolations") == 1
    assert rig.logged("audit.violation")[0]["invariant"] == 7
