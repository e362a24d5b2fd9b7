"""How a container's parts come to be."""

from __future__ import annotations

import gc
import threading

import pytest

from tests.support.fakes import FakeClock, FakeRandomness, InlineThreads
from tests.support.http_server import answer, scripted_server
from thunderagent.errors import ConfigurationError
from thunderagent.seams import Once, aws_seams, deferred, is_direct
from thunderagent.settings import Settings


def test_what_is_built_at_its_first_use_is_built_once_by_however_many_threads() -> None:
    built: list[object] = []
    first_is_building, others_came = threading.Event(), threading.Event()

    def build() -> object:
        first_is_building.set()
        others_came.wait(10)
        built.append(object())
        return built[-1]

    once = Once(build)
    got: list[object] = []
    threads = [threading.Thread(target=lambda: got.append(once())) for _ in range(8)]
    threads[0].start()
    first_is_building.wait(10)
    for thread in threads[1:]:
        thread.start()
    others_came.set()
    for thread in threads:
        thread.join(10)
    assert len(built) == 1
    assert got == built * 8


def test_a_build_that_failed_is_tried_again() -> None:
    answers = [OSError("no network"), "client"]

    def build() -> str:
        answer = answers.pop(0)
        if isinstance(answer, OSError):
            raise answer
        return answer

    once = Once(build)
    with pytest.raises(OSError, match="no network"):
        once()
    assert (once(), once()) == ("client", "client")


# ---- which transport -------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("transport", "environ", "direct"),
    [
        ("auto", {"AWS_LAMBDA_FUNCTION_NAME": "poller"}, True),
        ("auto", {}, False),
        ("auto", {"AWS_LAMBDA_FUNCTION_NAME": "poller", "AWS_USE_FIPS_ENDPOINT": "true"}, False),
        ("direct", {}, True),
        ("boto", {"AWS_LAMBDA_FUNCTION_NAME": "poller"}, False),
    ],
)
def test_the_setting_and_the_environment_choose(
    transport: str, environ: dict[str, str], direct: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    for name, value in environ.items():
        monkeypatch.setenv(name, value)
    assert is_direct(Settings("tasks", transport=transport)) is direct


def test_a_demand_that_cannot_be_met_is_refused_by_name(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("AWS_USE_FIPS_ENDPOINT", "true")
    with pytest.raises(ConfigurationError, match="TRANSPORT=direct: AWS_USE_FIPS_ENDPOINT is set"):
        is_direct(Settings("tasks", transport="direct"))


@pytest.mark.parametrize("transport", ["direct", "boto"])
def test_both_reach_the_endpoint_the_environment_names(transport: str, monkeypatch: pytest.MonkeyPatch) -> None:
    with scripted_server(answer(body={"Count": 1}), answer(202, b"")) as server:
        monkeypatch.setenv("AWS_ENDPOINT_URL", server.url)
        monkeypatch.setenv("AWS_ACCESS_KEY_ID", "AKID")
        monkeypatch.setenv("AWS_SECRET_ACCESS_KEY", "secret")
        seams = aws_seams(
            Settings("tasks", transport=transport), randomness=FakeRandomness(), threads=InlineThreads(FakeClock())
        )
        assert server.requests == []
        assert seams.send("Query", {"TableName": "tasks"})["Count"] == 1
        seams.invoke("executor", b"{}")
        assert [request.line for request in server.requests] == [
            "POST / HTTP/1.1",
            "POST /2015-03-31/functions/executor/invocations HTTP/1.1",
        ]
        assert {request.headers["authorization"].split("/")[0] for request in server.requests} == {
            "AWS4-HMAC-SHA256 Credential=AKID"
        }
        gc.collect()  # botocore's clients, which warn of what they leave open


def test_what_is_deferred_is_built_when_it_is_used() -> None:
    built: list[str] = []
    text = deferred(lambda: built.append("built") or "abc")
    assert built == []
    assert (text.upper(), text.lower(), built) == ("ABC", "abc", ["built"])
