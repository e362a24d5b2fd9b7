"""The judge of the faults: what is lost, committed twice, or done twice without need."""

from __future__ import annotations

import pytest

from drills.verdict import Verdict, unfinished

SUBMITTED = {"t1": "k1", "t2": "k2"}
ONCE = {"count": 1, "commits": 1}


def task(status="SUCCESS", *, retries=0):
    return {"status": status, "retryCount": retries}


def judge(items, counters=None, **options):
    return Verdict.of(SUBMITTED, items, {"k1": ONCE, "k2": ONCE} if counters is None else counters, **options)


def test_tasks_that_ran_and_counted_once_are_no_problem():
    verdict = judge({"t1": task(), "t2": task()})

    assert verdict == Verdict(tasks=2, succeeded=2, failed=0, retried=0, duplicates=0, problems=())


def test_a_run_after_a_lost_one_is_a_duplicate_and_forced():
    verdict = judge({"t1": task(retries=1), "t2": task()}, {"k1": {"count": 2, "commits": 1}, "k2": ONCE})

    assert (verdict.duplicates, verdict.retried, verdict.problems) == (1, 1, ())


def test_a_run_that_nothing_forced_is_a_problem():
    verdict = judge({"t1": task(), "t2": task()}, {"k1": {"count": 2, "commits": 1}, "k2": ONCE})

    assert verdict.problems == ("t1 ran 2 times, and 0 repetitions were forced",)


@pytest.mark.parametrize("commits", [0, 2])
def test_a_success_is_committed_exactly_once(commits):
    verdict = judge({"t1": task(), "t2": task()}, {"k1": {"count": 1, "commits": commits}, "k2": ONCE})

    assert verdict.problems == (f"t1 is SUCCESS and was committed {commits} times",)


def test_a_success_that_never_ran_is_a_problem():
    assert len(judge({"t1": task(), "t2": task()}, {"k2": ONCE}).problems) == 2


def test_a_task_that_is_gone_is_lost_and_not_finished():
    verdict = judge({"t2": task()})

    assert verdict.problems == ("t1 is lost",)
    assert unfinished(SUBMITTED, {"t2": task()}) == ["t1"]


def test_a_task_that_still_runs_is_a_problem_and_not_finished():
    items = {"t1": task("RUNNING"), "t2": task()}

    assert judge(items).problems == ("t1 is RUNNING instead of SUCCESS",)
    assert unfinished(SUBMITTED, items) == ["t1"]


def test_what_is_to_fail_must_fail():
    items = {"t1": task("FAILED", retries=1), "t2": task()}

    assert judge(items, to_fail=["t1"]).problems == ()
    assert judge(items).problems == ("t1 is FAILED instead of SUCCESS",)
    assert judge({"t1": task(), "t2": task()}, to_fail=["t1"]).problems == ("t1 is SUCCESS instead of FAILED",)
