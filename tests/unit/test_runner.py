"""One batch under one lease: what starts, what is renewed, what each task ends as, and when the lease is settled."""

from __future__ import annotations

import decimal
import threading
import time
from typing import Any

import pytest

from tests.support.batches import LAYOUT, START, TOKEN, Bench
from tests.support.fakes import FakeClock, ScriptedThreads
from tests.support.memory_dynamodb import Call, Fault
from thunderagent.clock import SystemClock
from thunderagent.context import Context
from thunderagent.errors import InvalidInput, LeaseLost, OutcomeUnknown, StoreRefused
from thunderagent.leased_batch import Batch
from thunderagent.model import LeaseToken, TaskId
from thunderagent.outcomes import Done, Fail, RetryLater
from thunderagent.registry import task
from thunderagent.retry import Backoff
from thunderagent.schema import lease_id
from thunderagent.threads import PoolThreads

LEASE = lease_id(TOKEN)


def renewals(call: Call) -> bool:
    return call.operation == "UpdateItem" and call.item_ids == [LEASE] and "lockTime" in call.sets and not begins(call)


def begins(call: Call) -> bool:
    return "begun" in call.sets


def starts(call: Call) -> bool:
    return renewals(call) and "started" in call.sets


def heartbeats(call: Call) -> bool:
    return renewals(call) and "started" not in call.sets


def ends(call: Call) -> bool:
    return call.operation == "UpdateItem" and "status" in call.sets


@task("demo", backoff=Backoff(base=10, factor=2, cap=300))
def echo(payload: Any, ctx: Context) -> Any:
    return payload


def returning(value: Any) -> Any:
    @task("demo")
    def handler(payload: Any, ctx: Context) -> Any:
        return value() if callable(value) else value

    return handler


def raising(error: Any) -> Any:
    @task("demo", backoff=Backoff(base=10, factor=2, cap=300))
    def handler(payload: Any, ctx: Context) -> Any:
        raise error

    return handler


NEVER = raising(RuntimeError("must not start"))


def assert_none_started(bench: Bench) -> None:
    """What a handler raises is its task's failure, so a start is looked for where it is told."""
    assert "task.started" not in bench.seen.names()
    assert bench.item("t1").get("error") is None


# ---- the ordinary life ----------------------------------------------------------------------------------------------


def test_a_batch_is_begun_read_started_ended_and_settled_in_that_order() -> None:
    bench = Bench(echo)
    bench.claim("t1", '{"n": 1}')
    bench.claim("t2", "[1.0]")
    summary = bench.run()

    kinds = ["begin" if begins(c) else "start" if starts(c) else c.operation for c in bench.db.calls]
    assert kinds == ["begin", "BatchGetItem", "start", "UpdateItem", "UpdateItem", "DeleteItem"]
    assert bench.item("t1")["status"] == "SUCCESS"
    assert bench.item("t1")["result"] == '{"n":1}'
    assert bench.item("t2")["result"] == "[1.0]"
    assert bench.lease is None
    assert summary.as_dict() == {"begun": True, "settled": True, "stuck": 0, "ends": {"succeeded": 2}}
    assert bench.seen.count("Succeeded") == 2
    assert bench.seen.values.count(("QueueLatency", 2.0, "default", None)) == 2


def test_a_batch_whose_threads_start_together_costs_six_write_units_and_two_or_three_a_task() -> None:
    bench = Bench(echo)
    for number in range(10):
        bench.claim(f"t{number}")
    batch = bench.open_lease()
    before = bench.db.write_units
    bench.run(batch)
    # begin 1, start 1, settle 2 (open was 2, before); each commit 1 + 2 for its list entry
    assert bench.db.write_units - before == 4 + 10 * 3


def test_only_tasks_that_idle_threads_take_together_are_recorded_as_started() -> None:
    clock = FakeClock()
    threads = ScriptedThreads(clock, durations=[2, 1])
    bench = Bench(echo, clock=clock, threads=threads, concurrency=2)
    for number in range(3):
        bench.claim(f"t{number}")
    bench.run()
    recorded = [set(call.sets["started"]) for call in bench.db.calls if starts(call)]
    assert recorded == [{"t0", "t1"}, {"t2"}]
    assert threads.most_at_once == 2


def test_a_task_gets_what_its_claim_says() -> None:
    told: list[Any] = []

    @task("demo")
    def handler(payload: Any, ctx: Context) -> None:
        told.append((ctx.task_id, ctx.type, ctx.queue, ctx.attempt, ctx.fence, ctx.idempotency_key, ctx.deadline))
        told.append((ctx.remaining_seconds, ctx.cancelled, dict(ctx.tags)))

    bench = Bench(handler)
    bench.claim(retryCount=2, fence=7, timeoutSeconds=20, tags={"tenant": "a"})
    bench.run()
    assert told == [("t1", "demo", "default", 3, 7, "t1", START + 20), (20, False, {"tenant": "a"})]


# ---- outcomes -------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("value", [None, 0, False, "", [], {}, 1.0, -0.0, 10**60, {"a": [None]}, "é中🜁"])
def test_ta36_results_survive_exactly(value: Any) -> None:
    bench = Bench(returning(value))
    bench.claim()
    bench.run()
    task_ = bench.store.get_task("t1")
    assert task_ is not None
    assert task_.status == "SUCCESS"
    from thunderagent.jsontext import loads

    stored = loads(bench.bodies.result(task_) or "")
    assert (stored, type(stored), str(stored)) == (value, type(value), str(value))


