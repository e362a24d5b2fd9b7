"""Dollars for what a bench counted, by the library's own list prices and two more that only rivals and logs need."""

from __future__ import annotations

import json
from collections.abc import Mapping
from importlib.resources import files

from thunderagent.cost import MILLION, load_prices

MEMORY_GIB = 0.5  # of our executor and of the function behind the queue
GIB = 1024**3


def dollars_per_million(totals: Mapping[str, float], tasks: int) -> dict[str, float]:
    """`totals` as counted for so many tasks: writeUnits, readUnits, queueRequests, invocations, milliseconds, logBytes.
    The functions' time is apart, because it is what it was here: on a busy machine more than on AWS."""
    prices, more = load_prices(), _more()
    spent = (
        totals["writeUnits"] * prices.write_units / MILLION
        + totals["readUnits"] * prices.read_units / MILLION
        + totals["queueRequests"] * more["queueRequestsPerMillion"] / MILLION
        + totals["invocations"] * prices.invocations / MILLION
        + totals["logBytes"] / GIB * more["logGib"]
    )
    time = totals["milliseconds"] / 1000 * MEMORY_GIB * prices.gib_seconds
    return {
        "dollarsPerMillion": round(spent / tasks * MILLION, 2),
        "dollarsOfTimeHere": round(time / tasks * MILLION, 2),
    }


def _more() -> dict[str, float]:
    """Prices of the same file and date that the library's cost report does not use."""
    document = json.loads(files("thunderagent").joinpath("prices.json").read_text("utf-8"))
    found: dict[str, float] = document["prices"]
    return found
