"""Whose bill it is, what is stored of it, and dollars per million tasks."""

from __future__ import annotations

import io
import json
import threading
from typing import Any

import pytest

from tests.support.api import REGISTRY, OneThread
from tests.support.fakes import START, FakeClock, FakeRandomness
from tests.support.memory_dynamodb import Fault, MemoryDynamoDB
from thunderagent.charges import OVERHEAD, STORE_SECONDS, Account, Charges, charged_to
from thunderagent.cost import CostReport, Prices, Usage, cost_report, load_prices
from thunderagent.registry import Registry
from thunderagent.settings import Settings
from thunderagent.telemetry import Telemetry
from thunderagent.wiring import Parts, Seams

WRITE = {"ConsumedCapacity": {"CapacityUnits": 1.0}}
READ = {"ConsumedCapacity": [{"CapacityUnits": 0.5}, {"CapacityUnits": 1.5}]}


class Container:
    """The charges of one container and the table they are stored in."""

    def __init__(self, mib: float = 512) -> None:
        self.table = MemoryDynamoDB("tasks")
        self.clock = FakeClock()
        settings = Settings(table_name="tasks", memory_mib=mib)
        seams = Seams(
            send=self.table,
            invoke=lambda function, event: None,
            clock=self.clock,
            randomness=FakeRandomness(),
            threads=OneThread(),  # type: ignore[arg-type]  # nothing is started here
        )
        telemetry = Telemetry(service="test", stream=io.StringIO(), clock_ms=lambda: 0)
        self.parts = Parts(settings, seams, registry=Registry.from_dict(REGISTRY), telemetry=telemetry)
        self.charges: Charges = self.parts.charges

    def stored(self) -> dict[str, dict[str, Any]]:
        """Stored numbers by `queue/type`."""
        found = {}
        for item_id, item in self.table.items("cost#").items():
            _, queue, type_name = item_id.removeprefix("cost#").split("#")
            left_out = {"taskId", "dispatchKey", "dueAt", "expiresAt"}
            found[f"{queue}/{type_name}"] = {name: value for name, value in item.items() if name not in left_out}
        return found

    def report(self, **options: Any) -> CostReport:
        return cost_report(self.parts.store, **options)


@pytest.fixture
def container() -> Container:
    return Container()


def test_units_go_to_whom_the_thread_works_for_and_the_rest_to_overhead(container: Container) -> None:
    with charged_to([("q", "a")]):
        container.charges.add("UpdateItem", WRITE)
        container.charges.add("Query", READ)
    container.charges.add("PutItem", WRITE)
    assert container.charges.settle() == {"q": (1, 2), "-": (1, 0)}


def test_a_batch_is_charged_in_equal_parts(container: Container) -> None:
    with charged_to([("q", "a"), ("q", "a"), ("q", "b")]):
        container.charges.add("PutItem", {"ConsumedCapacity": {"CapacityUnits": 3}})
    container.parts.flush()
    assert container.stored()["q/a"]["writeUnits"] == 2
    assert container.stored()["q/b"]["writeUnits"] == 1


def test_an_account_ends_with_its_block_and_does_not_reach_other_threads(container: Container) -> None:
    with charged_to([("q", "a")]):
        with charged_to([("q", "b")]):
            pass
        container.charges.add("PutItem", WRITE)
        other = threading.Thread(target=container.charges.add, args=("PutItem", WRITE))
        other.start()
        other.join()
    container.charges.add("PutItem", WRITE)
    assert container.charges.settle() == {"q": (1, 0), "-": (2, 0)}


def test_an_invocations_time_and_shared_units_are_spread_by_the_seconds_its_tasks_took(container: Container) -> None:
    container.parts.begin()
    container.charges.add("PutItem", {"ConsumedCapacity": {"CapacityUnits": 4}})
    log = container.parts.telemetry.log
    log("task.succeeded", queue="q", type="slow", seconds=3.0)
    log("task.failed", queue="q", type="fast", seconds=0.5)
    log("task.retried", queue="q", type="fast", seconds=0.5)
    container.clock.advance(2)
    container.parts.flush()
    slow, fast = container.stored()["q/slow"], container.stored()["q/fast"]
    assert (slow["tasks"], fast["tasks"]) == (1, 1), "a retry is no end"
    assert (slow["milliseconds"], fast["milliseconds"]) == (1500, 500)
    assert (slow["mibMs"], fast["mibMs"]) == (1500 * 512, 500 * 512)
    assert (slow["writeUnits"], fast["writeUnits"]) == (3, 1)
    assert slow["invocations"] + fast["invocations"] == 1
    assert "-/-" not in container.stored()


def test_an_invocation_without_tasks_is_overhead(container: Container) -> None:
    container.parts.begin()
    container.clock.advance(1)
    container.parts.telemetry.log("reaper.ran", leases=3)
    container.parts.flush()
    assert container.stored() == {"-/-": {"milliseconds": 1000, "mibMs": 512_000, "invocations": 1}}


def test_ends_are_heard_whatever_the_log_level(container: Container) -> None:
    container.parts.telemetry.log("task.skipped", level="DEBUG", queue="q", type="a", seconds=1)
    container.parts.flush()
    assert container.stored()["q/a"]["tasks"] == 1


def test_it_is_stored_once_a_minute_in_one_write_for_each_account(container: Container) -> None:
    for _ in range(120):
        with charged_to([("q", "a")]):
            container.charges.add("PutItem", WRITE)
        container.parts.flush()
        container.clock.advance(1)
    writes = [call for call in container.table.writes() if call.item_ids[0].endswith("#q#a")]
    assert len(writes) == 120 // STORE_SECONDS
    container.clock.advance(STORE_SECONDS)
    container.parts.flush()
    assert container.stored()["q/a"]["writeUnits"] == 120


