"""docs/environments.md and docs/construct.md: every key and every prop, with its default."""

from __future__ import annotations

import inspect
import re
from collections.abc import Iterator, Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any

from infra.config import Cors, Encryption, EnvironmentConfig, JwtAuth, Network
from infra.context_form import as_section, check_config
from infra.environment import AccessRole
from infra.node import prefer_bundled_node

DOCS = Path(__file__).resolve().parents[3] / "docs"
ENVIRONMENTS = (DOCS / "environments.md").read_text()
CONSTRUCT = (DOCS / "construct.md").read_text()
SECTIONS = ("cors", "vpc")
NAMED_BY_USERS = ("executors", "functions", "queues", "roles", "tags")

WHOLE = EnvironmentConfig(
    instance="ThunderAgent",
    environment="prod",
    encryption=Encryption(key_arn="arn:aws:kms:eu-central-1:111122223333:key/0"),
    network=Network(vpc_id="vpc-0a", subnet_ids=("subnet-0a",)),
    cors=Cors(allow_origins=("https://a.example",)),
    roles=(AccessRole(name="viewer"),),
    queue_limits={"default": {"maxConcurrency": 1, "ratePerSecond": 1, "burst": 1, "maxBacklog": 1}},
    tags={"team": "shop"},
)


def keys_of(section: Mapping[str, Any], path: str = "") -> Iterator[str]:
    for key, value in section.items():
        name = f"{path}{'*' if path.rstrip('.') in NAMED_BY_USERS else key}"
        if isinstance(value, Mapping):
            yield from keys_of(value, f"{name}.")
        elif name not in SECTIONS:
            yield name


def test_every_key_of_an_environment_has_its_line() -> None:
    with_tokens = EnvironmentConfig(instance="x", environment="prod", jwt=JwtAuth(issuer="https://a", audience=("a",)))
    keys = {*keys_of(as_section(WHOLE)), *keys_of(as_section(with_tokens)), "alarmEmail"}
    documented = set(re.findall(r"^\| `([A-Za-z.*]+)` \|", ENVIRONMENTS, re.MULTILINE))
    assert documented == keys


def test_what_is_written_down_is_read_again() -> None:
    check_config(WHOLE)


def test_defaults_are_those_of_the_code() -> None:
    section = as_section(replace(EnvironmentConfig(instance="x", environment="prod"), cors=WHOLE.cors))
    for name, default in re.findall(r"^\| `([A-Za-z.]+)` \| `?([\d.]+|true|false)`? \|", ENVIRONMENTS, re.MULTILINE):
        value: Any = section
        for part in name.split("."):
            value = value[part]
        assert str(value).lower() == default, name
    executor = section["executors"]["default"]
    for name, default in re.findall(r"^\| `executors\.\*\.(\w+)` \| (\d+) \|", ENVIRONMENTS, re.MULTILINE):
        assert str(executor[name]) == default, name


def test_every_prop_of_the_construct_has_its_line() -> None:
    prefer_bundled_node()
    from thunderagent.cdk import ThunderAgent

    parameters = inspect.signature(ThunderAgent.__init__).parameters
    props = {name: each for name, each in parameters.items() if each.kind is inspect.Parameter.KEYWORD_ONLY}
    lines = dict(re.findall(r"^\| `(\w+)` \| `.*?` \| `?(.*?)`? \| .*\|$", CONSTRUCT, re.MULTILINE))
    assert list(lines) == list(props)
    for name, prop in props.items():
        if isinstance(prop.default, str):
            assert lines[name] == f'"{prop.default}"'
        elif isinstance(prop.default, int | float):
            assert lines[name] == str(prop.default)


def test_every_argument_of_its_methods_is_named() -> None:
    from thunderagent.cdk import ThunderAgent

    for method in (ThunderAgent.add_executor, ThunderAgent.add_queue):
        for name in inspect.signature(method).parameters:
            assert name in ("self", "name") or f"`{name}`" in CONSTRUCT or f"{name}=" in CONSTRUCT, name
