"""Every page: what it shows, when there is nothing, and when something does not answer."""

from __future__ import annotations

import json
import re
from html import unescape
from types import SimpleNamespace
from typing import Any

import pytest
from botocore.exceptions import ClientError

from tests.functions.test_api_list import ended
from tests.support.cloudwatch import alarm
from tests.support.console import SERVICE, Site, text_of
from tests.support.fakes import START
from thunder.console import dead_letters, tasks

DENIED = ClientError({"Error": {"Code": "AccessDenied", "Message": "not allowed"}}, "DescribeAlarms")
ALL = ["/", "/tasks", "/dead-letters", "/queues", "/queue/default", "/schedules", "/schedule", "/alarms", "/submit"]


def says(site: Site, path: str, **more: Any) -> str:
    return text_of(site.get(path, **more))


@pytest.mark.parametrize("path", [*ALL, "/dashboards"])
class TestEveryPage:
    def test_says_which_stack_this_is(self, site: Site, path: str) -> None:
        text = says(site, path)
        for each in ("123456789012", "eu-central-1", "test", SERVICE, "arn:aws:iam::123456789012:user/olga"):
            assert each in text

    def test_has_its_landmarks_and_one_heading(self, site: Site, path: str) -> None:
        page = site.get(path)
        for mark in (
            "<header",
            "<nav",
            '<main id="main"',
            "<footer",
            'href="#main"',
            'lang="en"',
            'aria-live="polite"',
        ):
            assert mark in page
        assert page.count("<h1") == 1
        assert page.count('aria-current="page"') >= (path != "/submit")

    def test_labels_every_field(self, site: Site, path: str) -> None:
        page = site.get(path)
        labelled = set(re.findall(r'<label[^>]* for="([^"]+)"', page))
        for field in re.findall(r"<(?:input|select|textarea)\b[^>]*>", page):
            if 'type="hidden"' in field or "aria-label=" in field:
                continue
            assert (re.search(r' id="([^"]+)"', field) or [""])[1] in labelled, field

    def test_read_only_says_so_and_offers_no_action(self, read_only_site: Site, path: str) -> None:
        page = read_only_site.get(path)
        assert "Read only" in text_of(page)
        assert not re.search(r"/act/|/all/|/pause|Submit a task</a>", page)


@pytest.mark.parametrize("path", [path for path in ALL if path not in ("/schedule", "/submit", "/alarms")])
def test_an_api_that_does_not_answer(site: Site, path: str) -> None:
    site.exchange.lost = ConnectionError("refused")
    page = site.get(path, status=502)
    assert "The API does not answer" in text_of(page)
    assert "Try again" in text_of(page)


def test_credentials_that_have_expired(site: Site) -> None:
    site.exchange.refusal = 403, b'{"message":"The security token included in the request is expired"}'
    assert "session has expired" in says(site, "/queues", status=403)


def test_a_defect_is_a_page_and_not_a_trace(site: Site, capsys: pytest.CaptureFixture[str]) -> None:
    site.cloudwatch.error = RuntimeError("secret detail")
    text = says(site, "/alarms", status=500)
    assert "a defect of the console" in text
    assert "secret detail" not in text
    assert "secret detail" in capsys.readouterr().err


def test_an_address_there_is_not(site: Site) -> None:
    assert "no such page" in says(site, "/nothing", status=404)


