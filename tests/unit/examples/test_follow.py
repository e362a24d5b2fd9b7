"""Following a run to its end: every task is submitted once and looked at until it is over, in bounded time."""

import threading
from typing import Any, Unpack

import pytest

from examples.follow import PAUSE_SECONDS, Run, RunFailed
from examples.workload import Work, Workload
from thunderagent.client import TaskOptions, TaskView


class FakeApi:
    """Tasks end at their `looks`-th look."""

    def __init__(self, looks: int) -> None:
        self.looks = looks
        self.submitted: list[tuple[str, Any, TaskOptions]] = []
        self.seen: dict[str, int] = {}
        self._lock = threading.Lock()

    def submit(self, type: str, payload: Any, /, **options: Unpack[TaskOptions]) -> TaskView:
        with self._lock:
            self.submitted.append((type, payload, options))
            return TaskView(task_id=f"t-{len(self.submitted)}", status="PENDING")

    def get(self, task_id: str, /) -> TaskView:
        with self._lock:
            self.seen[task_id] = self.seen.get(task_id, 0) + 1
            return TaskView(task_id=task_id, status="SUCCESS" if self.seen[task_id] >= self.looks else "RUNNING")


class Shown:
    def __init__(self) -> None:
        self.states: list[tuple[int, int, int, str]] = []

    def show(self, *, submitted: int, ended: int, of: int, note: str = "") -> None:
        self.states.append((submitted, ended, of, note))


class Time:
    """Moves only when somebody pauses."""

    def __init__(self) -> None:
        self.now = 0.0

    def pause(self, seconds: float) -> None:
        self.now += seconds


def run_of(api: FakeApi, total: int, *, ends_at: float = 60) -> tuple[Run, Shown, Time]:
    shown, time = Shown(), Time()
    return Run(api, shown, total, ends_at, clock=lambda: time.now, pause=time.pause), shown, time


def test_every_task_is_submitted_once_and_returned_with_its_work() -> None:
    works = Workload(run="r", reports=100, flaky=5, counted=5).works()
    api = FakeApi(looks=2)
    run, shown, _ = run_of(api, len(works))
    finished = run.through(works)
    assert sorted(str(one.work) for one in finished) == sorted(map(str, works))
    assert len({one.task.task_id for one in finished}) == len(api.submitted) == len(works)
    assert set(api.seen.values()) == {2}
    assert shown.states[-1][:3] == (len(works), len(works), len(works))


def test_a_retry_limit_is_sent_only_where_the_work_has_one() -> None:
    api = FakeApi(looks=1)
    run_of(api, 2)[0].through([Work.flaky(1), Work.failing()])
    assert {type: options for type, _, options in api.submitted} == {
        "demo.flaky": {},
        "demo.fail": {"max_retry_number": 1},
    }


def test_it_shows_progress_while_it_still_submits() -> None:
    works = Workload(run="r", reports=100, flaky=0, counted=0).works()
    run, shown, _ = run_of(FakeApi(looks=1), len(works))
    run.through(works)
    assert shown.states[0][0] == 40
    assert shown.states[0][1] > 0


def test_it_gives_up_when_the_time_is_over_and_says_what_is_open() -> None:
    run, _, time = run_of(FakeApi(looks=10**9), 2, ends_at=10)
    with pytest.raises(RunFailed, match=r"2 of 2 tasks still open: 1 × demo.flaky RUNNING, 1 × demo.permanent RUNNING"):
        run.through([Work.flaky(1), Work.permanent()])
    assert 10 <= time.now <= 10 + PAUSE_SECONDS
