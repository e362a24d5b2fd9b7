"""Exact JSON: what is accepted comes back equal, what JSON cannot say is refused with its path."""

from __future__ import annotations

import json
import math
from decimal import Decimal
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from thunderagent import jsontext
from thunderagent.errors import InvalidInput

NUMBERS = st.integers() | st.integers(-(10**1000), 10**1000) | st.floats(allow_nan=False, allow_infinity=False)
SCALARS = st.none() | st.booleans() | NUMBERS | st.text()
VALUES = st.recursive(
    SCALARS, lambda below: st.lists(below, max_size=5) | st.dictionaries(st.text(), below, max_size=5), max_leaves=20
)


def typed(value: Any) -> Any:
    """Equality that tells 1 from 1.0 and True, and -0.0 from 0.0."""
    if isinstance(value, dict):
        return {key: typed(item) for key, item in value.items()}
    if isinstance(value, list):
        return [typed(item) for item in value]
    return type(value), math.copysign(1, value) if isinstance(value, float) else None, value


def refusal(text: bytes | str, **options: Any) -> InvalidInput:
    with pytest.raises(InvalidInput) as caught:
        jsontext.loads(text, **options)
    return caught.value


class TestRoundTrip:
    @given(VALUES)
    @settings(max_examples=200, deadline=None)
    def test_any_value_comes_back_equal_with_its_types(self, value: Any) -> None:
        assert typed(jsontext.loads(jsontext.dumps(value))) == typed(value)

    @given(VALUES)
    @settings(max_examples=100, deadline=None)
    def test_any_spelling_of_it_is_read_alike(self, value: Any) -> None:
        spelled = json.dumps(value, ensure_ascii=True, indent=1).encode()
        assert typed(jsontext.loads(b"\xef\xbb\xbf" + spelled)) == typed(value)

    @pytest.mark.parametrize("digits", [16, 30, 1000, 4300])
    def test_big_integers_are_exact(self, digits: int) -> None:
        assert jsontext.dumps(jsontext.loads("9" * digits)) == "9" * digits

    @pytest.mark.parametrize("text", ["0", "false", '""', "null", "{}", "[]", "1.0", "-0.0", "1e+22", "5e-324"])
    def test_values_that_look_like_absences_or_lose_their_form_elsewhere(self, text: str) -> None:
        assert jsontext.dumps(jsontext.loads(text)) == text

    def test_the_stored_form_is_compact_and_not_escaped(self) -> None:
        assert jsontext.dumps({"a": ["中", "\u00e9", "😀"]}) == '{"a":["中","é","😀"]}'

    def test_a_surrogate_pair_is_one_character(self) -> None:
        assert jsontext.loads(r'"\ud83d\ude00"') == "😀"

    def test_two_hundred_levels_are_accepted(self) -> None:
        assert jsontext.dumps(jsontext.loads("[" * 200 + "]" * 200)) == "[" * 200 + "]" * 200

    def test_many_brackets_are_not_depth(self) -> None:
        assert jsontext.loads("[" + '["[{",{}],' * 5000 + "0]")[4999] == ["[{", {}]


