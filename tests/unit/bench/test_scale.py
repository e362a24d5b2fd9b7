"""The physics of the scale model, one rule each; and the library's pollers in it, on a load of a second."""

from __future__ import annotations

from collections import Counter
from pathlib import Path

import pytest

from bench.scale import check, plots, run
from bench.scale.capacity import BURST_SECONDS, HEAT, HEAT_SECONDS, WRITE_UNITS, Bucket, Keys, Kind, admitted, written
from bench.scale.functions import RAMP, Concurrency
from bench.scale.load import Policy, World, judge, ours, plain, quota_rate
from bench.scale.policy import Load, Measured, Tank, measure
from thunderagent.schema import SHARDS_MAX, Layout

QUICK = Policy(sweep_rate=300, doorbell_rate=400)


class TestBuckets:
    def test_a_bucket_gives_its_rate_and_what_was_saved(self) -> None:
        bucket = Bucket(1000.0)
        assert bucket.at_hand == 1000
        bucket.pass_second(400)
        assert bucket.at_hand == 1600
        bucket.pass_second(1600)
        assert bucket.at_hand == 1000

    def test_no_more_is_saved_than_300_seconds(self) -> None:
        bucket = Bucket(10.0)
        for _ in range(400):
            bucket.pass_second(0)
        assert bucket.saved == BURST_SECONDS * 10

    def test_more_than_is_at_hand_cannot_be_taken(self) -> None:
        with pytest.raises(ValueError, match="1001 units of 1000"):
            Bucket(1000.0).pass_second(1001)

    def test_a_tank_refills_as_time_goes_on_and_takes_nothing_of_what_it_refuses(self) -> None:
        tank = Tank(0.0, burst=0.0)
        assert tank.take(1000, 0.0)
        assert not tank.take(1, 0.0005)
        assert tank.take(1, 0.001)
        assert not tank.take(301 * 1000 + 1, 10_000.0)
        assert tank.take(301 * 1000, 10_000.0)


class TestSplits:
    def heat(self, keys: Keys, seconds: int, share: float = 1.0) -> None:
        for _ in range(seconds):
            keys.pass_second(share * WRITE_UNITS * keys.partitions)

    def test_a_table_splits_after_sustained_heat_and_not_before(self) -> None:
        keys = Keys(splits=True)
        self.heat(keys, int(HEAT_SECONDS) - 1, HEAT)
        assert keys.partitions == 1
        self.heat(keys, 1, HEAT)
        assert keys.partitions == 2
        assert keys.write_units == 2 * WRITE_UNITS

    def test_heat_that_is_interrupted_is_not_sustained(self) -> None:
        keys = Keys(splits=True)
        for _ in range(4):
            self.heat(keys, int(HEAT_SECONDS) - 1, HEAT)
            self.heat(keys, 1, HEAT - 0.01)
        assert keys.partitions == 1

    def test_the_entries_of_one_index_key_stay_together(self) -> None:
        keys = Keys(splits=False)
        self.heat(keys, 3 * int(HEAT_SECONDS))
        assert keys.partitions == 1


class TestBackPressure:
    def test_what_an_index_refuses_its_table_refuses(self) -> None:
        table, index = Keys(splits=True, partitions=100), Keys(splits=False)
        kinds = [Kind(5_000, [(table, 1), (index, 1)]), Kind(3_000, [(table, 1)])]
        assert admitted(kinds) == pytest.approx([1_000, 3_000])

    def test_kinds_that_meet_share_what_there_is(self) -> None:
        index = Keys(splits=False)
        assert admitted([Kind(1_000, [(index, 1)]), Kind(500, [(index, 2)])]) == pytest.approx([500, 250])

    def test_no_space_of_keys_gives_more_than_it_has(self) -> None:
        one, two, three = (Keys(splits=False, partitions=count) for count in (1, 2, 3))
        kinds = [
            Kind(9_000, [(one, 1), (two, 2)]),
            Kind(700, [(two, 1), (three, 6)]),
            Kind(100, [(three, 1)]),
            Kind(40, [(one, 3)]),
        ]
        passed = admitted(kinds)
        assert all(0 < count <= kind.asked for count, kind in zip(passed, kinds, strict=True))
        assert all(units <= keys.write_units * (1 + 1e-6) for keys, units in written(kinds, passed))

    def test_a_load_that_fits_is_let_through_whole(self) -> None:
        index = Keys(splits=False)
        assert admitted([Kind(400, [(index, 2)]), Kind(200, [(index, 1)])]) == [400, 200]


