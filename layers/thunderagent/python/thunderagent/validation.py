"""Requests judged by the OpenAPI document this package serves: one text for users, gateway and code.

A small interpreter of the JSON Schema keywords the document uses, because requests need what general validators do not
give: integers that are integers (`true`, `"5"` and `2.0` are not), the exact path, limits in UTF-8 bytes, and a cold
start that pays for one JSON file. A test holds that the document uses no keyword that is not known here.
"""

from __future__ import annotations

import json
import re
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime, timedelta
from functools import cache
from pathlib import Path
from typing import Any, Final

from thunderagent.errors import InvalidInput, NotFound
from thunderagent.jsontext import Steps, path_of

Schema = Mapping[str, Any]

DOCUMENT_PATH: Final = Path(__file__).with_name("openapi.json")

ANNOTATIONS: Final = frozenset({"description", "default", "x-message", "x-each-alone"})
"""Keywords of the document that state no rule of their own."""


# ---- the document ---------------------------------------------------------------------------------------------------


@dataclass(frozen=True)
class Operation:
    """One call: how its parameters and body must look. `route` is spelled as the gateway spells it."""

    operation_id: str
    route: str
    scopes: tuple[str, ...]
    parameters: tuple[Mapping[str, Any], ...]
    body: Schema | None
    body_is_required: bool


@cache
def document() -> dict[str, Any]:
    loaded: dict[str, Any] = json.loads(DOCUMENT_PATH.read_text("utf-8"))
    return loaded


@cache
def operations() -> dict[str, Operation]:
    """Every call by its route, such as `POST /tasks/{taskId}/cancel`."""
    found = (
        _operation(method.upper(), path, entry)
        for path, entries in document()["paths"].items()
        for method, entry in entries.items()
    )
    return {operation.route: operation for operation in found}


def _operation(method: str, path: str, entry: Mapping[str, Any]) -> Operation:
    body = entry.get("requestBody")
    return Operation(
        operation_id=entry["operationId"],
        route=f"{method} {path}",
        scopes=tuple(entry["x-scopes"]),
        parameters=tuple(resolved(parameter) for parameter in entry.get("parameters", ())),
        body=body["content"]["application/json"]["schema"] if body else None,
        body_is_required=bool(body and body["required"]),
    )


def schema_named(name: str) -> Schema:
    schema: Schema = document()["components"]["schemas"][name]
    return schema


def resolved(schema: Mapping[str, Any]) -> Mapping[str, Any]:
    """The schema or parameter a `$ref` points to within the document; anything else as it is."""
    reference = schema.get("$ref")
    return schema if reference is None else _referred_to(reference)


@cache
def _referred_to(reference: str) -> Mapping[str, Any]:
    target: Any = document()
    for name in reference.removeprefix("#/").split("/"):
        target = target[name]
    return resolved(target)


# ---- judging --------------------------------------------------------------------------------------------------------


def check_body(operation: Operation, value: Any) -> None:
    """Raise InvalidInput naming the first value of the body that the document does not allow."""
    if operation.body is not None:
        check(value, operation.body)


def check_parameters(operation: Operation, given: Mapping[str, Mapping[str, str]]) -> dict[str, Any]:
    """The parameters of a call, integers as integers and defaults filled in.

    `given` holds the texts received by their place (`path`, `query`, `header`). Raises InvalidInput for one that is
    missing, not allowed, or unknown: a misspelt filter that is ignored would answer another question. Raises NotFound
    for a path that no stored thing can have, unless the call would create it (PUT).
    """
    _refuse_unknown_query(operation, given.get("query", {}))
    values: dict[str, Any] = {}
    for parameter in operation.parameters:
        name, schema = parameter["name"], resolved(parameter["schema"])
        text = given.get(parameter["in"], {}).get(name.lower() if parameter["in"] == "header" else name)
        if text is None and parameter["required"]:
            raise refusal((name,), "is required")
        if text is None:
            values[name] = schema.get("default")
        else:
            values[name] = _from_text(text, schema)
            _check_parameter(values[name], schema, parameter, may_create=operation.route.startswith("PUT "))
    return values


def _check_parameter(value: Any, schema: Schema, parameter: Mapping[str, Any], *, may_create: bool) -> None:
    try:
        check(value, schema, (parameter["name"],))
    except InvalidInput as error:
        if parameter["in"] == "path" and not may_create:
            raise NotFound(f"there is no {parameter['name']} {str(value)[:128]!r}", path=parameter["name"]) from error
        raise


