"""The calls of the HTTP API, as routes of the gateway. CDK is not imported."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True, order=True)
class Route:
    """One call: a method and a path template, spelled alike in OpenAPI and in API Gateway."""

    path: str
    method: str

    @property
    def key(self) -> str:
        """As the function sees it in `routeKey`."""
        return f"{self.method} {self.path}"


def routes() -> tuple[Route, ...]:
    """Every call of the contract, in order of path and method."""
    return tuple(sorted(Route(path=path, method=method) for path, methods in _CALLS.items() for method in methods))


_CALLS = {
    "/tasks": ("GET", "POST"),
    "/tasks/batch": ("POST",),
    "/tasks/{taskId}": ("GET", "DELETE"),
    "/tasks/{taskId}/payload": ("GET",),
    "/tasks/{taskId}/result": ("GET",),
    "/tasks/{taskId}/why": ("GET",),
    "/tasks/{taskId}/cancel": ("POST",),
    "/tasks/{taskId}/redrive": ("POST",),
    "/tasks/{taskId}/ack": ("POST",),
    "/redrive": ("POST",),
    "/cancel": ("POST",),
    "/queues": ("GET",),
    "/queues/{queue}": ("GET", "PUT"),
    "/stats": ("GET",),
    "/schedules": ("GET",),
    "/schedules/{name}": ("GET", "PUT", "DELETE"),
    "/schedules/{name}/run": ("POST",),
    "/health": ("GET",),
    "/openapi.json": ("GET",),
}