class TestOverview:
    def test_all_is_well(self, site: Site) -> None:
        assert "All is well" in says(site, "/")

    def test_dead_letters_paused_queues_and_alarms(self, site: Site) -> None:
        site.api.table.put(ended("f1", START))
        site.api.call("PUT", "/queues/reports", {"paused": True})
        site.cloudwatch.alarms = [alarm(f"{SERVICE}-MonitoringPollerStopped0C3675C6-72FDEA0FF38E5", "ALARM")]
        text = says(site, "/")
        assert "1 alarm is on: PollerStopped" in text
        assert "Queue default has 1 dead letter." in text
        assert "Queue reports is paused." in text

    def test_old_figures(self, site: Site) -> None:
        site.get("/")
        site.console.now = lambda: site.api.clock.now() + 600
        assert "has not counted for 10m" in says(site, "/")

    def test_alarms_that_may_not_be_read(self, site: Site) -> None:
        site.cloudwatch.error = DENIED
        assert "The alarms cannot be read: not allowed" in says(site, "/")

    def test_charts_and_cost(self, site: Site) -> None:
        site.cloudwatch.values = {
            ("Submitted", "Sum"): [(START, 10.0)],
            ("Succeeded", "Sum"): [(START, 8.0)],
            ("Failed", "Sum"): [(START, 2.0)],
            ("QueueLatency", "p95"): [(START, 0.25)],
            ("WriteUnits", "Sum"): [(START, 60.0)],
            ("ReadUnits", "Sum"): [(START, 20.0)],
        }
        page = site.get("/part/overview/charts?hours=1")
        text = text_of(page)
        assert "p95 250 ms" in text
        assert "Write units a task 6 " in text
        assert "DynamoDB, a million tasks $4.00" in text  # 6 × $0.625 + 2 × $0.125
        assert len(site.cloudwatch.asked) == 1

    def test_no_data_yet(self, site: Site) -> None:
        text = says(site, "/part/overview/charts")
        assert "no data in this time" in text
        assert "no task has ended in this time" in text

    def test_a_chart_in_words(self, site: Site) -> None:
        site.cloudwatch.values = {("Submitted", "Sum"): [(START, 3.0), (START + 60, 1.0)]}
        assert "submitted 1, at most 3" in site.get("/part/overview/charts")


class TestTasks:
    def test_each_status_has_its_tab(self, site: Site) -> None:
        text = says(site, "/tasks")
        assert all(status in text for status in ("PENDING", "RUNNING", "SUCCESS", "FAILED", "DONE"))

    def test_the_tabs_tell_how_many_after_the_list_is_there(self, site: Site) -> None:
        site.api.table.put(ended("f1", START))
        page = site.get("/tasks?status=FAILED")
        assert site.exchange.asked == ["GET /tasks"]
        assert 'hx-get="/part/tasks/tabs?status=FAILED"' in page
        tabs = site.get("/part/tasks/tabs?status=FAILED", part=True)
        assert "FAILED 1" in text_of(tabs)
        assert "<option>reports</option>" in tabs

    @pytest.mark.parametrize(("seconds", "calls"), [(0.01, 6), (0.2, 3), (0.3, 2), (0.5, 1), (3.0, 1)])
    def test_no_call_is_begun_that_would_not_end_in_time(
        self, monkeypatch: pytest.MonkeyPatch, seconds: float, calls: int
    ) -> None:
        now, asked = [0.0], []

        def list_page(status: str, **options: Any) -> SimpleNamespace:
            now[0] += seconds
            asked.append(status)
            return SimpleNamespace(tasks=[], next_token="more")

        monkeypatch.setattr(tasks, "time", SimpleNamespace(monotonic=lambda: now[0]))
        console: Any = SimpleNamespace(client=SimpleNamespace(list_page=list_page))
        assert tasks.read(console, tasks.Selection("FAILED", type="rare")) == ([], "more")
        assert len(asked) == calls

    def test_tabs_without_figures(self, site: Site) -> None:
        site.exchange.lost = ConnectionError("refused")
        assert "FAILED" in says(site, "/part/tasks/tabs", part=True)

    def test_pending(self, site: Site) -> None:
        id = site.api.submit(delaySeconds=3600)
        text = says(site, "/tasks?status=PENDING")
        assert id in text
        assert "in 1h" in text

    def test_failed_ones_say_why(self, site: Site) -> None:
        site.api.table.put(ended("f1", START, error={"type": "KeyError", "message": "'region'", "reason": "error"}))
        text = says(site, "/tasks?status=FAILED")
        assert "KeyError 'region'" in text
        assert "3 / 3" in text

    def test_filters_are_in_the_address(self, site: Site) -> None:
        site.api.table.put(ended("f1", START))
        site.api.table.put(ended("f2", START, queue="reports"))
        text = says(site, "/tasks?status=FAILED&queue=reports")
        assert "f2" in text
        assert "f1" not in text

    def test_none_matches(self, site: Site) -> None:
        assert "No task matches" in says(site, "/tasks?status=FAILED&type=none.such")
        assert "No dead letters: good." in says(site, "/tasks?status=FAILED")

    def test_page_after_page_shows_each_once(self, site: Site) -> None:
        for number in range(120):
            site.api.table.put(ended(f"t{number:03}", START + number))
        seen: list[str] = []
        path = "/tasks?status=FAILED"
        for _ in range(10):
            page = site.get(path)
            seen += re.findall(r'name="id" value="([^"]+)"', page)
            following = re.search(r'href="(/tasks[^"]+)" rel="next"', page)
            if following is None:
                break
            path = following[1].replace("&amp;", "&")
        assert sorted(seen) == [f"t{number:03}" for number in range(120)]

    def test_a_stack_that_does_not_list_completed_ones(self, site: Site) -> None:
        object.__setattr__(site.api.parts.settings, "list_completed", False)
        assert "does not list completed" in says(site, "/tasks?status=SUCCESS", status=400)

    @pytest.mark.parametrize("query", ["status=NONE", "queue=A%20B", "type=%3Cscript%3E"])
    def test_filters_that_cannot_be(self, site: Site, query: str) -> None:
        site.get(f"/tasks?{query}", status=422)

    def test_a_part_is_without_the_frame(self, site: Site) -> None:
        page = site.get("/part/tasks?status=PENDING", part=True)
        assert "<html" not in page

    def test_a_list_is_bounded_and_never_scans(self, site: Site) -> None:
        for number in range(300):
            site.api.table.put(ended(f"t{number:03}", START + number))
        site.api.table.calls.clear()
        site.get("/tasks?status=FAILED&type=none.such")
        assert not [call for call in site.api.table.calls if call.operation == "Scan"]
        assert len([each for each in site.exchange.asked if each == "GET /tasks"]) <= 6


