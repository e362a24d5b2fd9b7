"""How far it scales, by simulation: shards that hold, what breaks first, what it costs, and the plain design beside it.

    python -m bench.scale.run [--images docs/images] [--most 10000] [--no-check]

Prints one JSON object, and a table on stderr; draws its curves to `--images`. The library's own pollers are run in
simulated time up to `--most` tasks a second; what they were measured to do goes into the model of whole loads up to
50,000. Before that the model is held against the embedded AWS at 20 and 50 tasks a second.
"""

from __future__ import annotations

import argparse
import json
import sys
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from bench.report import conditions, table
from bench.scale import check, plots
from bench.scale.capacity import TABLE_UNITS, WRITE_UNITS
from bench.scale.load import STREAM_AT_ONCE, Policy, World, judge, ours, plain, quota_rate
from bench.scale.policy import Load, Measured, measure
from thunderagent.cost import Prices, load_prices
from thunderagent.schema import LEASE_SHARDS, SHARDS_MAX

RATES = (100, 300, 1_000, 3_000, 10_000, 20_000, 30_000, 50_000)
POLICY_RATES = ((100, 4), (1_000, 4), (3_000, 8), (10_000, 32), (50_000, SHARDS_MAX))  # tasks a second, shards
POLLERS = (1, 2, 4, 8)
FLOOD = 4_000  # tasks a second: more than the pollers that are measured can take
COLD_RATE, COLD_SECONDS, COLD_STEP = 3_000, 1_800, 15
DESIGNS = (ours(1), ours(4), ours(16), ours(SHARDS_MAX), plain(1), plain(6))


def main(arguments: Sequence[str] | None = None) -> None:
    parser = argparse.ArgumentParser(prog="bench.scale.run", description="How far it scales, by simulation.")
    parser.add_argument("--images", type=Path, default=Path("docs/images"))
    parser.add_argument("--most", type=int, default=10_000, help="tasks a second that the real pollers are fed")
    parser.add_argument("--no-check", action="store_true", help="without the embedded AWS")
    given = parser.parse_args(arguments)
    before = conditions()
    result = {"conditions": before, **report(given.images, most=given.most)}
    if not given.no_check:
        result["model and embedded AWS"] = check.compared()
    print(table({name: value for name, value in result.items() if name != "images"}), file=sys.stderr)
    print(json.dumps(result))


def report(images: Path, *, most: int) -> dict[str, Any]:
    """The figures; the curves are drawn beside."""
    sweeps = {count: measure(Load(FLOOD, 4, pollers=count, shards=16)) for count in POLLERS}
    bells = {count: measure(Load(FLOOD, 2, pollers=0, doorbells=count, shards=16)) for count in POLLERS}
    policy = Policy(sweeps[1].per_second, bells[1].per_second)
    verdicts = {design.name: [judge(design, rate, policy) for rate in RATES] for design in DESIGNS}
    plots.sustained(images, RATES, {name: [each.per_second for each in row] for name, row in verdicts.items()})
    plots.cold_start(images, range(0, COLD_SECONDS, COLD_STEP), cold(policy))
    plots.pollers(
        images,
        POLLERS,
        {
            "sweeps": [each.per_second for each in sweeps.values()],
            "doorbells": [each.per_second for each in bells.values()],
        },
    )
    fed = [(rate, shards) for rate, shards in POLICY_RATES if rate <= most]
    prices = load_prices()
    return {
        "images": {
            "Offered and sustained tasks a second": "images/scale-sustained.svg",
            "The first half hour of a new table": "images/scale-cold-start.svg",
            "What pollers claim": "images/scale-pollers.svg",
        },
        "offered, tasks a second": list(RATES),
        "sustained": {name: [round(each.per_second) for each in row] for name, row in verdicts.items()},
        "shards that hold": {f"{rate:,} tasks/s": shards_for(rate, policy) for rate in RATES},
        "breaks first": {
            "one shard, tasks/s": WRITE_UNITS / 2,
            "one executor profile, tasks/s": LEASE_SHARDS * WRITE_UNITS / 2 * policy.batch,
            f"the quota of {TABLE_UNITS:,.0f} units a table, tasks/s": round(quota_rate(ours(1), policy.batch)),
            "1,000 concurrent executions, tasks of 1 s, tasks/s": round(concurrency_bound(policy)),
            "maxInFlight 20, tasks of 1 s, tasks/s": round(concurrency_bound(policy, in_flight=20)),
            "one sweep, tasks/s": round(policy.sweep_rate),
            "doorbells of one shard of the stream, tasks/s": round(STREAM_AT_ONCE * policy.doorbell_rate),
        },
        "claimed, tasks/s, by 1, 2, 4, 8": {
            "sweeps": [round(each.per_second) for each in sweeps.values()],
            "doorbells": [round(each.per_second) for each in bells.values()],
        },
        "lost races a task, by 1, 2, 4, 8": {
            "sweeps": [_races(each) for each in sweeps.values()],
            "doorbells": [_races(each) for each in bells.values()],
        },
        "the pollers, one sweep and as many doorbells as the stream gives": {
            f"{rate:,} tasks/s, {shards} shards": _did(_fed(rate, shards)) for rate, shards in fed
        },
        "dollars a million, write units": {
            design.name: round(design.units(policy.batch) * prices.write_units, 2)
            for design in (ours(4), plain(1), plain(6))
        },
        "dollars a million, read units of the pollers": _read_dollars(prices),
    }


