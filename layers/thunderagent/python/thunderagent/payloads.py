"""Declared payload types: from the annotation of a handler's first parameter to a reader of JSON values.

A dataclass is filled from a JSON object, strictly: unknown fields, missing ones and wrong types are refused, naming the
place. A pydantic model validates itself; pydantic is looked at only when the handler's module has imported it. Any
other annotation leaves the payload as it is.
"""

from __future__ import annotations

import dataclasses
import inspect
import math
import sys
import types
from collections.abc import Callable
from enum import Enum
from typing import Any, Literal, Union, get_args, get_origin, get_type_hints

from thunderagent.errors import ConfigurationError
from thunderagent.jsontext import Steps, path_of
from thunderagent.outcomes import BadPayload

Read = Callable[[Any], Any]
_Convert = Callable[[Any, Steps], Any]

_SCALARS: dict[type, str] = {
    bool: "true or false",
    int: "an integer",
    float: "a number",
    str: "a string",
    type(None): "null",
    dict: "an object",
    list: "an array",
}
ERRORS_SHOWN = 5


class _Misfit(Exception):
    def __init__(self, steps: Steps, problem: str) -> None:
        self.steps = steps
        self.problem = problem


def payload_reader(function: Callable[..., Any]) -> Read:
    """What makes a handler's first argument of a JSON value. The reader raises BadPayload, this ConfigurationError."""
    annotation = _annotation_of(function)
    if isinstance(annotation, type) and _is_pydantic(annotation):
        return _pydantic_reader(annotation)
    if isinstance(annotation, type) and dataclasses.is_dataclass(annotation):
        return _reader(_dataclass_converter(annotation, seen=()))
    return lambda value: value


def _annotation_of(function: Callable[..., Any]) -> Any:
    parameter = next(iter(inspect.signature(function).parameters.values()))
    annotation = parameter.annotation
    if not isinstance(annotation, str):
        return annotation
    # Only this annotation is evaluated: the context's is often known to type checkers alone.
    unwrapped = inspect.unwrap(function)
    try:
        return eval(annotation, getattr(unwrapped, "__globals__", {}))
    except Exception as error:
        raise ConfigurationError(
            f"the annotation {annotation!r} of {parameter.name} cannot be resolved ({type(error).__name__}: {error}): "
            "import it where the module runs, not only for type checkers, or annotate Any"
        ) from error


def _reader(convert: _Convert) -> Read:
    def read(value: Any) -> Any:
        try:
            return convert(value, ())
        except _Misfit as misfit:
            raise BadPayload(f"{path_of('payload', misfit.steps)}: {misfit.problem}") from None

    return read


# ---- pydantic -------------------------------------------------------------------------------------------------------


def _is_pydantic(annotation: type) -> bool:
    pydantic = sys.modules.get("pydantic")
    return pydantic is not None and issubclass(annotation, pydantic.BaseModel)


def _pydantic_reader(model: Any) -> Read:
    failure: type[Exception] = sys.modules["pydantic"].ValidationError

    def read(value: Any) -> Any:
        try:
            return model.model_validate(value)
        except failure as error:
            raise BadPayload(_pydantic_message(error)) from None

    return read


def _pydantic_message(error: Any) -> str:
    problems = error.errors(include_url=False, include_input=False, include_context=False)
    shown = [f"{path_of('payload', problem['loc'])}: {problem['msg']}" for problem in problems[:ERRORS_SHOWN]]
    left = len(problems) - len(shown)
    return "; ".join(shown) + (f"; and {left} more" if left else "")


# ---- dataclasses ----------------------------------------------------------------------------------------------------


def _dataclass_converter(cls: type, *, seen: tuple[type, ...]) -> _Convert:
    """Raises ConfigurationError for a field of a type JSON values cannot be fitted to."""
    if cls in seen:
        raise ConfigurationError(f"{cls.__name__} contains itself: annotate the field dict[str, Any]")
    try:
        hints = get_type_hints(cls)
    except Exception as error:
        raise ConfigurationError(f"the fields of {cls.__name__} cannot be resolved: {error}") from error
    fields = {field.name: field for field in dataclasses.fields(cls) if field.init}
    converters = {name: _converter(hints[name], f"{cls.__name__}.{name}", seen=(*seen, cls)) for name in fields}
    required = [name for name, field in fields.items() if _is_required(field)]

    def convert(value: Any, steps: Steps) -> Any:
        if not isinstance(value, dict):
            raise _Misfit(steps, f"an object is needed, not {_named(value)}")
        for name in value:
            if name not in converters:
                raise _Misfit((*steps, name), f"{cls.__name__} has no such field")
        for name in required:
            if name not in value:
                raise _Misfit((*steps, name), "is missing")
        arguments = {name: converters[name](entry, (*steps, name)) for name, entry in value.items()}
        try:
            return cls(**arguments)
        except (ValueError, TypeError) as error:  # its own __post_init__ found it unfit
            raise _Misfit(steps, str(error)) from error

    return convert


