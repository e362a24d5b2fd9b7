"""The canonical form: RFC 8785's text for a value, one for equal values and for no others."""

from __future__ import annotations

import hashlib
import json
import struct
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given, settings

import thunderagent
from tests.unit.test_jsontext import NUMBERS, VALUES
from thunderagent.canonical_json import canonical
from thunderagent.errors import InvalidInput
from thunderagent.jsontext import loads

# IEEE 754 bit patterns and their text: RFC 8785, appendix B.
RFC_8785_NUMBERS = {
    "0000000000000000": "0",
    "8000000000000000": "0",
    "0000000000000001": "5e-324",
    "8000000000000001": "-5e-324",
    "7fefffffffffffff": "1.7976931348623157e+308",
    "ffefffffffffffff": "-1.7976931348623157e+308",
    "4340000000000000": "9007199254740992",
    "c340000000000000": "-9007199254740992",
    "4430000000000000": "295147905179352830000",
    "44b52d02c7e14af5": "9.999999999999997e+22",
    "44b52d02c7e14af6": "1e+23",
    "44b52d02c7e14af7": "1.0000000000000001e+23",
    "444b1ae4d6e2ef4e": "999999999999999700000",
    "444b1ae4d6e2ef4f": "999999999999999900000",
    "444b1ae4d6e2ef50": "1e+21",
    "3eb0c6f7a0b5ed8c": "9.999999999999997e-7",
    "3eb0c6f7a0b5ed8d": "0.000001",
    "41b3de4355555553": "333333333.3333332",
    "41b3de4355555554": "333333333.33333325",
    "41b3de4355555555": "333333333.3333333",
    "41b3de4355555556": "333333333.3333334",
    "41b3de4355555557": "333333333.33333343",
    "becbf647612f3696": "-0.0000033333333333333333",
    "43143ff3c1cb0959": "1424953923781206.2",
}


@pytest.mark.parametrize(("bits", "text"), RFC_8785_NUMBERS.items())
def test_numbers_are_written_as_rfc_8785_says(bits: str, text: str) -> None:
    assert canonical(struct.unpack(">d", bytes.fromhex(bits))[0]) == text


def test_the_example_of_rfc_8785() -> None:
    source = r"""{"numbers": [333333333.33333329, 1E30, 4.50, 2e-3, 0.000000000000000000000000001],
        "string": "\u20ac$\u000F\u000aA'\u0042\u0022\u005c\\\"\/", "literals": [null, true, false]}"""
    assert canonical(loads(source)) == (
        '{"literals":[null,true,false],"numbers":[333333333.3333333,1e+30,4.5,0.002,1e-27],'
        r'"string":"€$\u000f\nA' + "'" + r'B\"\\\\\"/"}'
    )


def test_keys_are_sorted_by_utf16_units() -> None:
    keys = ["€", "\r", "\ufb33", "1", "😀", "\u0080", "ö"]
    expected = ["\r", "1", "\u0080", "ö", "€", "😀", "\ufb33"]
    assert list(json.loads(canonical(dict.fromkeys(keys)))) == expected


@pytest.mark.parametrize(
    ("left", "right", "equal"),
    [
        ("1", "1.0", True),
        ("1", "10e-1", True),
        ("0", "-0.0", True),
        ("1000000000000000000000", "1e21", True),
        ('{"a":1,"b":2}', ' { "b" : 2, "a" : 1 } ', True),
        ('"\\u00e9"', '"é"', True),
        ("9007199254740993", "9007199254740992", False),
        ("295147905179352830000", "295147905179352825856", False),
        ("295147905179352830000", "2.9514790517935283e20", False),
        ("295147905179352825856", "2.9514790517935283e20", True),
        ("1", '"1"', False),
        ("1", "true", False),
        ("null", "{}", False),
        ("[1,2]", "[2,1]", False),
        ("1" * 400, "1" * 399 + "2", False),
    ],
)
def test_equal_values_and_only_those_are_written_alike(left: str, right: str, equal: bool) -> None:
    canonical_left, canonical_right = (canonical(loads(text)) for text in (left, right))
    assert (canonical_left == canonical_right) is equal


@given(NUMBERS, NUMBERS)
@settings(max_examples=300, deadline=None)
def test_numbers_are_alike_exactly_when_equal(left: Any, right: Any) -> None:
    assert (canonical(left) == canonical(right)) is (left == right)
    assert canonical(left) == canonical(float(left) if _is_double(left) else left)


@given(VALUES)
@settings(max_examples=100, deadline=None)
def test_it_does_not_depend_on_the_order_of_keys(value: Any) -> None:
    assert canonical(_reversed(value)) == canonical(value)


def test_it_is_the_same_in_another_process() -> None:
    value = {"b": [1.5, "é", None], "a": {"😀": 2**70, "z": True}}
    script = f"from thunderagent import canonical_json as j, schema as s; print(s.digest(j.canonical({value!r})))"
    layer = str(Path(thunderagent.__file__).parents[1])
    digests = {
        subprocess.run(
            [sys.executable, "-c", script],
            env={"PYTHONPATH": layer, "PYTHONHASHSEED": seed, "PYTHONUTF8": "1"},
            capture_output=True,
            check=True,
            text=True,
        ).stdout.strip()
        for seed in ("1", "2")
    }
    assert digests == {hashlib.sha256(canonical(value).encode()).hexdigest()}


@pytest.mark.parametrize("value", [float("nan"), {1: 2}, {"a": "\ud800"}, {"\ud800": 1}, [object()]])
def test_what_is_not_json_has_none(value: Any) -> None:
    with pytest.raises(InvalidInput):
        canonical(value)


def _is_double(value: float) -> bool:
    try:
        return float(value) == value
    except OverflowError:
        return False


def _reversed(value: Any) -> Any:
    if isinstance(value, dict):
        return {key: _reversed(value[key]) for key in reversed(value)}
    return [_reversed(item) for item in value] if isinstance(value, list) else value
