"""The unit and the container file of docs/agent start an agent that there is, and give it time to stop."""

from __future__ import annotations

import json
import re
import shlex
from pathlib import Path

import click
import pytest

from thunder.cli.agent import agent
from thunderagent.runner import LAST_SECONDS

DOCS = Path(__file__).parents[3] / "docs"
UNIT = (DOCS / "agent" / "thunder-agent@.service").read_text()
CONTAINER = (DOCS / "agent" / "Containerfile").read_text()


def unit_command() -> list[str]:
    (line,) = re.findall(r"^ExecStart=(.*)$", UNIT, re.MULTILINE)
    return shlex.split(line.replace("${GRACE_SECONDS}", "300").replace("${PROFILE_NAME}", "long"))


def container_command() -> list[str]:
    parts = [re.findall(rf"^{name} (\[.*\])$", CONTAINER, re.MULTILINE)[0] for name in ("ENTRYPOINT", "CMD")]
    return [word for part in parts for word in json.loads(part)]


@pytest.mark.parametrize("command", [unit_command(), container_command()], ids=["unit", "container"])
def test_its_options_are_the_commands(command: list[str]) -> None:
    assert (Path(command[0]).name, command[1]) == ("thunder", "agent")
    known = {name for param in agent.params if isinstance(param, click.Option) for name in param.opts}
    assert {word for word in command if word.startswith("--")} <= known


def test_the_unit_waits_longer_than_the_grace_before_it_kills() -> None:
    (grace,) = re.findall(r"^Environment=GRACE_SECONDS=(\d+)$", UNIT, re.MULTILINE)
    (patience,) = re.findall(r"^TimeoutStopSec=(\d+)$", UNIT, re.MULTILINE)
    assert int(patience) >= int(grace) + LAST_SECONDS + 15


def test_what_the_container_copies_is_there() -> None:
    for line in re.findall(r"^COPY (.*)$", CONTAINER, re.MULTILINE):
        for source in line.split()[:-1]:
            assert (DOCS.parent / source).exists(), source


def test_the_page_names_the_options_there_are() -> None:
    page = (DOCS / "agent.md").read_text()
    known = {name for param in agent.params if isinstance(param, click.Option) for name in param.opts}
    named = set(re.findall(r"(?<![\w-])--[a-z][a-z-]*", page)) - {"--tasks", "--agents"}
    assert named <= known