@pytest.mark.parametrize("text", ["null", "0", "false", '""', "{}", "[]", "1.0", '{"n":10000000000000000001}'])
def test_ta36_payloads_reach_the_handler_exactly(text: str) -> None:
    bench = Bench(echo)
    bench.claim(payload=text)
    bench.run()
    assert bench.item()["result"] == text


def test_ta36_a_budget_of_zero_retries_means_one_start() -> None:
    bench = Bench(raising(RuntimeError("no")))
    bench.claim(maxRetryNumber=0)
    bench.run()
    assert bench.item()["status"] == "FAILED"
    assert bench.item()["error"]["reason"] == "error"


@pytest.mark.parametrize(
    "value", [float("nan"), float("inf"), {1, 2}, decimal.Decimal("1.5"), b"x", {1: 2}, "\ud800", object()]
)
def test_a_value_json_cannot_hold_is_failed_and_not_done_again(value: Any) -> None:
    runs: list[int] = []

    @task("demo")
    def handler(payload: Any, ctx: Context) -> Any:
        runs.append(1)
        return value

    bench = Bench(handler)
    bench.claim()
    bench.run()
    item = bench.item()
    assert (item["status"], item["error"]["reason"]) == ("FAILED", "bad_result")
    assert item["error"]["message"].startswith("result")
    assert runs == [1]
    assert bench.lease is None


def test_a_result_beyond_ten_mebibytes_is_failed_with_that_reason() -> None:
    bench = Bench(returning(lambda: "x" * (10 * 1024 * 1024)))
    bench.claim()
    bench.run()
    assert (bench.item()["status"], bench.item()["error"]["reason"]) == ("FAILED", "result_too_large")


@pytest.mark.parametrize(("size", "where"), [(100, None), (5_000, "result#t1#1"), (400_000, "s3:bodies/result/t1/1")])
def test_results_go_to_the_tier_their_size_asks_for(size: int, where: str | None) -> None:
    bench = Bench(returning("x" * size))
    bench.claim()
    bench.run()
    found = bench.store.get_task("t1")
    assert found is not None
    assert (found.status, found.result_ref) == ("SUCCESS", where)
    assert bench.bodies.result(found) == '"' + "x" * size + '"'


def test_a_result_the_store_refuses_is_failed_and_not_done_again() -> None:
    bench = Bench(returning("x" * 400_000))
    bench.claim()
    refused = StoreRefused("put_object", "AccessDenied")

    def refuse(key: str, data: bytes) -> None:
        raise refused

    bench.objects.put = refuse  # type: ignore[method-assign]
    bench.run()
    assert (bench.item()["status"], bench.item()["error"]["reason"]) == ("FAILED", "result_not_stored")


@pytest.mark.parametrize("outcome", [Done("nothing to do"), Done(), Fail("bad input"), RetryLater(60)])
@pytest.mark.parametrize("how", ["raised", "returned"])
def test_outcomes_mean_the_same_returned_or_raised(outcome: Exception, how: str) -> None:
    bench = Bench(raising(outcome) if how == "raised" else returning(outcome))
    bench.claim(retryCount=1)
    bench.run()
    item = bench.item()
    match outcome:
        case Done():
            assert (item["status"], item["outcome"]) == ("DONE", "skipped")
            assert item.get("outcomeReason") == outcome.reason
        case Fail():
            assert (item["status"], item["error"]["type"], item["error"]["reason"]) == ("FAILED", "Fail", "permanent")
            assert item["error"]["message"] == "bad input"
        case RetryLater():
            assert (item["status"], item["retryCount"], item["dueAt"]) == ("PENDING", 1, START + 60)
            assert "leaseToken" not in item
    assert bench.lease is None


def test_another_exception_is_retried_with_backoff_and_told() -> None:
    bench = Bench(raising(ValueError("no luck")), fraction=1.0)
    bench.claim(retryCount=2)
    bench.run()
    item = bench.item()
    assert (item["status"], item["retryCount"], item["dueAt"]) == ("PENDING", 3, START + 40)
    assert item["error"] == {"type": "ValueError", "message": "no luck", "reason": "error", "at": START}
    assert item["attempts"][-1]["errorType"] == "ValueError"
    assert bench.seen.count("Retried") == 1
    fields = dict(bench.seen.events)["task.retried"]
    assert fields["errorType"] == "ValueError"
    assert fields["where"].endswith(" handler")
    assert "no luck" not in str(bench.seen.events)


def test_the_last_retry_that_fails_is_the_dead_letter() -> None:
    bench = Bench(raising(ValueError("no luck")))
    bench.claim(retryCount=3)
    bench.run()
    assert (bench.item()["status"], bench.item()["retryCount"]) == ("FAILED", 3)
    assert bench.seen.count("Failed") == 1


