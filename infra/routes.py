"""The calls of the HTTP API, as routes of the gateway. CDK is not imported."""

from __future__ import annotations

import json
from dataclasses import dataclass
from pathlib import Path

METHODS = ("get", "put", "post", "delete", "patch", "head", "options")


@dataclass(frozen=True, order=True)
class Route:
    """One call: a path template, spelled alike in OpenAPI and in API Gateway, and a method in capitals."""

    path: str
    method: str


def read_routes(openapi: Path) -> tuple[Route, ...]:
    """Every call of an OpenAPI document, in order of path and method: the function serves exactly these."""
    paths: dict[str, dict[str, object]] = json.loads(openapi.read_text())["paths"]
    return tuple(
        sorted(
            Route(path=path, method=method.upper())
            for path, calls in paths.items()
            for method in calls
            if method in METHODS
        )
    )
