"""What pages are made of: timelines, graphs, dashboards, series, log lines, numbers."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from typing import Any

import pytest

from tests.support.cloudwatch import FakeCloudWatch, FakeLogs
from thunder.console import shown
from thunder.console.dashboard_body import body_of
from thunder.console.forms import FieldError, Fields
from thunder.console.graph import NODES_MOST, drawing_of
from thunder.console.measures import QUERIES_A_CALL, Measures, Metric, period_for
from thunder.console.task_logs import LINES_MOST, TaskLogs
from thunder.console.timeline import WIDTH, attempts_of, timeline_of

NOW = 1_800_000_000.0


class TestTimeline:
    def test_bars_stand_where_attempts_were(self) -> None:
        task = {
            "createdAt": NOW,
            "finishedAt": NOW + 100,
            "status": "FAILED",
            "attempts": [
                {"attempt": 1, "startedAt": NOW + 10, "endedAt": NOW + 20, "outcome": "error"},
                {"attempt": 2, "startedAt": NOW + 90, "endedAt": NOW + 100, "outcome": "failed"},
            ],
        }
        timeline = timeline_of(task, attempts_of(task), now=NOW + 500)
        assert timeline is not None
        assert [(bar.x, bar.width) for bar in timeline.bars] == [(100.0, 100.0), (900.0, 100.0)]

    def test_one_that_runs_grows_until_now(self) -> None:
        task = {"createdAt": NOW, "status": "RUNNING", "startedAt": NOW + 5, "retryCount": 1}
        attempts = attempts_of(task)
        timeline = timeline_of(task, attempts, now=NOW + 10)
        assert [each.number for each in attempts] == [2]
        assert timeline is not None
        assert timeline.bars[0].x + timeline.bars[0].width == WIDTH

    def test_leased_and_not_started(self) -> None:
        task = {"createdAt": NOW, "status": "RUNNING"}
        assert timeline_of(task, attempts_of(task), now=NOW) is None

    @pytest.mark.parametrize("attempts", [["x"], [{"startedAt": "soon"}], [{"startedAt": True}], [{}]])
    def test_rows_that_are_damaged(self, attempts: list[Any]) -> None:
        task = {"createdAt": NOW, "status": "FAILED", "attempts": attempts}
        assert timeline_of(task, attempts_of(task), now=NOW) is None

    def test_a_skipped_task_has_an_attempt_a_cancelled_one_has_not(self) -> None:
        task = {"status": "DONE", "startedAt": NOW, "finishedAt": NOW + 1}
        assert [each.outcome for each in attempts_of({**task, "outcome": "skipped"})] == ["done"]
        assert attempts_of({**task, "outcome": "cancelled"}) == []


def reader(tasks: Mapping[str, Sequence[str]]) -> Any:
    def read(ids: Sequence[str]) -> dict[str, Any]:
        return {id: task_of(id, tasks[id]) if id in tasks else None for id in ids}

    return read


def task_of(id: str, parents: Sequence[str]) -> dict[str, Any]:
    return {"taskId": id, "status": "PENDING", "type": "t", "dependsOn": list(parents)}


class TestGraph:
    def test_none(self) -> None:
        assert drawing_of(task_of("a", []), reader({})) is None

    def test_lines_run_from_left_to_right(self) -> None:
        drawing = drawing_of(task_of("d", ["b", "c", "a"]), reader({"a": [], "b": ["a"], "c": ["a"]}))
        assert drawing is not None
        x = {placed.node.id: placed.x for placed in drawing.nodes}
        assert x["a"] < x["b"] == x["c"] < x["d"]
        assert len(drawing.curves) == 5

    def test_a_parent_that_is_gone(self) -> None:
        drawing = drawing_of(task_of("b", ["a"]), reader({}))
        assert drawing is not None
        assert "a (gone)" in drawing.words

    def test_a_thousand_parents_are_cut(self) -> None:
        parents = [f"p{n}" for n in range(1000)]
        drawing = drawing_of(task_of("x", parents), reader({parent: [] for parent in parents}))
        assert drawing is not None
        assert drawing.is_cut
        assert len(drawing.nodes) <= NODES_MOST

    def test_a_long_chain_is_cut(self) -> None:
        tasks = {f"t{n}": [f"t{n + 1}"] for n in range(50)}
        drawing = drawing_of(task_of("x", ["t0"]), reader(tasks))
        assert drawing is not None
        assert drawing.is_cut
        assert len(drawing.nodes) < 10

    def test_a_stored_cycle_ends(self) -> None:
        drawing = drawing_of(task_of("a", ["b"]), reader({"b": ["a"], "a": ["b"]}))
        assert drawing is not None
        assert len(drawing.nodes) == 2


def widgets(*found: Any) -> Any:
    return body_of(json.dumps({"widgets": list(found)}), period=60).widgets


def metrics(rows: Any, **properties: Any) -> Any:
    return widgets({"type": "metric", "properties": {"metrics": rows, **properties}})[0].metrics


class TestDashboardBody:
    def test_shorthands(self) -> None:
        found = metrics(
            [
                ["NS", "A", "Service", "s", "Queue", "q", {"stat": "p95", "label": "first"}],
                [".", "B", ".", ".", ".", "."],
                ["...", "r"],
            ],
            stat="Sum",
        )
        assert [(each.name, dict(each.dimensions), each.statistic) for each in found] == [
            ("A", {"Service": "s", "Queue": "q"}, "p95"),
            ("B", {"Service": "s", "Queue": "q"}, "Sum"),
            ("B", {"Service": "s", "Queue": "r"}, "Sum"),
        ]

    def test_labels_tell_rows_apart(self) -> None:
        assert [m.label for m in metrics([["N", "A"], ["N", "B"]])] == ["A", "B"]
        assert [m.label for m in metrics([["N", "A", "Q", "x"], ["N", "A", "Q", "y"]])] == ["x", "y"]
        assert [m.label for m in metrics([["N", "A", {"stat": "p50"}], ["N", "A", {"stat": "p99"}]])] == ["p50", "p99"]
        assert [m.label for m in metrics([["N", "A", "Q", "x"]])] == ["A"]
        assert [m.label for m in metrics([["N", "A", "S", "s"], ["N", "B", "Q", "q"]])] == ["A", "B"]
        assert [m.label for m in metrics([["N", "A", "T", "t"], ["N", "A", "T", "t", "I", "i"]])] == ["t", "i"]

    def test_math_keeps_its_ids_apart_from_other_widgets(self) -> None:
        found = metrics(
            [
                ["N", "A", {"id": "m1", "visible": False}],
                [{"expression": "m1 / SUM(METRICS())", "id": "e1", "label": "x"}],
            ]
        )
        assert found[1].expression == "w0_m1 / SUM(METRICS())"
        assert [(each.id, each.is_shown) for each in found] == [("w0_m1", False), ("w0_e1", True)]

    def test_places_and_widths(self) -> None:
        found = widgets(
            {"type": "text", "y": 6, "width": 24, "properties": {"markdown": "b"}},
            {"type": "text", "y": 0, "width": 7, "properties": {"markdown": "a"}},
        )
        assert [(each.text, each.columns) for each in found] == [("a", 8), ("b", 24)]

    def test_what_cannot_be_drawn_says_so(self) -> None:
        found = widgets({"type": "explorer"}, {"type": "log", "properties": {"query": "fields @message"}})
        assert "AWS console" in found[0].note
        assert found[1].text == "fields @message"

    def test_text_is_headings_and_words(self) -> None:
        (found,) = widgets({"type": "text", "properties": {"markdown": "## Costs\n\n[Read on](javascript:x) **now**"}})
        assert found.paragraphs == [(True, "Costs"), (False, "Read on **now**")]

    def test_annotations(self) -> None:
        found = widgets(
            {"type": "metric", "properties": {"annotations": {"horizontal": [{"label": "limit", "value": 5}, "x"]}}}
        )
        assert [(line.label, line.value) for line in found[0].lines] == [("limit", 5.0)]

    GOOD = ("NS", "Good")

    @pytest.mark.parametrize(
        ("properties", "drawn"),
        [
            (None, []),
            ([], []),
            ({"metrics": "x"}, []),
            ({"metrics": [None, "x", [], [{}], [1], [*GOOD]]}, ["Good"]),
            ({"metrics": [["...", "a"], [*GOOD]]}, ["Good"]),  # a shorthand without a row above it names no metric
            ({"metrics": [[*GOOD], ["...", "Other"]]}, ["Good", "Other"]),
            ({"metrics": [[*GOOD, "Queue"]]}, ["Good"]),  # a dimension without a value is left out
            ({"metrics": [[*GOOD]], "annotations": []}, ["Good"]),
            ({"metrics": [[*GOOD]], "title": None, "view": None, "stacked": 1, "period": "x", "stat": None}, ["Good"]),
        ],
    )
    def test_of_an_odd_widget_what_can_be_read_is_drawn(self, properties: Any, drawn: list[str]) -> None:
        (found,) = widgets({"type": "metric", "width": "wide", "height": True, "x": [], "properties": properties})
        assert [each.name for each in found.metrics] == drawn
        assert all((each.namespace, each.dimensions, each.period) == ("NS", (), 60) for each in found.metrics)
        assert (found.kind, found.width, found.height, found.columns) == ("metric", 6, 6, 6)
        assert (found.title, found.view, found.is_stacked, found.lines) == ("Untitled", "timeSeries", False, ())

    @pytest.mark.parametrize(
        ("asked", "sent"), [("x", 60), (True, 60), (None, 60), (-5, 60), (90, 120), (300, 300), (10**30, 86_400)]
    )
    def test_a_period_is_one_that_can_be_asked_for(self, asked: Any, sent: int) -> None:
        (found,) = metrics([[*self.GOOD, {"period": asked}]])
        assert found.period == sent

    @pytest.mark.parametrize("id", ["X", "a b", "", "1a", None, 5, ["x"], "a" * 300])
    def test_an_id_that_cannot_be_asked_for_is_replaced(self, id: Any) -> None:
        (found,) = metrics([[*self.GOOD, {"id": id}]])
        assert found.id == "w0_n0"

    @pytest.mark.parametrize("value", [True, None, "5", [], float("nan"), float("inf"), 10**400])
    def test_a_line_that_cannot_be_drawn_is_left_out(self, value: Any) -> None:
        horizontal = [{"label": "odd", "value": value}, "x", {"label": "limit", "value": 5}]
        (found,) = widgets({"type": "metric", "properties": {"annotations": {"horizontal": horizontal}}})
        assert [(line.label, line.value) for line in found.lines] == [("limit", 5.0)]

    def test_what_is_no_widget_takes_no_place(self) -> None:
        found = widgets(None, "x", 5, [], {"type": "text", "properties": {"markdown": "## Here"}})
        assert [each.paragraphs for each in found] == [[(True, "Here")]]

    @pytest.mark.parametrize("kind", [5, None, "", "explorer"])
    def test_a_widget_of_no_known_type_says_which(self, kind: Any) -> None:
        (found,) = widgets({"type": kind, "properties": {"title": "Mine"}})
        assert (found.title, found.note) == ("Mine", f"A widget of type {kind}: see it in the AWS console.")

    @pytest.mark.parametrize("text", ["[]", "{}", '{"widgets": 1}', "x"])
    def test_no_dashboard(self, text: str) -> None:
        with pytest.raises(ValueError, match=r".+"):
            body_of(text, period=60)


class TestMeasures:
    def test_in_calls_of_at_most_five_hundred(self) -> None:
        cloudwatch = FakeCloudWatch()
        asked = [Metric(f"m{n}", "N", f"M{n}") for n in range(QUERIES_A_CALL + 1)]
        cloudwatch.values = {("M500", "Sum"): [(NOW, 7.0)]}
        found = Measures(cloudwatch).read(asked, start=NOW - 60, end=NOW)
        assert [len(each["MetricDataQueries"]) for each in cloudwatch.asked] == [QUERIES_A_CALL, 1]
        assert found[500].last == 7.0

    def test_math_where_there_is_none(self) -> None:
        cloudwatch = FakeCloudWatch()
        found = Measures(cloudwatch, math=False).read([Metric("x", expression="1+1")], start=0, end=60)
        assert found[0].problem == "the embedded AWS has no metric math"
        assert [each["MetricDataQueries"] for each in cloudwatch.asked] == []

    def test_further_pages(self) -> None:
        class Paged(FakeCloudWatch):
            def get_metric_data(self, **asked: Any) -> dict[str, Any]:
                self.values = {("A", "Sum"): [(NOW + len(self.asked), 1.0)]}
                answer = super().get_metric_data(**asked)
                return {**answer, "NextToken": "t"} if len(self.asked) < 3 else answer

        found = Measures(Paged()).read([Metric("a", "N", "A")], start=0, end=60)
        assert len(found[0].points) == 3

    def test_periods_keep_charts_small(self) -> None:
        assert [period_for(hours * 3600) for hours in (1, 3, 12, 24, 168, 1000)] == [60, 60, 300, 300, 3600, 21600]

    def test_what_no_chart_can_show_is_no_point(self) -> None:
        cloudwatch = FakeCloudWatch()
        cloudwatch.values = {("A", "Sum"): [(NOW, float("nan")), (NOW + 60, 2.0), (NOW + 120, float("inf"))]}
        (found,) = Measures(cloudwatch).read([Metric("a", "N", "A")], start=NOW, end=NOW + 180)
        assert found.points == ((int(NOW) + 60, 2.0),)


class TestTaskLogs:
    def test_looks_from_submission_to_end(self) -> None:
        logs = FakeLogs()
        logs.groups = {
            "S-ExecutorLogs-1": [(NOW, '"t1"'), (NOW, '"t1-b"'), (NOW, "at1")],
            "S-ApiAccessLogs": [(NOW, '"t1"')],
        }
        found = TaskLogs(logs, "S").of({"taskId": "t1", "createdAt": NOW - 10, "finishedAt": NOW + 10}, now=NOW + 9999)
        assert [line.text for line in found.lines] == ['"t1"']  # the others are of longer ids
        assert [each["logGroupName"] for each in logs.asked] == ["S-ExecutorLogs-1"]
        assert (logs.asked[0]["startTime"], logs.asked[0]["endTime"]) == ((NOW - 130) * 1000, (NOW + 130) * 1000)

    def test_is_bounded(self) -> None:
        class Endless(FakeLogs):
            def filter_log_events(self, **asked: Any) -> dict[str, Any]:
                self.asked.append(asked)
                events = [{"timestamp": int(NOW * 1000), "message": "t1"}] * 90
                return {"events": events, "nextToken": "t"}

        logs = Endless()
        logs.groups = {"S-ExecutorLogs": []}
        found = TaskLogs(logs, "S").of({"taskId": "t1"}, now=NOW)
        assert (len(found.lines), found.is_cut) == (LINES_MOST, True)
        assert len(logs.asked) == 3

    def test_groups_are_remembered(self) -> None:
        logs, time = FakeLogs(), [0.0]
        read = TaskLogs(logs, "S", monotonic=lambda: time[0])
        assert read.groups() == []
        logs.groups = {"/aws/lambda/S-ReaperFunction-1": [], "/aws/cloudformation/S/PollerLogsE": []}
        assert read.groups() == []
        time[0] = 301
        assert len(read.groups()) == 2


class TestShown:
    @pytest.mark.parametrize(
        ("value", "text"),
        [
            (0, "0"),
            (1234567, "1\u2009234\u2009567"),
            (0.18333, "0.183"),
            (12.0, "12"),
            (4321.6, "4\u2009322"),
            (None, "–"),
            (True, "True"),
            (float("nan"), "–"),
            (float("-inf"), "–"),
            (10**30, "1" + "\u2009000" * 10),
        ],
    )
    def test_numbers(self, value: Any, text: str) -> None:
        assert shown.number(value) == text

    @pytest.mark.parametrize(
        ("value", "text"),
        [(0, "<1 ms"), (0.25, "250 ms"), (3, "3s"), (200, "3m 20s"), (None, "–"), (float("nan"), "–"), (-5, "0s")],
    )
    def test_durations(self, value: Any, text: str) -> None:
        assert shown.duration(value) == text

    @pytest.mark.parametrize(
        ("value", "text"), [(10, "10 B"), (2048, "2.0 KiB"), (300_000, "293 KiB"), (5e9, "4768 MiB")]
    )
    def test_sizes(self, value: float, text: str) -> None:
        assert shown.size(value) == text

    @pytest.mark.parametrize(
        ("name", "text"),
        [
            ("S-MonitoringPollerStopped0C3675C6-72FDEA0FF38E5", "PollerStopped"),
            ("S-ExecutordefaultExecutorFunctionCD27BC9B455EC4", "ExecutordefaultExecutorFunction"),
            ("S-Data-TaskTable-40AD7C1F0F28F", "TaskTable"),
            ("S-Mine", "Mine"),
            ("Other-Name", "Other-Name"),
        ],
    )
    def test_names_without_what_cloudformation_adds(self, name: str, text: str) -> None:
        assert shown.short_name(name, "S") == text

    def test_messages_without_what_differs(self) -> None:
        messages = ("order 17 at 0x7fe2 of 153224317f69ddc5", "order 9 at 0x11 of 0a1b2c3d4e5f6071")
        assert {shown.message_pattern(message) for message in messages} == {"order # at # of #"}


class TestFields:
    def test_as_typed(self) -> None:
        form = Fields.parse("a=+x+&b=1%0D%0A2&c=&d=1&d=2&d=1")
        assert (form.text("a"), form.raw("b"), form.text("c", "z"), form.all("d")) == ("x", "1\n2", "z", ["1", "2"])

    @pytest.mark.parametrize("text", ["1.5", "-1", "x", "١", "1" * 13])
    def test_no_whole_number(self, text: str) -> None:
        with pytest.raises(FieldError):
            Fields({"n": [text]}).whole("n", what="It")

    @pytest.mark.parametrize("text", ["nan", "inf", "-1", "x", "1e300"])
    def test_no_number(self, text: str) -> None:
        with pytest.raises(FieldError):
            Fields({"n": [text]}).decimal("n", what="It")