def test_a_retry_that_could_only_start_after_the_deadline_is_failed() -> None:
    bench = Bench(raising(ValueError("no luck")), fraction=1.0)
    bench.claim(deadline=START + 10)
    bench.run()
    assert (bench.item()["status"], bench.item()["error"]["reason"]) == ("FAILED", "deadline")

    bench = Bench(raising(ValueError("no luck")), fraction=1.0)
    bench.claim(deadline=START + 10.5)
    bench.run()
    assert bench.item()["status"] == "PENDING"


def test_a_snooze_past_the_deadline_is_due_at_it_so_that_it_expires_in_time() -> None:
    bench = Bench(raising(RetryLater(3600)))
    bench.claim(deadline=START + 10)
    bench.run()
    assert (bench.item()["status"], bench.item()["dueAt"]) == ("PENDING", START + 10)


@pytest.mark.parametrize("error", [SystemExit(3), KeyboardInterrupt(), GeneratorExit()])
def test_leaving_python_is_a_failure_of_the_handler(error: BaseException) -> None:
    bench = Bench(raising(error))
    bench.claim("t1")
    bench.claim("t2")
    summary = bench.run()
    assert bench.item("t1")["error"]["type"] == type(error).__name__
    assert summary.ends == {"retried": 2}
    assert summary.settled


def test_error_messages_are_cut_by_bytes_and_never_hold_half_a_pair() -> None:
    class Unprintable(Exception):
        def __str__(self) -> str:
            raise RuntimeError

    for error, start in [(ValueError("中" * 5000), "中"), (ValueError("\ud800"), "\\ud800"), (Unprintable(), "(its")]:
        bench = Bench(raising(error))
        bench.claim()
        bench.run()
        message = bench.item()["error"]["message"]
        assert message.startswith(start)
        assert len(message.encode()) <= 2048
        assert len(bench.item()["attempts"][0]["message"].encode()) <= 200


def test_history_keeps_the_last_ten_attempts() -> None:
    lines = [{"attempt": number, "endedAt": START, "outcome": "error"} for number in range(1, 11)]
    bench = Bench(raising(ValueError("x")))
    bench.claim(attempts=lines, retryCount=10, maxRetryNumber=20)
    bench.run()
    assert [line["attempt"] for line in bench.item()["attempts"]] == list(range(2, 12))


def test_a_type_without_a_handler_here_waits_and_costs_no_retry() -> None:
    bench = Bench(echo)
    bench.claim("t1", type="unknown.kind")
    bench.claim("t2")
    summary = bench.run()
    item = bench.item("t1")
    assert (item["status"], item["retryCount"]) == ("PENDING", 0)
    assert START + 30 <= item["dueAt"] <= START + 60
    assert summary.ends == {"released": 1, "succeeded": 1}
    assert not any("t1" in call.sets.get("started", ()) for call in bench.db.calls)


def test_a_payload_that_is_gone_or_unreadable_is_failed() -> None:
    bench = Bench(echo)
    bench.claim(
        "t1",
        payload="{",
    )
    bench.db.put({**bench.claimed("t2"), "payload": None, "payloadRef": "payload#t2#gone"})
    bench.task_ids.append(TaskId("t2"))
    bench.run()
    assert bench.item("t1")["error"]["reason"] == "bad_payload"
    assert bench.item("t2")["error"]["reason"] == "payload_missing"


def test_a_payload_that_cannot_be_read_just_now_costs_no_retry() -> None:
    bench = Bench(echo)
    bench.db.put({**bench.claimed(), "payload": None, "payloadRef": "payload#t1#x"})
    bench.task_ids.append(TaskId("t1"))
    bench.db.inject(Fault.THROTTLED, where=lambda call: call.item_ids == ["payload#t1#x"], times=None)
    summary = bench.run()
    assert (bench.item()["status"], bench.item()["retryCount"]) == ("PENDING", 0)
    assert summary.ends == {"released": 1}
    assert summary.settled


# ---- whose it is ----------------------------------------------------------------------------------------------------


def test_ta02_every_side_path_of_a_worker_that_lost_its_lease_is_refused() -> None:
    """Same worker name, another claim: only the token tells them apart. The stored item stays byte for byte."""

    def lose_it_and(then: Any) -> Bench:
        bench: Bench

        @task("demo")
        def handler(payload: Any, ctx: Context) -> Any:
            bench.db.put({**bench.item(), "leaseToken": "token-b", "fence": 2})  # same owner, claimed again
            frozen.append(bench.db.raw("t1"))
            return then(ctx)

        bench = Bench(handler)
        frozen: list[Any] = []
        bench.claim(owner="w1")
        bench.run()
        assert bench.db.raw("t1") == frozen[0]
        return bench

    def fail(ctx: Context) -> Any:
        raise Fail("x")

    def error(ctx: Context) -> Any:
        raise RuntimeError("x")

    def later(ctx: Context) -> Any:
        raise RetryLater(5)

    for path in (
        lambda ctx: {"late": True},
        fail,
        error,
        later,
        lambda ctx: Done("x"),
        lambda ctx: ctx.step("s", lambda: 1),
        lambda ctx: ctx.progress(0.5),
        lambda ctx: float("nan"),
        lambda ctx: ctx.commit_with([_put("a")]),
    ):
        bench = lose_it_and(path)
        assert bench.db.item("a") is None
        assert bench.lease is None  # answered, so settled
        assert "task.lost" in bench.seen.names()