class TestFinding:
    def test_a_task(self, site: Site) -> None:
        id = site.api.submit()
        answer = site.browser.get(f"/find?id=%20{id}%20", follow_redirects=False)
        assert (answer.status_code, answer.headers["location"]) == (303, f"/task/{id}")

    def test_one_there_is_not(self, site: Site) -> None:
        assert "There is no task nowhere." in says(site, "/find?id=nowhere")

    def test_what_cannot_be_one(self, site: Site) -> None:
        assert "cannot be the id of a task" in says(site, "/find?id=a%20b")


class TestTask:
    def test_a_pending_one_says_why(self, site: Site) -> None:
        id = site.api.submit(delaySeconds=60, tags={"tenant": "a"}, payload={"n": 12345678901234567890123})
        text = says(site, f"/task/{id}")
        assert "Why: it is due in 60 s (due_later" in text
        assert '"n": 12345678901234567890123' in text
        assert "Tag tenant a" in text
        assert "It has not started yet." in text

    def test_a_failed_one(self, site: Site) -> None:
        attempts = [
            {
                "attempt": n,
                "startedAt": START + n,
                "endedAt": START + n + 0.5,
                "outcome": "error",
                "errorType": "KeyError",
                "message": "no",
            }
            for n in (1, 2)
        ]
        steps = {"b": {"n": 1, "result": "1"}, "a": {"n": 0, "result": "2"}}
        site.api.table.put(ended("f1", START + 9, attempts=attempts, steps=steps, createdAt=START))
        page = site.get("/task/f1")
        text = text_of(page)
        assert "ValueError (error" in text
        assert "1 ✕ error" in text
        assert "500 ms" in text
        assert text.index("✓ a") < text.index("✓ b")
        assert page.count('class="bar-failed"') == 2
        assert "attempt 1: error, KeyError" in page

    def test_its_success_is_an_attempt_too(self, site: Site) -> None:
        site.api.table.put(
            ended("s1", START + 2, status="SUCCESS", startedAt=START, retryCount=0, attempts=[], error={})
        )
        text = says(site, "/task/s1")
        assert "1 ✓ success" in text
        assert "2s" in text

    def test_who_did_what_and_why(self, site: Site) -> None:
        id = site.api.submit()
        site.api.call("POST", f"/tasks/{id}/cancel", {"reason": "wrong region"})
        text = says(site, f"/task/{id}")
        assert "Cancelled now by arn:aws:iam::123456789012:user/tester : wrong region" in text

    def test_a_large_payload_is_not_on_the_page(self, site: Site) -> None:
        id = site.api.submit(payload="x" * 300_000)
        text = says(site, f"/task/{id}")
        assert "293 KiB: too large to show here." in text
        assert "x" * 1000 in says(site, f"/task/{id}/payload")

    def test_a_body_as_a_file(self, site: Site) -> None:
        id = site.api.submit(payload={"a": 1})
        answer = site.browser.get(f"/task/{id}/payload?file=1")
        assert answer.headers["content-disposition"] == f'attachment; filename="payload-{id}.json"'
        assert answer.json() == {"a": 1}

    def test_one_there_is_not(self, site: Site) -> None:
        assert "There is no such thing" in says(site, "/task/missing", status=404)

    def test_what_it_waits_for_is_drawn(self, site: Site) -> None:
        first = site.api.submit(taskId="first", delaySeconds=60)
        second = site.api.submit(taskId="second", dependsOn=[first])
        third = site.api.submit(taskId="third", dependsOn=[first, second])
        page = site.get(f"/part/task/{third}/graph", part=True)
        assert [f'href="/task/{id}"' in page for id in (first, second, third)] == [True] * 3
        assert page.count('class="edge"') == 3
        assert "third (PENDING) waits for first, second" in page

    def test_log_lines(self, site: Site) -> None:
        id = site.api.submit()
        line = {"event": "task.failed", "level": "ERROR", "taskId": id, "attempt": 1, "errorType": "KeyError"}
        site.logs.groups = {
            f"{SERVICE}-ExecutordefaultLogs7D085E46-abc": [(START, json.dumps(line)), (START, "of another task")],
            "Other-ExecutorLogs": [(START, json.dumps(line))],
        }
        text = says(site, f"/part/task/{id}/logs")
        assert text.count("task.failed") == 1
        assert "ERROR task.failed attempt= 1 errorType= KeyError" in text
        assert "of another task" not in text

    def test_no_log_lines(self, site: Site) -> None:
        id = site.api.submit()
        assert "No log groups" in says(site, f"/part/task/{id}/logs")
        site.logs.groups = {f"{SERVICE}-ExecutorLogs": []}
        site.console.logs._groups_at = None
        assert "No lines" in says(site, f"/part/task/{id}/logs")

    def test_logs_that_may_not_be_read(self, site: Site) -> None:
        id = site.api.submit()
        site.logs.error = DENIED
        assert "not allowed" in says(site, f"/part/task/{id}/logs", status=502)


