"""The canonical form of a JSON value: what fingerprints and idempotency hashes are made of."""

from __future__ import annotations

from json.encoder import encode_basestring
from typing import Any, Final

from thunderagent.jsontext import MAX_BODY_DEPTH, holds_half_a_pair, refuse_first_defect

_EXACT_IN_A_DOUBLE: Final = 2**53


def canonical(value: Any) -> str:
    """RFC 8785: one text per value, the same in every process and language; for fingerprints and idempotency hashes.

    Numbers that are equal are written alike (`1`, `1.0` and `10e-1`). RFC 8785 knows doubles only; an integer that no
    double holds exactly is written as its digits and `n`, which no RFC 8785 number can be mistaken for: to round it
    would make two different payloads one.
    Takes what `jsontext.loads` returns; raises InvalidInput for values JSON cannot hold.
    """
    out: list[str] = []
    try:
        _write_canonical(value, out, 0)
    except (TypeError, ValueError, UnicodeEncodeError):
        refuse_first_defect(value, "", MAX_BODY_DEPTH)
        raise
    text = "".join(out)
    if holds_half_a_pair(text):
        refuse_first_defect(value, "", MAX_BODY_DEPTH)
    return text


def _write_canonical(value: Any, out: list[str], depth: int) -> None:
    if isinstance(value, str):
        out.append(encode_basestring(value))
    elif value is None or isinstance(value, bool):
        out.append(_LITERALS[value])
    elif isinstance(value, int):
        out.append(_canonical_integer(value))
    elif isinstance(value, float):
        out.append(_canonical_double(value))
    elif depth == MAX_BODY_DEPTH:
        raise ValueError("too deep")
    elif isinstance(value, dict):
        _write_canonical_object(value, out, depth + 1)
    elif isinstance(value, (list, tuple)):
        _write_canonical_array(value, out, depth + 1)
    else:
        raise TypeError(type(value).__name__)


_LITERALS = {None: "null", True: "true", False: "false"}


def _write_canonical_object(value: dict[str, Any], out: list[str], depth: int) -> None:
    separator = "{"
    for key in sorted(value, key=_utf16_units):
        out.append(separator + encode_basestring(key) + ":")
        _write_canonical(value[key], out, depth)
        separator = ","
    out.append("}" if value else "{}")


def _write_canonical_array(value: list[Any] | tuple[Any, ...], out: list[str], depth: int) -> None:
    separator = "["
    for item in value:
        out.append(separator)
        _write_canonical(item, out, depth)
        separator = ","
    out.append("]" if value else "[]")


def _utf16_units(key: str) -> bytes:
    return str.encode(key, "utf-16-be")


def _canonical_integer(value: int) -> str:
    if -_EXACT_IN_A_DOUBLE <= value <= _EXACT_IN_A_DOUBLE:
        return int.__repr__(value)
    try:
        double = float(value)
    except OverflowError:
        return f"{value:d}n"
    return _canonical_double(double) if double == value else f"{value:d}n"


def _canonical_double(value: float) -> str:
    """ECMAScript's Number::toString; Python finds the same shortest digits and differs only in how it lays them out."""
    if value != value or value in (float("inf"), float("-inf")):
        raise ValueError("not a JSON number")
    if value == 0:
        return "0"
    sign, digits, point = _shortest_digits(value)
    count = len(digits)
    if count <= point <= 21:
        return sign + digits.ljust(point, "0")
    if 0 < point <= 21:
        return f"{sign}{digits[:point]}.{digits[point:]}"
    if -6 < point <= 0:
        return f"{sign}0.{'0' * -point}{digits}"
    fraction = "." + digits[1:] if count > 1 else ""
    return f"{sign}{digits[0]}{fraction}e{point - 1:+d}"


def _shortest_digits(value: float) -> tuple[str, str, int]:
    """(sign, d, n) with value = 0.d * 10**n, d without zeros at either end."""
    mantissa, _, exponent = float.__repr__(abs(value)).partition("e")
    whole, _, fraction = mantissa.partition(".")
    digits = (whole + fraction).lstrip("0")
    point = len(whole) + int(exponent or 0) - (len(whole + fraction) - len(digits))
    return ("-" if value < 0 else ""), digits.rstrip("0"), point