def _put(item_id: str) -> dict[str, Any]:
    return {"Put": {"TableName": "tasks", "Item": {"taskId": {"S": item_id}}}}


def test_ta02_a_step_refused_raises_in_the_handler_and_no_later_write_follows() -> None:
    bench: Bench
    raised: list[str] = []

    @task("demo")
    def handler(payload: Any, ctx: Context) -> Any:
        bench.take_away()
        for write in (lambda: ctx.step("s", lambda: 1), lambda: ctx.progress(1), lambda: ctx.step("s2", lambda: 2)):
            try:
                write()
            except Exception as error:  # noqa: BLE001
                raised.append(type(error).__name__)
        return "swallowed"

    bench = Bench(handler)
    bench.claim()
    bench.run()
    assert raised == ["LeaseLost"] * 3
    writes = [call for call in bench.db.writes() if call.item_ids == ["t1"]]
    assert [call.outcome for call in writes] == ["ConditionFailed"]


def test_ta03_a_second_delivery_a_late_one_and_one_after_success_start_nothing() -> None:
    runs: list[str] = []

    @task("demo")
    def handler(payload: Any, ctx: Context) -> None:
        runs.append(ctx.task_id)
        again.append(bench.run(batch))  # delivered twice at once

    bench = Bench(handler)
    again: list[Any] = []
    bench.claim()
    batch = bench.open_lease()
    bench.run(batch)
    again.append(bench.run(batch))  # after SUCCESS: the lease is settled
    assert runs == ["t1"]
    assert [summary.begun for summary in again] == [False, False]

    late = Bench(handler)
    late.claim()
    batch = late.open_lease()
    late.clock.advance(61)  # past its lease, and claimed again
    late.take_away()
    frozen = late.db.raw("t1")
    assert not late.run(batch).begun
    assert late.db.raw("t1") == frozen
    assert runs == ["t1"]


def test_ta03_a_raising_handler_consumes_exactly_one_attempt() -> None:
    bench = Bench(raising(RuntimeError("x")))
    bench.claim()
    batch = bench.open_lease()
    bench.run(batch)
    bench.run(batch)
    assert bench.item()["retryCount"] == 1


def test_tasks_that_are_not_ours_are_left_alone() -> None:
    bench = Bench(echo)
    bench.claim("t1")
    for other in (bench.claimed("t2", leaseToken="token-b"), bench.claimed("t3", status="SUCCESS")):
        bench.db.put(other)
    bench.task_ids += [TaskId("t2"), TaskId("t3"), TaskId("t4")]
    before = [bench.db.raw(each) for each in ("t2", "t3", "t4")]
    summary = bench.run()
    assert summary.ends == {"succeeded": 1}
    assert [bench.db.raw(each) for each in ("t2", "t3", "t4")] == before
    assert summary.settled


def test_a_claim_that_arrives_late_is_released_at_the_next_heartbeat() -> None:
    """Its answer was lost to the poller, and it came after the read at begin."""
    clock = FakeClock()
    bench = Bench(echo, clock=clock, threads=ScriptedThreads(clock, durations=[25]))
    bench.claim("t1")
    bench.task_ids.append(TaskId("t2"))
    batch = bench.open_lease()
    bench.db.after(starts, lambda: bench.db.put(bench.claimed("t2")))
    bench.run(batch)
    assert bench.item("t1")["status"] == "SUCCESS"
    assert (bench.item("t2")["status"], bench.item("t2")["retryCount"]) == ("PENDING", 0)
    released = next(n for n, call in enumerate(bench.db.calls) if call.sets.get("status") == "PENDING")
    committed = next(n for n, call in enumerate(bench.db.calls) if call.sets.get("status") == "SUCCESS")
    assert released < committed


def test_a_row_that_is_no_task_is_parked_and_does_not_hold_up_the_batch() -> None:
    bench = Bench(echo)
    bench.claim("t1", retryCount="many")
    bench.claim("t2")
    summary = bench.run()
    assert (bench.item("t1")["status"], bench.item("t1")["error"]["reason"]) == ("FAILED", "malformed")
    assert bench.item("t2")["status"] == "SUCCESS"
    assert summary.settled


# ---- cancel ---------------------------------------------------------------------------------------------------------


def test_ta22_cancelled_between_claim_and_start_it_never_starts() -> None:
    bench = Bench(NEVER)
    bench.claim()
    batch = bench.open_lease()
    bench.cancel()
    summary = bench.run(batch)
    assert (bench.item()["status"], bench.item()["outcome"]) == ("DONE", "cancelled")
    assert summary.ends == {"cancelled": 1}
    assert bench.lease is None
    assert_none_started(bench)


def test_ta22_cancelled_but_not_told_through_the_lease_it_never_starts() -> None:
    """The API's second write, to the lease, may be late or lost: the read at begin sees the first."""
    bench = Bench(NEVER)
    bench.claim(cancelRequested=True)
    summary = bench.run()
    assert bench.item()["outcome"] == "cancelled"
    assert summary.ends == {"cancelled": 1}
    assert_none_started(bench)


def test_ta22_cancelled_between_the_read_and_its_start_it_never_starts() -> None:
    bench = Bench(NEVER)
    bench.claim()
    batch = bench.open_lease()
    bench.db.before(starts, bench.cancel)
    bench.run(batch)
    assert (bench.item()["status"], bench.item()["outcome"]) == ("DONE", "cancelled")
    assert_none_started(bench)


