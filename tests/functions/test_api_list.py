"""GET /tasks: one order over many partitions, pages that neither repeat nor stop early, and bounded work."""

from __future__ import annotations

from collections import Counter
from typing import Any

import pytest

from functions.api import handler
from tests.support.api import Api
from tests.support.fakes import START
from thunderagent.codec import Item
from thunderagent.listing import Position, Selection, token_of
from thunderagent.schema import shard_of
from thunderagent.states import Status

DAY = 86_400


def ended(task_id: str, finished: float, **attributes: Any) -> Item:
    """A failed task as it stands in the table."""
    status, queue = attributes.get("status", "FAILED"), attributes.get("queue", "default")
    item = {
        "taskId": task_id,
        "type": "demo.echo",
        "queue": queue,
        "status": status,
        "retryCount": 3,
        "maxRetryNumber": 3,
        "createdAt": START - DAY,
        "finishedAt": finished,
        "expiresAt": int(START) + DAY,
        "dispatchKey": f"{status}#{queue}#{shard_of(task_id, 4)}",
        "dueAt": finished,
        "payload": '"p"',
        "result": '"r"',
        "attempts": [{"attempt": 1}],
        "steps": {"a": {"n": 1, "result": "1"}},
        "error": {"type": "ValueError", "message": "no", "reason": "error", "at": finished},
    }
    return item | attributes


def pages(api: Api, query: str, most: int = 200) -> list[list[str]]:
    """Every page's ids, following nextToken to the end."""
    found: list[list[str]] = []
    token = ""
    for _ in range(most):
        response = api.call("GET", "/tasks", query=f"{query}{token}")
        assert response.status == 200, response.text
        found.append([task["taskId"] for task in response.json["tasks"]])
        if "nextToken" not in response.json:
            return found
        token = f"&nextToken={response.json['nextToken']}"
    raise AssertionError("the list does not end")


def ids(api: Api, query: str) -> list[str]:
    return [task_id for page in pages(api, query) for task_id in page]


