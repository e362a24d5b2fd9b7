"""Where payloads and results stand: by their stored bytes, and named so that no stale writer replaces one."""

from __future__ import annotations

from typing import Any

import pytest

from tests.support.batches import Objects
from tests.support.fakes import FakeClock, FakeRandomness
from tests.support.memory_dynamodb import Fault, MemoryDynamoDB
from tests.support.protocol import NOW, new_task, stored_task
from tests.support.world import World, to_status
from thunderagent import expressions, task
from thunderagent.bodies import IN_S3, Bodies
from thunderagent.codec import item_bytes
from thunderagent.errors import BodyMissing, InvalidInput, OutcomeUnknown, TooLarge
from thunderagent.model import Attempt, LeaseToken, Task
from thunderagent.operations import Operations, Operator
from thunderagent.schema import (
    BODY_RETENTION_SECONDS,
    BUCKET_DELAY_SECONDS,
    CHEAP_ITEM_BYTES,
    CLAIM_BYTES,
    DAY_SECONDS,
    OUTCOME_RESERVE_BYTES,
    PAYLOAD_BYTES,
    RESULT_BYTES,
    SIDE_ITEM_BYTES,
    Layout,
    digest,
)
from thunderagent.states import Status
from thunderagent.store import ATTEMPTS, Store


class Bench:
    def __init__(self, *, bucket: bool = True) -> None:
        self.db = MemoryDynamoDB()
        self.objects = Objects()
        self.store = Store(table="tasks", send=self.db, clock=FakeClock(), randomness=FakeRandomness(), layout=Layout())
        self.bodies = Bodies(self.store, self.objects if bucket else None)  # type: ignore[arg-type]


@pytest.fixture
def bench() -> Bench:
    return Bench()


def bare(task_id: str = "t") -> dict[str, Any]:
    return {name: value for name, value in new_task(task_id).items() if name != "payload"}


def text_of(size: int) -> str:
    return '"' + "x" * (size - 2) + '"'


def running(task_id: str = "t", **changes: Any) -> Task:
    return Task.from_item(stored_task(task_id, Status.RUNNING, **changes))


# ---- tiers ----------------------------------------------------------------------------------------------------------


def test_a_payload_is_inline_while_the_item_and_its_outcome_cost_one_unit(bench: Bench) -> None:
    room = CHEAP_ITEM_BYTES - item_bytes(bare()) - len("payload") - CLAIM_BYTES - OUTCOME_RESERVE_BYTES
    assert room > 100
    assert bench.bodies.place_payload(bare(), text_of(room), due_at=NOW) == {"payload": text_of(room)}
    placed = bench.bodies.place_payload(bare(), text_of(room + 1), due_at=NOW)
    assert placed == {"payloadRef": f"payload#t#{digest(text_of(room + 1))}", "payloadBytes": room + 1}


@pytest.mark.parametrize(
    ("size", "tier"),
    [(2000, "item"), (SIDE_ITEM_BYTES, "item"), (SIDE_ITEM_BYTES + 1, "s3"), (PAYLOAD_BYTES, "s3")],
)
def test_larger_payloads_stand_in_a_side_item_then_in_s3(bench: Bench, size: int, tier: str) -> None:
    text = text_of(size)
    placed = bench.bodies.place_payload(bare(), text, due_at=NOW + 50)
    reference = f"payload#t#{digest(text)}"
    if tier == "item":
        assert bench.db.item(reference) == {
            "taskId": reference,
            "body": text,
            "expiresAt": int(NOW) + 50 + BODY_RETENTION_SECONDS,
        }
    else:
        reference = f"{IN_S3}bodies/payload/t/{digest(text)}"
        assert list(bench.objects) == [reference.removeprefix(IN_S3)]
    assert placed == {"payloadRef": reference, "payloadBytes": size}
    assert bench.bodies.payload(Task.from_item({**bare(), **placed})) == text


def test_a_payload_in_s3_waits_no_longer_than_the_bucket_keeps_it(bench: Bench) -> None:
    """In a side item it may: its time to live counts from the task's due time."""
    year, far = NOW + BUCKET_DELAY_SECONDS, NOW + 5 * BUCKET_DELAY_SECONDS
    large = text_of(SIDE_ITEM_BYTES + 1)
    assert bench.bodies.place_payload(bare(), large, due_at=year)["payloadBytes"] == len(large)
    bench.objects.clear()
    with pytest.raises(InvalidInput, match="366 days") as caught:
        bench.bodies.place_payload(bare(), large, due_at=year + 1)
    assert (caught.value.path, bench.objects) == ("runAt", {})
    side = text_of(SIDE_ITEM_BYTES)
    placed = bench.bodies.place_payload(bare(), side, due_at=far)
    assert (bench.db.item(placed["payloadRef"]) or {})["expiresAt"] == int(far) + BODY_RETENTION_SECONDS


