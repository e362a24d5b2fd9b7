"""Actions on chosen tasks, queues and schedules, and submitting: asked about, done once, the reason kept."""

from __future__ import annotations

import json
import re
from html import unescape
from typing import Any, ClassVar

import pytest

from tests.functions.test_api_list import ended
from tests.support.console import ORIGIN, Site, hidden, text_of
from tests.support.events import USER_ARN
from tests.support.fakes import START


def item(site: Site, id: str) -> dict[str, Any]:
    return site.api.table.item(id) or {}


def done(site: Site, path: str, fields: dict[str, Any]) -> str:
    """The text of the page after an action."""
    return text_of(site.follow(site.post(path, fields)))


class TestOneTask:
    def test_is_asked_about_first(self, site: Site) -> None:
        site.api.table.put(ended("f1", START))
        page = site.get("/act/redrive?id=f1")
        assert "Redrive this task?" in page
        assert hidden(page)["id"] == ["f1"]
        assert item(site, "f1")["status"] == "FAILED"

    def test_redrive_keeps_the_reason(self, site: Site) -> None:
        site.api.table.put(ended("f1", START))
        text = done(site, "/act/redrive", {"id": "f1", "reason": "  the key is back ", "next": "/task/f1"})
        assert "Task f1 is redriven." in text
        assert "PENDING" in text
        operator = item(site, "f1")["operator"]
        assert (operator["caller"], operator["reason"]) == (USER_ARN, "the key is back")

    def test_without_a_reason(self, site: Site) -> None:
        site.api.table.put(ended("f1", START))
        site.post("/act/redrive", {"id": "f1", "reason": ""})
        assert "reason" not in item(site, "f1")["operator"]

    def test_cancel(self, site: Site) -> None:
        id = site.api.submit()
        assert f"Task {id} is cancelled." in done(site, "/act/cancel", {"id": id, "reason": "wrong"})
        assert item(site, id)["outcome"] == "cancelled"

    def test_acknowledge(self, site: Site) -> None:
        site.api.table.put(ended("s1", START, status="SUCCESS"))
        done(site, "/act/ack", {"id": "s1"})
        assert item(site, "s1")["status"] == "DONE"

    @pytest.mark.parametrize("change", [{"status": "SUCCESS"}, {"fence": 9}, {"createdAt": START + 1}])
    def test_delete_is_of_the_task_as_it_was_seen(self, site: Site, change: dict[str, Any]) -> None:
        """Redriven meanwhile, it may have a result now: nobody was asked about that."""
        site.api.table.put(ended("f1", START))
        asked = hidden(site.get("/act/delete?id=f1"))
        site.api.table.put(item(site, "f1") | change)
        text = done(site, "/act/delete", {"id": "f1", "seen": asked["seen"]})
        assert "Task f1 is not deleted. f1: it has changed since you were asked" in text
        assert item(site, "f1")

    def test_delete_of_some_leaves_those_that_have_changed(self, site: Site) -> None:
        for id in ("f1", "f2", "f3"):
            site.api.table.put(ended(id, START))
        asked = hidden(site.get("/act/delete?id=f1&id=f2&id=f3"))
        site.api.table.put(item(site, "f2") | {"status": "SUCCESS", "fence": 7})
        text = done(site, "/act/delete", {"id": asked["id"], "seen": asked["seen"]})
        assert "2 of 3 tasks are deleted. f2: it has changed since you were asked, and is SUCCESS now" in text
        assert [bool(item(site, id)) for id in ("f1", "f2", "f3")] == [False, True, False]

    def test_delete_leads_away_from_its_page(self, site: Site) -> None:
        site.api.table.put(ended("f1", START))
        page = site.get("/act/delete?id=f1")
        assert "Why?" not in page
        answer = site.post("/act/delete", {"id": "f1", "seen": hidden(page)["seen"], "next": "/task/f1"})
        assert answer.headers["location"].startswith("/tasks?")
        assert item(site, "f1") == {}

    def test_cascade(self, site: Site) -> None:
        parent = site.api.submit(taskId="parent")
        child = site.api.submit(taskId="child", dependsOn=[parent])
        site.api.table.put({**item(site, parent), **ended("parent", START)})
        site.api.parts.dependencies.on_end(item(site, parent))
        assert item(site, child)["status"] == "FAILED"
        site.post("/act/redrive", {"id": parent, "cascade": "1"})
        assert item(site, child)["status"] == "PENDING"

    def test_what_the_state_does_not_allow(self, site: Site) -> None:
        id = site.api.submit()
        text = done(site, "/act/redrive", {"id": id, "next": f"/task/{id}"})
        assert f"Task {id} is not redriven." in text
        assert "cannot be redriven" in text

    def test_the_page_it_was_asked_from_is_the_way_on(self, site: Site) -> None:
        page = site.get("/act/redrive?id=f1", part=True, page="/tasks?status=FAILED&type=a")
        assert hidden(page)["next"] == ["/tasks?status=FAILED&type=a"]
        assert "<html" not in page

    def test_a_reason_that_is_too_long(self, site: Site) -> None:
        site.post("/act/redrive", {"id": "f1", "reason": "ä" * 501}, status=422)
        assert site.exchange.asked == []

    @pytest.mark.parametrize("ids", [[], ["a b"], [f"t{n}" for n in range(101)]])
    def test_what_cannot_be_chosen(self, site: Site, ids: list[str]) -> None:
        site.post("/act/redrive", {"id": ids}, status=422)
        assert site.exchange.asked == []

    def test_an_action_there_is_not(self, site: Site) -> None:
        site.get("/act/explode?id=x", status=404)


