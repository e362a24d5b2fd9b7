"""`thunder doctor`: what is right, each thing that can be wrong, and what it says to do."""

from __future__ import annotations

import json
from collections.abc import Mapping
from datetime import UTC, datetime, timedelta
from email.utils import format_datetime
from types import SimpleNamespace
from typing import Any

import botocore.exceptions
import pytest

from tests.support.api import Api
from tests.support.cli import Terminal, exchange_with
from thunder.cli import checks, target
from thunder.cli.checks import Dated, Verdict, clock
from thunder.cli.errors import NotFound

KEYS = {
    "table": [{"KeyType": "HASH", "AttributeName": "taskId"}],
    "index": [{"KeyType": "HASH", "AttributeName": "dispatchKey"}, {"KeyType": "RANGE", "AttributeName": "dueAt"}],
}


class FakeAws:
    """A healthy stack's AWS services; tests make one thing wrong."""

    def __init__(self) -> None:
        self.status = "UPDATE_COMPLETE"
        self.index: dict[str, Any] = {
            "IndexName": "dispatch-index",
            "IndexStatus": "ACTIVE",
            "KeySchema": KEYS["index"],
        }
        self.table: dict[str, Any] = {
            "TableName": "tasks",
            "TableStatus": "ACTIVE",
            "KeySchema": KEYS["table"],
            "GlobalSecondaryIndexes": [self.index],
            "StreamSpecification": {"StreamEnabled": True, "StreamViewType": "NEW_AND_OLD_IMAGES"},
        }
        self.ttl: dict[str, Any] = {"TimeToLiveStatus": "ENABLED", "AttributeName": "expiresAt"}
        self.heartbeat_age: dict[str, float | None] = {"PollerHeartbeat": 70, "ReaperHeartbeat": 70}
        self.caller_error: Exception | None = None

    def clients(self) -> dict[str, Any]:
        return {
            "sts": SimpleNamespace(get_caller_identity=self._caller),
            "cloudformation": SimpleNamespace(
                describe_stacks=lambda StackName: {"Stacks": [{"StackStatus": self.status}]}
            ),
            "dynamodb": SimpleNamespace(
                describe_table=lambda TableName: {"Table": self.table},
                describe_time_to_live=lambda TableName: {"TimeToLiveDescription": self.ttl},
            ),
            "cloudwatch": SimpleNamespace(get_metric_statistics=self._statistics),
        }

    def _caller(self) -> dict[str, str]:
        if self.caller_error is not None:
            raise self.caller_error
        return {"Arn": "arn:aws:iam::1:user/me", "Account": "1"}

    def _statistics(self, *, MetricName: str, Dimensions: list[Any], **arguments: Any) -> dict[str, Any]:
        assert Dimensions == [{"Name": "Service", "Value": "ThunderAgent-test"}]
        age = self.heartbeat_age[MetricName]
        at = datetime.now(UTC) - timedelta(seconds=age or 0)
        return {"Datapoints": [] if age is None else [{"Timestamp": at, "Sum": 1.0}]}


@pytest.fixture
def aws(thunder: Terminal, api: Api) -> FakeAws:
    made = FakeAws()
    thunder.target.services = made.clients()
    inner = exchange_with(api)

    def dated(method: str, url: str, headers: Mapping[str, str], body: bytes) -> Any:
        status, answered, content = inner(method, url, headers, body)
        return status, {**answered, "Date": format_datetime(datetime.now(UTC), usegmt=True)}, content

    thunder.target.exchange = dated
    return made


def verdicts(thunder: Terminal, *arguments: str, code: int = 0) -> dict[str, str]:
    result = thunder("doctor", *arguments, "--output", "json")
    assert result.exit_code == code, result.output
    return {check["check"]: check["verdict"] for check in json.loads(result.stdout)["checks"]}


@pytest.mark.usefixtures("aws")
def test_all_is_well(thunder: Terminal) -> None:
    found = verdicts(thunder)

    assert set(found.values()) == {"ok"}
    assert set(found) == {
        "credentials", "stack", "table", "index", "stream", "retention", "api", "clock", "poller", "reaper", "queues",
    }  # fmt: skip
    assert "ACTIVE" in thunder.ok("doctor").stdout


