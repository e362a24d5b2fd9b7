"""Exact JSON: what is accepted comes back equal, what JSON cannot say is refused with its path."""

from __future__ import annotations

import hashlib
import json
import math
import struct
import subprocess
import sys
from decimal import Decimal
from pathlib import Path
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

    def test_sizes_are_utf8_bytes(self) -> None:
        assert jsontext.stored_size(jsontext.dumps("a中")) == 6

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


class TestCanonicalForm:
    @pytest.mark.parametrize(("bits", "text"), RFC_8785_NUMBERS.items())
    def test_numbers_are_written_as_rfc_8785_says(self, bits: str, text: str) -> None:
        assert jsontext.canonical(struct.unpack(">d", bytes.fromhex(bits))[0]) == text

    def test_the_example_of_rfc_8785(self) -> None:
        source = r"""{"numbers": [333333333.33333329, 1E30, 4.50, 2e-3, 0.000000000000000000000000001],
            "string": "\u20ac$\u000F\u000aA'\u0042\u0022\u005c\\\"\/", "literals": [null, true, false]}"""
        assert jsontext.canonical(jsontext.loads(source)) == (
            '{"literals":[null,true,false],"numbers":[333333333.3333333,1e+30,4.5,0.002,1e-27],'
            r'"string":"€$\u000f\nA' + "'" + r'B\"\\\\\"/"}'
        )

    def test_keys_are_sorted_by_utf16_units(self) -> None:
        keys = ["€", "\r", "\ufb33", "1", "😀", "\u0080", "ö"]
        expected = ["\r", "1", "\u0080", "ö", "€", "😀", "\ufb33"]
        assert list(json.loads(jsontext.canonical(dict.fromkeys(keys)))) == expected

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
    def test_equal_values_and_only_those_are_written_alike(self, left: str, right: str, equal: bool) -> None:
        canonical_left, canonical_right = (jsontext.canonical(jsontext.loads(text)) for text in (left, right))
        assert (canonical_left == canonical_right) is equal

    @given(NUMBERS, NUMBERS)
    @settings(max_examples=300, deadline=None)
    def test_numbers_are_alike_exactly_when_equal(self, left: Any, right: Any) -> None:
        assert (jsontext.canonical(left) == jsontext.canonical(right)) is (left == right)
        assert jsontext.canonical(left) == jsontext.canonical(float(left) if _is_double(left) else left)

    @given(VALUES)
    @settings(max_examples=100, deadline=None)
    def test_it_does_not_depend_on_the_order_of_keys(self, value: Any) -> None:
        assert jsontext.canonical(_reversed(value)) == jsontext.canonical(value)

    def test_it_is_the_same_in_another_process(self) -> None:
        value = {"b": [1.5, "é", None], "a": {"😀": 2**70, "z": True}}
        script = f"from thunderagent import jsontext as j, schema as s; print(s.digest(j.canonical({value!r})))"
        layer = str(Path(jsontext.__file__).parents[1])
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
        assert digests == {hashlib.sha256(jsontext.canonical(value).encode()).hexdigest()}

    @pytest.mark.parametrize("value", [float("nan"), {1: 2}, {"a": "\ud800"}, {"\ud800": 1}, [object()]])
    def test_what_is_not_json_has_none(self, value: Any) -> None:
        with pytest.raises(InvalidInput):
            jsontext.canonical(value)


def _is_double(value: float) -> bool:
    try:
        return float(value) == value
    except OverflowError:
        return False


def _reversed(value: Any) -> Any:
    if isinstance(value, dict):
        return {key: _reversed(value[key]) for key in reversed(value)}
    return [_reversed(item) for item in value] if isinstance(value, list) else value