def test_days_have_counters_of_their_own_that_do_not_stay_for_ever(container: Container) -> None:
    for _ in range(2):
        with charged_to([("q", "a")]):
            container.charges.add("PutItem", WRITE)
        container.parts.flush()
        container.clock.advance(86_400)
    items = {item_id: item for item_id, item in container.table.items("cost#").items() if item_id.endswith("#q#a")}
    assert len(items) == 2
    for item in items.values():
        assert START + 80 * 86_400 < item["expiresAt"] < START + 100 * 86_400


def test_what_could_not_be_stored_is_stored_later_and_nothing_is_raised(container: Container) -> None:
    container.table.inject(Fault.THROTTLED, where=lambda call: call.operation == "UpdateItem", times=1)
    with charged_to([("q", "a")]):
        container.charges.add("PutItem", WRITE)
    container.parts.flush()
    assert container.stored() == {}
    container.clock.advance(STORE_SECONDS)
    container.parts.flush()
    assert container.stored()["q/a"]["writeUnits"] == 1


def test_a_process_that_is_no_function_stores_nothing() -> None:
    container = Container()
    container.parts.settings = Settings(table_name="tasks")
    container.charges.add("PutItem", WRITE)
    container.parts.flush()
    assert container.table.items() == {}


# ---- dollars ---------------------------------------------------------------------------------------------------------

PRICES = Prices("2026-01-01", "us-east-1", ("x",), 0.625, 0.125, 0.0000133334, 0.2, 1.0, 1.0)


def test_list_prices_have_their_date_region_and_sources() -> None:
    prices = load_prices()
    assert prices.date >= "2026-11-30"
    assert prices.region == "us-east-1"
    assert all(source.startswith("https://aws.amazon.com/") for source in prices.sources)
    assert (prices.write_units, prices.read_units) == (0.625, 0.125)
    assert (prices.gib_seconds, prices.invocations) == (0.0000133334, 0.2)
    assert (prices.api_requests, prices.events) == (1.0, 1.0)


def test_other_prices_can_be_given_in_the_same_form() -> None:
    text = json.dumps(
        {
            "date": "2027-01-01",
            "region": "eu-west-1",
            "sources": ["contract"],
            "prices": {
                "writeUnitsPerMillion": 1,
                "readUnitsPerMillion": 2,
                "gibSeconds": 3,
                "invocationsPerMillion": 4,
                "apiRequestsPerMillion": 5,
                "eventsPerMillion": 6,
            },
        }
    )
    assert load_prices(text).events == 6


def test_a_usage_in_dollars() -> None:
    usage = Usage(
        tasks=1_000_000,
        write_units=5_600_000,
        read_units=2_000_000,
        mib_milliseconds=512 * 40 * 1_000_000,
        invocations=200_000,
        api_requests=1_000_000,
        events=1_000_000,
    )
    dollars = usage.dollars(PRICES)
    assert dollars == pytest.approx(
        {"writes": 3.5, "reads": 0.25, "compute": 0.266668, "invocations": 0.04, "api": 1.0, "events": 1.0}
    )
    assert usage.total(PRICES) == pytest.approx(6.056668)


def test_the_report_is_per_task_and_per_million_by_queue_and_type(container: Container) -> None:
    for _ in range(10):
        container.parts.begin()
        with charged_to([("q", "a")]):
            container.charges.add("PutItem", {"ConsumedCapacity": {"CapacityUnits": 6}})
            container.charges.add("GetItem", READ)
        container.parts.telemetry.log("task.succeeded", queue="q", type="a", seconds=0.1)
        container.clock.advance(0.05)
        container.parts.flush()
    container.clock.advance(STORE_SECONDS)
    container.parts.flush()
    report = container.report(prices=PRICES)
    (line,) = report.as_dict()["types"]
    assert (line["queue"], line["type"], line["tasks"]) == ("q", "a", 10)
    assert (line["writeUnitsPerTask"], line["readUnitsPerTask"]) == (6, 2)
    assert line["billedMillisecondsPerTask"] == pytest.approx(50)
    expected = 6 * 0.625 + 2 * 0.125 + 0.05 * 0.5 * 0.0000133334 * 1e6 + 0.2
    assert line["dollarsPerMillionTasks"] == pytest.approx(expected, abs=0.01)
    assert line["spentOn"]["writes"] == 3.75


def test_overhead_is_told_by_the_day_and_a_type_without_ends_has_no_price(container: Container) -> None:
    container.parts.begin()
    container.clock.advance(60)
    container.parts.flush()
    container.clock.advance(STORE_SECONDS)
    with charged_to([("q", "never-ends")]):
        container.charges.add("PutItem", WRITE)
    container.parts.flush()
    report = container.report(days=2, prices=PRICES)
    (line,) = report.as_dict()["types"]
    assert line["dollarsPerMillionTasks"] is None
    assert report.overhead_dollars_per_day == pytest.approx((60 * 0.5 * 0.0000133334 + 0.2e-6) / 2, rel=0.01)


def test_the_report_reads_only_the_days_asked_for(container: Container) -> None:
    with charged_to([("q", "old")]):
        container.charges.add("PutItem", WRITE)
    container.parts.flush()
    container.clock.advance(3 * 86_400)
    assert container.report(days=3).lines == ()
    assert [line.type for line in container.report(days=4).lines] == ["old"]


def test_an_empty_service_has_an_empty_report(container: Container) -> None:
    assert container.report().as_dict()["types"] == []
    assert Account("-", "-") == OVERHEAD
