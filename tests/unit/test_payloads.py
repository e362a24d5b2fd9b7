"""Declared payload types: what fits is converted, what does not names its place."""

from __future__ import annotations

import sys
from collections.abc import Callable
from dataclasses import dataclass, field
from enum import Enum
from types import ModuleType
from typing import TYPE_CHECKING, Any, Literal

import pytest

from thunderagent.errors import ConfigurationError
from thunderagent.outcomes import BadPayload, Fail
from thunderagent.payloads import payload_reader

if TYPE_CHECKING:
    from thunderagent.context import Context


class Colour(Enum):
    RED = "red"


@dataclass
class Item:
    sku: str
    amount: int = 1
    price: float | None = None


@dataclass(frozen=True)
class Order:
    items: list[Item]
    mode: Literal["fast", "slow"] = "fast"
    colour: Colour = Colour.RED
    tags: dict[str, str] = field(default_factory=dict)
    pair: tuple[int, str] | None = None
    extra: Any = None

    def __post_init__(self) -> None:
        if not self.items:
            raise ValueError("an order has items")


def typed(payload: Order, ctx: Context) -> None: ...


def untyped(payload, ctx): ...  # type: ignore[no-untyped-def]


def mapping(payload: dict[str, Any], ctx: Context) -> None: ...


def test_a_dataclass_is_filled_deeply() -> None:
    read = payload_reader(typed)
    assert read({"items": [{"sku": "a", "price": 2}], "pair": [1, "x"], "extra": {"any": None}}) == Order(
        [Item("a", 1, 2.0)], pair=(1, "x"), extra={"any": None}
    )


@pytest.mark.parametrize(
    ("payload", "message"),
    [
        (None, "payload: an object is needed, not null"),
        ([], "payload: an object is needed, not an array"),
        ({}, "payload.items: is missing"),
        ({"items": [{}]}, "payload.items[0].sku: is missing"),
        ({"items": [{"sku": 5}]}, "payload.items[0].sku: a string is needed, not an integer"),
        ({"items": [{"sku": "a", "amount": True}]}, "payload.items[0].amount: an integer is needed, not true"),
        ({"items": [{"sku": "a", "amount": 1.5}]}, "payload.items[0].amount: an integer is needed, not a number"),
        (
            {"items": [{"sku": "a", "price": "2"}]},
            "payload.items[0].price: a number is needed, not a string or null is needed, not a string",
        ),
        ({"items": [{"sku": "a", "size": 1}]}, "payload.items[0].size: Item has no such field"),
        ({"items": [{"sku": "a"}], "mode": "warp"}, "payload.mode: one of 'fast', 'slow' is needed"),
        ({"items": [{"sku": "a"}], "colour": "blue"}, "payload.colour: one of 'red' is needed"),
        ({"items": [{"sku": "a"}], "tags": {"t": 1}}, "payload.tags.t: a string is needed, not an integer"),
        ({"items": [{"sku": "a"}], "pair": [1]}, "payload.pair: an array of 2 is needed, not of 1 or null is needed"),
        ({"items": []}, "payload: an order has items"),
    ],
)
def test_a_payload_that_does_not_fit_is_a_permanent_failure_naming_the_place(payload: Any, message: str) -> None:
    with pytest.raises(BadPayload) as refused:
        payload_reader(typed)(payload)
    assert str(refused.value).startswith(message)
    assert isinstance(refused.value, Fail)
    assert refused.value.reason == "bad_payload"


@pytest.mark.parametrize("handler", [untyped, mapping])
@pytest.mark.parametrize("value", [None, 0, False, "", {}, [], 1.0])
def test_without_a_declared_type_the_payload_is_left_as_it_is(handler: Callable[..., Any], value: Any) -> None:
    read = payload_reader(handler)(value)
    assert read == value
    assert type(read) is type(value)


def test_an_annotation_known_to_type_checkers_only_is_refused_when_built() -> None:
    def handler(payload: Context, ctx: Any) -> None: ...

    with pytest.raises(ConfigurationError, match="'Context' of payload cannot be resolved"):
        payload_reader(handler)


@dataclass
class Unfit:
    when: bytes


def test_a_field_no_json_value_fits_is_refused_when_built() -> None:
    def handler(payload: Unfit, ctx: Any) -> None: ...

    with pytest.raises(ConfigurationError, match=r"Unfit\.when: .*bytes.* is not a type JSON values fit"):
        payload_reader(handler)


class _ValidationError(ValueError):
    def errors(self, **_: bool) -> list[dict[str, Any]]:
        return [{"loc": ("region", 0), "msg": "Input should be a valid string"}] * 7


class _BaseModel:
    @classmethod
    def model_validate(cls, value: Any) -> Any:
        if value == "bad":
            raise _ValidationError
        return (cls.__name__, value)


class Report(_BaseModel): ...


def test_a_pydantic_model_validates_itself(monkeypatch: pytest.MonkeyPatch) -> None:
    """Against a stand-in with pydantic's interface: the package itself is the user's choice, not a dependency."""
    pydantic = ModuleType("pydantic")
    pydantic.__dict__.update(BaseModel=_BaseModel, ValidationError=_ValidationError)
    monkeypatch.setitem(sys.modules, "pydantic", pydantic)

    def handler(payload: Report, ctx: Any) -> None: ...

    read = payload_reader(handler)
    assert read({"a": 1}) == ("Report", {"a": 1})
    with pytest.raises(BadPayload) as refused:
        read("bad")
    assert str(refused.value).startswith("payload.region[0]: Input should be a valid string; ")
    assert str(refused.value).endswith("; and 2 more")


def test_pydantic_is_not_imported_for_handlers_that_do_not_use_it() -> None:
    payload_reader(typed)
    assert "pydantic" not in sys.modules