class TestConcurrency:
    def test_it_grows_by_a_thousand_in_ten_seconds(self) -> None:
        functions, running = Concurrency(account=100_000), []
        for _ in range(31):
            running.append(functions.available())
            functions.pass_second(functions.available())
        assert running[0] == RAMP
        assert running[30] == RAMP + 30 * RAMP / 10

    def test_the_account_ends_it_and_nothing_is_saved_up(self) -> None:
        functions = Concurrency(account=2_500)
        for _ in range(100):
            functions.pass_second(0)
        assert functions.available() == RAMP
        for _ in range(100):
            functions.pass_second(functions.available())
        assert functions.available() == 2_500


class TestLoads:
    def test_a_shard_holds_five_hundred_tasks_a_second(self) -> None:
        for shards in (1, 4, 16):
            assert judge(ours(shards), 500 * shards, QUICK).holds
            assert not judge(ours(shards), 560 * shards, QUICK).holds

    def test_an_index_by_status_ends_where_one_key_does_and_sooner_with_larger_items(self) -> None:
        assert judge(plain(1), 5_000, QUICK).per_second <= 500
        assert judge(plain(6), 5_000, QUICK).per_second <= 500 / 6

    def test_write_units_are_those_the_contract_tests_meter(self) -> None:
        assert ours(4).units(10) == 6 + 6 / 10
        assert (plain(1).units(10), plain(6).units(10)) == (8, 48)
        assert quota_rate(ours(4), 10) == pytest.approx(40_000 / 3.4)

    def test_a_new_table_lives_on_its_burst_then_on_its_splits(self) -> None:
        world = World(ours(16), 3_000, QUICK, warm=False, account=100_000)
        ended = [world.pass_second().ended for _ in range(1_200)]
        assert ended[60] == pytest.approx(3_000)
        assert min(ended[60:]) < 2_500
        assert ended[-1] == pytest.approx(3_000)

    def test_shards_share_a_load_evenly(self) -> None:
        counts = Counter(Layout(shards=SHARDS_MAX).shard(f"task-{number:07d}") for number in range(64_000))
        assert max(counts.values()) < 1.1 * 64_000 / SHARDS_MAX

    def test_the_shards_that_hold_are_found(self) -> None:
        assert [run.shards_for(rate, QUICK) for rate in (100, 1_000, 3_000)] == ["1", "2", "8"]
        assert run.shards_for(50_000, QUICK) == "128, in 2 queues, 4 executor profiles"


class TestPollers:
    def test_the_librarys_own_pollers_take_every_task_once(self) -> None:
        measured = measure(Load(100, 1, pollers=2, doorbells=2, drain=3))
        assert (measured.submitted, measured.claimed) == (100, 100)
        assert measured.conflicts < 10
        assert 1 < measured.calls_per_task < 10

    def test_the_same_seed_gives_the_same_run(self) -> None:
        load = Load(50, 1, drain=1)
        assert measure(load, seed=3) == measure(load, seed=3)
        assert measure(load, seed=3).waits != measure(load, seed=4).waits

    def test_a_shard_without_capacity_throttles(self) -> None:
        assert measure(Load(2_500, 1, pollers=0, shards=1)).throttled > 300
        assert measure(Load(2_500, 1, pollers=0, shards=1, burst=1)).throttled == 0
        assert measure(Load(2_500, 1, pollers=0, shards=4)).throttled == 0


def test_a_model_that_is_off_is_named() -> None:
    def of(claimed: int, batches: int) -> Measured:
        return Measured(claimed=claimed, batches=batches, calls=Counter({"Query": 200}))

    assert check.beyond(check.side_by_side(of(100, 10), of(110, 11))) == []
    assert check.beyond(check.side_by_side(of(100, 10), of(100, 20))) == ["tasksPerBatch"]
    assert check.beyond(check.side_by_side(of(60, 6), of(100, 10))) == ["callsPerTask"]


def test_curves_are_small_and_the_same_each_time(tmp_path: Path) -> None:
    lines = {"one": [1.0, 2.0], "two": [2.0, 3.0]}
    drawn = [plots.sustained(tmp_path / name, [1.0, 2.0], lines).read_bytes() for name in ("a", "b")]
    assert drawn[0] == drawn[1]
    assert len(drawn[0]) < 50_000
    assert b"sustained, tasks a second" in drawn[0]
