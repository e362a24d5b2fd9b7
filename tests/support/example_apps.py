"""The CDK apps of `examples/apps`, as modules."""

from __future__ import annotations

import importlib.util
from typing import Any

from infra.config import ROOT

EXAMPLES = ROOT / "examples" / "apps"


def example(name: str) -> Any:
    """The module app.py of an example."""
    spec = importlib.util.spec_from_file_location(f"example_{name}", EXAMPLES / name / "app.py")
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module
