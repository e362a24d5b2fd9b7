"""What a handler may do on its way: steps, progress, check-ins, children, commits of its own."""

from __future__ import annotations

from typing import Any

import pytest

from tests.support.batches import START, Bench
from tests.support.memory_dynamodb import Call, Fault
from thunderagent.context import Context
from thunderagent.errors import LeaseLost, OutcomeUnknown, TaskCancelled, ThunderAgentError
from thunderagent.outcomes import Fail
from thunderagent.registry import task
from thunderagent.transactions import CommitRefused


def run(body: Any, *, before: Bench | None = None, **attributes: Any) -> Bench:
    """Run `body(ctx, bench)` as the handler of one task, in the table another bench left if one is given."""
    bench: Bench

    unmet: list[BaseException] = []

    @task("demo")
    def handler(payload: Any, ctx: Context) -> Any:
        try:
            return body(ctx, bench)
        except (AssertionError, pytest.fail.Exception) as error:  # not the handler's failure, the test's
            unmet.append(error)
            raise

    bench = Bench(handler) if before is None else Bench(handler, clock=before.clock, randomness=before.randomness)
    for item in () if before is None else before.db.items().values():
        bench.db.put(item)
    bench.claim(**attributes)
    bench.run()
    if unmet:
        raise unmet[0]
    return bench


def again(before: Bench, body: Any) -> Bench:
    """The next attempt of the same task, after whatever ended the one before."""
    left = before.item()
    kept = {name: left[name] for name in ("steps", "depth") if name in left}
    return run(body, before=before, retryCount=left["retryCount"], fence=2, **kept)


def memoised(*names: str) -> dict[str, Any]:
    return {name: {"n": place, "result": f'"{name} before"'} for place, name in enumerate(names, start=1)}


# ---- steps ----------------------------------------------------------------------------------------------------------


def test_a_step_that_completed_is_never_run_again() -> None:
    runs: list[str] = []

    def body(ctx: Context, bench: Bench) -> Any:
        results = []
        for name in ("load", "shape", "send"):
            results.append(ctx.step(name, lambda name=name: runs.append(name) or {"did": name}))  # type: ignore[misc]
            if name == "shape" and ctx.attempt == 1:
                raise RuntimeError("dies after the second")
        return results

    first = run(body)
    assert first.item()["status"] == "PENDING"
    second = again(first, body)
    assert second.item()["status"] == "SUCCESS"
    assert second.item()["result"] == '[{"did":"load"},{"did":"shape"},{"did":"send"}]'
    assert runs == ["load", "shape", "send"]


@pytest.mark.parametrize("value", [None, 0, False, "", [], {"a": [1.0, 10**40]}])
def test_a_step_gives_back_the_same_value_on_a_replay(value: Any) -> None:
    def body(ctx: Context, bench: Bench) -> Any:
        results.append(ctx.step("s", lambda: value))
        if ctx.attempt == 1:
            raise RuntimeError

    results: list[Any] = []
    again(run(body), body)
    assert results == [value, value]
    assert type(results[0]) is type(results[1])


def test_a_step_that_raises_is_not_remembered_and_may_be_tried_again() -> None:
    tries: list[int] = []

    def flaky() -> int:
        tries.append(1)
        if len(tries) < 3:
            raise ConnectionError
        return 7

    def body(ctx: Context, bench: Bench) -> Any:
        for _ in range(3):
            try:
                return ctx.step("call", flaky)
            except ConnectionError:
                continue
        return None

    bench = run(body)
    assert bench.item()["result"] == "7"
    assert bench.item()["steps"] == {"call": {"n": 1, "result": "7"}}


