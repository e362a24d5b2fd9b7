"""The calls of the HTTP API, as routes of the gateway and as what IAM policies say of them. CDK is not imported."""

from __future__ import annotations

import json
import re
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from pathlib import Path

METHODS = ("get", "put", "post", "delete", "patch", "head", "options")

SUBMIT = "thunder/submit"
READ = "thunder/read"
READ_PAYLOAD = "thunder/read-payload"
OPERATE = "thunder/operate"

SCOPES_OF_ROLE = {
    "submitter": (SUBMIT,),
    "viewer": (READ,),
    # Who redrives or erases a task has to see what is in it.
    "operator": (READ, READ_PAYLOAD, OPERATE),
}


@dataclass(frozen=True, order=True)
class Route:
    """One call: a path template, spelled alike in OpenAPI and in API Gateway, and a method in capitals.

    Any one of its scopes allows it.
    """

    path: str
    method: str
    scopes: tuple[str, ...] = field(default=(), compare=False)

    @property
    def iam_resource(self) -> str:
        """Method and path as in an execute-api ARN, `*` for each placeholder and for nothing else.

        CDK's own `grant_invoke` ends the path at its first placeholder: `POST/tasks/*` for a cancel, which is every
        redrive, every ack and `POST /tasks/batch`, too.
        """
        return f"{self.method}{re.sub(r'{[^}]*}', '*', self.path)}"


@dataclass(frozen=True)
class Access:
    """What a policy says of the API: resources allowed, and those of them that are not meant."""

    allowed: tuple[str, ...]
    denied: tuple[str, ...]


def read_routes(openapi: Path) -> tuple[Route, ...]:
    """Every call of an OpenAPI document, in order of path and method: the function serves exactly these."""
    paths: dict[str, dict[str, dict[str, list[str]]]] = json.loads(openapi.read_text())["paths"]
    return tuple(
        sorted(
            Route(path=path, method=method.upper(), scopes=tuple(call["x-scopes"]))
            for path, calls in paths.items()
            for method, call in calls.items()
            if method in METHODS
        )
    )


def access_of(routes: Sequence[Route], scopes: Iterable[str]) -> Access:
    """The policy for the calls that any of these scopes allows, and for no other.

    IAM's `*` goes past slashes: `GET/tasks/*`, one task, is also its payload and its result. Such calls are denied.
    """
    wanted = [route for route in routes if set(scopes) & set(route.scopes)]
    others = [route for route in routes if route not in wanted]
    allowed = tuple(route.iam_resource for route in wanted)
    denied = tuple(other.iam_resource for other in others if any(iam_match(pattern, other) for pattern in allowed))
    return Access(allowed, denied)


def iam_match(pattern: str, route: Route) -> bool:
    """Whether an IAM resource pattern covers calls of this route. Placeholders stand for a text without slashes."""
    expression = ".*".join(re.escape(part) for part in pattern.split("*"))
    return re.fullmatch(expression, route.iam_resource.replace("*", "x")) is not None
