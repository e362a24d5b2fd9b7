"""The simulation can find bugs: rules left out, each of which shows within a few seeds. All: make sim-mutations."""

from __future__ import annotations

import pytest

from tests.simulation.__main__ import FIRST_SEED, caught
from tests.simulation.mutations import MUTATIONS, Mutation

SOON = {
    "no-begin",
    "begin-again",
    "start-unrecorded",
    "start-though-refused",
    "started-is-replaced",
    "no-heartbeat",
    "reap-without-close",
    "backstop-without-look",
    "release-before-void",
    "void-begun",
    "one-token",
    "open-is-retried",
    "claim-unseen",
    "redrive-keeps-ttl",
    "commit-in-two",
    "archive-heedless",
    "cancel-without-status",
    "aside-unseen",
    "begin-goes-back",
    "heartbeat-goes-back",
    "cancel-untold",
    "unique-unseen",
    "bucket-unseen",
    "schedule-unseen",
}
SEEDS = 12


@pytest.mark.parametrize("mutation", [each for each in MUTATIONS if each.name in SOON], ids=lambda each: each.name)
def test_a_rule_left_out_is_noticed(mutation: Mutation) -> None:
    assert caught(mutation, range(FIRST_SEED, FIRST_SEED + SEEDS)) is not None


def test_every_mutation_has_a_name_of_its_own() -> None:
    names = [each.name for each in MUTATIONS]
    assert len(set(names)) == len(names)
    assert set(names) >= SOON
