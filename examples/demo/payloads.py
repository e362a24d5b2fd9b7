"""Reading a demonstration task's payload: absent fields have defaults, wrong ones fail the task for good."""

from typing import Any

from thunderagent import Fail


def whole(payload: Any, name: str, default: int, *, most: int) -> int:
    """An integer from 0 to `most`."""
    value = _field(payload, name, default)
    if isinstance(value, bool) or not isinstance(value, int) or not 0 <= value <= most:
        raise Fail(f"payload.{name}: an integer from 0 to {most} is needed")
    return value


def seconds(payload: Any, name: str, default: float, *, most: float) -> float:
    """A duration from 0 to `most`."""
    value = _field(payload, name, default)
    if isinstance(value, bool) or not isinstance(value, int | float) or not 0 <= value <= most:
        raise Fail(f"payload.{name}: a number of seconds from 0 to {most:g} is needed")
    return float(value)


def flag(payload: Any, name: str) -> bool:
    """True or false; false when it is absent."""
    value = _field(payload, name, False)
    if not isinstance(value, bool):
        raise Fail(f"payload.{name}: true or false is needed")
    return value


def text(payload: Any, name: str, default: str | None = None) -> str:
    """A string that is not empty; without a default it has to be given."""
    value = _field(payload, name, default)
    if not isinstance(value, str) or not value:
        raise Fail(f"payload.{name}: a string is needed")
    return value


def _field(payload: Any, name: str, default: Any) -> Any:
    if payload is None:
        return default
    if not isinstance(payload, dict):
        raise Fail("payload: an object is needed")
    return payload.get(name, default)
