"""Text of tasks, and of whoever can write a row or a metric, on its way out: it stays the value it is, in its place.

What leaves as JSON of the API, in logs, pages and at terminals is tested where that is made. There is no CSV: the only
table of plain text is the command line's, whose cells hold no tab and no line break.
"""

from __future__ import annotations

import json
import re
from typing import Any

import pytest
from prometheus_client import CollectorRegistry, generate_latest
from prometheus_client.openmetrics.exposition import generate_latest as generate_openmetrics
from prometheus_client.parser import text_string_to_metric_families

from tests.support.fakes import START
from tests.support.protocol import new_task
from tests.support.recording import Rig, ending, record, removal
from tests.unit.test_exporter import CloudWatch, Exporter
from thunder.cli.output import Column, print_list
from thunder.exporter import Totals

HOSTILE = [
    'a"b',
    "a\\",
    'a\\"} 1\nevil_total{queue="x',
    "a\nthunder_cloudwatch_up 1",
    "# HELP tasks_failed_total gone",
    "a\r\nb",
    "\U0001f600\u2028\u2029\x85\x0b\x0c\x1c",
    "{{7*7}}${jndi:ldap://x}`id`",
    "=cmd|' /C calc'!A0",
    "+1",
    "-1+1",
    "@SUM(A1)",
    "\t=1",
    "\r=1",
    "](javascript:alert(1))",
    "../../archive/x",
    "</script>",
    "\x00",
    "'; DROP TABLE x --",
]


@pytest.mark.parametrize("text", HOSTILE)
class TestPrometheus:
    """Labels are names of queues as CloudWatch has them: whoever may put a metric into the namespace may choose one."""

    def exported(self, text: str) -> CollectorRegistry:
        cloudwatch = CloudWatch()
        cloudwatch.values["Backlog", text][START] = 4
        registry = CollectorRegistry(auto_describe=False)
        totals = Totals(cloudwatch, "ThunderAgent-test", now=lambda: START + 90)
        registry.register(Exporter(totals, interval_seconds=60, say=pytest.fail))
        return registry

    def test_a_label_stays_one_label(self, text: str) -> None:
        page = generate_latest(self.exported(text)).decode()
        families = list(text_string_to_metric_families(page))
        assert {family.name for family in families} >= {"tasks_processed", "tasks_failed", "task_queue_length"}
        assert not [family.name for family in families if "evil" in family.name]
        lengths = [sample for family in families for sample in family.samples if sample.name == "task_queue_length"]
        assert [(each.labels, each.value) for each in lengths] == [
            ({"service": "ThunderAgent-test", "queue": text}, 4.0)
        ]
        (up,) = [sample for family in families for sample in family.samples if sample.name == "thunder_cloudwatch_up"]
        assert up.value == 1

    def test_and_one_line(self, text: str) -> None:
        for page in (generate_latest(self.exported(text)), generate_openmetrics(self.exported(text))):
            lines = [line for line in page.decode().split("\n") if line.startswith("task_queue_length{")]
            assert len(lines) == 1
            assert not [line for line in page.decode().split("\n") if line.startswith(("evil", "b"))]


def spoilt(text: str) -> dict[str, Any]:
    """A task that ended, with the text in every place for text. Only who writes the table itself can have made it."""
    failure = {"type": text, "message": text, "reason": text, "parent": text, "at": START}
    return new_task(
        "t",
        status="FAILED",
        type=text,
        queue=text,
        priority=text,
        outcome=text,
        error=failure,
        tags={"k": text},
        outcomeReason=text,
        payload=json.dumps(text),
        finishedAt=START,
        dispatchKey=f"FAILED#{text}#0",
    )


@pytest.mark.parametrize("text", HOSTILE)
class TestEvents:
    def test_an_event_is_ours_whatever_the_task_says(self, text: str) -> None:
        rig = Rig()
        rig.record(ending(new_task("t", status="RUNNING"), spoilt(text)))
        (entry,) = rig.bus.accepted
        assert (entry["EventBusName"], entry["Source"], entry["DetailType"]) == (
            "bus",
            "thunderagent",
            "Task Completed",
        )
        assert entry["Detail"].isascii()
        assert "\n" not in entry["Detail"]
        detail = json.loads(entry["Detail"])
        assert (detail["type"], detail["queue"], detail["error"]["type"]) == (text, text, text)
        assert (detail["taskId"], detail["status"], detail["version"]) == ("t", "FAILED", 1)

    def test_messages_tags_and_bodies_are_not_told(self, text: str) -> None:
        rig = Rig()
        rig.record(ending(new_task("t", status="RUNNING"), spoilt(text)))
        (detail,) = rig.bus.details
        assert not {"tags", "payload", "result", "outcomeReason"} & set(detail)
        assert "message" not in detail["error"]


@pytest.mark.parametrize("text", HOSTILE)
class TestArchive:
    KEY = re.compile(r"archive/dt=\d{4}-\d\d-\d\d/hour=\d\d/[A-Za-z0-9_-]+\.jsonl\.gz")

    def test_a_line_stays_one_line(self, text: str) -> None:
        rig = Rig()
        rig.record(removal(spoilt(text)), removal(new_task("next", status="DONE")))
        first, second = rig.lines()
        assert (first["type"], first["error"]["message"], first["tags"]) == (text, text, {"k": text})
        assert second["taskId"] == "next"

    def test_no_text_of_a_task_reaches_a_key(self, text: str) -> None:
        rig = Rig()
        rig.record(
            removal(spoilt(text)), record("REMOVE", f"x{text}", old=spoilt(text) | {"taskId": f"x{text}"}, ttl=True)
        )
        assert rig.objects.stored
        assert not [key for key in rig.objects.stored if not self.KEY.fullmatch(key)]


@pytest.mark.parametrize("text", HOSTILE)
def test_a_row_of_plain_text_keeps_its_cells(text: str, capsys: pytest.CaptureFixture[str]) -> None:
    print_list([{"a": text, "b": 1}, {"a": "x", "b": text}], [Column.of("a"), Column.of("b")], "text")
    lines = capsys.readouterr().out.split("\n")
    assert [line.count("\t") for line in lines] == [1, 1, 0]
    assert (lines[0].split("\t")[1], lines[1].split("\t")[0]) == ("1", "x")