def _is_required(field: dataclasses.Field[Any]) -> bool:
    return field.default is dataclasses.MISSING and field.default_factory is dataclasses.MISSING


def _converter(hint: Any, where: str, *, seen: tuple[type, ...]) -> _Convert:
    if hint is Any or hint is object:
        return lambda value, steps: value
    if hint is None:
        hint = type(None)
    origin, arguments = get_origin(hint), get_args(hint)
    if origin in (Union, types.UnionType):
        return _one_of([_converter(choice, where, seen=seen) for choice in arguments])
    if origin is Literal:
        return _literal(arguments)
    if origin in (list, dict, tuple):
        return _container(origin, arguments, where, seen=seen)
    if isinstance(hint, type):
        if hint in _SCALARS:
            return _scalar(hint)
        if dataclasses.is_dataclass(hint):
            return _dataclass_converter(hint, seen=seen)
        if issubclass(hint, Enum):
            return _enum(hint)
    raise ConfigurationError(
        f"{where}: {hint!r} is not a type JSON values fit: use bool, int, float, str, list, dict, tuple, Literal, an "
        "Enum, a dataclass, unions of these, or Any"
    )


def _scalar(expected: type) -> _Convert:
    def convert(value: Any, steps: Steps) -> Any:
        if expected is float and isinstance(value, int) and not isinstance(value, bool):
            return _as_float(value, steps)
        if not isinstance(value, expected) or (isinstance(value, bool) and expected is not bool):
            raise _Misfit(steps, f"{_SCALARS[expected]} is needed, not {_named(value)}")
        return value

    return convert


def _as_float(value: int, steps: Steps) -> float:
    try:
        return float(value)
    except OverflowError:
        raise _Misfit(steps, "the integer is too large for a number of this field") from None


def _one_of(choices: list[_Convert]) -> _Convert:
    """The first choice that fits; when none does, the misfit that lies deepest says the most."""

    def convert(value: Any, steps: Steps) -> Any:
        misfits = []
        for choice in choices:
            try:
                return choice(value, steps)
            except _Misfit as misfit:
                misfits.append(misfit)
        deepest = max(misfits, key=lambda misfit: len(misfit.steps))
        if len(deepest.steps) > len(steps):
            raise deepest
        raise _Misfit(steps, " or ".join(dict.fromkeys(misfit.problem for misfit in misfits)))

    return convert


def _literal(allowed: tuple[Any, ...]) -> _Convert:
    def convert(value: Any, steps: Steps) -> Any:
        for choice in allowed:
            if type(value) is type(choice) and value == choice:
                return value
        raise _Misfit(steps, f"one of {', '.join(map(repr, allowed))} is needed")

    return convert


def _enum(cls: type[Enum]) -> _Convert:
    values = {(type(member.value), member.value): member for member in cls}

    def convert(value: Any, steps: Steps) -> Any:
        if isinstance(value, bool | int | float | str) and (type(value), value) in values:
            return values[type(value), value]
        raise _Misfit(steps, f"one of {', '.join(repr(member.value) for member in cls)} is needed")

    return convert


def _container(origin: type, arguments: tuple[Any, ...], where: str, *, seen: tuple[type, ...]) -> _Convert:
    if origin is dict:
        if arguments[0] is not str:
            raise ConfigurationError(f"{where}: the keys of a JSON object are strings")
        entry = _converter(arguments[1], where, seen=seen)
        check = _scalar(dict)
        return lambda value, steps: {name: entry(item, (*steps, name)) for name, item in check(value, steps).items()}
    if origin is tuple and not (len(arguments) == 2 and arguments[1] is Ellipsis):
        return _fixed_tuple([_converter(argument, where, seen=seen) for argument in arguments])
    item = _converter(arguments[0], where, seen=seen)
    check = _scalar(list)
    return lambda value, steps: origin(item(entry, (*steps, index)) for index, entry in enumerate(check(value, steps)))


def _fixed_tuple(converters: list[_Convert]) -> _Convert:
    check = _scalar(list)

    def convert(value: Any, steps: Steps) -> Any:
        entries = check(value, steps)
        if len(entries) != len(converters):
            raise _Misfit(steps, f"an array of {len(converters)} is needed, not of {len(entries)}")
        return tuple(
            convert_entry(entry, (*steps, index))
            for index, (convert_entry, entry) in enumerate(zip(converters, entries, strict=True))
        )

    return convert


def _named(value: Any) -> str:
    if isinstance(value, bool) or value is None:
        return "null" if value is None else str(value).lower()
    if isinstance(value, float) and not math.isfinite(value):
        return "a number JSON has not"
    return _SCALARS.get(type(value), type(value).__name__)