class TestSome:
    def test_each_is_done_and_refusals_are_named(self, site: Site) -> None:
        for number in range(3):
            site.api.table.put(ended(f"f{number}", START))
        open_task = site.api.submit(taskId="open")
        fields = {"id": ["f0", "f1", "f2", open_task], "reason": "fixed", "next": "/tasks?status=FAILED"}
        answer = site.post("/act/redrive", fields)
        assert answer.headers["location"].startswith("/tasks?status=FAILED&notice=")
        text = text_of(site.follow(answer))
        assert "3 of 4 tasks are redriven." in text
        assert "open: " in text
        assert {item(site, f"f{n}")["operator"]["reason"] for n in range(3)} == {"fixed"}

    def test_they_are_named_in_the_question(self, site: Site) -> None:
        page = site.get("/act/delete?" + "&".join(f"id=t{n}" for n in range(7)))
        assert "Delete 7 tasks?" in page
        assert "and 2 more" in page


class TestQueues:
    def test_pause_and_resume(self, site: Site) -> None:
        assert "Pause queue default?" in site.get("/queue/default/pause")
        text = done(site, "/queue/default/pause", {"reason": "disk full", "next": "/queues"})
        assert "Queue default is paused" in text
        stored = item(site, "control#queue#default") or next(
            row for row in site.api.table.items().values() if row.get("paused")
        )
        assert stored["operator"]["reason"] == "disk full"
        assert "Queue default is resumed." in done(site, "/queue/default/resume", {})

    def test_its_limits(self, site: Site) -> None:
        form = hidden(site.get("/queue/default"))
        was = {name: values[0] for name, values in form.items() if name.startswith("was-")}
        fields = {**{name.removeprefix("was-"): value for name, value in was.items()}, **was}
        text = done(
            site,
            "/queue/default",
            {**fields, "maxConcurrency": "5", "ratePerSecond": "2.5", "key": "tenant", "key-maxConcurrency": "1"},
        )
        assert "Queue default has its new settings." in text
        queue = site.api.call("GET", "/queues/default").json
        assert (queue["maxConcurrency"], queue["ratePerSecond"]) == (5, 2.5)
        assert queue["perKey"] == {"tag": "tenant", "maxConcurrency": 1}
        assert "5 at once, 2.5/s, by tenant: maxConcurrency 1" in text_of(site.get("/queues"))

    def test_an_emptied_field_takes_a_limit_away(self, site: Site) -> None:
        site.api.call("PUT", "/queues/default", {"maxConcurrency": 5})
        site.post("/queue/default", {"maxConcurrency": "", "was-maxConcurrency": "5"})
        assert site.api.call("GET", "/queues/default").json["maxConcurrency"] is None

    def test_what_was_not_touched_stays_as_another_has_set_it(self, site: Site) -> None:
        site.api.call("PUT", "/queues/default", {"maxConcurrency": 7})
        site.post("/queue/default", {"maxConcurrency": "5", "was-maxConcurrency": "5", "burst": "3", "was-burst": ""})
        queue = site.api.call("GET", "/queues/default").json
        assert (queue["maxConcurrency"], queue["burst"]) == (7, 3)

    def test_nothing_changed(self, site: Site) -> None:
        assert "Nothing was changed." in done(site, "/queue/default", {})

    @pytest.mark.parametrize(
        ("field", "value", "says"),
        [
            ("maxConcurrency", "many", "Running at once must be a whole number"),
            ("ratePerSecond", "-1", "Starts per second must be a number"),
            ("ratePerSecond", "0", "ratePerSecond"),
            ("key-burst", "3", "Name the tag"),
        ],
    )
    def test_what_cannot_be(self, site: Site, field: str, value: str, says: str) -> None:
        answer = site.post("/queue/default", {field: value}, status=422)
        assert says in text_of(answer.text)
        assert f'value="{value}"' in answer.text

    def test_declare_one(self, site: Site) -> None:
        page = site.get("/queues?name=mail")
        assert "There is no queue of this name yet." in page
        assert "Queue mail is declared." in done(site, "/queue/mail", {"maxConcurrency": "2"})
        assert site.api.call("GET", "/queues/mail").json["maxConcurrency"] == 2

    def test_a_name_that_cannot_be(self, site: Site) -> None:
        site.get("/queues?name=A%20B", status=422)
        site.get("/queue/UPPER", status=404)


