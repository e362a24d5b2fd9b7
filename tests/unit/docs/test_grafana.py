"""The Grafana dashboards ask for what is there."""

from __future__ import annotations

import json
import re
from collections.abc import Iterator
from typing import Any

import pytest

from infra.config import ROOT
from thunder.exporter import Exporter, Totals
from thunderagent.metrics import METRICS, NAMESPACE

GRAFANA = ROOT / "docs" / "grafana"
FUNCTIONS = {"sum", "rate", "increase", "min", "by", "label_values"}


class NoCloudWatch:
    def get_paginator(self, operation: str) -> Any:
        return type("Paginator", (), {"paginate": lambda _, **arguments: [{"Metrics": [], "MetricDataResults": []}]})()


def dashboard(name: str) -> dict[str, Any]:
    found: dict[str, Any] = json.loads((GRAFANA / f"{name}.json").read_text())
    return found


def targets(name: str) -> Iterator[dict[str, Any]]:
    for panel in dashboard(name)["panels"]:
        yield from panel.get("targets", [])


def served() -> set[str]:
    """The names `thunder metrics serve` has, as Prometheus stores them."""
    families = Exporter(Totals(NoCloudWatch(), "S"), interval_seconds=60, say=print).collect()
    return {f"{family.name}_total" if family.type == "counter" else family.name for family in families}


def test_the_prometheus_dashboard_asks_for_all_that_is_served_and_nothing_else() -> None:
    asked = set()
    for target in targets("prometheus"):
        expression = re.sub(r"\{[^}]*\}|\[[^\]]*\]|\([a-z, ]+\)", " ", target["expr"])
        asked |= set(re.findall(r"[a-z][a-z_]+", expression)) - FUNCTIONS
    assert asked == served()
    assert served() >= {"tasks_processed_total", "tasks_failed_total", "task_queue_length"}


def test_the_page_on_prometheus_names_what_is_served() -> None:
    page = (ROOT / "docs" / "prometheus.md").read_text()
    assert set(re.findall(r"^\| `(\w+)` \|", page, flags=re.MULTILINE)) == served()


def test_the_cloudwatch_dashboard_asks_for_every_metric_by_the_dimensions_it_has() -> None:
    asked = set()
    for target in targets("cloudwatch"):
        assert target["namespace"] == NAMESPACE
        name, dimensions = target["metricName"], tuple(target["dimensions"])
        assert dimensions in METRICS[name].dimension_sets, (name, dimensions)
        assert target["matchExact"] is True
        asked.add(name)
    assert asked == set(METRICS)


@pytest.mark.parametrize("name", ["prometheus", "cloudwatch"])
def test_a_dashboard_can_be_imported_as_it_is(name: str) -> None:
    found = dashboard(name)
    assert "id" not in found, "an id of one installation is wrong in the next"
    panels = found["panels"]
    assert len({panel["id"] for panel in panels}) == len(panels)
    assert [panel["title"] for panel in panels if panel["type"] == "row"][:3] == [
        "Is it healthy?", "Is it keeping up?", "What fails?",
    ]  # fmt: skip
    for panel in panels:
        place = panel["gridPos"]
        assert place["x"] + place["w"] <= 24
    variables = {variable["name"] for variable in found["templating"]["list"]}
    assert set(re.findall(r"\$\{?([a-z]+)\}?", json.dumps(panels))) <= variables
    assert {"datasource", "service"} <= variables
