"""Declarations are checked when they are made, and the registry tells what they said."""

from __future__ import annotations

import functools
import importlib.resources
import json
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from tests.support.batches import handlers_of
from thunderagent import Backoff, Done, Fail, RetryLater, task
from thunderagent.errors import ConfigurationError
from thunderagent.registry import Registry, by_type, load_handlers, load_registry
from thunderagent.registry_build import write_registry

DOCUMENT: dict[str, Any] = {
    "formatVersion": 1,
    "profiles": {
        "default": {"modules": ["tasks.hello"], "timeoutSeconds": 900},
        "small": {"modules": [], "timeoutSeconds": 90},
    },
    "queues": {"default": {}, "reports": {}},
    "types": {
        "a.full": {
            "profile": "small",
            "queue": "reports",
            "priority": "high",
            "timeoutSeconds": 20,
            "maxRetryNumber": 0,
            "leaseSeconds": 60,
            "backoff": {"base": 2, "factor": 3, "cap": 4},
        },
        "a.bare": {"profile": "default", "timeoutSeconds": None, "maxRetryNumber": None},
    },
}


def test_the_decorated_function_stays_what_it_is() -> None:
    @task("demo.kept")
    def handler(payload: Any, ctx: Any) -> Any:
        return payload

    assert handler(5, None) == 5


@pytest.mark.parametrize(
    ("arguments", "complaint"),
    [
        ({"name": "Bad Name"}, "@task name='Bad Name': a name matching"),
        ({"name": ""}, "@task name=''"),
        ({"name": None}, "@task name=None"),
        ({"timeout": 0}, "@task timeout=0: 1 to 86400 seconds"),
        ({"timeout": True}, "@task timeout=True"),
        ({"timeout": "60"}, "@task timeout='60'"),
        ({"timeout": float("nan")}, "@task timeout=nan"),
        ({"max_retries": -1}, "@task max_retries=-1: a whole number from 0 to 100"),
        ({"max_retries": 101}, "@task max_retries=101"),
        ({"max_retries": 2.0}, "@task max_retries=2.0"),
        ({"max_retries": False}, "@task max_retries=False"),
        ({"backoff": 5}, "@task backoff=5: a Backoff is needed"),
        ({"queue": "No!"}, "@task queue='No!'"),
        ({"priority": "urgent"}, "@task priority='urgent': one of high, normal, low"),
        ({"lease": 5}, "@task lease=5: 60 to 21600 seconds"),
    ],
)
def test_a_bad_value_names_module_function_and_what_it_may_be(arguments: dict[str, Any], complaint: str) -> None:
    with pytest.raises(ConfigurationError) as refused:

        @task(**{"name": "demo", **arguments})
        def handler(payload: Any, ctx: Any) -> None: ...

    assert str(refused.value).startswith(f"{__name__}:test_a_bad_value")
    assert ".handler: " in str(refused.value)
    assert complaint in str(refused.value)


def test_a_budget_of_zero_is_a_value() -> None:
    @task("demo", max_retries=0, backoff=Backoff(base=0))
    def handler(payload: Any, ctx: Any) -> None: ...

    (found,) = handlers_of(handler)
    assert found.declaration.max_retries == 0
    assert found.backoff.base == 0


def none() -> None: ...
def one(payload: Any) -> None: ...
def three(payload: Any, ctx: Any, more: Any) -> None: ...
def keyword(payload: Any, *, ctx: Any) -> None: ...
async def coroutine(payload: Any, ctx: Any) -> None: ...
def generator(payload: Any, ctx: Any) -> Any:
    yield


@pytest.mark.parametrize(
    ("function", "complaint"),
    [
        (none, r":none\(\) -> 'None': a handler is called with two arguments, \(payload, ctx\)"),
        (one, "called with two arguments"),
        (three, "called with two arguments"),
        (keyword, "called with two arguments"),
        (coroutine, "handlers run in threads and are plain functions; call asyncio.run inside"),
        (generator, "does not yield"),
        (Backoff, "@task goes on a function, not on a type"),
        (functools.partial(three, None), "@task goes on a function, not on a partial"),
    ],
)
def test_a_signature_that_cannot_work_is_refused(function: Callable[..., Any], complaint: str) -> None:
    with pytest.raises(ConfigurationError, match=complaint):
        task("demo")(function)


