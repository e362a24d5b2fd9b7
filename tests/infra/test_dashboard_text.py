"""Names of queues and types stand in titles and labels of the dashboard, where CloudWatch knows markup of its own:
`${…}` in a label is an expression, text widgets are Markdown. No name can hold either."""

from __future__ import annotations

import json
import re
from typing import Any

import pytest

from infra.config import ConfigError, load_config
from tests.infra.templates import Synthesised, properties, readable
from thunderagent import task
from thunderagent.errors import ConfigurationError

HOSTILE = [
    "${PROP('Dim.Queue')}",
    "${LABEL}",
    "[a](javascript:x)",
    "# a",
    "a\nb",
    'a"b',
    "a\\",
    "<b>",
    "a b",
    "a|b",
    "é",
]


@pytest.mark.parametrize("name", HOSTILE)
def test_no_such_name_is_declared(name: str) -> None:
    with pytest.raises(ConfigurationError):
        task(name)(lambda payload, ctx: None)
    for executors in ({"a": {"queues": [name]}}, {name: {}}):
        with pytest.raises(ConfigError):
            load_config({"environments": {"dev": {"executors": executors}}}, "dev")


def test_titles_and_labels_are_plain(prod: Synthesised) -> None:
    (dashboard,) = properties(prod.service, "AWS::CloudWatch::Dashboard")
    widgets = json.loads(readable(dashboard["DashboardBody"]))["widgets"]
    shown = [each["properties"]["title"] for each in widgets if "title" in each["properties"]]
    shown += [label for each in widgets for label in labels(each["properties"].get("metrics", []))]
    assert "demo.echo" in shown
    assert "default: flow" in shown
    assert not [text for text in shown if not re.fullmatch(r"[A-Za-z0-9 ._:;,()-]+", text)]


def labels(rows: list[list[Any]]) -> list[str]:
    return [each["label"] for row in rows for each in row if isinstance(each, dict) and "label" in each]
