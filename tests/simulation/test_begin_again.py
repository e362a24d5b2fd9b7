"""An executor begins again until it is answered, under one nonce: it is never refused by its own begin."""

from __future__ import annotations

from contextlib import AbstractContextManager

from tests.simulation.__main__ import FIRST_SEED, caught
from tests.simulation.mutations import HARDLY_ANSWERED, MUTATIONS, begin_watched
from tests.simulation.simulation import run
from thunderagent.held_lease import HeldLease

SEEDS = range(FIRST_SEED, FIRST_SEED + 6)


def watching() -> AbstractContextManager[object]:
    return begin_watched(HeldLease.begin)


def test_nobody_is_refused_a_lease_that_he_has_begun_himself() -> None:
    results = [run(seed, weather=HARDLY_ANSWERED, mutation=watching) for seed in SEEDS]
    assert [(result.seed, result.violation) for result in results if result.violation] == []
    assert sum(result.starts for result in results) > len(SEEDS) * 25, "hardly anything happened"


def test_a_nonce_of_each_try_is_noticed() -> None:
    (mutation,) = [each for each in MUTATIONS if each.name == "nonce-of-each-try"]
    found = caught(mutation, SEEDS)
    assert found is not None
    assert "which is refused for it" in str(found.violation)
