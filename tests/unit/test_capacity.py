"""A profile's cap, divided among the shards its leases stand in."""

from __future__ import annotations

import pytest

from tests.support.polling import Service
from thunderagent.capacity import share_of_cap
from thunderagent.schema import LEASE_SHARDS


@pytest.mark.parametrize("most", [1, 2, 3, 4, 5, 20, 1000])
def test_the_shards_hold_the_cap_between_them_and_evenly(most: int) -> None:
    shares = [share_of_cap(most, shard) for shard in range(LEASE_SHARDS)]
    assert sum(shares) == most
    assert max(shares) - min(shares) <= 1


@pytest.mark.parametrize("most", [1, 2, 3, 5, 6, 7, 20])
def test_the_whole_cap_can_be_used_however_many_shards_it_is_divided_among(most: int) -> None:
    service = Service(max_in_flight=most, batch=1)
    for _ in range(most + 3):
        service.put()
    done = service.poller("p").sweeper.run_pass()
    assert (done.claimed, done.conflicts) == (most, 0)
    assert len(service.memory.items("lease#")) == most


def test_a_place_that_comes_free_is_found_in_whatever_shard_it_is() -> None:
    service = Service(max_in_flight=6, batch=1)
    for _ in range(20):
        service.put()
    poller = service.poller("p")
    assert poller.sweeper.run_pass().claimed == 6
    for lease_id in service.memory.items("lease#"):
        service.memory.remove(lease_id)
        assert poller.sweeper.run_pass().claimed == 1
    assert len(service.memory.items("lease#")) == 6


def test_one_query_tells_whether_a_lease_may_stay() -> None:
    service = Service()
    poller = service.poller("p")
    for _ in range(20):
        service.put()
    service.memory.calls.clear()
    poller.sweeper.run_pass()
    opened = [at for at, call in enumerate(service.memory.calls) if call.operation == "PutItem"]
    assert len(opened) == 2
    for at in opened:
        assert [call.operation for call in service.memory.calls[at : at + 3]] == ["PutItem", "Query", "UpdateItem"]