def test_each_thing_that_can_be_wrong_is_found_alone(thunder: Terminal, aws: FakeAws) -> None:
    wrongs: list[tuple[str, Any]] = [
        ("stack", lambda: setattr(aws, "status", "UPDATE_ROLLBACK_COMPLETE")),
        ("index", lambda: aws.table.update(GlobalSecondaryIndexes=[])),
        ("index", lambda: aws.table.update(GlobalSecondaryIndexes=[{**aws.index, "IndexStatus": "CREATING"}])),
        ("index", lambda: aws.table.update(GlobalSecondaryIndexes=[{**aws.index, "KeySchema": KEYS["table"]}])),
        ("table", lambda: aws.table.update(TableStatus="CREATING")),
        ("table", lambda: aws.table.update(KeySchema=KEYS["index"])),
        ("stream", lambda: aws.table.update(StreamSpecification={"StreamEnabled": False})),
        ("retention", lambda: aws.ttl.update(TimeToLiveStatus="DISABLED")),
        ("poller", lambda: aws.heartbeat_age.update(PollerHeartbeat=None)),
        ("reaper", lambda: aws.heartbeat_age.update(ReaperHeartbeat=800)),
    ]
    for name, spoil in wrongs:
        aws.__init__()  # type: ignore[misc]
        spoil()
        found = verdicts(thunder, code=1)
        assert {check for check, verdict in found.items() if verdict != "ok"} == {name}
        told = thunder("doctor")
        assert f"{name}: " in told.stderr
        assert "1 of 11 checks failed" in told.stderr


def test_what_cannot_be_asked_is_a_failure_and_not_the_end(thunder: Terminal, aws: FakeAws) -> None:
    response: Any = {"Error": {"Code": "ExpiredToken", "Message": "it is over"}}
    aws.caller_error = botocore.exceptions.ClientError(response, "GetCallerIdentity")
    found = verdicts(thunder, code=1)

    assert found["credentials"] == "fail"
    assert found["index"] == "ok"
    assert "aws sso login" in thunder("doctor").stderr


def test_a_stack_that_is_not_there(thunder: Terminal, monkeypatch: pytest.MonkeyPatch) -> None:
    def nowhere(options: Any) -> Any:
        raise NotFound("there is no stack X")

    monkeypatch.setattr(target, "locate", nowhere)
    assert verdicts(thunder, code=1) == {"stack": "fail"}


@pytest.mark.usefixtures("aws")
def test_with_an_api_url_alone_the_rest_is_left_out(thunder: Terminal) -> None:
    thunder.target.service = thunder.target.table_name = None
    found = verdicts(thunder)

    assert {name for name, verdict in found.items() if verdict == "skipped"} == {"stack", "table", "poller", "reaper"}
    assert found["api"] == "ok"


def test_on_this_machine_missing_figures_are_a_warning(thunder: Terminal, aws: FakeAws) -> None:
    thunder.target.is_local = True
    aws.heartbeat_age.update(PollerHeartbeat=None)

    assert verdicts(thunder)["poller"] == "warn"


@pytest.mark.parametrize(
    ("seconds", "verdict"), [(0.4, "ok"), (-3, "ok"), (6, "warn"), (-60, "warn"), (400, "fail"), (-400, "fail")]
)
def test_the_clock(seconds: float, verdict: str) -> None:
    assert clock(seconds).verdict == verdict


def test_a_wrong_clock_is_told_even_when_the_api_refuses_it(thunder: Terminal, aws: FakeAws) -> None:
    def refusing(method: str, url: str, headers: Mapping[str, str], body: bytes) -> Any:
        date = format_datetime(datetime.now(UTC) - timedelta(hours=1), usegmt=True)
        return 403, {"date": date}, b'{"message":"Signature not yet current"}'

    thunder.target.exchange = refusing
    found = verdicts(thunder, code=1)

    assert (found["api"], found["clock"]) == ("fail", "fail")


@pytest.mark.parametrize("date", [None, "nonsense"])
def test_an_answer_without_a_date_says_nothing_of_the_clock(date: str | None) -> None:
    dated = Dated()
    headers = {} if date is None else {"Date": date}
    dated.wrap(lambda method, url, given, body: (200, headers, b""))("GET", "https://x", {}, b"")

    assert dated.skew_seconds is None


@pytest.mark.usefixtures("aws")
def test_a_task_long_due_is_a_warning_that_names_the_way_on(thunder: Terminal, monkeypatch: pytest.MonkeyPatch) -> None:
    thunder.api.submit()
    thunder.api.clock.advance(300)
    monkeypatch.setattr(checks, "time", SimpleNamespace(time=thunder.api.clock.now, monotonic=lambda: 0.0))
    result = thunder.ok("doctor", "--output", "json")
    found = {check["check"]: check for check in json.loads(result.stdout)["checks"]}

    assert found["queues"]["verdict"] == Verdict.WARN
    assert "thunder task why" in found["queues"]["remedy"]


class TestAudit:
    @pytest.mark.usefixtures("aws")
    def test_a_clean_table(self, thunder: Terminal) -> None:
        thunder.api.submit()

        assert verdicts(thunder, "--audit")["audit"] == "ok"

    @pytest.mark.usefixtures("aws")
    def test_what_must_never_be_is_found_and_named(self, thunder: Terminal) -> None:
        task_id = thunder.api.submit()
        thunder.api.table.put((thunder.api.table.item(task_id) or {}) | {"expiresAt": 1})
        result = thunder("doctor", "--audit", "--output", "json")

        assert result.exit_code == 1
        assert [finding["taskId"] for finding in json.loads(result.stdout)["findings"]] == [task_id]
        assert task_id in thunder("doctor", "--audit").stderr