@pytest.mark.parametrize(
    "then", [lambda: 1, lambda: Done(), lambda: Fail("x"), lambda: RetryLater(1), lambda: RuntimeError("x")]
)
def test_ta22_cancelled_while_it_runs_neither_success_nor_failure_overtakes_it(then: Any) -> None:
    bench: Bench

    @task("demo")
    def handler(payload: Any, ctx: Context) -> Any:
        bench.cancel()
        value = then()
        if isinstance(value, RuntimeError):
            raise value
        return value

    bench = Bench(handler)
    bench.claim()
    summary = bench.run()
    item = bench.item()
    assert (item["status"], item["outcome"], item["retryCount"]) == ("DONE", "cancelled", 0)
    assert "result" not in item
    assert summary.ends == {"cancelled": 1}
    assert bench.seen.count("Cancelled") == 1


def test_ta22_a_running_task_sees_the_cancel_at_its_next_heartbeat() -> None:
    clock = FakeClock()
    saw: list[bool] = []

    @task("demo")
    def handler(payload: Any, ctx: Context) -> str:
        saw.append(ctx.cancelled)
        return "ignored"

    bench = Bench(handler, clock=clock, threads=ScriptedThreads(clock, durations=[13]))  # renewed at 12
    bench.claim()
    batch = bench.open_lease()
    bench.db.after(starts, bench.cancel)
    bench.run(batch)
    assert saw == [True]
    assert bench.item()["outcome"] == "cancelled"
    assert not any(call.sets.get("status") == "SUCCESS" for call in bench.db.calls)


def test_ta22_after_success_a_cancel_changes_nothing() -> None:
    bench = Bench(echo)
    bench.claim()
    bench.run()
    assert bench.item()["status"] == "SUCCESS"
    with pytest.raises(AssertionError):
        bench.cancel()


# ---- time -----------------------------------------------------------------------------------------------------------


def test_ta18_an_executor_that_begins_after_the_lease_exits_unrun() -> None:
    bench = Bench(NEVER)
    for number in range(10):
        bench.claim(f"t{number}")
    batch = bench.open_lease()
    before = bench.db.items("t")
    bench.clock.advance(70)
    summary = bench.run(batch)
    assert not summary.begun
    assert bench.db.items("t") == before
    assert "task.started" not in bench.seen.names()


def test_ta18_an_executor_that_begins_late_but_in_time_starts_a_fresh_lease() -> None:
    bench = Bench(echo)
    bench.claim()
    batch = bench.open_lease()
    bench.clock.advance(55)
    bench.run(batch)
    begin = next(call for call in bench.db.calls if begins(call))
    assert begin.sets["lockTime"] == START + 55 + 60


def test_ta18_ten_minutes_under_a_lease_of_sixty_seconds_with_every_third_renewal_failing() -> None:
    clock = FakeClock()
    bench = Bench(echo, clock=clock, threads=ScriptedThreads(clock, durations=[600]), concurrency=1)
    bench.claim(timeoutSeconds=870)
    bench.claim("t2", timeoutSeconds=870)
    batch = bench.open_lease()
    lapsed: list[float] = []
    count = iter(range(10_000))

    def look(call: Call) -> bool:
        lease = bench.lease
        if lease is not None and lease["lockTime"] <= clock.now():
            lapsed.append(clock.now())
        return heartbeats(call) and next(count) % 3 == 2

    bench.db.inject(OutcomeUnknown("UpdateItem", "ReadTimeoutError"), where=look, times=None)
    summary = bench.run(batch, remaining=3600)
    assert summary.ends == {"succeeded": 2}
    assert summary.settled
    assert lapsed == []
    done = [call for call in bench.db.calls if renewals(call) and call.outcome == "done"]
    locks = [call.sets["lockTime"] for call in done]
    assert locks == sorted(locks)
    # 60 s of lease are renewed when less than 48 are left: every 12 s or a little later, well below a third of it
    assert 1200 / 20 <= len(done) <= 1200 / 12 + 5


def test_ta18_a_renewal_never_shortens_a_lease() -> None:
    clock = FakeClock()
    bench = Bench(echo, clock=clock, threads=ScriptedThreads(clock, durations=[100]), lease_seconds=60)
    bench.claim(timeoutSeconds=200)
    batch = bench.open_lease()
    bench.db.put({**bench.db.item(LEASE), "lockTime": START + 500})  # type: ignore[dict-item]
    bench.run(Batch(batch.token, batch.task_ids, START + 500))
    assert [call.sets["lockTime"] for call in bench.db.calls if renewals(call)] == [START + 500]