@pytest.mark.parametrize("names", [("load", "render"), ("send", "load"), ("other",)])
def test_another_name_or_order_on_a_replay_fails_and_says_where(names: tuple[str, ...]) -> None:
    ran: list[str] = []

    def body(ctx: Context, bench: Bench) -> Any:
        for name in names:
            ctx.step(name, lambda name=name: ran.append(name))  # type: ignore[misc]

    bench = run(body, steps=memoised("load", "send"), retryCount=1)
    item = bench.item()
    assert (item["status"], item["error"]["reason"]) == ("FAILED", "replay_mismatch")
    assert "steps or their order changed" in item["error"]["message"]
    assert ran == []
    assert item["steps"] == memoised("load", "send")


def test_a_step_moved_behind_a_new_one_fails_instead_of_running_twice() -> None:
    def body(ctx: Context, bench: Bench) -> Any:
        ctx.step("load", lambda: None)
        ctx.step("new", lambda: None)

    bench = run(body, steps=memoised("load"))
    assert bench.item()["status"] == "SUCCESS"  # one more step at the end is no contradiction

    def moved(ctx: Context, bench: Bench) -> Any:
        ctx.step("load", lambda: None)
        ctx.step("send", lambda: None)

    assert run(moved, steps=memoised("send", "load")).item()["error"]["reason"] == "replay_mismatch"


def test_a_step_gives_the_stored_form_at_once_so_that_first_run_and_replay_agree() -> None:
    def body(ctx: Context, bench: Bench) -> Any:
        assert ctx.step("s", lambda: {"pair": (1, 2)}) == {"pair": [1, 2]}

    assert run(body).item()["status"] == "SUCCESS"


def test_a_step_earlier_than_its_place_fails() -> None:
    """The step before it had raised, so only the second is stored."""

    def body(ctx: Context, bench: Bench) -> Any:
        return ctx.step("second", lambda: 1)

    stored = {"second": {"n": 2, "result": "1"}}
    assert run(body, steps=stored).item()["error"]["reason"] == "replay_mismatch"


def test_steps_are_named_once_and_not_nested() -> None:
    def twice(ctx: Context, bench: Bench) -> Any:
        ctx.step("a", lambda: 1)
        ctx.step("a", lambda: 1)

    def nested(ctx: Context, bench: Bench) -> Any:
        ctx.step("a", lambda: ctx.step("b", lambda: 1))

    for body, message in ((twice, "made twice"), (nested, "cannot be nested")):
        item = run(body).item()
        assert (item["status"], item["error"]["reason"]) == ("FAILED", "step_refused")
        assert message in item["error"]["message"]


def test_a_task_has_at_most_a_hundred_steps() -> None:
    def body(ctx: Context, bench: Bench) -> Any:
        for number in range(101):
            ctx.step(f"s{number}", lambda: None)

    item = run(body).item()
    assert (item["status"], len(item["steps"])) == ("FAILED", 100)
    assert "at most 100 steps" in item["error"]["message"]


@pytest.mark.parametrize("value", ["x" * 300_000, {1, 2}, float("nan"), b"x"])
def test_a_step_result_that_cannot_be_kept_fails_for_good_and_is_not_repeated(value: Any) -> None:
    def body(ctx: Context, bench: Bench) -> Any:
        ran.append(1)
        ctx.step("big", lambda: value)

    ran: list[int] = []
    item = run(body).item()
    assert (item["status"], item["error"]["reason"]) == ("FAILED", "step_refused")
    assert item["error"]["message"].startswith("step 'big': ")
    assert ran == [1]


def test_steps_leave_room_for_the_end() -> None:
    def body(ctx: Context, bench: Bench) -> Any:
        for number in range(5):
            ctx.step(f"s{number}", lambda: "x" * 59_000)
        return "y" * 2_000

    bench = run(body)
    assert bench.item()["status"] == "SUCCESS"
    assert len(bench.item()["steps"]) == 5


def test_a_lost_reply_to_a_step_is_recognised() -> None:
    def body(ctx: Context, bench: Bench) -> Any:
        bench.db.inject(Fault.LOST_REPLY, where=lambda call: "steps" in call.sets)
        return ctx.step("s", lambda: 5)

    assert run(body).item()["result"] == "5"