class TestSchedules:
    FIELDS: ClassVar = {
        "name": "nightly",
        "cron": "0 3 * * *",
        "timezone": "Europe/Berlin",
        "catchUp": "none",
        "task": '{"type":"demo.echo","payload":[1.0]}',
    }

    def test_make_change_run_delete(self, site: Site) -> None:
        text = done(site, "/schedule", {**self.FIELDS, "reason": "reports"})
        assert "Schedule nightly is made." in text
        assert "0 3 * * * Europe/Berlin" in text
        assert "0 3 * * *" in site.get("/schedule/nightly")
        done(site, "/schedule/nightly", {**self.FIELDS, "cron": "5 3 * * *"})
        assert site.api.call("GET", "/schedules/nightly").json["cron"] == "5 3 * * *"
        assert "makes one task of type demo.echo now" in site.get("/schedule/nightly/run")
        answer = site.post("/schedule/nightly/run")
        assert "Schedule nightly has made this task." in text_of(site.follow(answer))
        assert "It fires no more." in site.get("/schedule/nightly/delete")
        assert "Schedule nightly is deleted" in done(site, "/schedule/nightly/delete", {})
        assert "No schedules" in text_of(site.get("/schedules"))

    @pytest.mark.parametrize(
        ("field", "value", "says"),
        [
            ("name", "Not A Name", "A name has"),
            ("cron", "", "Say when"),
            ("cron", "at noon", "cron"),
            ("timezone", "Mars/Olympus", "timezone"),
            ("task", "{", "task"),
            ("task", "[]", "must be a JSON object"),
            ("task", '{"type":"demo.echo","payload":NaN}', "NaN"),
        ],
    )
    def test_what_cannot_be(self, site: Site, field: str, value: str, says: str) -> None:
        answer = site.post("/schedule", {**self.FIELDS, field: value}, status=422)
        assert says in text_of(answer.text)
        assert 'id="problem"' in answer.text
        assert site.api.call("GET", "/schedules").json["schedules"] == []


