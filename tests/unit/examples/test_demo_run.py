"""The demonstration run ends with 0 only if all is as it should be, and says what is not."""

import json
from collections.abc import Callable, Iterable, Sequence
from itertools import count
from pathlib import Path
from typing import Any, Unpack

import pytest

from examples import demo_run
from examples.demo_run import main
from examples.meter import WriteUnits
from examples.stack import LocalStack
from thunderagent.client import TaskOptions, TaskView, Unreachable

START = 1_700_000_000.0


class FakeStack:
    """A stack on which every task ends at once, as it should, unless told otherwise."""

    endpoint, table_name, api_url = "http://127.0.0.1:1", "tasks", "http://127.0.0.1:1/api/"

    def __init__(self) -> None:
        self.tasks: dict[str, dict[str, Any]] = {}
        self.lost: set[str] = set()
        self.broken: set[str] = set()
        self.pollers = 0
        self._numbers = count()

    def start_poller(self) -> None:
        self.pollers += 1

    def submit(self, type: str, payload: Any, /, **options: Unpack[TaskOptions]) -> TaskView:
        failed = type in {"demo.fail", "demo.permanent"} or type in self.broken
        retries = 1 if type in {"demo.fail", "demo.flaky"} else 0
        task = {
            "taskId": f"t-{next(self._numbers)}",
            "type": type,
            "payload": payload,
            "status": "FAILED" if failed else "SUCCESS",
            "retryCount": retries,
            "createdAt": START,
            "finishedAt": START + 10,
            "attempts": [{"attempt": n + 1, "startedAt": START + 2, "outcome": "x"} for n in range(retries + 1)],
        }
        if type == "report.generate":
            name = f"reports/{payload['station']}/{payload['period']}"
            task["result"] = {"summary": f"{name}.json", "chart": f"{name}.svg", "days": 1}
        self.tasks[str(task["taskId"])] = task
        return TaskView.of({**task, "status": "PENDING"})

    def get(self, task_id: str, /) -> TaskView:
        return TaskView.of(self.tasks[task_id])

    def counts(self, keys: Sequence[str]) -> dict[str, int]:
        counted = [task["payload"]["key"] for task in self.tasks.values() if task["type"] == "demo.count"]
        return {key: counted.count(key) for key in keys}

    def absent(self, keys: Iterable[str]) -> list[str]:
        return sorted(set(keys) & self.lost)

    def save(self, key: str, directory: Path) -> Path:
        return directory / key.removeprefix("reports/").replace("/", "-")


Demonstrate = Callable[..., int]


@pytest.fixture
def stack() -> FakeStack:
    return FakeStack()


@pytest.fixture
def demonstrate(stack: FakeStack, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Demonstrate:
    monkeypatch.setenv("COLUMNS", "120")
    monkeypatch.setattr(LocalStack, "of_record", lambda _: stack)
    monkeypatch.setattr(demo_run, "client_of", lambda _: stack)
    monkeypatch.setattr(demo_run, "write_units_since", lambda *_: WriteUnits(table=40.0, index=20.0))
    return lambda *arguments: main(["--reports", "20", "--record", str(tmp_path / "local.json"), *arguments])


def test_it_ends_with_0_and_a_table_when_every_task_ended_as_it_should(
    stack: FakeStack, demonstrate: Demonstrate, capsys: pytest.CaptureFixture[str]
) -> None:
    assert demonstrate() == 0
    shown = " ".join(capsys.readouterr().out.split())
    total = len(stack.tasks)
    assert f"submitted {total} succeeded {total - 2} retried 13" in shown
    assert "failed as intended 2" in shown
    assert "duplicates 0" in shown
    assert "queue latency p50 2.00 s" in shown
    assert f"write units per task {60 / total:.1f} table {40 / total:.1f}, index {20 / total:.1f}" in shown
    assert "new-york-2012.svg" in shown
    assert "seattle-2012.svg" in shown
    assert "Every task ended as it should." in shown
    assert stack.pollers == 1


def test_progress_is_no_part_of_the_data(demonstrate: Demonstrate, capsys: pytest.CaptureFixture[str]) -> None:
    demonstrate()
    captured = capsys.readouterr()
    assert "submitting" in captured.err
    assert "submitting" not in captured.out


def test_it_ends_with_1_and_names_what_failed(
    stack: FakeStack, demonstrate: Demonstrate, capsys: pytest.CaptureFixture[str]
) -> None:
    stack.broken = {"demo.count"}
    assert demonstrate() == 1
    shown = capsys.readouterr().out
    assert "20 things are not as they should be" in shown
    assert "(demo.count) ended FAILED instead of SUCCESS" in shown


def test_a_report_that_is_not_there_is_a_failure_of_the_run(
    stack: FakeStack, demonstrate: Demonstrate, capsys: pytest.CaptureFixture[str]
) -> None:
    stack.lost = {"reports/seattle/2012.svg"}
    assert demonstrate() == 1
    shown = capsys.readouterr().out
    assert "the report reports/seattle/2012.svg is not in the bucket" in shown
    assert "seattle-2013.svg" in shown


def test_it_gives_up_in_time(stack: FakeStack, demonstrate: Demonstrate, capsys: pytest.CaptureFixture[str]) -> None:
    stack.get = lambda task_id: TaskView(task_id=task_id, status="RUNNING")  # type: ignore[method-assign]
    assert demonstrate("--timeout", "0") == 1
    assert f"time is over with {len(stack.tasks)} of {len(stack.tasks)} tasks still open" in _flowing(
        capsys.readouterr().err
    )


def test_an_api_that_does_not_answer_is_said_in_a_sentence(
    stack: FakeStack, demonstrate: Demonstrate, capsys: pytest.CaptureFixture[str]
) -> None:
    def refuse(*_: Any, **__: Any) -> TaskView:
        raise Unreachable(0, "unreachable", "connection refused")

    stack.submit = refuse  # type: ignore[method-assign]
    assert demonstrate() == 1
    assert "`make up` starts it" in capsys.readouterr().err


def test_with_nothing_up_it_says_how_to_start(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["--record", str(tmp_path / "local.json")]) == 3
    assert "make up" in capsys.readouterr().err


def test_the_record_of_the_local_stack_is_read(tmp_path: Path) -> None:
    record = {
        "endpoint": "http://127.0.0.1:4566",
        "apiUrl": "http://127.0.0.1:4566/_aws/execute-api/a/",
        "tableName": "t",
        "bucketName": "b",
        "region": "us-east-1",
        "accessKeyId": "test",
        "secretAccessKey": "secret",
        "stacks": ["S", "S-Data"],
        "pid": 1,
    }
    path = tmp_path / "local.json"
    path.write_text(json.dumps(record))
    stack = LocalStack.of_record(path)
    assert (stack.api_url, stack.table_name, stack.stacks) == (record["apiUrl"], "t", ("S", "S-Data"))
    assert demo_run.client_of(stack)


@pytest.mark.parametrize("reports", ["-1", "553", "many"])
def test_more_reports_than_there_are_is_a_usage_error(reports: str) -> None:
    with pytest.raises(SystemExit) as ended:
        main(["--reports", reports])
    assert ended.value.code == 2


def _flowing(text: str) -> str:
    return " ".join(text.split())