def test_ta18_a_refused_renewal_stops_the_work() -> None:
    clock = FakeClock()
    saw: list[bool] = []

    @task("demo")
    def handler(payload: Any, ctx: Context) -> str:
        saw.append(ctx.cancelled)
        try:
            ctx.step("s", lambda: 1)
        except LeaseLost:
            saw.append(True)
        return "late"

    bench = Bench(handler, clock=clock, threads=ScriptedThreads(clock, durations=[25]), concurrency=1)
    bench.claim("t1")
    bench.claim("t2")
    batch = bench.open_lease()
    bench.db.after(starts, bench.close_lease)
    summary = bench.run(batch)
    assert saw == [True, True]
    assert summary.ends["dropped"] == 1
    assert bench.item("t2")["status"] == "RUNNING"  # the reaper's, and not charged: it never started
    assert not summary.settled
    assert bench.lease is not None
    assert bench.seen.count("HeartbeatsLost") == 1
    assert sum(renewals(call) for call in bench.db.calls) == 2


def test_a_lease_that_was_closed_before_the_start_starts_none() -> None:
    bench = Bench(NEVER)
    bench.claim()
    batch = bench.open_lease()
    bench.db.before(starts, bench.close_lease)
    summary = bench.run(batch)
    assert summary.ends == {"dropped": 1}
    assert bench.item()["status"] == "RUNNING"
    assert not summary.settled
    assert_none_started(bench)


def test_a_start_record_without_an_answer_starts_nothing_until_one_comes() -> None:
    bench = Bench(echo)
    bench.claim()
    order: list[str] = []
    bench.db.inject(Fault.THROTTLED, where=starts, times=8)  # more than the store's own tries
    bench.db.after(starts, lambda: order.append("recorded"), times=None)
    bench.db.before(ends, lambda: order.append("ended"), times=None)
    summary = bench.run()
    assert order == ["recorded", "ended"]
    assert summary.ends == {"succeeded": 1}


def test_tasks_whose_start_can_never_be_recorded_are_handed_back() -> None:
    bench = Bench(NEVER)
    bench.claim()
    bench.db.inject(Fault.THROTTLED, where=starts, times=None)
    summary = bench.run()
    assert (bench.item()["status"], bench.item()["retryCount"]) == ("PENDING", 0)
    assert summary.ends == {"released": 1}
    assert_none_started(bench)


@pytest.mark.parametrize("remaining", [0, 0.001, -0.005, 44.9])
def test_ta20_with_too_little_time_left_it_declines_to_start_and_returns_the_task_unconsumed(remaining: float) -> None:
    bench = Bench(NEVER, fraction=1.0)
    bench.claim("t1", timeoutSeconds=30)
    bench.claim("t2", timeoutSeconds=30)
    summary = bench.run(remaining=lambda: remaining)
    for task_id in ("t1", "t2"):
        item = bench.item(task_id)
        assert (item["status"], item["retryCount"], item["dueAt"]) == ("PENDING", 0, START + 5)
        assert "attempts" not in item
    assert summary.ends == {"released": 2}
    assert summary.settled
    assert next(call for call in bench.db.calls if begins(call)).sets["lockTime"] == START + 60  # always an expiry
    assert not any(starts(call) for call in bench.db.calls)
    assert_none_started(bench)


def test_ta20_what_fits_is_started_and_what_does_not_is_handed_back_at_once() -> None:
    clock = FakeClock()
    bench = Bench(echo, clock=clock, threads=ScriptedThreads(clock, durations=[20]), concurrency=1)
    bench.claim("short", timeoutSeconds=30)
    bench.claim("long", timeoutSeconds=80)
    bench.claim("second", timeoutSeconds=70)
    bench.run(remaining=90)
    assert bench.item("short")["status"] == "SUCCESS"
    assert bench.item("long")["updatedAt"] == START  # 80 + 15 s never fit
    assert START < bench.item("second")["updatedAt"] < START + 20  # 70 + 15 s did at first; handed back while it can be
    assert {bench.item(each)["status"] for each in ("long", "second")} == {"PENDING"}


def test_a_timeout_above_what_the_executor_can_keep_is_lowered_not_refused_for_ever() -> None:
    bench = Bench(echo, task_seconds=870)
    bench.claim(timeoutSeconds=86_400)
    bench.run(remaining=890)
    assert bench.item()["status"] == "SUCCESS"


def test_ta20_a_handler_past_its_timeout_is_recorded_as_such_and_retried_with_backoff() -> None:
    clock = FakeClock()
    threads = ScriptedThreads(clock, durations=[1000])
    bench = Bench(echo, clock=clock, threads=threads, fraction=1.0)
    bench.claim(timeoutSeconds=30)
    summary = bench.run()
    item = bench.item()
    assert (item["status"], item["retryCount"]) == ("PENDING", 1)
    assert (item["error"]["type"], item["error"]["reason"]) == ("Timeout", "timeout")
    assert START + 30 <= item["updatedAt"] <= START + 36  # interrupted at 30, given up 5 s later
    assert item["dueAt"] == item["updatedAt"] + 10
    assert item["attempts"][0]["outcome"] == "timeout"
    assert summary.stuck == 1
    assert bench.exits == [1]
    assert summary.settled


def test_ta20_the_last_timeout_is_the_dead_letter() -> None:
    clock = FakeClock()
    bench = Bench(echo, clock=clock, threads=ScriptedThreads(clock, durations=[1000]))
    bench.claim(timeoutSeconds=30, retryCount=3)
    bench.run()
    assert (bench.item()["status"], bench.item()["error"]["reason"]) == ("FAILED", "timeout")


