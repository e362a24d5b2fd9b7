"""docs/regions.md: what it says is in place is, and its figures are those of the prices."""

from __future__ import annotations

import json
import re
from importlib.resources import files

from tests.support.documented import ROOT

PAGE = (ROOT / "docs" / "regions.md").read_text()
PRICES = json.loads(files("thunderagent").joinpath("prices.json").read_text("utf-8"))


def test_the_tests_it_refers_to_try_another_home_region() -> None:
    named = re.findall(r"`(tests/\S+?\.py)`", PAGE)
    assert named
    for path in named:
        assert "homeRegion" in (ROOT / path).read_text(), path


def test_its_figures_follow_from_the_list_prices() -> None:
    prices, units = PRICES["prices"], 5.6
    assert PRICES["date"] in PAGE
    one, two = units * prices["writeUnitsPerMillion"], 2 * units * prices["replicatedWriteUnitsPerMillion"]
    transfer = units * 1_000_000 / 1024 / 1024 * prices["gibBetweenRegions"]
    assert f"| 5.6 write units, in each region | ${one:.2f} | ${two:.2f} |" in PAGE
    assert f"| – | ${transfer:.2f} |" in PAGE
    assert f"${prices['replicatedWriteUnitsPerMillion']} per million" in PAGE