class TestOrder:
    def test_terminal_tasks_newest_end_first(self, api: Api) -> None:
        for number in range(25):
            api.table.put(ended(f"t{number}", START + number))
        assert ids(api, "status=FAILED&limit=4") == [f"t{number}" for number in reversed(range(25))]

    def test_pending_tasks_by_due_time_over_priorities(self, api: Api) -> None:
        expected = []
        for number in range(24):
            priority = ("high", "low", "normal")[number % 3]
            expected.append(api.submit(delaySeconds=number * 7 % 24, priority=priority, taskId=f"t{number * 7 % 24}"))
        assert ids(api, "status=PENDING&limit=5") == [f"t{number}" for number in range(24)]

    def test_all_queues_are_merged(self, api: Api) -> None:
        for number in range(8):
            queue = "reports" if number % 2 else "default"
            api.table.put(ended(f"t{number}", START + number, queue=queue))
        assert ids(api, "status=FAILED&limit=3") == [f"t{number}" for number in reversed(range(8))]
        assert ids(api, "status=FAILED&queue=reports") == ["t7", "t5", "t3", "t1"]

    @pytest.mark.parametrize("limit", [1, 2, 7, 100])
    @pytest.mark.parametrize("status", ["FAILED", "PENDING"])
    def test_any_number_of_equal_times_is_cut_anywhere(self, api: Api, limit: int, status: str) -> None:
        for number in range(40):
            if status == "FAILED":
                api.table.put(ended(f"t{number}", START))
            else:
                api.submit(taskId=f"t{number}")
        counts = Counter(ids(api, f"status={status}&limit={limit}"))
        assert counts == {f"t{number}": 1 for number in range(40)}

    def test_what_does_not_change_appears_once_while_others_come_and_go(self, api: Api) -> None:
        for number in range(60):
            api.table.put(ended(f"t{number}", START + number // 3))
        seen: list[str] = []
        token = ""
        for turn in range(100):
            response = api.call("GET", "/tasks", query=f"status=FAILED&limit=5{token}").json
            seen += [task["taskId"] for task in response["tasks"]]
            if "nextToken" not in response:
                break
            token = f"&nextToken={response['nextToken']}"
            api.table.remove(seen[-1])  # the very key the token names
            api.table.put(ended(f"new{turn}", START + 100 + turn))
            if turn < 2:
                api.call("PUT", f"/queues/a{turn}", {})
        assert [task_id for task_id in seen if task_id.startswith("t")] == sorted(
            (f"t{number}" for number in range(60)), key=seen.index
        )
        assert len(set(seen)) == len(seen)


class TestRunning:
    def test_running_tasks_are_found_through_their_leases(self, api: Api) -> None:
        for number in range(12):
            task_id = api.submit(taskId=f"t{number:02}", delaySeconds=number)
            token = f"l{number % 3}"
            running = {"status": "RUNNING", "leaseToken": token, "fence": 1, "lockTime": START + 300}
            api.table.put((api.table.item(task_id) or {}) | running)
        for token in range(3):
            lease = {
                "taskId": f"lease#l{token}",
                "profile": "default",
                "taskIds": [f"t{number:02}" for number in range(token, 12, 3)] + ["gone"],
                "lockTime": START + 300,
                "dueAt": START + 300,
                "dispatchKey": f"LEASE#default#{token}",
            }
            api.table.put(lease)
        waiting = api.submit()
        assert ids(api, "status=RUNNING&limit=5") == [f"t{number:02}" for number in range(12)]
        assert ids(api, "status=PENDING") == [waiting]


class TestWhatIsShown:
    def test_no_bodies_attempts_or_steps(self, api: Api) -> None:
        api.table.put(ended("t", START))
        (task,) = api.call("GET", "/tasks", query="status=FAILED").json["tasks"]
        assert not {"payload", "result", "attempts", "steps", "dispatchKey"} & set(task)
        assert task["error"]["type"] == "ValueError"

    def test_a_task_alone_names_its_steps_in_order_without_their_results(self, api: Api) -> None:
        api.table.put(ended("t", START, steps={"b": {"n": 1, "result": '"secret"'}, "a": {"n": 0, "result": "1"}}))
        task = api.call("GET", "/tasks/t").json
        assert task["steps"] == [{"name": "a"}, {"name": "b"}]

    @pytest.mark.parametrize("text", ["{", "", "NaN", "[1e400]", "[" * 5000])
    def test_a_body_that_is_no_json_leaves_the_task_readable(self, api: Api, text: str) -> None:
        api.table.put(ended("t", START, payload=text, result=text))
        response = api.call("GET", "/tasks/t")
        assert (response.status, response.json["payloadBytes"], response.json["resultBytes"]) == (
            200,
            len(text),
            len(text),
        )
        assert not {"payload", "result"} & set(response.json)

    def test_a_row_with_what_json_has_not_hides_no_other(self, api: Api) -> None:
        api.table.put(ended("bad", START, tags={"a": frozenset({"b"})}))
        api.table.put(ended("t", START))
        assert ids(api, "status=FAILED") == ["t"]
        assert api.call("GET", "/tasks/bad").status == 409

    def test_what_has_moved_on_is_left_out(self, api: Api) -> None:
        api.table.put(ended("past", START, expiresAt=int(START) - 1))
        api.table.put(ended("moved", START, status="PENDING", dispatchKey="FAILED#default#0"))
        api.table.put(ended("bad", START, type=None))
        api.table.put(ended("good", START))
        assert ids(api, "status=FAILED") == ["good"]

    def test_by_type(self, api: Api) -> None:
        for number in range(300):
            kind = "report.generate" if number % 100 == 0 else "demo.echo"
            api.table.put(ended(f"t{number}", START + number, type=kind))
        assert ids(api, "status=FAILED&type=report.generate&limit=2") == ["t200", "t100", "t0"]

    def test_a_queue_nobody_declares_may_still_be_listed(self, api: Api) -> None:
        api.table.put(ended("t", START, queue="removed"))
        assert ids(api, "status=FAILED&queue=removed") == ["t"]
        assert ids(api, "status=FAILED") == []


class TestBounds:
    def test_a_filter_that_fits_nothing_reads_a_bounded_number_of_keys(self, api: Api) -> None:
        for number in range(700):
            api.table.put(ended(f"t{number}", START + number))
        api.table.calls.clear()
        response = api.call("GET", "/tasks", query="status=FAILED&type=report.generate").json
        assert response["tasks"] == []
        assert "nextToken" in response
        looked_up = sum(len(call.item_ids) for call in api.table.calls if call.operation == "BatchGetItem")
        assert looked_up <= 510
        assert [len(page) for page in pages(api, "status=FAILED&type=report.generate")] == [0, 0]

    def test_a_page_looks_up_no_more_than_it_shows(self, api: Api) -> None:
        for number in range(500):
            api.table.put(ended(f"t{number}", START + number))
        api.table.calls.clear()
        assert len(api.call("GET", "/tasks", query="status=FAILED&limit=10").json["tasks"]) == 10
        assert sum(len(call.item_ids) for call in api.table.calls if call.operation == "BatchGetItem") <= 13

    def test_the_last_page_has_no_token(self, api: Api) -> None:
        for number in range(10):
            api.table.put(ended(f"t{number}", START + number))
        assert [len(page) for page in pages(api, "status=FAILED&limit=5")] == [5, 5]
        assert pages(api, "status=DONE") == [[]]


class TestRefusals:
    @pytest.mark.parametrize("status", ["SUCCESS", "DONE"])
    def test_a_list_that_is_not_kept(self, status: str, monkeypatch: pytest.MonkeyPatch) -> None:
        quiet = Api(list_completed=False)
        monkeypatch.setattr(handler, "service", lambda: quiet.service)
        response = quiet.call("GET", "/tasks", query=f"status={status}")
        assert (response.status, response.error["code"]) == (400, "listing_disabled")
        assert quiet.call("GET", "/tasks", query="status=FAILED").status == 200

    @pytest.mark.parametrize(
        "token",
        ["x", "e30", "W10", "W1tdXQ", "bnVsbA", "%00", "é", "WyJGQUlMRUQiLG51bGwsbnVsbCxudWxsLG51bGwsTmFOLCIiLCJhIl0"],
    )
    def test_ta_34_a_token_of_ones_own_making(self, api: Api, token: str) -> None:
        response = api.call("GET", "/tasks", query=f"status=FAILED&nextToken={token}")
        assert (response.status, response.error["path"]) == (400, "nextToken")

    @pytest.mark.parametrize("query", ["status=FAILED&limit=1", "status=FAILED&limit=1&type=demo.echo"])
    def test_a_token_with_any_character_altered(self, api: Api, query: str) -> None:
        for number in range(3):
            api.table.put(ended(f"t{number}", START + number))
        token = api.call("GET", "/tasks", query=query).json["nextToken"]
        assert api.call("GET", "/tasks", query=f"{query}&nextToken={token}").status == 200
        altered = [token[:at] + ("B" if token[at] == "A" else "A") + token[at + 1 :] for at in range(len(token))]
        altered += [token[:-1], token + "A", token + "=", "*" + token, token + "%0D%0A", "+" + token, token + token]
        for each in altered:
            response = api.call("GET", "/tasks", query=f"{query}&nextToken={each}")
            assert (response.status, response.error["path"]) == (400, "nextToken"), each

    def test_a_forged_place_is_one_in_the_same_list(self, api: Api) -> None:
        """The checksum is no secret. A place of another partition, of a side item or of a number that DynamoDB does not
        know leads to this list's tasks and to nothing else."""
        api.table.put(ended("t0", START))
        api.table.put(ended("other", START, queue="mail", dispatchKey="FAILED#mail#0"))
        failed = Selection(Status.FAILED, queue="default")
        for place in (
            Position(START + 1, "FAILED#mail#0", "other"),
            Position(START + 1, "LEASE#default#0", "lease#x"),
            Position(START + 1, "FAILED#default#0", "\ud800"),
            Position(1e-300, "FAILED#default#0", "t0"),
            Position(-999_999_999_999, "", "-"),
        ):
            response = api.call(
                "GET", "/tasks", query=f"status=FAILED&queue=default&nextToken={token_of(failed, place)}"
            )
            assert response.status == 200
            assert {task["taskId"] for task in response.json["tasks"]} <= {"t0"}

    def test_a_token_of_another_list(self, api: Api) -> None:
        for number in range(3):
            api.table.put(ended(f"t{number}", START + number))
        token = api.call("GET", "/tasks", query="status=FAILED&limit=1").json["nextToken"]
        for query in ("status=DONE", "status=FAILED&queue=default", "status=FAILED&type=demo.echo"):
            assert api.call("GET", "/tasks", query=f"{query}&nextToken={token}").status == 400

    @pytest.mark.parametrize("query", ["", "status=", "status=BLOCKED", "status=FAILED&limit=0", "status=FAILED&x=1"])
    def test_parameters(self, api: Api, query: str) -> None:
        assert api.call("GET", "/tasks", query=query).status == 400