def test_ta20_near_the_end_of_the_invocation_timeouts_are_recorded_before_the_kill() -> None:
    """The invocation ends earlier than was foreseen: what runs is recorded as timed out while that is possible."""
    clock = FakeClock()
    bench = Bench(echo, clock=clock, threads=ScriptedThreads(clock, durations=[1000]), concurrency=1)
    bench.claim("t1", timeoutSeconds=300)
    bench.claim("t2", timeoutSeconds=300)
    until = [START + 900]
    bench.db.after(starts, lambda: until.__setitem__(0, START + 60))
    bench.run(remaining=lambda: until[0] - clock.monotonic())
    assert bench.item("t1")["error"]["reason"] == "timeout"
    assert bench.item("t2")["retryCount"] == 0
    assert {bench.item(each)["status"] for each in ("t1", "t2")} == {"PENDING"}
    assert clock.now() <= START + 60


def test_once_a_thread_is_stuck_the_rest_is_handed_back() -> None:
    clock = FakeClock()
    bench = Bench(echo, clock=clock, threads=ScriptedThreads(clock, durations=[1000]), concurrency=1)
    bench.claim("t1", timeoutSeconds=10)
    bench.claim("t2", timeoutSeconds=10)
    summary = bench.run()
    assert summary.ends == {"timed_out": 1, "released": 1}
    assert bench.exits == [1]


def test_long_tasks_leave_the_head_of_the_line_once() -> None:
    clock = FakeClock()
    bench = Bench(echo, clock=clock, threads=ScriptedThreads(clock, durations=[5, 100]))
    bench.claim("short", timeoutSeconds=200)
    bench.claim("long", timeoutSeconds=200)
    bench.run()
    moved = [call for call in bench.db.calls if set(call.sets) == {"dispatchKey"}]
    assert [call.item_ids for call in moved] == [["long"]]
    assert moved[0].sets["dispatchKey"] == LAYOUT.running("default", "long")


# ---- ambiguous writes -----------------------------------------------------------------------------------------------


def test_a_lost_reply_to_begin_is_recognised_by_the_nonce() -> None:
    bench = Bench(echo)
    bench.claim()
    bench.db.inject(Fault.LOST_REPLY, where=begins)
    assert bench.run().ends == {"succeeded": 1}


@pytest.mark.parametrize(
    ("handler", "status"),
    [
        (echo, "SUCCESS"),
        (raising(Fail("x")), "FAILED"),
        (raising(RuntimeError("x")), "PENDING"),
        (raising(RetryLater(9)), "PENDING"),
        (returning(Done()), "DONE"),
    ],
)
def test_a_lost_reply_to_an_end_is_recognised_as_ours_and_the_lease_settled(handler: Any, status: str) -> None:
    bench = Bench(handler)
    bench.claim()
    bench.db.inject(Fault.LOST_REPLY, where=ends)
    summary = bench.run()
    assert bench.item()["status"] == status
    assert summary.settled
    assert "lost" not in summary.ends
    assert bench.item()["retryCount"] <= 1


def test_an_end_that_is_never_answered_leaves_the_lease_to_the_reaper() -> None:
    bench = Bench(echo, lease_seconds=10)
    bench.claim("t1")
    bench.claim("t2")
    bench.db.inject(Fault.LOST_REQUEST, where=lambda call: ends(call) and call.item_ids == ["t1"], times=None)
    summary = bench.run()
    assert summary.ends == {"succeeded": 1, "unanswered": 1}
    assert not summary.settled
    assert bench.lease is not None
    assert bench.item("t1")["status"] == "RUNNING"
    assert bench.clock.now() <= bench.lease["lockTime"]  # tried until the lease margin, no longer


def test_a_release_that_is_never_answered_leaves_the_lease_too() -> None:
    bench = Bench(NEVER)
    bench.claim()
    bench.db.inject(Fault.LOST_REQUEST, where=ends, times=None)
    summary = bench.run(remaining=lambda: 1)
    assert summary.ends == {"unanswered": 1}
    assert bench.lease is not None
    assert_none_started(bench)


def test_a_throttled_commit_is_retried_until_it_succeeds_and_the_effect_is_not_repeated() -> None:
    runs: list[int] = []

    @task("demo")
    def handler(payload: Any, ctx: Context) -> None:
        runs.append(1)

    bench = Bench(handler)
    bench.claim()
    until = START + 5
    bench.db.inject(Fault.THROTTLED, where=lambda call: ends(call) and bench.clock.now() < until, times=None)
    summary = bench.run()
    assert summary.ends == {"succeeded": 1}
    assert summary.settled
    assert runs == [1]
    assert bench.clock.now() >= until


def test_a_begin_without_an_answer_starts_nothing_and_touches_nothing() -> None:
    bench = Bench(NEVER)
    bench.claim()
    batch = bench.open_lease()
    bench.db.inject(Fault.LOST_REPLY, where=begins, times=None)
    assert not bench.run(batch).begun
    assert bench.item()["status"] == "RUNNING"
    assert {tuple(call.item_ids) for call in bench.db.calls} == {(LEASE,)}
    assert_none_started(bench)


# ---- crash accounting -----------------------------------------------------------------------------------------------