class TestRefusals:
    @pytest.mark.parametrize(
        ("text", "path", "reason"),
        [
            ('{"payload":{"items":[0,1,2,{"price":NaN}]}}', "payload.items[3].price", "NaN is not JSON"),
            ('{"a":[Infinity]}', "a[0]", "Infinity is not JSON"),
            ('{"a":[0,-Infinity]}', "a[1]", "-Infinity is not JSON"),
            ('{"a":1,"b":{"c d":[{"x":1,"x":1}]}}', 'b["c d"][0].x', "key appears twice"),
            ('{"a":1,"a":2}', "a", "key appears twice"),
            ('{"n":1e400}', "n", "1e400 does not fit a double-precision number"),
            ('{"n":-1e400}', "n", "-1e400 does not fit a double-precision number"),
            ('{"n":[2e-400]}', "n[0]", "2e-400 does not fit a double-precision number"),
            ('{"n":' + "9" * 4301 + "}", "n", "integer of more than 4300 digits"),
            (r'{"s":"\ud800"}', "s", "unpaired surrogate in a string"),
            (r'{"s":["ok","\udc00\ud800"]}', "s[1]", "unpaired surrogate in a string"),
            (r'{"\ud800":1}', r'["\ud800"]', "unpaired surrogate in a key"),
            ('{"s":"\ud800"}', "s", "unpaired surrogate in a string"),
            ('{"payload":' + "[" * 201 + "]" * 201 + "}", "payload[0][0]", "nested deeper than 200 levels"),
        ],
    )
    def test_ta_34_values_json_cannot_say_are_named(self, text: str, path: str, reason: str) -> None:
        error = refusal(text)
        assert (error.path, error.message, error.code) == (path, f"{path}: {reason}", "validation_error")

    @pytest.mark.parametrize("text", ["", " ", "{", "[1,]", "{'a':1}", '"a\x01"', "01", "1 2", "nul", "+1", ".5", "[1"])
    def test_malformed_text_says_where(self, text: str) -> None:
        assert "line 1 column" in refusal(text).message

    @pytest.mark.parametrize("data", [b"\xff", b'"\xed\xa0\x80"', b'"\xc0\x80"', '"é"'.encode("utf-16"), b'"\xc3'])
    def test_bytes_that_are_not_utf8(self, data: bytes) -> None:
        assert "not UTF-8 at byte" in refusal(data).message

    @pytest.mark.parametrize(
        "text", ["[" * 5000, '{"a":' * 5000, "[" * 2**21, "[" * 5000 + "]" * 5000, ":,]" + "[{" * 999]
    )
    def test_ta_34_depth_never_reaches_the_interpreters_limit(self, text: str) -> None:
        assert "nested deeper than 200 levels" in refusal(text).message

    def test_the_first_of_several_defects_is_named(self) -> None:
        assert refusal(r'{"a":[1,"\ud800"],"b":NaN}').path == "a[1]"

    def test_the_root_names_the_value(self) -> None:
        assert refusal('{"price":NaN}', root="payload").message == "payload.price: NaN is not JSON"
        assert refusal("NaN", root="payload").path == "payload"

    def test_a_long_key_or_number_does_not_come_back_whole(self) -> None:
        assert len(refusal('{"' + "k" * 100_000 + '":NaN}').message) < 200
        assert len(refusal("1" * 100_000 + "e400").message) < 200

    @pytest.mark.parametrize("text", ["0.0", "-0.0", "0e400", "0.000e-999"])
    def test_zero_in_any_spelling_is_not_an_underflow(self, text: str) -> None:
        assert jsontext.loads(text) == 0


class TestWriting:
    @pytest.mark.parametrize(
        ("value", "path", "reason"),
        [
            ({"a": float("nan")}, "result.a", "NaN is not JSON"),
            ([1, float("-inf")], "result[1]", "-Infinity is not JSON"),
            ({"a": {1, 2}}, "result.a", "set is not a JSON value"),
            ([Decimal(1)], "result[0]", "Decimal is not a JSON value"),
            (b"x", "result", "bytes is not a JSON value"),
            ({1: "a"}, "result", "key 1 is not a string"),
            ({"deep": [{None: 1}]}, "result.deep[0]", "key None is not a string"),
            ({"a": "\ud800"}, "result.a", "unpaired surrogate in a string"),
            ({"\udfff": 1}, r'result["\udfff"]', "unpaired surrogate in a key"),
            ([10**4300], "result[0]", "integer of more than 4300 digits"),
        ],
    )
    def test_values_json_cannot_hold_are_named(self, value: Any, path: str, reason: str) -> None:
        with pytest.raises(InvalidInput) as caught:
            jsontext.dumps(value, root="result")
        assert (caught.value.path, caught.value.message) == (path, f"{path}: {reason}")

    def test_cycles_and_depth_are_refused_without_recursion(self) -> None:
        cycle: list[Any] = []
        cycle += [cycle, cycle]
        deep: Any = 0
        for _ in range(100_000):
            deep = [deep]
        just_too_deep: Any = 0
        for _ in range(201):
            just_too_deep = {"a": just_too_deep}
        for value in (cycle, deep, just_too_deep):
            with pytest.raises(InvalidInput, match="nested deeper than 200 levels"):
                jsontext.dumps(value)

    def test_tuples_are_written_as_lists(self) -> None:
        assert jsontext.dumps({"a": (1, (2,))}) == '{"a":[1,[2]]}'
