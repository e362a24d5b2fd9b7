"""Judging a run: what ended otherwise than it should is named, and every figure comes from the tasks themselves."""

from typing import Any

import pytest

from examples.verdict import Finished, Verdict, percentile
from examples.workload import COUNTERS, MOST_REPORTS, Work, Workload
from thunderagent.client import TaskView

START = 1_700_000_000.0


def ended(work: Work, *, status: str | None = None, retries: int | None = None, **fields: Any) -> Finished:
    spent = work.least_retries if retries is None else retries
    attempts = [{"attempt": n + 1, "startedAt": START + 1 + n, "outcome": "failed"} for n in range(spent + 1)]
    task = {
        "taskId": "t-1",
        "status": status or work.status,
        "retryCount": spent,
        "createdAt": START,
        "finishedAt": START + 10,
        "attempts": attempts,
    }
    return Finished(work, TaskView.of(task | fields))


def judge(*finished: Finished, counted: dict[str, int] | None = None, missing: tuple[str, ...] = ()) -> Verdict:
    return Verdict.of(finished, counted=counted or {}, missing_reports=missing)


def test_a_run_in_which_all_ended_as_it_should_has_no_differences() -> None:
    verdict = judge(
        ended(Work.report("seattle", "2012")),
        ended(Work.flaky(1)),
        ended(Work.failing()),
        ended(Work.permanent()),
        ended(Work.counted("a")),
        ended(Work.counted("a")),
        counted={"a": 2},
    )
    assert verdict.differences == ()
    assert (verdict.submitted, verdict.succeeded, verdict.retried) == (6, 4, 2)
    assert (verdict.failed_as_intended, verdict.duplicates) == (2, 0)


@pytest.mark.parametrize(
    ("finished", "words"),
    [
        (ended(Work.report("seattle", "2012"), status="FAILED"), "ended FAILED instead of SUCCESS"),
        (ended(Work.failing(), status="SUCCESS"), "ended SUCCESS instead of FAILED"),
        (ended(Work.flaky(1), retries=0), "spent 0 retries instead of 1 to 3"),
        (ended(Work.permanent(), retries=2), "spent 2 retries instead of 0"),
        (ended(Work.failing(), retries=0), "spent 0 retries instead of 1"),
    ],
)
def test_a_task_that_ended_otherwise_is_named(finished: Finished, words: str) -> None:
    (difference,) = judge(finished).differences
    assert words in difference
    assert "t-1" in difference


def test_a_failure_says_what_was_raised() -> None:
    finished = ended(Work.report("seattle", "2012"), status="FAILED", error={"message": "no bucket"})
    assert judge(finished).differences[0].endswith("no bucket")


@pytest.mark.parametrize(("counted", "duplicates"), [({"a": 3}, 1), ({"a": 1}, 0), ({}, 0)])
def test_a_counter_that_is_off_is_a_difference_and_above_a_duplicate(counted: dict[str, int], duplicates: int) -> None:
    verdict = judge(ended(Work.counted("a")), ended(Work.counted("a")), counted=counted)
    assert verdict.differences == (f"counter#a holds {counted.get('a', 0)} after 2 tasks",)
    assert verdict.duplicates == duplicates


def test_an_attempt_that_ran_twice_is_a_duplicate_and_one_handed_back_is_not() -> None:
    released = {"attempt": 1, "outcome": "released"}
    once = {"attempt": 1, "startedAt": START, "outcome": "succeeded"}
    assert judge(ended(Work.report("seattle", "2012"), attempts=[released, once])).duplicates == 0
    twice = judge(ended(Work.report("seattle", "2012"), attempts=[once, once]))
    assert twice.duplicates == 1
    assert twice.differences == ("t-1 (report.generate) ran 1 times too often",)


def test_a_report_that_is_not_in_the_bucket_is_a_difference() -> None:
    verdict = judge(ended(Work.report("seattle", "2012")), missing=("reports/seattle/2012.svg",))
    assert verdict.differences == ("the report reports/seattle/2012.svg is not in the bucket",)


def test_latency_is_from_the_submit_to_the_first_start_and_throughput_over_the_whole_run() -> None:
    verdict = judge(ended(Work.flaky(2)), ended(Work.report("seattle", "2012"), finishedAt=START + 4))
    assert verdict.latency_p50 == verdict.latency_p95 == 1
    assert verdict.tasks_per_second == pytest.approx(2 / 10)


def test_nothing_finished_has_no_figures() -> None:
    verdict = judge()
    assert (verdict.latency_p50, verdict.latency_p95, verdict.tasks_per_second) == (None, None, None)


@pytest.mark.parametrize(
    ("values", "rank", "found"),
    [([], 50, None), ([7.0], 95, 7.0), ([1.0, 2.0], 50, 1.0), ([float(n) for n in range(1, 101)], 95, 95.0)],
)
def test_a_percentile_is_the_nearest_rank(values: list[float], rank: float, found: float | None) -> None:
    assert percentile(values, rank) == found


def test_the_workload_is_several_hundred_distinct_reports_and_some_that_misbehave() -> None:
    workload = Workload(run="r", reports=300, flaky=12, counted=20)
    works = workload.works()
    reports = [(work.payload["station"], work.payload["period"]) for work in works if work.type == "report.generate"]
    assert len(reports) == len(set(reports)) == 300
    assert {station for station, _ in reports} == {"seattle", "new-york"}
    assert [work.type for work in works].count("demo.flaky") == 12
    assert {work.payload["key"] for work in works if work.type == "demo.count"} == set(workload.counters)
    assert len(workload.counters) == COUNTERS
    assert [work.type for work in works if work.status == "FAILED"] == ["demo.fail", "demo.permanent"]


def test_two_runs_share_no_counter_and_all_reports_can_be_asked_for() -> None:
    one, other = (Workload(run=run, reports=MOST_REPORTS, flaky=0, counted=1) for run in ("r1", "r2"))
    assert not set(one.counters) & set(other.counters)
    assert len(one.works()) == MOST_REPORTS + 3