class TestDeadLetters:
    def test_by_error(self, site: Site) -> None:
        for number in range(3):
            error = {"type": "KeyError", "message": f"no order {number}", "reason": "error", "at": START}
            site.api.table.put(ended(f"k{number}", START + number, error=error))
        site.api.table.put(ended("v1", START, error={"type": "Timeout", "message": "after 300 s", "reason": "timeout"}))
        text = says(site, "/dead-letters")
        assert text.index("KeyError 3") < text.index("Timeout 1")
        assert "no order # × 3" in text
        assert "4 dead letters by error, all there are." in text

    def test_the_way_back_names_the_error(self, site: Site) -> None:
        site.api.table.put(ended("k1", START, error={"type": "My Error&x", "message": "", "reason": "error"}))
        assert 'href="/all/redrive?queue=default&amp;errorType=My%20Error%26x"' in site.get(
            "/dead-letters?queue=default"
        )

    def test_one_without_a_type_cannot_be_filtered_by(self, site: Site) -> None:
        site.api.table.put(ended("k1", START, error={}))
        page = site.get("/dead-letters")
        assert "(no error type)" in page
        assert "Redrive all of these" not in page

    def test_none(self, site: Site) -> None:
        assert "No dead letters" in says(site, "/dead-letters")

    def test_only_the_newest_are_looked_at(self, site: Site, monkeypatch: pytest.MonkeyPatch) -> None:
        monkeypatch.setattr(dead_letters, "LOOKS", (10, 30))
        for number in range(25):
            site.api.table.put(ended(f"t{number:03}", START + number))
        assert "10 dead letters by error: the newest." in says(site, "/dead-letters")
        assert "25 dead letters by error, all there are." in says(site, "/dead-letters?look=30")


