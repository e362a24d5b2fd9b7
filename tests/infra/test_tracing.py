"""X-Ray is there for those who ask for it; nobody else pays for it."""

from __future__ import annotations

import json
from pathlib import Path

from infra.assets import Project
from infra.config import ROOT
from tests.infra.templates import Synthesise, Synthesised, functions

TRACED = {"environments": {"prod": {"tracing": True}}}


def test_without_being_asked_for_nothing_is_traced(synthesised: Synthesised) -> None:
    assert "xray" not in json.dumps(synthesised.service).lower()


def test_active_tracing_is_a_setting_for_every_function(synthesise: Synthesise) -> None:
    traced = synthesise("prod", TRACED)
    found = functions(traced.service)
    assert all(function["TracingConfig"] == {"Mode": "Active"} for function in found.values())
    assert json.dumps(traced.service).count("xray:PutTraceSegments") == len(found)


def test_tracing_leaves_no_finding_without_a_reason(project: Project, tmp_path: Path) -> None:
    from aws_cdk import App

    from infra.application import build, check
    from infra.config import load_config, read_context

    context = {**read_context(), **TRACED}
    app = App(context=context, outdir=str(tmp_path))
    build(app, load_config(context, "prod"), project)
    check(app)
    app.synth()


def test_no_tracing_sdk_is_imported_by_what_runs_in_the_functions() -> None:
    """It costs 0.4 s of every cold start; the trace context travels without it."""
    for path in [*(ROOT / "layers").rglob("*.py"), *(ROOT / "functions").rglob("*.py")]:
        text = path.read_text()
        assert "aws_xray_sdk" not in text, path
        assert "opentelemetry" not in text, path
        assert "Tracer" not in text, path
