"""What IAM policies allow, reckoned as IAM does it, and paths to try them on."""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping
from typing import Any

from infra.routes import Route


def sample_path(route: Route, text: str = "some-1") -> str:
    """The path of a call of this route, `text` in place of each placeholder."""
    return re.sub(r"{[^}]*}", text, route.path)


def allows(documents: Iterable[Mapping[str, Any]], resource: str) -> bool:
    """Whether identity policies allow execute-api:Invoke: some statement allows it, and none denies it."""
    effects = {
        statement["Effect"]
        for document in documents
        for statement in document["Statement"]
        if statement["Action"] == "execute-api:Invoke"
        for pattern in statement["Resource"]
        if re.fullmatch(".*".join(map(re.escape, pattern.split("*"))), resource)
    }
    return effects == {"Allow"}
