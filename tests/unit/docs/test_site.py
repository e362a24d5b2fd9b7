"""The documentation's site: built strictly, without a network; calculator and reference say what the code says."""

from __future__ import annotations

import json
import re
import subprocess
import sys
from importlib.resources import files
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

import pytest
import yaml

from docsite.diagrams import DRAWINGS, IMAGES
from docsite.reference import page
from tests.support.documented import ROOT
from thunder.local.checkout import Checkout
from thunderagent.cost import Usage, load_prices

OPENAPI = json.loads(files("thunderagent").joinpath("openapi.json").read_text("utf-8"))
PRICES = files("thunderagent").joinpath("prices.json").read_text("utf-8")
OTHER_PAGES = re.compile(r"<(?:script|link|img|iframe|source)\b[^>]*?\b(?:src|href)=[\"']?(https?:)?//", re.IGNORECASE)


@pytest.fixture(scope="module")
def site(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Built as `make docs` does, with a network that leads nowhere."""
    directory = tmp_path_factory.mktemp("site")
    nowhere = {"http_proxy": "http://127.0.0.1:9", "https_proxy": "http://127.0.0.1:9", "NO_MKDOCS_2_WARNING": "1"}
    done = subprocess.run(
        [sys.executable, "-m", "mkdocs", "build", "--quiet", "--strict", "--site-dir", str(directory)],
        cwd=ROOT, env={"PATH": "/usr/bin:/bin", **nowhere}, capture_output=True, text=True, check=False,
    )  # fmt: skip
    assert done.returncode == 0, done.stderr
    return directory


def test_every_page_of_the_menu_is_built(site: Path) -> None:
    menu = yaml.safe_load((ROOT / "mkdocs.yml").read_text())["nav"]
    named = re.findall(r"[\w/-]+\.md", json.dumps(menu))
    built = {path.relative_to(site).as_posix() for path in site.rglob("*.html")}
    assert {name.replace("README.md", "index.md").replace(".md", ".html") for name in named} <= built


def test_nothing_is_loaded_from_elsewhere(site: Path) -> None:
    loading = [path.name for path in site.rglob("*.html") if OTHER_PAGES.search(path.read_text())]
    assert [name for name in loading if name != "404.html"] == []
    assert not [path for path in site.rglob("*.css") if re.search(r"url\([\"']?https?:", path.read_text())]


def test_the_calculator_has_the_prices_of_the_library(site: Path) -> None:
    text = (site / "calculator.html").read_text()
    found = re.search(r'<script id="prices" type="application/json">(.*?)</script>', text, re.DOTALL)
    assert found
    assert json.loads(found.group(1)) == json.loads(PRICES)


@pytest.mark.parametrize(
    "task",
    [
        {"writeUnits": 5.6, "readUnits": 2, "milliseconds": 200, "memoryMib": 512, "tasksPerBatch": 10,
         "tasksPerRequest": 1, "eventsPerTask": 1},
        {"writeUnits": 11, "readUnits": 3.5, "milliseconds": 90_000, "memoryMib": 2048, "tasksPerBatch": 1,
         "tasksPerRequest": 500, "eventsPerTask": 0},
    ],
)  # fmt: skip
def test_the_calculator_says_what_the_library_says(task: dict[str, Any]) -> None:
    script = ROOT / "docs" / "javascripts" / "calculator.js"
    program = (
        f"const {{costOfMillion}} = require({json.dumps(str(script))});"
        f"console.log(JSON.stringify(costOfMillion({json.dumps(task)}, {PRICES}.prices)))"
    )
    node = Checkout.of_this_installation().node
    said = json.loads(subprocess.run([str(node), "-e", program], capture_output=True, text=True, check=True).stdout)
    million = 1_000_000
    usage = Usage(
        tasks=million,
        write_units=million * task["writeUnits"],
        read_units=million * task["readUnits"],
        mib_milliseconds=million * task["milliseconds"] * task["memoryMib"],
        invocations=million / task["tasksPerBatch"],
        api_requests=million / task["tasksPerRequest"],
        events=million * task["eventsPerTask"],
    )
    assert said == pytest.approx({**usage.dollars(load_prices()), "total": usage.total(load_prices())})


def test_the_reference_has_every_call_and_every_schema() -> None:
    text = page(OPENAPI)
    for path, item in OPENAPI["paths"].items():
        for method in item.keys() & {"get", "put", "post", "delete"}:
            assert f"## {method.upper()} {path}\n" in text
    for name in OPENAPI["components"]["schemas"]:
        assert f"### {name}\n" in text
    linked = set(re.findall(r"\]\(#([\w-]+)\)", text))
    assert linked <= {name.lower() for name in OPENAPI["components"]["schemas"]}


@pytest.mark.parametrize("name", DRAWINGS)
def test_a_drawing_is_what_the_code_draws(name: str) -> None:
    """`python -m docsite.diagrams` after a change of the states."""
    drawn = DRAWINGS[name]()
    assert (IMAGES / f"{name}.svg").read_text() == drawn
    assert "prefers-color-scheme: dark".replace(": ", ":") in drawn


def test_every_source_of_the_comparison_is_an_address() -> None:
    text = (ROOT / "docs" / "comparison.md").read_text()
    addresses = re.findall(r"\]\((https[^)]+)\)", text)
    assert len(addresses) >= 8
    assert all(urlsplit(address).netloc for address in addresses)
