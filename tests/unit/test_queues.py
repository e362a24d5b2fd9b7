"""Queue settings: merged, reset, remembered for seconds; shards that are read before they are written."""

from __future__ import annotations

from typing import Any

import pytest

from tests.support.fakes import FakeClock, FakeRandomness
from tests.support.memory_dynamodb import MemoryDynamoDB
from thunderagent.errors import InvalidInput
from thunderagent.queues import CACHE_SECONDS, SETTLE_SECONDS, KeyLimits, Queues, QueueSettings, Shards
from thunderagent.schema import Layout
from thunderagent.store import Store


class World:
    """One table, and as many readers of its settings as a test needs."""

    def __init__(self) -> None:
        self.memory = MemoryDynamoDB()
        self.clock = FakeClock()
        self.randomness = FakeRandomness()

    def queues(self, *, shards: int = 4, deployed: dict[str, dict[str, Any]] | None = None) -> Queues:
        store = Store(
            table="tasks",
            send=self.memory,
            clock=self.clock,
            randomness=self.randomness,
            layout=Layout(shards=shards),
        )
        return Queues(store, ["mail"], deployed=deployed, clock=self.clock)

    def read(self, name: str, *, shards: int = 4) -> QueueSettings:
        found = self.queues(shards=shards).get(name)
        assert found is not None
        return found


@pytest.fixture
def world() -> World:
    return World()


def test_changes_are_merged_and_null_resets(world: World) -> None:
    queues = world.queues()

    queues.put("mail", {"paused": True, "maxConcurrency": 0})
    queues.put("mail", {"paused": None, "ratePerSecond": 0.5})

    assert world.read("mail") == QueueSettings("mail", max_concurrency=0, rate_per_second=0.5)


def test_deployed_limits_hold_until_operators_decide_and_again_when_they_reset(world: World) -> None:
    queues = world.queues(deployed={"mail": {"maxConcurrency": 5, "burst": 2}})
    assert queues.get("mail") == QueueSettings("mail", max_concurrency=5, burst=2)

    assert queues.put("mail", {"maxConcurrency": 0}) == QueueSettings("mail", max_concurrency=0, burst=2)
    assert queues.put("mail", {"maxConcurrency": None}) == QueueSettings("mail", max_concurrency=5, burst=2)
    assert world.read("mail") == QueueSettings("mail"), "they are not written into the table"


def test_a_put_declares_a_new_queue_and_is_seen_at_once_by_its_writer(world: World) -> None:
    queues = world.queues()
    assert queues.get("new") is None

    queues.put("new", {})

    assert queues.get("new") == QueueSettings("new")
    assert queues.all()["new"].declared is False
    assert queues.all()["mail"].declared is True


def test_two_writers_at_once_lose_nothing(world: World) -> None:
    first, second = world.queues(), world.queues()

    def another_change() -> None:
        second.put("mail", {"burst": 3})

    world.memory.before(lambda call: call.operation == "PutItem", another_change, times=1)

    first.put("mail", {"paused": True})

    assert world.read("mail") == QueueSettings("mail", paused=True, burst=3)


def test_settings_are_remembered_for_seconds_only(world: World) -> None:
    reader = world.queues()
    reader.all()
    world.queues().put("mail", {"paused": True})

    assert reader.all()["mail"].paused is False
    world.clock.advance(CACHE_SECONDS)
    assert reader.all()["mail"].paused is True


@pytest.mark.parametrize("changes", [{"colour": "red"}, {"shards": 0}, {"shards": 65}, {"shards": True}])
def test_what_is_no_setting_is_refused_and_leaves_no_row(world: World, changes: dict[str, object]) -> None:
    with pytest.raises(InvalidInput):
        world.queues().put("mail", changes)
    assert world.memory.items() == {}


def test_limits_per_key_need_a_tag(world: World) -> None:
    world.queues().put("mail", {"perKey": {"tag": "tenant", "maxConcurrency": 2, "ratePerSecond": 5, "burst": 7}})
    settings = world.read("mail")

    assert settings.key_limits == KeyLimits("tenant", max_concurrency=2, rate_per_second=5.0, burst=7)
    assert settings.key_of({"tenant": "a"}) == "a"
    assert settings.key_of({"other": "a"}) is None
    assert QueueSettings.from_item("mail", {"perKey": {"maxConcurrency": 2}}).key_limits is None


def test_tasks_of_one_key_share_a_shard_and_others_spread_by_id() -> None:
    keyed = QueueSettings.from_item("mail", {"perKey": {"tag": "tenant"}}, default=Shards(8, 8))

    assert len({keyed.shard_for(f"task-{n}", {"tenant": "a"}) for n in range(50)}) == 1
    assert len({keyed.shard_for(f"task-{n}", {}) for n in range(50)}) > 4
    assert len({keyed.shard_for("t", {"tenant": f"tenant-{n}"}) for n in range(50)}) > 4


def test_raised_shards_are_read_at_once_and_written_a_minute_later(world: World) -> None:
    world.queues().put("mail", {"shards": 8})

    assert world.read("mail").shards == Shards(read=8, write=4)
    world.clock.advance(SETTLE_SECONDS)
    assert world.read("mail").shards == Shards(read=8, write=8)


def test_lowered_shards_are_read_for_ever(world: World) -> None:
    world.queues().put("mail", {"shards": 8})
    world.clock.advance(SETTLE_SECONDS)
    world.queues().put("mail", {"shards": 2})

    assert world.read("mail").shards == Shards(read=8, write=2)
    world.queues().put("mail", {"shards": None})
    assert world.read("mail").shards == Shards(read=8, write=4)


def test_a_raised_deployment_default_is_written_only_after_a_poller_has_recorded_it(world: World) -> None:
    world.queues(shards=4).record_shards()

    assert world.read("mail", shards=8).shards == Shards(read=8, write=4)
    world.queues(shards=8).record_shards()
    assert world.read("mail", shards=8).shards == Shards(read=8, write=4)
    assert world.read("mail", shards=4).shards == Shards(read=8, write=4), "an older function reads them too"
    world.clock.advance(SETTLE_SECONDS)
    assert world.read("mail", shards=8).shards == Shards(read=8, write=8)


def test_a_lowered_deployment_default_is_written_at_once_and_still_read(world: World) -> None:
    world.queues(shards=8).record_shards()
    lower = world.queues(shards=2)
    lower.record_shards()

    assert world.read("mail", shards=2).shards == Shards(read=8, write=2)
