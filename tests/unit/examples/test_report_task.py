"""`report.generate`: deterministic objects, made once however often the task runs, and no retry for the impossible."""

import json
from collections.abc import Iterator
from typing import Any

import boto3
import pytest
from moto import mock_aws

from examples.reports import publication, tasks
from examples.reports.publication import Report
from examples.reports.tasks import Request, generate
from examples.reports.weather import stations, summarise
from tests.unit.examples.fakes import FakeContext
from thunderagent import Fail
from thunderagent.registry import handlers_in

BUCKET = "reports-bucket"
REQUEST = Request("seattle", "2012-03")
CHART, SUMMARY = "reports/seattle/2012-03.svg", "reports/seattle/2012-03.json"


class CutOff(Exception):
    """The worker is gone."""


@pytest.fixture
def bucket(monkeypatch: pytest.MonkeyPatch) -> Iterator[Any]:
    monkeypatch.setenv("BUCKET_NAME", BUCKET)
    real_client = publication._client  # a test may put another in its place
    real_client.cache_clear()
    with mock_aws():
        s3 = boto3.client("s3")
        s3.create_bucket(Bucket=BUCKET)
        yield s3
    real_client.cache_clear()


def objects(s3: Any) -> dict[str, bytes]:
    listed = s3.list_objects_v2(Bucket=BUCKET).get("Contents", [])
    return {entry["Key"]: s3.get_object(Bucket=BUCKET, Key=entry["Key"])["Body"].read() for entry in listed}


def test_it_leaves_a_summary_and_a_chart_under_keys_that_follow_from_the_request(bucket: Any) -> None:
    assert generate(REQUEST, FakeContext()) == {"summary": SUMMARY, "chart": CHART, "days": 31}
    kept = objects(bucket)
    assert set(kept) == {SUMMARY, CHART}
    summary = json.loads(kept[SUMMARY])
    assert summary["precipitation"]["total"] == 183.0
    assert summary["chart"] == CHART
    assert kept[CHART].startswith(b"<svg ")
    types = {key: bucket.head_object(Bucket=BUCKET, Key=key)["ContentType"] for key in kept}
    assert types == {SUMMARY: "application/json; charset=utf-8", CHART: "image/svg+xml; charset=utf-8"}


def test_a_repeat_gives_the_same_result_and_writes_nothing(bucket: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    first = generate(REQUEST, FakeContext())
    monkeypatch.setattr(publication, "_write", lambda *_: pytest.fail("written again"))
    again = FakeContext(attempt=2)
    assert generate(REQUEST, again) == first
    assert (again.steps, again.told) == ({}, [])


@pytest.mark.parametrize("writes", [0, 1, 2])
def test_cut_off_before_any_write_the_next_attempt_completes_the_same_report(
    bucket: Any, monkeypatch: pytest.MonkeyPatch, writes: int
) -> None:
    expected = _made_elsewhere()
    real_write, left = publication._write, [writes]

    def write(*arguments: Any) -> None:
        if not left[0]:
            raise CutOff
        left[0] -= 1
        real_write(*arguments)

    monkeypatch.setattr(publication, "_write", write)
    first = FakeContext()
    if writes < 2:
        with pytest.raises(CutOff):
            generate(REQUEST, first)
    else:
        generate(REQUEST, first)
    assert (SUMMARY in objects(bucket)) == (writes == 2), "a summary without its chart"

    monkeypatch.setattr(publication, "_write", real_write)
    generate(REQUEST, FakeContext(attempt=2, steps=first.steps))
    assert objects(bucket) == expected


def test_a_chart_that_was_published_is_not_drawn_again_by_a_retry(bucket: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(publication, "draw", lambda *_: pytest.fail("drawn again"))
    context = FakeContext(attempt=2, steps={"chart": CHART})
    assert generate(REQUEST, context)["chart"] == CHART
    assert context.told == [(0.5, "chart published")]


def test_a_report_of_another_edition_is_made_anew(bucket: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    generate(REQUEST, FakeContext())
    monkeypatch.setattr(publication, "LAYOUT", publication.LAYOUT + 1)
    context = FakeContext()
    generate(REQUEST, context)
    assert context.steps == {"chart": CHART}
    assert json.loads(objects(bucket)[SUMMARY])["edition"].startswith(f"{publication.LAYOUT}-")


def test_a_role_that_may_not_list_the_bucket_still_publishes(bucket: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    from botocore.exceptions import ClientError

    class Blind:
        def get_object(self, **_: Any) -> None:
            raise ClientError({"Error": {"Code": "AccessDenied", "Message": "Access Denied"}}, "GetObject")

        def put_object(self, **arguments: Any) -> None:
            bucket.put_object(**arguments)

    monkeypatch.setattr(publication, "_client", Blind)
    generate(REQUEST, FakeContext())
    assert set(objects(bucket)) == {SUMMARY, CHART}


def test_a_bucket_that_does_not_answer_is_an_error_to_retry(monkeypatch: pytest.MonkeyPatch) -> None:
    from botocore.exceptions import ClientError

    class Broken:
        def get_object(self, **_: Any) -> None:
            raise ClientError({"Error": {"Code": "SlowDown", "Message": "slow down"}}, "GetObject")

    monkeypatch.setenv("BUCKET_NAME", BUCKET)
    monkeypatch.setattr(publication, "_client", Broken)
    with pytest.raises(ClientError):
        generate(REQUEST, FakeContext())


@pytest.mark.parametrize(
    ("station", "period", "words"),
    [
        ("atlantis", "2012", "station 'atlantis' is not known: new-york, seattle"),
        ("x" * 10_000, "2012", "is not known"),
        ("seattle", "../2012", "'../2012' is not a period"),
        ("seattle", "9" * 10_000, "is not a period"),
        ("seattle", "2012-13", "there is no such month"),
        ("seattle", "2016", "known from 2012-01-01 to 2015-12-31"),
    ],
)
def test_a_request_nobody_could_fulfil_fails_for_good(station: str, period: str, words: str) -> None:
    with pytest.raises(Fail) as raised:
        generate(Request(station, period), FakeContext())
    assert words in str(raised.value)
    assert len(str(raised.value)) < 300


@pytest.mark.parametrize(
    "payload", [None, {}, {"station": "seattle"}, {"station": "seattle", "period": 2012}, ["seattle", "2012"]]
)
def test_a_payload_that_is_no_request_fails_for_good(payload: Any) -> None:
    (handler,) = handlers_in(tasks)
    with pytest.raises(Fail, match="payload"):
        handler.read(payload)
    assert handler.read({"station": "seattle", "period": "2012-03"}) == REQUEST


def test_reports_of_different_requests_have_different_keys() -> None:
    from examples.reports.periods import periods_within

    reports = [Report(one, period) for one in stations().values() for period in periods_within(one.first, one.last)]
    keys = {key for report in reports for key in (report.summary_key, report.chart_key)}
    assert len(keys) == 2 * len(reports) == 1104
    assert all(key.startswith("reports/") for key in keys)


def _made_elsewhere() -> dict[str, bytes]:
    """The report's objects as the pure functions make them."""
    from examples.reports.chart import draw
    from examples.reports.periods import Period

    station, period = stations()["seattle"], Period.parse("2012-03")
    report = Report(station, period)
    return {
        CHART: draw(station, period, summarise(station, period)).encode(),
        SUMMARY: (json.dumps(report.summary(), ensure_ascii=False, indent=1) + "\n").encode(),
    }
