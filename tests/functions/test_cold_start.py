"""What a cold start pays for, by the modules it imports: with the handler, and with the first call.

Times depend on the machine; imports do not. `python -m bench.cold_start` reports the times.
"""

from __future__ import annotations

import json
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from bench import cold_start
from bench.claim_path import instant_dynamodb

FUNCTIONS = tuple(cold_start.EVENTS)
SDK = frozenset({"boto3", "botocore", "urllib3", "s3transfer", "jmespath", "dateutil"})
NEVER = frozenset(
    {
        "pydantic",
        "aws_xray_sdk",
        "aws_lambda_powertools",
        "boto3",
        "jsonschema",
        "fastjsonschema",
        "asyncio",
        "difflib",
        "http.client",
        "unittest",
    }
)
# KiB of the library's source, with the handler and after the first call. Lambda compiles it at every cold start, and
# that, not the number of files it is cut into, takes the time: before one of these figures is raised, see whether the
# new import is needed by that call.
OWN_KIB = {
    "api": (342, 364),
    "poller": (182, 341),
    "executor": (308, 327),
    "reaper": (248, 366),
    "recorder": (271, 291),
}
OTHER_MODULES = 170  # Python's own and the handler's, after the first call over the direct transport
PROBE = cold_start.PROBE.replace('"answer": answer', '"answer": answer, "before": before, "after": list(sys.modules)')
PROBE = PROBE.replace("answer = module", "before = list(sys.modules)\nanswer = module")


@pytest.fixture(scope="module")
def imported() -> Iterator[dict[str, dict[str, set[str]]]]:
    """By function: the modules after its import and after its first call, as a deployed one has them."""
    with cold_start.sources() as directory, instant_dynamodb() as url:
        environ = cold_start.environment(directory, url, "auto")
        running = {
            name: subprocess.Popen(
                [sys.executable, "-S", "-c", PROBE, name, json.dumps(event)],
                env=environ,
                stdout=subprocess.DEVNULL,
                stderr=subprocess.PIPE,
                text=True,
            )
            for name, event in cold_start.EVENTS.items()
        }
        found: dict[str, dict[str, set[str]]] = {}
        for name, process in running.items():
            told = process.communicate(timeout=60)[1]
            assert process.returncode == 0, told
            figures: dict[str, Any] = json.loads(told.splitlines()[-1])
            cold_start.check(name, figures["answer"])
            found[name] = {"before": set(figures["before"]), "after": set(figures["after"])}
        yield found


def own(modules: set[str]) -> dict[str, int]:
    """The library's among them, and how many bytes the source of each has."""
    names = sorted(name for name in modules if name.partition(".")[0] == "thunderagent")
    return {name: source(cold_start.LIBRARY.joinpath(*name.split("."))).stat().st_size for name in names}


def source(module: Path) -> Path:
    return module / "__init__.py" if module.is_dir() else module.with_suffix(".py")


def roots(modules: set[str]) -> set[str]:
    return modules | {name.partition(".")[0] for name in modules}


@pytest.mark.parametrize("name", FUNCTIONS)
def test_no_function_imports_the_sdk_with_its_handler(name: str, imported: dict[str, Any]) -> None:
    assert not roots(imported[name]["before"]) & SDK


@pytest.mark.parametrize("name", ["api", "poller", "executor", "reaper"])
def test_the_first_call_needs_no_sdk(name: str, imported: dict[str, Any]) -> None:
    """A submit, a sweep with its invokes, a batch that runs and commits, a minute's upkeep."""
    assert not roots(imported[name]["after"]) & SDK


def test_what_is_told_to_eventbridge_goes_through_the_sdk(imported: dict[str, Any]) -> None:
    """The probe sees it where it is."""
    assert "botocore" in imported["recorder"]["after"]
    assert "boto3" not in imported["recorder"]["after"]


@pytest.mark.parametrize("name", FUNCTIONS)
def test_frameworks_are_never_imported(name: str, imported: dict[str, Any]) -> None:
    allowed = {"http.client", "unittest"} if name == "recorder" else set()  # botocore's
    assert not roots(imported[name]["after"]) & (NEVER - allowed)


@pytest.mark.parametrize("name", FUNCTIONS)
def test_the_library_is_imported_in_parts(name: str, imported: dict[str, Any]) -> None:
    for when, most in zip(("before", "after"), OWN_KIB[name], strict=True):
        compiled = own(imported[name][when])
        assert sum(compiled.values()) <= most * 1024, compiled


@pytest.mark.parametrize("name", ["api", "poller", "executor", "reaper"])
def test_a_first_call_stays_within_its_modules(name: str, imported: dict[str, Any]) -> None:
    others = imported[name]["after"] - own(imported[name]["after"]).keys()
    assert len(others) <= OTHER_MODULES, others


def test_what_a_minute_without_schedules_needs_leaves_out_the_calendar(imported: dict[str, Any]) -> None:
    assert not imported["poller"]["after"] & {"cronsim", "zoneinfo", "thunderagent.timetable", "thunderagent.intake"}
    assert "thunderagent.schedules" in imported["poller"]["after"]