def shards_for(rate: float, policy: Policy) -> str:
    """The fewest shards that hold, doubling; beyond what one queue may have, and one profile's leases, more of both."""
    for profiles in (1, 2, 4):
        shards = 1
        while shards <= SHARDS_MAX * profiles:
            if judge(ours(shards, profiles=profiles), rate, policy).holds:
                queues = -(-shards // SHARDS_MAX)
                beside = f", in {queues} queues" if queues > 1 else ""
                return f"{shards}{beside}" + (f", {profiles} executor profiles" if profiles > 1 else "")
            shards *= 2
    return "none"


def concurrency_bound(policy: Policy, *, in_flight: float = float("inf"), task_seconds: float = 1.0) -> float:
    """Tasks a second at which executors of the default account, or of a cap, are all busy."""
    world = World(ours(SHARDS_MAX), RATES[-1], policy, warm=True, task_seconds=task_seconds, max_in_flight=in_flight)
    return [world.pass_second().ended for _ in range(120)][-1]


def cold(policy: Policy) -> Mapping[str, Sequence[float]]:
    """The first half hour of a new table, saved capacity full, as its partitions are split."""
    found = {}
    for design in (ours(4), ours(16), plain(1), plain(6)):
        world = World(design, COLD_RATE, policy, warm=False, account=100_000)
        found[design.name] = [world.pass_second().ended for _ in range(COLD_SECONDS)][::COLD_STEP]
    return found


def _fed(rate: float, shards: int) -> Measured:
    """One sweep, and the doorbells that the stream of a table split for the load would ring."""
    bells = STREAM_AT_ONCE * max(1, round(rate * ours(shards).units(10) / 2 / WRITE_UNITS))
    return measure(Load(rate, max(0.25, min(5.0, 4_000 / rate)), doorbells=bells, shards=shards, drain=1.0))


def _did(measured: Measured) -> dict[str, float]:
    return {
        "claimed of submitted": round(measured.claimed / max(1, measured.submitted), 3),
        "callsPerTask": round(measured.calls_per_task, 2),
        "tasksPerBatch": round(measured.tasks_per_batch, 1),
        "lostRacesPerTask": _races(measured),
        "waitP50Ms": round(measured.wait(50) * 1000),
        "waitP95Ms": round(measured.wait(95) * 1000),
    }


def _races(measured: Measured) -> float:
    return round(measured.conflicts / max(1, measured.claimed), 3)


def _read_dollars(prices: Prices) -> dict[str, float]:
    found = {}
    for rate in (50, 250):
        measured = measure(Load(rate, 10))
        found[f"sweep at {rate} tasks/s"] = round(measured.read_units / max(1, measured.claimed) * prices.read_units, 2)
    return found


if __name__ == "__main__":
    main()
