"""Plain values to DynamoDB's form and back: exact, whoever wrote the row, and charged by AWS's size rules."""

from __future__ import annotations

from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from thunderagent.codec import (
    SMALLEST,
    Foreign,
    LongNumber,
    from_attribute,
    from_item,
    item_bytes,
    number_text,
    to_attribute,
    to_item,
)

DIGITS = st.from_regex(r"-?[1-9][0-9]{0,20}(\.[0-9]{0,16}[1-9])?", fullmatch=True)
ATTRIBUTES = st.recursive(
    st.one_of(
        st.builds(lambda text: {"S": text}, st.text()),
        st.builds(lambda text: {"N": text}, DIGITS),
        st.builds(lambda flag: {"BOOL": flag}, st.booleans()),
        st.builds(lambda data: {"B": data}, st.binary()),
        st.builds(lambda texts: {"SS": sorted(texts)}, st.sets(st.text(min_size=1), min_size=1)),
        st.builds(lambda texts: {"NS": sorted(texts)}, st.sets(DIGITS, min_size=1)),
        st.builds(lambda data: {"BS": sorted(data)}, st.sets(st.binary(), min_size=1)),
        st.just({"NULL": True}),
    ),
    lambda inner: st.one_of(
        st.builds(lambda entries: {"L": entries}, st.lists(inner, max_size=3)),
        st.builds(lambda entries: {"M": entries}, st.dictionaries(st.text(), inner, max_size=3)),
    ),
    max_leaves=5,
)
FLOATS = st.floats(SMALLEST, 1e9) | st.floats(-1e9, -SMALLEST) | st.just(0.0)
PLAIN = st.recursive(
    st.none() | st.booleans() | st.text() | st.integers(-(10**20), 10**20) | FLOATS,
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(), inner, max_size=3),
    max_leaves=5,
)


@given(ATTRIBUTES)
def test_whatever_was_read_is_written_back_exactly(attribute: dict[str, Any]) -> None:
    assert to_attribute(from_attribute(attribute)) == attribute


@given(PLAIN)
def test_plain_values_come_back_equal(value: Any) -> None:
    assert from_attribute(to_attribute(value)) == value


@pytest.mark.parametrize(
    ("value", "text"),
    [
        (300.0, "300"),
        (0.1, "0.1"),
        (1_800_000_000.123, "1800000000.123"),
        (-2.5, "-2.5"),
        (10**30, "1" + "0" * 30),
        (1e300, "1e+300"),
        (1e-130, "1e-130"),
        (9e-131, "0"),  # DynamoDB would refuse it
        (-5e-324, "0"),
    ],
)
def test_numbers_are_written_short(value: float, text: str) -> None:
    assert number_text(value) == text


@pytest.mark.parametrize("value", [float("nan"), float("inf"), -float("inf")])
def test_what_is_no_number_is_not_written(value: float) -> None:
    with pytest.raises(ValueError, match="not a DynamoDB number"):
        to_attribute(value)


def test_what_cannot_be_stored_is_refused() -> None:
    with pytest.raises(TypeError, match="object cannot be stored"):
        to_attribute(object())


def test_a_number_longer_than_a_double_computes_and_stays_as_it_was() -> None:
    read = from_attribute({"N": "1800000000.12345678901234"})
    assert isinstance(read, LongNumber)
    assert read < 1_800_000_000.2
    assert to_attribute(read) == {"N": "1800000000.12345678901234"}


@pytest.mark.parametrize(("text", "value"), [("7", 7), ("7.0", 7), ("0.25", 0.25), ("1E+20", 1e20)])
def test_whole_numbers_are_integers(text: str, value: float) -> None:
    read = from_attribute({"N": text})
    assert read == value
    assert isinstance(read, int) == (value == 7)


def test_an_attribute_that_holds_a_null_is_not_an_absent_one() -> None:
    item = from_item({"deadline": {"NULL": True}, "tags": {"M": {"a": {"NULL": True}}}})
    assert item == {"deadline": Foreign("NULL", True), "tags": {"a": None}}
    assert to_item(item) == {"deadline": {"NULL": True}, "tags": {"M": {"a": {"NULL": True}}}}


def test_none_leaves_an_attribute_out() -> None:
    assert to_item({"a": None, "b": 0, "c": "", "d": False}) == {"b": {"N": "0"}, "c": {"S": ""}, "d": {"BOOL": False}}


@pytest.mark.parametrize(
    ("item", "size"),
    [
        ({"a": "é"}, 3),
        ({"a": True}, 2),
        ({"a": 12}, 3),
        ({"a": 123}, 4),
        ({"a": -123}, 5),
        ({"a": 1_800_000_000.123}, 9),
        ({"a": {"b": "cd"}}, 8),
        ({"a": ["b", None]}, 8),
        ({"a": frozenset({"bc", "d"})}, 4),
        ({"a": Foreign("B", b"xyz")}, 4),
        ({"a": Foreign("NS", ["1", "23"])}, 5),
        ({"a": Foreign("BS", [b"xy", b"z"])}, 4),
        ({"a": Foreign("NULL", True)}, 2),
        ({"a": None}, 0),
    ],
)
def test_sizes_follow_the_documented_rules(item: dict[str, Any], size: int) -> None:
    assert item_bytes(item) == size
