"""The poller's two entries: the scheduled sweep, and the doorbell on the table's stream."""

from __future__ import annotations

import pytest

from functions.poller import handler
from tests.support.polling import Service, stream_record
from thunderagent.telemetry import Telemetry
from thunderagent.wiring import Parts, Seams


class Context:
    def get_remaining_time_in_millis(self) -> int:
        return 60_000


@pytest.fixture
def service(monkeypatch: pytest.MonkeyPatch) -> Service:
    made = Service()
    poller = made.poller("poller")
    seams = Seams(
        send=made.memory,
        invoke=made.invoke,
        clock=made.clock,
        randomness=poller.randomness,
        threads=poller.threads,
    )
    telemetry = Telemetry(service="Test", clock_ms=lambda: 0)
    own = Parts(made.settings, seams, registry=made.registry, telemetry=telemetry)
    monkeypatch.setattr(handler, "parts", lambda: own)
    return made


def test_a_scheduled_run_sweeps_and_tells_that_it_lives(service: Service, capsys: pytest.CaptureFixture[str]) -> None:
    task_id = service.put()
    assert handler.handler({}, Context()) == {"claimed": 1, "conflicts": 0}
    assert service.sent == [[task_id]]
    assert '"PollerHeartbeat":1' in capsys.readouterr().out


def test_the_doorbell_answers_for_whatever_it_is_given(service: Service, capsys: pytest.CaptureFixture[str]) -> None:
    task_id = service.put(dueAt=service.clock.now())
    event = {"Records": [{"eventID": "x"}, stream_record(service.task(task_id))]}

    assert handler.doorbell(event, Context()) == {"claimed": 1, "left": 0, "unreadable": 1}
    assert handler.doorbell({}, Context()) == {"claimed": 0, "left": 0, "unreadable": 0}
    assert '"Claimed":1' in capsys.readouterr().out


def test_r5_a_poller_invokes_executors_only_so_that_no_chain_of_invocations_grows(service: Service) -> None:
    """Work that is left waits for the next schedule or record: nothing here invokes itself to go on."""
    invoked: list[str] = []
    own = handler.parts()
    own.claims._invoke = lambda function, event: invoked.append(function)  # type: ignore[method-assign]
    ids = [service.put() for _ in range(250)]
    handler.handler({}, Context())
    handler.doorbell({"Records": [stream_record(service.task(ids[-1]))]}, Context())
    assert {*invoked} == {"function-default"}
