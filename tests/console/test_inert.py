"""What tasks say is shown, and does nothing: markup, addresses, control codes, marks that turn text around."""

from __future__ import annotations

import re
from typing import Any

import pytest

from tests.functions.test_api_list import ended
from tests.support.cloudwatch import alarm
from tests.support.console import SERVICE, Site
from tests.support.fakes import START

PROBES = (
    "<script>alert(1)</script>",
    '"><img src=x onerror=alert(1)>',
    "'><svg onload=alert(1)>",
    "{{ 7 * 7 }}{% raw %}",
    '" hx-get="/act/delete?id=x" hx-trigger="load" x="',
    "javascript:alert(1)",
    "</textarea><script>alert(1)</script>",
    "</title><script>alert(1)</script>",
)
MARKUP = re.compile(
    r"<script>|<img src=x|<svg onload|onerror=alert\(1\)>|</textarea><script|</title><script", re.IGNORECASE
)


def hostile(probe: str, **attributes: Any) -> dict[str, Any]:
    """A failed task with the probe wherever text of a task can be."""
    return ended(
        "hostile",
        START,
        error={"type": probe, "message": probe, "reason": probe, "at": START},
        tags={probe: probe},
        outcomeReason=probe,
        operator={"action": "cancel", "caller": probe, "reason": probe, "at": START},
        progress={"fraction": 0.5, "message": probe, "at": START},
        attempts=[
            {"attempt": 1, "startedAt": START, "endedAt": START, "outcome": probe, "errorType": probe, "message": probe}
        ],
        steps={probe: {"n": 0, "result": "1"}},
        payload='"p"',
        result='"r"',
        **attributes,
    )


def assert_inert(page: str, probe: str) -> None:
    assert not MARKUP.search(page)
    assert "49{%" not in page
    assert 'hx-get="/act/delete?id=x" hx-trigger="load"' not in page
    assert 'href="javascript:' not in page


@pytest.mark.parametrize("probe", PROBES)
class TestMarkup:
    def test_in_a_task(self, site: Site, probe: str) -> None:
        site.api.table.put(hostile(probe))
        site.logs.groups = {
            f"{SERVICE}-ExecutorLogs": [
                (START, f'{{"event":"task.message","taskId":"hostile","message":"{probe[:5]}"}}')
            ]
        }
        for path in (
            "/task/hostile",
            "/tasks?status=FAILED",
            "/dead-letters",
            "/submit?like=hostile",
            "/part/task/hostile/logs",
        ):
            assert_inert(site.get(path), probe)

    def test_in_a_payload(self, site: Site, probe: str) -> None:
        id = site.api.submit(payload={probe: [probe]})
        for path in (f"/task/{id}", f"/submit?like={id}", f"/task/{id}/payload"):
            assert_inert(site.get(path), probe)

    def test_in_what_was_asked(self, site: Site, probe: str) -> None:
        for path in ("/find", "/tasks", "/dead-letters", "/submit", "/dashboards", "/all/redrive", "/act/redrive"):
            for field in ("id", "queue", "type", "status", "after", "like", "name", "errorType", "since", "hours"):
                assert_inert(site.browser.get(path, params={field: probe}).text, probe)

    def test_in_a_form_that_comes_back(self, site: Site, probe: str) -> None:
        fields = dict.fromkeys(("type", "payload", "tags", "dependsOn", "taskId", "key", "runAt"), probe)
        assert_inert(site.post("/submit", fields, status=422).text, probe)
        fields = dict.fromkeys(("name", "cron", "timezone", "task"), probe)
        assert_inert(site.post("/schedule", fields, status=422).text, probe)

    def test_in_what_aws_says(self, site: Site, probe: str) -> None:
        site.cloudwatch.alarms = [alarm(f"{SERVICE}-{probe}", "ALARM", AlarmDescription=probe, StateReason=probe)]
        widgets = [
            {"type": "text", "properties": {"markdown": probe}},
            {"type": "metric", "properties": {"title": probe, "metrics": [["N", "M", {"label": probe}]]}},
            {"type": "log", "properties": {"title": probe, "query": probe}},
            {"type": probe, "properties": {"title": probe}},
        ]
        site.cloudwatch.dashboards = {f"{SERVICE}-Main": {"widgets": widgets}}
        site.cloudwatch.values = {("M", "Average"): [(START, 1.0)]}
        for path in ("/", "/alarms", "/part/dashboards"):
            assert_inert(site.get(path), probe)


class TestMarksThatCannotBeSeen:
    @pytest.mark.parametrize(("mark", "shown"), [("\u202e", r"\u202e"), ("\x1b[2J", r"\x1b[2J"), ("\u200b", r"\u200b")])
    def test_become_visible(self, site: Site, mark: str, shown: str) -> None:
        site.api.table.put(
            ended("odd", START, error={"type": "E", "message": f"a{mark}b", "reason": "error", "at": START})
        )
        page = site.get("/task/odd")
        assert mark not in page
        assert f"a{shown}b" in page

    def test_in_a_payload_they_stay_the_same_json(self, site: Site) -> None:
        id = site.api.submit(payload="a\u202eb")
        assert "&#34;a\\u202eb&#34;" in site.get(f"/task/{id}")


def test_links_lead_to_our_own_pages_only(site: Site) -> None:
    site.api.table.put(hostile("https://evil.example/"))
    page = site.get("/task/hostile") + site.get("/dead-letters")
    assert not [address for address in re.findall(r'href="([^"]*)"', page) if not address.startswith(("/", "#", "?"))]


class TestTheWayOn:
    @pytest.mark.parametrize(
        "to", ["https://evil.example", "//evil.example", "/\\evil.example", "javascript:alert(1)", "/a\nb", ""]
    )
    def test_an_action_leads_nowhere_else(self, site: Site, to: str) -> None:
        id = site.api.submit()
        location = site.post("/act/cancel", {"id": id, "next": to}).headers["location"]
        assert location.startswith("/tasks?notice=")

    def test_nor_does_a_failed_part(self, site: Site) -> None:
        page = site.get("/part/task/missing", part=True, page="//evil.example/", status=404)
        assert "evil" not in page