def _refuse_unknown_query(operation: Operation, query: Mapping[str, str]) -> None:
    known = [parameter["name"] for parameter in operation.parameters if parameter["in"] == "query"]
    for name in query:
        # A presigned request carries its signature in the query string.
        if name not in known and not name.lower().startswith("x-amz-"):
            raise refusal((name,), "unknown parameter" + _suggestion(name, known))


def _from_text(text: str, schema: Schema) -> Any:
    if schema["type"] == "integer" and re.fullmatch(r"-?[0-9]{1,15}", text):
        return int(text)
    return text


def check(value: Any, schema: Schema, steps: Steps = ()) -> None:
    """Raise InvalidInput, with the path below `steps`, unless the schema allows the value."""
    rules = resolved(schema)
    if "type" in rules:
        _check_type(value, rules["type"], steps)
    for keyword, argument in rules.items():
        rule = RULES.get(keyword)
        if rule is not None:
            rule(value, argument, rules, steps)


def refusal(steps: Steps, reason: str) -> InvalidInput:
    path = path_of("", steps)
    return InvalidInput(f"{path}: {reason}" if path else f"the body {reason}", path=path)


# ---- the rules ------------------------------------------------------------------------------------------------------

_IS: dict[str, Callable[[Any], bool]] = {
    "string": lambda value: isinstance(value, str),
    "integer": lambda value: isinstance(value, int) and not isinstance(value, bool),
    "number": lambda value: isinstance(value, int | float) and not isinstance(value, bool),
    "boolean": lambda value: isinstance(value, bool),
    "object": lambda value: isinstance(value, dict),
    "array": lambda value: isinstance(value, list),
    "null": lambda value: value is None,
}


def _check_type(value: Any, allowed: str | Sequence[str], steps: Steps) -> None:
    names = [allowed] if isinstance(allowed, str) else list(allowed)
    if not any(_IS[name](value) for name in names):
        raise refusal(steps, f"must be {' or '.join(_with_article(name) for name in names)}, not {_described(value)}")


def _with_article(name: str) -> str:
    return name if name == "null" else f"{'an' if name[0] in 'aio' else 'a'} {name}"


def _described(value: Any) -> str:
    if isinstance(value, float):
        return f"{value!r} (a number with a fraction or an exponent)"
    return next(_with_article(name) for name, is_one in _IS.items() if is_one(value))


def _check_enum(value: Any, allowed: Sequence[Any], rules: Schema, steps: Steps) -> None:
    if value not in allowed:
        raise refusal(steps, f"must be one of {', '.join(map(str, allowed))}")


def _check_required(value: Any, names: Sequence[str], rules: Schema, steps: Steps) -> None:
    for name in names:
        if isinstance(value, dict) and name not in value:
            raise refusal((*steps, name), "is required")


def _check_not(value: Any, forbidden: Schema, rules: Schema, steps: Steps) -> None:
    """The one form the document uses: fields that exclude each other."""
    names = forbidden["required"]
    if all(name in value for name in names):
        raise refusal((*steps, names[-1]), f"not together with {' and '.join(names[:-1])}")


def _check_properties(value: Any, properties: Mapping[str, Schema], rules: Schema, steps: Steps) -> None:
    if isinstance(value, dict):
        for name, entry in value.items():
            if name in properties:
                check(entry, properties[name], (*steps, name))


def _check_other_properties(value: Any, allowed: bool | Schema, rules: Schema, steps: Steps) -> None:
    known = rules.get("properties", {})
    for name in value if isinstance(value, dict) else ():
        if name in known:
            continue
        if isinstance(allowed, Mapping):
            check(value[name], allowed, (*steps, name))
        elif not allowed:
            raise refusal((*steps, name), "unknown field" + _suggestion(name, list(known)))


def _suggestion(name: str, known: Sequence[str]) -> str:
    import difflib  # only a request that is refused pays for it

    close = difflib.get_close_matches(name[:64], known, n=1)
    return f"; did you mean {close[0]}?" if close else ""


def _check_property_names(value: Any, schema: Schema, rules: Schema, steps: Steps) -> None:
    for name in value:
        check(name, schema, (*steps, name))


