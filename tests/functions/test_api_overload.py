"""Overload: what is accepted is stored, what is refused is not, and says when to come back; repeats add no rows."""

from __future__ import annotations

import pytest

from tests.support.api import Api
from tests.support.memory_dynamodb import Call, Fault

BODY = {"type": "demo.echo"}


def puts_a_task(call: Call) -> bool:
    return call.operation in ("PutItem", "TransactWriteItems")


def hot(call: Call) -> bool:
    """Every third task falls on a partition that is throttled for good, whatever the store's own retries."""
    return puts_a_task(call) and any(int(task_id[1:]) % 3 == 0 for task_id in call.item_ids if "#" not in task_id)


def tasks(api: Api) -> set[str]:
    return {row for row in api.rows() if "#" not in row}


def test_accepted_is_stored_and_refused_is_not(api: Api) -> None:
    """Throttling all the time, and a queue that fills up on the way."""
    api.call("PUT", "/queues/default", {"maxBacklog": 60})
    api.table.inject(Fault.THROTTLED, where=hot, times=None)
    answers = [api.call("POST", "/tasks", {**BODY, "taskId": f"t{number}"}) for number in range(150)]
    accepted = {answer.json["taskId"] for answer in answers if answer.status == 201}
    refused = [answer for answer in answers if answer.status != 201]
    assert {answer.status for answer in refused} == {429, 503}
    assert all(int(answer.headers["retry-after"]) >= 1 for answer in refused)
    assert tasks(api) == accepted
    assert len(accepted) == 60


def test_a_batch_under_throttling_reports_each_entry_as_it_is_stored(api: Api) -> None:
    api.table.inject(Fault.THROTTLED, where=hot, times=None)
    answer = api.call("POST", "/tasks/batch", {"tasks": [{**BODY, "taskId": f"t{n}"} for n in range(100)]}).json
    accepted = {result["taskId"] for result in answer["results"] if "error" not in result}
    codes = {result["error"]["code"] for result in answer["results"] if "error" in result}
    assert codes == {"unavailable"}
    assert answer["accepted"] == len(accepted) == 66
    assert tasks(api) == accepted


@pytest.mark.parametrize("characters", [1, 5_000, 400_000], ids=["inline", "beside the item", "in the bucket"])
def test_repeats_during_overload_are_answered_by_a_read_alone(api: Api, characters: int) -> None:
    body = {**BODY, "payload": "x" * characters}
    headers = {"Idempotency-Key": "k"}
    first = api.call("POST", "/tasks", body, headers=headers).json["taskId"]
    api.call("PUT", "/queues/default", {"maxBacklog": 1})
    assert api.call("POST", "/tasks", BODY).status == 429
    before, written = api.rows(), api.table.write_units
    api.table.calls.clear()
    for _ in range(5):
        repeat = api.call("POST", "/tasks", body, headers=headers)
        assert (repeat.status, repeat.json["taskId"], repeat.json["duplicate"]) == (200, first, True)
    assert api.call("POST", "/tasks", {**body, "payload": "other"}, headers=headers).status == 409
    assert {call.operation for call in api.table.calls} == {"GetItem"}
    assert (api.rows(), api.table.write_units) == (before, written)


def test_a_throttled_submit_can_be_repeated_with_its_key(api: Api) -> None:
    """Also when its write took effect and only the answer was lost."""
    for fault in (Fault.THROTTLED, Fault.LOST_REPLY):
        api.table.inject(fault, where=puts_a_task, times=1)
        headers = {"Idempotency-Key": f"k-{fault.name}"}
        api.call("POST", "/tasks", BODY, headers=headers)
        repeat = api.call("POST", "/tasks", BODY, headers=headers)
        assert repeat.status in (200, 201)
    assert len(tasks(api)) == 2