class TestSubmit:
    def test_a_task(self, site: Site) -> None:
        payload = '{"n": 12345678901234567890123, "f": 1.0, "empty": null}'
        fields = {
            "type": "demo.echo",
            "payload": payload,
            "priority": "high",
            "delaySeconds": "60",
            "tags": "tenant=a\r\nregion = eu",
        }
        answer = site.post("/submit", fields)
        text = text_of(site.follow(answer))
        assert "The task is submitted." in text
        id = answer.headers["location"].partition("?")[0].removeprefix("/task/")
        stored = item(site, id)
        assert (stored["priority"], stored["tags"]) == ("high", {"tenant": "a", "region": "eu"})
        assert json.loads(stored["payload"]) == json.loads(payload)

    def test_sent_twice_it_makes_one_task(self, site: Site) -> None:
        key = hidden(site.get("/submit"))["key"][0]
        fields = {"type": "demo.echo", "payload": "1", "key": key}
        first, second = (site.post("/submit", fields).headers["location"].partition("?")[0] for _ in range(2))
        assert first == second

    def test_all_its_options(self, site: Site) -> None:
        parent = site.api.submit()
        fields = {
            "type": "demo.echo",
            "queue": "reports",
            "maxRetryNumber": "0",
            "timeoutSeconds": "60",
            "startWithinSeconds": "600",
            "uniqueSeconds": "5",
            "taskId": "my-own",
            "dependsOn": f" {parent}\n",
            "runAt": "2027-02-01T09:00:00+02:00",
        }
        site.post("/submit", fields)
        task = site.api.call("GET", "/tasks/my-own").json
        assert (task["queue"], task["maxRetryNumber"], task["timeoutSeconds"]) == ("reports", 0, 60)
        assert (task["unique"], task["dependsOn"]) == ({"windowSeconds": 5}, [parent])

    @pytest.mark.parametrize(
        ("fields", "field", "says"),
        [
            ({"type": ""}, "type", "Say which type"),
            ({"type": "NO"}, "type", "must be 1-64"),
            ({"payload": "{"}, "payload", "payload"),
            ({"payload": '{"a":1,"a":2}'}, "payload", "a"),
            ({"payload": "hello"}, "payload", "a text needs its quotes"),
            ({"delaySeconds": "soon"}, "delaySeconds", "must be a whole number"),
            ({"delaySeconds": "1", "runAt": "2027-02-01T09:00:00Z"}, "", "delaySeconds"),
            ({"runAt": "tomorrow"}, "runAt", "runAt"),
            ({"tags": "no sign"}, "tags", "name=value"),
            ({"tags": '{"a": 1}'}, "tags", "an object of texts"),
            ({"tags": '{"a": "x", "a": "y"}'}, "tags", "twice"),
            ({"tags": "{a}=b"}, "tags", "not JSON"),
            ({"queue": "none.such"}, "", "none.such"),
            ({"dependsOn": "missing"}, "dependsOn", "missing"),
            ({"uniqueSeconds": "99999999999"}, "uniqueSeconds", "windowSeconds"),
        ],
    )
    def test_what_cannot_be_stays_in_the_form(self, site: Site, fields: dict[str, str], field: str, says: str) -> None:
        rows = site.api.rows()
        answer = site.post("/submit", {"type": "demo.echo", "payload": "1", **fields}, status=422)
        assert says in text_of(answer.text)
        if field:
            assert 'aria-invalid="true"' in answer.text
        assert site.api.rows() == rows

    def test_an_id_that_is_taken(self, site: Site) -> None:
        site.api.submit(taskId="mine")
        fields = {"type": "demo.echo", "payload": "1", "taskId": "mine"}
        assert "There is a task mine already" in text_of(site.post("/submit", fields, status=422).text)

    def test_a_form_that_was_sent_and_changed_makes_another_task_at_the_next_try(self, site: Site) -> None:
        site.post("/submit", {"type": "demo.echo", "payload": "1", "key": "k"})
        page = site.post("/submit", {"type": "demo.echo", "payload": "2", "key": "k"}, status=422).text
        key = hidden(page)["key"][0]
        assert key != "k"
        site.post("/submit", {"type": "demo.echo", "payload": "2", "key": key})

    @pytest.mark.parametrize(
        "tags",
        [
            {"tenant": "a", "region": "eu = west"},
            {"a": "x\ntenant=other"},
            {"a=b": "c"},
            {" a ": " b "},
            {"{a": "b"},
            {"a\r\nb": ""},
            {"a": "\u2028\x00\u202e"},
        ],
    )
    def test_a_copy_has_the_tags_of_its_model_and_no_others(self, site: Site, tags: dict[str, str]) -> None:
        model = site.api.submit(tags=tags)
        page = site.get(f"/submit?like={model}")
        typed = re.search(r'<textarea id="f-tags"[^>]*>(.*?)</textarea>', page, re.DOTALL)
        assert typed is not None
        fields = {"type": "demo.echo", "payload": "1", "tags": unescape(typed[1])}
        copy = site.post("/submit", fields).headers["location"].partition("?")[0].removeprefix("/task/")
        assert item(site, copy)["tags"] == tags

    def test_one_like_another(self, site: Site) -> None:
        id = site.api.submit(payload={"region": "eu"}, priority="low", tags={"tenant": "a"})
        page = site.get(f"/submit?like={id}")
        assert "&#34;region&#34;: &#34;eu&#34;" in page
        assert "<option selected>low</option>" in page
        assert "tenant=a" in page

    def test_an_equal_one_that_is_open(self, site: Site) -> None:
        fields = {"type": "demo.echo", "payload": "1", "uniqueSeconds": "60"}
        site.post("/submit", fields)
        assert "There was an equal task already: this one." in done(site, "/submit", fields)


def test_an_action_that_fails_half_way_says_that_it_may_have_been_done(site: Site) -> None:
    site.exchange.lost = ConnectionError("reset")
    answer = site.browser.post("/queue/default/pause", data={"csrf": site.keys.csrf}, headers={"origin": ORIGIN})
    assert answer.status_code == 502
    assert "look before you repeat it" in text_of(answer.text)
    assert "Try again" not in text_of(answer.text.partition('class="failure"')[2])