@pytest.mark.parametrize("letter", ["x", "é", "中", "😀"])
def test_sizes_are_bytes_of_the_stored_form(bench: Bench, letter: str) -> None:
    width = len(letter.encode())
    fits = '"' + letter * ((PAYLOAD_BYTES - 2) // width) + '"'
    assert bench.bodies.place_payload(bare(), fits, due_at=NOW)["payloadBytes"] == len(fits.encode())
    with pytest.raises(TooLarge) as caught:
        bench.bodies.place_payload(bare(), fits[:-1] + letter + '"', due_at=NOW)
    assert caught.value.path == "payload"


def test_a_result_is_inline_while_the_ended_item_costs_one_unit(bench: Bench) -> None:
    task = running(payload="1", attempts=None, error=None, exitedBy=None)
    size = next(size for size in range(1, 1024) if bench.bodies.place_result(task, text_of(size)).text is None) - 1
    result = bench.bodies.place_result(task, text_of(size))
    write = expressions.commit(
        task,
        LeaseToken("token-mine"),
        result=result,
        attempt=Attempt(1, NOW, NOW, "success"),
        layout=Layout(),
        now=NOW + 0.123,
    )
    bench.db.put(task.item)
    bench.store.apply(write)
    stored = bench.db.item("t") or {}
    assert CHEAP_ITEM_BYTES - 60 <= item_bytes(stored) <= CHEAP_ITEM_BYTES


def test_a_result_adds_no_unit_to_an_item_that_is_larger_anyway(bench: Bench) -> None:
    task = running(payload=text_of(3000), attempts=None)
    assert bench.bodies.place_result(task, text_of(20)).text is not None
    assert bench.bodies.place_result(task, text_of(1000)).reference == "result#t#5"


@pytest.mark.parametrize(
    ("size", "tier"), [(SIDE_ITEM_BYTES, "item"), (SIDE_ITEM_BYTES + 1, "s3"), (RESULT_BYTES, "s3")]
)
def test_larger_results_are_named_by_the_writers_fence(bench: Bench, size: int, tier: str) -> None:
    result = bench.bodies.place_result(running(), text_of(size))
    assert result.reference == ("result#t#5" if tier == "item" else f"{IN_S3}bodies/result/t/5")
    assert result.size == size
    if tier == "item":
        assert (bench.db.item("result#t#5") or {})["expiresAt"] == int(NOW) + 8 * DAY_SECONDS


def test_a_result_beyond_ten_mebibytes_is_refused(bench: Bench) -> None:
    with pytest.raises(TooLarge) as caught:
        bench.bodies.place_result(running(), text_of(RESULT_BYTES + 1))
    assert caught.value.path == "result"


def test_without_a_bucket_what_needs_one_is_refused(bench: Bench) -> None:
    alone = Bench(bucket=False)
    assert alone.bodies.place_result(running(), text_of(SIDE_ITEM_BYTES)).reference == "result#t#5"
    with pytest.raises(TooLarge, match="bucket"):
        alone.bodies.place_result(running(), text_of(SIDE_ITEM_BYTES + 1))


def test_old_attempts_are_dropped_before_a_result_is_moved_out(bench: Bench) -> None:
    history = [{"attempt": n, "outcome": "error", "message": "m" * 40} for n in range(1, 9)]
    task = running(payload="1", attempts=history, exitedBy=None)
    result = bench.bodies.place_result(task, text_of(250))
    assert result.text is not None
    assert result.attempts is not None
    assert result.attempts == history[-len(result.attempts) :]
    assert 0 < len(result.attempts) < len(history)
    bench.db.put(task.item)
    write = expressions.commit(
        task,
        LeaseToken("token-mine"),
        result=result,
        attempt=Attempt(9, NOW, NOW, "success"),
        layout=Layout(),
        now=NOW,
    )
    bench.store.apply(write)
    stored = bench.db.item("t") or {}
    assert stored["attempts"] == result.attempts
    assert item_bytes(stored) <= CHEAP_ITEM_BYTES


def test_a_history_that_would_not_help_is_kept(bench: Bench) -> None:
    result = bench.bodies.place_result(running(), text_of(2000))
    assert (result.reference, result.attempts) == ("result#t#5", None)


# ---- reading, renewing, erasing -------------------------------------------------------------------------------------


@pytest.mark.parametrize("reference", ["payload#t#x", f"{IN_S3}bodies/payload/t/x", None])
def test_a_body_that_is_gone_says_so(bench: Bench, reference: str | None) -> None:
    item = bare() | ({"payloadRef": reference} if reference else {})
    with pytest.raises(BodyMissing):
        bench.bodies.payload(Task.from_item(item))


def test_a_redrive_gives_the_payload_a_new_life(bench: Bench) -> None:
    placed = bench.bodies.place_payload(bare(), text_of(5000), due_at=NOW)
    task = Task.from_item({**bare(), **placed})
    bench.bodies.renew(task, due_at=NOW + 1000)
    reference = placed["payloadRef"]
    assert (bench.db.item(reference) or {})["expiresAt"] == int(NOW) + 1000 + BODY_RETENTION_SECONDS
    bench.db.remove(reference)
    bench.bodies.renew(task, due_at=NOW + 1000)
    assert bench.db.item(reference) is None


@pytest.mark.parametrize("size", [5000, SIDE_ITEM_BYTES + 1])
def test_erasing_takes_the_bodies_along(bench: Bench, size: int) -> None:
    placed = bench.bodies.place_payload(bare(), text_of(size), due_at=NOW)
    result = bench.bodies.place_result(running(), text_of(size))
    bench.bodies.erase(Task.from_item({**bare(), **placed, **result.attributes()}))
    assert bench.db.items() == {}
    assert bench.objects == {}


# ---- who may replace what -------------------------------------------------------------------------------------------


@task("big")
def big(payload: Any, ctx: Any) -> str:
    return "r" * (3000 + ctx.fence)


def test_a_stale_writer_cannot_replace_the_body_that_counts() -> None:
    """Its body stands under its own fence: an orphan with a time to live, whoever writes it last."""
    world = World(big)
    task_id = world.submit("big")
    world.sweep()

    def taken_claimed_and_committed_by_another() -> None:
        world.lapse()
        world.reap()
        world.advance(300)
        world.sweep()
        world.deliver()

    world.db.before(lambda call: "result#" in str(call.item_ids), taken_claimed_and_committed_by_another)
    world.deliver()
    stored = world.item(task_id)
    assert stored["resultRef"] == f"result#{task_id}#2"
    assert world.api.bodies.result(world.task(task_id)) == '"' + "r" * 3002 + '"'
    orphan = world.db.item(f"result#{task_id}#1") or {}
    assert orphan["expiresAt"] > 0


def test_a_body_that_never_got_an_answer_leaves_no_commit_and_no_second_effect() -> None:
    world = World(big)
    task_id = world.submit("big")
    world.sweep()
    world.db.inject(Fault.LOST_REPLY, where=lambda call: "result#" in str(call.item_ids), times=ATTEMPTS)
    world.deliver()
    assert world.status(task_id) == "SUCCESS"


def test_a_result_of_an_earlier_life_never_hides_the_new_one() -> None:
    world = World(big)
    task_id = world.submit("big")
    world.sweep()
    world.events.clear()
    old = {"result": '"old"', "resultRef": f"result#{task_id}#0", "resultBytes": 5}
    world.db.put(world.item(task_id) | old)
    claimed = world.task(task_id)
    token = claimed.lease_token
    assert token is not None
    placed = world.api.bodies.place_result(claimed, text_of(5000))
    attempt = Attempt(1, NOW, NOW, "success")
    write = expressions.commit(claimed, token, result=placed, attempt=attempt, layout=Layout(), now=NOW)
    world.api.store.apply(write)
    assert world.api.bodies.result(world.task(task_id)) == text_of(5000)
    assert "result" not in world.item(task_id)


def test_a_lost_race_for_a_key_leaves_an_orphan_with_a_time_to_live() -> None:
    world = World(big)
    first = world.submit("big", key="k", payload=text_of(4000))
    with pytest.raises(Exception, match="another body"):
        world.submit("big", key="k", payload=text_of(4001))
    orphans = [
        item for item_id, item in world.db.items("payload#").items() if item_id != world.item(first)["payloadRef"]
    ]
    assert len(orphans) == 1
    assert orphans[0]["expiresAt"] > world.clock.now()


def test_a_redriven_task_keeps_its_payload() -> None:
    world = World(big)
    task_id = world.submit("big", payload=text_of(4000), max_retry_number=0)
    item = world.item(task_id) | {"status": "FAILED", "expiresAt": 1, "finishedAt": 1}
    world.db.put(item)
    world.advance(200 * DAY_SECONDS)
    world.db.put(world.item(task_id) | {"expiresAt": int(world.clock.now()) + 5})
    Operations(world.api.store, world.api.bodies, world.api.dependencies).redrive(task_id, Operator("me"), key=None)
    body = world.db.item(item["payloadRef"]) or {}
    assert body["expiresAt"] == int(world.clock.now()) + BODY_RETENTION_SECONDS
    world.run()
    assert world.status(task_id) == "SUCCESS"


def test_an_unanswered_body_of_a_payload_accepts_no_task() -> None:
    world = World(big)
    world.db.inject(Fault.LOST_REPLY, where=lambda call: "payload#" in str(call.item_ids), times=ATTEMPTS)
    with pytest.raises(OutcomeUnknown):
        world.submit("big", payload=text_of(4000))
    assert not [call for call in world.db.calls if to_status("PENDING")(call)]