class TestDashboards:
    def test_the_deployed_one_is_drawn(self, site: Site) -> None:
        metric = {
            "title": "Flow",
            "metrics": [["ThunderAgent", "Submitted", "Service", SERVICE], [".", "Succeeded", ".", "."]],
        }
        site.cloudwatch.dashboards = {
            f"{SERVICE}-Main": {
                "widgets": [
                    {"type": "metric", "width": 12, "properties": {**metric, "stat": "Sum"}},
                    {
                        "type": "alarm",
                        "properties": {"title": "State", "alarms": [f"arn:aws:cloudwatch:r:1:alarm:{SERVICE}-A"]},
                    },
                    {"type": "metric", "properties": {**metric, "title": "Now", "view": "singleValue", "stat": "Sum"}},
                ]
            }
        }
        site.cloudwatch.alarms = [alarm(f"{SERVICE}-A", "ALARM")]
        site.cloudwatch.values = {("Submitted", "Sum"): [(START, 4.0)]}
        text = says(site, "/part/dashboards?hours=1")
        assert "Flow Submitted 4 1 without data" in text
        assert "▲ in alarm A" in text
        assert "Now Submitted 4" in text

    def test_odd_widgets_stand_beside_good_ones(self, site: Site) -> None:
        flow = {"title": "Flow", "stat": "Sum", "metrics": [["ThunderAgent", "Submitted", "Service", SERVICE]]}
        odd = [None, {"type": 5}, {"type": "metric", "properties": {"metrics": [None, [], [{"id": []}]], "title": 7}}]
        lines = {"horizontal": [{"value": float("inf"), "label": "no end"}, {"value": 3, "label": "limit"}]}
        odd.append({"type": "metric", "properties": {**flow, "title": "Odd lines", "annotations": lines}})
        site.cloudwatch.dashboards = {f"{SERVICE}-Main": {"widgets": [*odd, {"type": "metric", "properties": flow}]}}
        site.cloudwatch.values = {("Submitted", "Sum"): [(START, 4.0), (START + 60, float("nan"))]}
        page = site.get("/part/dashboards?hours=1")
        text = text_of(page)
        for shown in ("A widget of type 5: see it in the AWS console.", "Untitled", "Odd lines Submitted 4", "limit 3"):
            assert shown in text
        assert "Flow Submitted 4" in text
        assert "no end" not in text
        drawings = [json.loads(unescape(each)) for each in re.findall(r'data-chart="([^"]*)"', page)]
        values = [[line["values"] for line in each["series"]] for each in drawings]
        assert [4.0] in values[-1]
        assert "NaN" not in page

    def test_none(self, site: Site) -> None:
        site.console.dashboard = None
        assert "No dashboard" in says(site, "/dashboards")

    def test_names_to_choose_from_are_the_stacks(self, site: Site) -> None:
        site.cloudwatch.dashboards = {f"{SERVICE}-Main": {}, f"{SERVICE}-Cost": {}, "Other": {}}
        page = site.get("/dashboards")
        assert f"{SERVICE}-Cost" in page
        assert "Other" not in text_of(page)

    def test_one_that_cannot_be_read(self, site: Site) -> None:
        site.cloudwatch.dashboards = {f"{SERVICE}-Main": {"no": "widgets"}}
        assert "cannot be read as a dashboard" in says(site, "/part/dashboards", status=422)


class TestAlarms:
    def test_those_that_are_on_come_first(self, site: Site) -> None:
        site.cloudwatch.alarms = [alarm(f"{SERVICE}-A"), alarm(f"{SERVICE}-B", "ALARM"), alarm("Other-C", "ALARM")]
        text = says(site, "/alarms")
        assert "1 of 2 alarms is on." in text
        assert text.index("in alarm B") < text.index("ok A")
        assert "Failed (Sum) ≥ 1 for 5m" in text
        assert "Other" not in text

    def test_none(self, site: Site) -> None:
        assert "No alarms" in says(site, "/alarms")

    def test_not_allowed(self, site: Site) -> None:
        site.cloudwatch.error = DENIED
        assert "not allowed" in says(site, "/alarms", status=502)