def test_a_step_after_a_cancel_raises_and_the_task_ends_cancelled() -> None:
    def body(ctx: Context, bench: Bench) -> Any:
        bench.cancel()
        with pytest.raises(TaskCancelled):
            ctx.step("s", lambda: 1)
        assert ctx.cancelled
        return "ignored"

    bench = run(body)
    assert (bench.item()["status"], bench.item()["outcome"]) == ("DONE", "cancelled")
    assert "steps" not in bench.item()


# ---- progress, heartbeat, logger ------------------------------------------------------------------------------------


def test_progress_is_stored_with_its_time() -> None:
    bench = run(lambda ctx, bench: ctx.progress(0.5, "half\ud800"))
    assert bench.item()["progress"] == {"fraction": 0.5, "message": "half\\ud800", "at": START}


@pytest.mark.parametrize("fraction", [-0.1, 1.1, float("nan"), True, "half"])
def test_progress_is_a_fraction(fraction: Any) -> None:
    bench = run(lambda ctx, bench: ctx.progress(fraction))
    assert bench.item()["error"]["type"] == "ValueError"


def test_a_store_that_fails_costs_the_note_of_progress_not_the_task() -> None:
    def body(ctx: Context, bench: Bench) -> Any:
        bench.db.inject(Fault.THROTTLED, where=lambda call: "progress" in call.sets, times=None)
        ctx.progress(0.5)
        return "done"

    assert run(body).item()["status"] == "SUCCESS"


def test_a_heartbeat_renews_when_that_is_due_and_raises_when_the_lease_is_lost() -> None:
    def body(ctx: Context, bench: Bench) -> Any:
        ctx.heartbeat()
        bench.clock.advance(20)
        ctx.heartbeat()
        assert (bench.lease or {})["lockTime"] == START + 80
        bench.close_lease()
        bench.clock.advance(20)
        with pytest.raises(LeaseLost):
            ctx.heartbeat()
        assert ctx.cancelled

    bench = run(body)
    renewed = [call for call in bench.db.calls if set(call.sets) == {"lockTime"}]
    assert [call.outcome for call in renewed] == ["done", "ConditionFailed"]


def test_the_logger_carries_the_ids() -> None:
    bench = run(lambda ctx, bench: ctx.logger.warning("read %d rows", 5, station="x", level="odd"))
    assert (
        "task.message",
        {
            "level": "WARNING",
            "message": "read 5 rows",
            "data": {"station": "x", "level": "odd"},
            "taskId": "t1",
            "type": "demo",
            "queue": "default",
            "attempt": 1,
        },
    ) in bench.seen.events


# ---- children -------------------------------------------------------------------------------------------------------


def children(bench: Bench) -> list[dict[str, Any]]:
    return [item for item in bench.db.items().values() if item.get("type") == "child"]


def test_ta28_a_retry_submits_the_same_children() -> None:
    def body(ctx: Context, bench: Bench) -> Any:
        ids.append([ctx.submit("child", {"n": number}).task_id for number in range(3)])
        if ctx.attempt == 1:
            raise RuntimeError("crashes before its commit")

    ids: list[Any] = []
    first = run(body)
    second = again(first, body)
    assert ids[0] == ids[1]
    assert len(set(ids[0])) == 3
    assert len(children(second)) == 3
    assert {item["depth"] for item in children(second)} == {1}


def test_a_child_is_told_of_and_counted_when_it_is_new() -> None:
    def body(ctx: Context, bench: Bench) -> Any:
        ctx.submit("child")
        if ctx.attempt == 1:
            raise RuntimeError("again")

    first = run(body)
    second = again(first, body)
    assert [bench.seen.count("Submitted") for bench in (first, second)] == [1, 0]
    (told,) = [fields for event, fields in first.seen.events if event == "task.submitted"]
    assert (told["type"], told["parentId"]) == ("child", "t1")


