"""Which traceparent headers count, by W3C Trace Context."""

from __future__ import annotations

import pytest

from thunderagent.traces import traceparent_of

TRACE, PARENT = "0af7651916cd43dd8448eb211c80319c", "b7ad6b7169203331"
GOOD = f"00-{TRACE}-{PARENT}-01"


@pytest.mark.parametrize(
    "header", [GOOD, f" {GOOD}\t", f"cc-{TRACE}-{PARENT}-01", f"cc-{TRACE}-{PARENT}-01-what.comes"]
)
def test_a_good_one_is_kept_in_the_form_of_version_00(header: str) -> None:
    assert traceparent_of(header) == GOOD


@pytest.mark.parametrize(
    "header",
    [
        None,
        "",
        GOOD.upper(),
        f"{GOOD}-more",
        f"{GOOD}\n",
        f"ff-{TRACE}-{PARENT}-01",
        f"00-{'0' * 32}-{PARENT}-01",
        f"00-{TRACE}-{'0' * 16}-01",
        f"00-{TRACE[:-1]}-{PARENT}-01",
        f"00-{TRACE}-{PARENT}",
        f"{GOOD},{GOOD}",
        f"cc-{TRACE}-{PARENT}-01.what",
        '00-"}\n{"event":"forged"',
        "x" * 100_000,
    ],
)
def test_a_malformed_one_is_as_good_as_none(header: str | None) -> None:
    assert traceparent_of(header) is None