def _check_max_properties(value: Any, limit: int, rules: Schema, steps: Steps) -> None:
    if len(value) > limit:
        raise refusal(steps, f"has {len(value)} entries; at most {limit} are allowed")


def _check_items(value: Any, schema: Schema, rules: Schema, steps: Steps) -> None:
    if rules.get("x-each-alone"):
        return
    for index, entry in enumerate(value):
        check(entry, schema, (*steps, index))


def _check_min_items(value: Any, limit: int, rules: Schema, steps: Steps) -> None:
    if len(value) < limit:
        raise refusal(steps, f"must have at least {limit} entr{'y' if limit == 1 else 'ies'}")


def _check_max_items(value: Any, limit: int, rules: Schema, steps: Steps) -> None:
    if len(value) > limit:
        raise refusal(steps, f"has {len(value)} entries; at most {limit} are allowed")


def _check_minimum(value: Any, limit: float, rules: Schema, steps: Steps) -> None:
    if value is not None and value < limit:
        raise refusal(steps, f"must be at least {limit}")


def _check_maximum(value: Any, limit: float, rules: Schema, steps: Steps) -> None:
    if value is not None and value > limit:
        raise refusal(steps, f"must be at most {limit}")


def _check_min_length(value: Any, limit: int, rules: Schema, steps: Steps) -> None:
    if len(value) < limit:
        raise refusal(steps, "must not be empty" if limit == 1 else f"must have at least {limit} characters")


def _check_max_length(value: Any, limit: int, rules: Schema, steps: Steps) -> None:
    if len(value) > limit:
        raise refusal(steps, f"has {len(value)} characters; at most {limit} are allowed")


def _check_max_bytes(value: Any, limit: int, rules: Schema, steps: Steps) -> None:
    size = len(value.encode())
    if size > limit:
        raise refusal(steps, f"has {size} bytes of UTF-8; at most {limit} are allowed")


def _check_pattern(value: Any, pattern: str, rules: Schema, steps: Steps) -> None:
    # `$` also matches before a final newline in Python, not in the dialect the document is written in.
    if value.endswith("\n") or not re.search(pattern, value):
        raise refusal(steps, rules.get("x-message", f"must match {pattern}"))


def _check_format(value: Any, name: str, rules: Schema, steps: Steps) -> None:
    try:
        parse_time(value)
    except ValueError as error:
        raise refusal(steps, str(error)) from None


RULES: Final[Mapping[str, Callable[[Any, Any, Schema, Steps], None]]] = {
    "enum": _check_enum,
    "required": _check_required,
    "not": _check_not,
    "properties": _check_properties,
    "additionalProperties": _check_other_properties,
    "propertyNames": _check_property_names,
    "maxProperties": _check_max_properties,
    "items": _check_items,
    "minItems": _check_min_items,
    "maxItems": _check_max_items,
    "minimum": _check_minimum,
    "maximum": _check_maximum,
    "minLength": _check_min_length,
    "maxLength": _check_max_length,
    "x-max-bytes": _check_max_bytes,
    "pattern": _check_pattern,
    "format": _check_format,
}


# ---- times ----------------------------------------------------------------------------------------------------------

_RFC_3339 = re.compile(r"(\d{4}-\d\d-\d\d)[Tt ](\d\d:\d\d:)(\d\d)(\.\d+)?([Zz]|[+-]\d\d:\d\d)?", re.ASCII)


def parse_time(text: str) -> float:
    """Epoch seconds of an RFC 3339 time, to the microsecond. Raises ValueError saying what is wrong with it."""
    match = _RFC_3339.fullmatch(text)
    if match is None:
        raise ValueError("must be an RFC 3339 time such as 2026-12-01T09:00:00+02:00")
    day, minutes, seconds, fraction, offset = match.groups()
    if offset is None:
        raise ValueError("must have an offset, such as Z or +02:00: a time without one means another instant elsewhere")
    leap = seconds == "60"  # RFC 3339 allows it; epoch seconds have no room for it
    try:
        moment = datetime.fromisoformat(
            f"{day}T{minutes}{'59' if leap else seconds}{(fraction or '')[:7]}{offset.upper().replace('Z', '+00:00')}"
        )
        return (moment + timedelta(seconds=leap)).timestamp()
    except (ValueError, OverflowError) as error:
        raise ValueError(f"is not a time: {error}") from None
