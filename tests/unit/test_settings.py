"""What the environment may say, and that everything else is refused with the variable's name."""

from __future__ import annotations

import json
from dataclasses import fields

import pytest

from thunderagent.errors import ConfigurationError
from thunderagent.settings import ENVIRONMENT_NAMES, Executor, Settings, load_settings

ENVIRON = {"TABLE_NAME": "tasks"}
PROFILE = {"function": "f", "timeoutSeconds": 600, "threads": 4, "maxInFlight": 0, "leaseSeconds": 90}


def test_the_table_is_all_that_is_needed() -> None:
    assert load_settings(ENVIRON) == Settings(table_name="tasks")


@pytest.mark.parametrize("environ", [{}, {"TABLE_NAME": ""}])
def test_without_a_table_nothing_starts(environ: dict[str, str]) -> None:
    with pytest.raises(ConfigurationError, match="TABLE_NAME"):
        load_settings(environ)


def test_an_empty_variable_is_one_that_is_not_set() -> None:
    environ = dict.fromkeys(ENVIRONMENT_NAMES.values(), "") | ENVIRON
    assert load_settings(environ) == Settings(table_name="tasks")


def test_every_field_has_its_variable() -> None:
    assert {field.name for field in fields(Settings)} - {"serves"} == set(ENVIRONMENT_NAMES)
    assert len(set(ENVIRONMENT_NAMES.values())) == len(ENVIRONMENT_NAMES)


def test_zero_is_a_value() -> None:
    settings = load_settings(
        ENVIRON | {"POLL_WINDOW_SECONDS": "0", "LEASE_GRACE_SECONDS": "0", "LIST_COMPLETED": "false"}
    )
    assert (settings.poll_window_seconds, settings.lease_grace_seconds, settings.list_completed) == (0, 0, False)


@pytest.mark.parametrize(
    ("name", "text"),
    [
        ("LEASE_SECONDS", "9.9"),
        ("LEASE_SECONDS", "five"),
        ("LEASE_GRACE_SECONDS", "-1"),
        ("POLL_BUSY_SECONDS", "nan"),
        ("POLL_IDLE_SECONDS", "inf"),
        ("POLL_BATCH_SIZE", "0"),
        ("DISPATCH_SHARDS", "0"),
        ("LIST_COMPLETED", "yes"),
    ],
)
def test_what_cannot_work_is_refused_by_name(name: str, text: str) -> None:
    with pytest.raises(ConfigurationError, match=name) as caught:
        load_settings(ENVIRON | {name: text})
    assert text in str(caught.value)


def test_executor_profiles_are_read() -> None:
    settings = load_settings(ENVIRON | {"EXECUTORS": json.dumps({"default": PROFILE, "big": {"function": "g"}})})
    assert settings.executors == {
        "default": Executor("default", "f", timeout_seconds=600, threads=4, max_in_flight=0, lease_seconds=90),
        "big": Executor("big", "g"),
    }


@pytest.mark.parametrize(
    "text",
    [
        "{",
        "[]",
        "5",
        '{"default":5}',
        '{"default":{}}',
        *[json.dumps({"default": PROFILE | damage}) for damage in ({"threads": 0}, {"timeoutSeconds": "x"})],
        *[json.dumps({"default": PROFILE | damage}) for damage in ({"leaseSeconds": 1}, {"maxInFlight": -1})],
    ],
)
def test_a_profile_that_cannot_work_is_refused(text: str) -> None:
    with pytest.raises(ConfigurationError, match="EXECUTORS"):
        load_settings(ENVIRON | {"EXECUTORS": text})