def test_a_trace_is_handed_to_the_handler_its_children_and_its_log_lines() -> None:
    traceparent = "00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01"
    given: list[str | None] = []

    def body(ctx: Context, bench: Bench) -> Any:
        given.append(ctx.traceparent)
        ctx.logger.info("working")
        ctx.submit("child")

    bench = run(body, traceparent=traceparent)
    run(body)
    assert given == [traceparent, None]
    assert [item["traceparent"] for item in children(bench)] == [traceparent]
    of_tasks = [fields for event, fields in bench.seen.events if event.startswith("task.")]
    assert {fields.get("traceparent") for fields in of_tasks} == {traceparent}


def test_ta28_children_submitted_inside_a_step_do_not_shift_the_others() -> None:
    def body(ctx: Context, bench: Bench) -> Any:
        ctx.step("spawn", lambda: [ctx.submit("child", {"in": n}).task_id for n in range(2)])
        ctx.submit("child", {"out": 1})
        if ctx.attempt == 1:
            raise RuntimeError

    second = again(run(body), body)
    assert second.item()["status"] == "SUCCESS"
    assert sorted(item["payload"] for item in children(second)) == ['{"in":0}', '{"in":1}', '{"out":1}']


def test_ta28_another_child_at_the_same_place_is_an_error_not_a_second_child() -> None:
    def body(ctx: Context, bench: Bench) -> Any:
        ctx.submit("child", {"attempt": ctx.attempt})
        if ctx.attempt == 1:
            raise RuntimeError

    second = again(run(body), body)
    assert second.item()["error"]["reason"] == "replay_mismatch"
    assert len(children(second)) == 1


def test_a_named_child_is_known_by_its_name_in_any_order() -> None:
    def body(ctx: Context, bench: Bench) -> Any:
        order = ["a", "b"] if ctx.attempt == 1 else ["b", "a"]
        for name in order:
            ctx.submit("child", {"name": name}, name=name)
        if ctx.attempt == 1:
            raise RuntimeError

    second = again(run(body), body)
    assert second.item()["status"] == "SUCCESS"
    assert len(children(second)) == 2


def test_the_hundred_and_first_generation_is_refused_for_good() -> None:
    bench = run(lambda ctx, bench: ctx.submit("child").task_id, depth=100)
    assert (bench.item()["status"], bench.item()["error"]["reason"]) == ("FAILED", "bad_submission")
    assert children(bench) == []


# ---- commit_with ----------------------------------------------------------------------------------------------------


def put(item_id: str, **condition: Any) -> dict[str, Any]:
    return {"Put": {"TableName": "tasks", "Item": {"taskId": {"S": item_id}}, **condition}}


ABSENT = {"ConditionExpression": "attribute_not_exists(taskId)", "ReturnValuesOnConditionCheckFailure": "ALL_OLD"}


@pytest.mark.parametrize("after", ["ignored", RuntimeError("ignored"), Fail("ignored")])
def test_commit_with_is_the_last_word(after: Any) -> None:
    def body(ctx: Context, bench: Bench) -> Any:
        ctx.commit_with([put("order#1")], {"total": 3})
        if isinstance(after, Exception):
            raise after
        return after

    bench = run(body)
    assert (bench.item()["status"], bench.item()["result"]) == ("SUCCESS", '{"total":3}')
    assert bench.db.item("order#1") is not None
    assert bench.lease is None
    assert bench.seen.count("Succeeded") == 1


def test_the_users_own_condition_failing_is_told_apart_and_nothing_is_written() -> None:
    def body(ctx: Context, bench: Bench) -> Any:
        bench.db.put({"taskId": "order#1", "by": "somebody"})
        with pytest.raises(CommitRefused) as refused:
            ctx.commit_with([put("other#1"), put("order#1", **ABSENT)])
        assert refused.value.failed == {1: {"taskId": "order#1", "by": "somebody"}}
        ctx.progress(0.5)  # the task is still this attempt's
        return "went on"

    bench = run(body)
    assert bench.item()["result"] == '"went on"'
    assert bench.db.item("other#1") is None