def test_ta05_whatever_instant_a_handler_kills_its_worker_its_start_is_on_record() -> None:
    class Killed(BaseException): ...

    bench: Bench
    recorded: list[Any] = []

    @task("demo")
    def handler(payload: Any, ctx: Context) -> None:
        recorded.append((bench.lease or {}).get("started"))

    bench = Bench(handler, concurrency=1)
    bench.claim("t1")
    bench.claim("t2")
    bench.run()
    assert recorded == [{"t1"}, {"t1", "t2"}]  # each before it starts; what waits is not charged for its neighbour


# ---- real threads ---------------------------------------------------------------------------------------------------


def real(*functions: Any, **more: Any) -> Bench:
    return Bench(*functions, clock=SystemClock(), threads=PoolThreads(1), **more)


def test_handlers_run_at_once_and_no_thread_survives() -> None:
    together = threading.Barrier(4, timeout=10)

    @task("demo")
    def handler(payload: Any, ctx: Context) -> str:
        together.wait()
        return threading.current_thread().name

    bench = real(handler)
    for number in range(4):
        bench.claim(f"t{number}")
    before = threading.active_count()
    summary = bench.run()
    assert summary.ends == {"succeeded": 4}
    assert threading.active_count() == before


def test_ta20_a_python_loop_past_its_timeout_is_interrupted_and_its_late_result_refused(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    unwound = threading.Event()

    @task("demo")
    def handler(payload: Any, ctx: Context) -> str:
        try:
            while True:
                sum(range(100))
        finally:
            unwound.set()

    bench = real(handler)
    bench.claim(timeoutSeconds=0.2)
    summary = bench.run()
    assert unwound.is_set()
    assert bench.item()["error"]["reason"] == "timeout"
    assert (summary.stuck, bench.exits) == (0, [])
    assert summary.settled


def test_ta20_a_handler_that_swallows_its_interrupt_is_late_all_the_same() -> None:
    @task("demo")
    def handler(payload: Any, ctx: Context) -> str:
        try:
            while True:
                sum(range(100))
        except BaseException:  # noqa: BLE001
            return "late"

    bench = real(handler)
    bench.claim(timeoutSeconds=0.2)
    bench.run()
    assert (bench.item()["status"], bench.item()["error"]["reason"]) == ("PENDING", "timeout")


def test_ta20_a_thread_stuck_in_foreign_code_is_given_up_recorded_and_ended_with_its_process(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr("thunderagent.runner.INTERRUPT_SECONDS", 0.1)
    released = threading.Event()
    late: list[str] = []

    @task("demo")
    def handler(payload: Any, ctx: Context) -> str:
        lock.acquire()  # waits in C: no Python interrupt reaches it
        try:
            ctx.step("late", lambda: 1)
        except BaseException as error:  # noqa: BLE001
            late.append(type(error).__name__)
        released.set()
        return "late"

    lock = threading.Lock()
    lock.acquire()
    bench = real(handler)
    bench.claim(timeoutSeconds=0.2)
    summary = bench.run()
    frozen = bench.db.raw("t1")
    assert bench.item()["error"]["reason"] == "timeout"
    assert (summary.stuck, bench.exits) == (1, [1])
    assert summary.settled

    lock.release()  # had the process not been ended, the late thread would find every door closed
    deadline = time.monotonic() + 10
    while threading.active_count() > 1 and any(t.name == "thunder-task" for t in threading.enumerate()):
        assert time.monotonic() < deadline
        time.sleep(0.01)
    assert bench.db.raw("t1") == frozen
    assert not released.is_set() or late


def test_an_end_that_is_being_written_when_the_time_is_over_is_not_written_twice(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr("thunderagent.runner.INTERRUPT_SECONDS", 0.05)
    written = threading.Event()

    def slowly() -> None:
        written.wait(0.6)  # past the timeout and the time to unwind; nobody sets it

    bench = real(echo)
    bench.claim(timeoutSeconds=0.1)
    bench.db.before(ends, slowly)
    summary = bench.run()
    assert summary.ends == {"succeeded": 1}
    assert sum(ends(call) for call in bench.db.calls) == 1
    assert bench.item()["status"] == "SUCCESS"


# ---- events ---------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    "event",
    [
        None,
        [],
        "x",
        {},
        {"formatVersion": 2, "leaseToken": "t", "taskIds": [], "lockTime": 1},
        {"formatVersion": 1, "leaseToken": "", "taskIds": [], "lockTime": 1},
        {"formatVersion": 1, "leaseToken": "t", "taskIds": [1], "lockTime": 1},
        {"formatVersion": 1, "leaseToken": "t", "taskIds": "t1", "lockTime": 1},
        {"formatVersion": 1, "leaseToken": "t", "taskIds": ["t1"], "lockTime": True},
        {"formatVersion": 1, "leaseToken": "t", "taskIds": ["t1"], "lockTime": "soon"},
    ],
)
def test_what_is_no_batch_is_refused(event: Any) -> None:
    with pytest.raises(InvalidInput):
        Batch.from_event(event)


def test_an_event_is_read_with_each_task_once() -> None:
    event = {"formatVersion": 1, "leaseToken": "t", "taskIds": ["a", "b", "a"], "lockTime": 5, "leaseSeconds": 60}
    assert Batch.from_event(event) == Batch(LeaseToken("t"), (TaskId("a"), TaskId("b")), 5.0, 60.0)
