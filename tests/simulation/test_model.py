"""The model of the lease protocol, explored exhaustively at its smallest sizes. Larger ones, with Spin: make model."""

from __future__ import annotations

import pytest

from models.check import CONFIGURATIONS, RULES, Configuration, explored
from models.explore import explore

SMALLEST = [each for each in CONFIGURATIONS if each.smallest]


@pytest.mark.parametrize("configuration", SMALLEST, ids=lambda each: each.name)
def test_every_state_keeps_the_rules(configuration: Configuration) -> None:
    verdict = explored(configuration.sizes)
    assert (verdict.problem, verdict.holds) == ("", True)
    assert verdict.states > 30_000, "the model has lost most of its states"


@pytest.mark.parametrize("rule", RULES)
def test_a_rule_left_out_of_the_model_is_missed(rule: str) -> None:
    assert not explored(RULES[rule], rule).holds


def test_what_is_read_of_promela_means_what_spin_means() -> None:
    model = """
#define TWICE(x) (x + x)
byte n = 1; bool b[3]; mtype = { RED, GREEN }; mtype light = RED;
inline rise(by) { n = n + by }
proctype Raiser(byte by) {
    byte mine = 2;
again:
    atomic { n < LIMIT -> rise(by); if :: n == 3 -> b[n - 1] = true :: else -> skip fi }
    if :: n < LIMIT && mine > 0 -> mine--; goto again :: else fi
}
proctype Watcher() {
    timeout;
    assert(n >= LIMIT && TWICE(n) == 2 * n);
#ifdef WRONG
    light = GREEN; assert(!b[2])
#endif
}
init { atomic { byte each = 1; do :: each <= 2 -> run Raiser(each); each++ :: else -> break od; run Watcher() } }
"""
    fine = explore(model.replace("2 * n", "n + n"), {"LIMIT": "4"})
    assert (fine.problem, fine.limited) == ("", False)
    wrong = explore(model.replace("2 * n", "n + n"), {"LIMIT": "4", "WRONG": ""})
    assert wrong.problem == "( ! b [ 2 ] )"
    assert wrong.trace[-1] == "Watcher: broken"
    assert explore(model.replace("2 * n", "n + n"), {"LIMIT": "4"}, most=3).limited