@pytest.mark.parametrize(
    ("what", "raised"), [("take_away", "LeaseLost"), ("cancel", "TaskCancelled")], ids=["lost", "ta22-cancelled"]
)
def test_a_lost_right_is_told_apart_from_the_users_condition_and_nothing_is_written(what: str, raised: str) -> None:
    def body(ctx: Context, bench: Bench) -> Any:
        getattr(bench, what)()
        try:
            ctx.commit_with([put("order#1", **ABSENT)])
        except ThunderAgentError as error:
            seen.append(type(error).__name__)

    seen: list[str] = []
    bench = run(body)
    assert seen == [raised]
    assert bench.db.item("order#1") is None
    assert "result" not in bench.item()
    assert bench.item().get("outcome") == ("cancelled" if what == "cancel" else None)


def transacts(call: Call) -> bool:
    return call.operation == "TransactWriteItems"


@pytest.mark.parametrize("fault", [Fault.LOST_REPLY, Fault.LOST_REQUEST, Fault.CONFLICT, Fault.THROTTLED])
def test_the_request_is_frozen_across_retries_and_takes_effect_once(fault: Fault) -> None:
    def body(ctx: Context, bench: Bench) -> Any:
        bench.db.inject(fault, where=transacts, times=3)
        add = {
            "TableName": "tasks",
            "Key": {"taskId": {"S": "counter#a"}},
            "UpdateExpression": "ADD #n :one",
            "ExpressionAttributeNames": {"#n": "count"},
            "ExpressionAttributeValues": {":one": {"N": "1"}},
        }
        ctx.commit_with([{"Update": add}])

    bench = run(body)
    assert bench.item()["status"] == "SUCCESS"
    assert bench.db.item("counter#a") == {"taskId": "counter#a", "count": 1}
    assert len({str(call.arguments) for call in bench.db.calls if transacts(call)}) == 1


def test_a_commit_that_was_never_answered_is_followed_by_no_write_and_leaves_the_lease() -> None:
    def body(ctx: Context, bench: Bench) -> Any:
        bench.db.inject(Fault.LOST_REQUEST, where=transacts, times=None)
        with pytest.raises(OutcomeUnknown):
            ctx.commit_with([put("order#1")])
        with pytest.raises(LeaseLost):
            ctx.progress(1)

    bench = run(body)
    assert bench.item()["status"] == "RUNNING"
    assert bench.lease is not None
    assert not any(call.sets.get("status") in {"PENDING", "FAILED"} for call in bench.db.calls)


@pytest.mark.parametrize("items", [[], [{}], [{"Get": {}}], [put("a")] * 100])
def test_what_is_no_list_of_writes_is_the_handlers_mistake(items: Any) -> None:
    bench = run(lambda ctx, bench: ctx.commit_with(items))
    assert bench.item()["error"]["type"] == "InvalidInput"
    assert bench.item()["status"] == "PENDING"


def test_an_attempt_whose_end_was_taken_by_a_timeout_can_write_nothing_more() -> None:
    def body(ctx: Context, bench: Bench) -> None:
        assert ctx._running.take_end()  # as the coordinator does
        for write in (
            lambda: ctx.step("s", lambda: 1),
            lambda: ctx.progress(1),
            lambda: ctx.commit_with([put("late#1")]),
            lambda: ctx.submit("child"),
            ctx.heartbeat,
        ):
            with pytest.raises(LeaseLost, match="this attempt has ended"):
                write()
        assert ctx.cancelled

    bench = run(body)
    assert "task.late_result" in bench.seen.names()
    assert set(bench.db.items()) == {"t1"}
    assert bench.item()["status"] == "RUNNING"