def test_the_name_may_not_be_forgotten() -> None:
    with pytest.raises(ConfigurationError, match=r":one: @task needs the type's name"):
        task(one)  # type: ignore[arg-type]


def optional(payload: Any, ctx: Any, more: int = 0, *rest: Any, **others: Any) -> None: ...


def test_optional_parameters_do_no_harm() -> None:
    assert [*by_type(handlers_of(task("demo")(optional)))] == ["demo"]


def test_one_type_declared_twice_names_both_places() -> None:
    @task("demo.same")
    def first(payload: Any, ctx: Any) -> None: ...

    @task("demo.same")
    def second(payload: Any, ctx: Any) -> None: ...

    with pytest.raises(ConfigurationError, match=r"'demo\.same' is declared twice: .*first and .*second"):
        by_type(handlers_of(first, second))


def test_a_module_that_cannot_be_imported_is_named() -> None:
    with pytest.raises(ConfigurationError, match="module no_such_tasks cannot be imported: ModuleNotFoundError"):
        load_handlers(["no_such_tasks"])


def test_the_registry_tells_defaults_by_attribute_and_none_for_what_was_not_said() -> None:
    registry = Registry.from_dict(DOCUMENT)
    assert registry.defaults_of("a.full") == {
        "queue": "reports",
        "priority": "high",
        "timeoutSeconds": 20,
        "maxRetryNumber": 0,
        "leaseSeconds": 60,
    }
    assert registry.defaults_of("a.bare")["maxRetryNumber"] is None
    assert registry.defaults_of("a.bare")["queue"] == "default"
    assert registry.defaults_of("unknown") == {}
    assert registry.queues == ("default", "reports")


def test_the_registry_tells_profiles_limits_and_backoffs() -> None:
    registry = Registry.from_dict(DOCUMENT)
    assert [registry.profile_of(name) for name in ("a.full", "a.bare", "unknown")] == ["small", "default", None]
    assert [registry.timeout_limit(name) for name in ("a.full", "a.bare", "unknown")] == [60, 870, 870]
    assert registry.backoff_of("a.full") == Backoff(2, 3, 4)
    assert registry.backoff_of("unknown") == Backoff()
    assert registry.modules_of("default") == ("tasks.hello",)
    with pytest.raises(ConfigurationError, match="'other' is not in the registry; declared: default, small"):
        registry.modules_of("other")


@pytest.mark.parametrize(
    "document", [{}, {"formatVersion": 2}, {"formatVersion": 1}, {**DOCUMENT, "types": []}, {**DOCUMENT, "queues": 5}]
)
def test_what_is_no_registry_is_refused(document: dict[str, Any]) -> None:
    with pytest.raises(ConfigurationError, match=r"registry\.json"):
        Registry.from_dict(document)


def test_it_is_loaded_from_the_package_beside_the_code(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    write_registry(DOCUMENT, tmp_path)
    monkeypatch.syspath_prepend(tmp_path / "python")
    monkeypatch.delitem(sys.modules, "thunderagent_registry", raising=False)
    try:
        assert load_registry() == Registry.from_dict(DOCUMENT)
    finally:
        sys.modules.pop("thunderagent_registry", None)  # not by monkeypatch, which would put it back for later tests


def test_without_one_the_command_that_makes_it_is_named(monkeypatch: pytest.MonkeyPatch) -> None:
    def missing(package: str) -> Any:
        raise ModuleNotFoundError(package)

    monkeypatch.setattr(importlib.resources, "files", missing)
    with pytest.raises(ConfigurationError, match="thunder registry build"):
        load_registry()


def test_importing_the_package_imports_nothing_else() -> None:
    script = (
        "import sys, json; import thunderagent; "
        "print(json.dumps(sorted(m for m in sys.modules if m.startswith('thunderagent.'))))"
    )
    answer = subprocess.run(
        [sys.executable, "-c", script],
        capture_output=True,
        text=True,
        check=True,
        env={"PYTHONPATH": str(Path(__file__).parents[2] / "layers" / "thunderagent" / "python")},
    )
    assert json.loads(answer.stdout) == []
    assert {Done.__name__, Fail.__name__, RetryLater.__name__} == {"Done", "Fail", "RetryLater"}
