"""The console's addresses, and the application they make."""

from __future__ import annotations

from collections.abc import Awaitable, Callable

from starlette.applications import Starlette
from starlette.exceptions import HTTPException
from starlette.requests import Request
from starlette.responses import Response
from starlette.routing import Mount, Route
from starlette.staticfiles import StaticFiles
from starlette.types import ASGIApp

from thunder.console import (
    alarms,
    bulk,
    dashboards,
    dead_letters,
    overview,
    queues,
    schedules,
    single,
    submission,
    task_page,
    tasks,
)
from thunder.console.gate import COOKIE, Gate, Refusal
from thunder.console.keys import Keys
from thunder.console.rendering import HERE, Renderer
from thunder.console.routing import Handler, endpoint
from thunder.console.site import Console

GET, BOTH, POST = ["GET"], ["GET", "POST"], ["POST"]
PAGES: tuple[tuple[str, list[str], Handler], ...] = (
    ("/", GET, overview.page),
    ("/part/overview", GET, overview.figures),
    ("/part/overview/charts", GET, overview.charts),
    ("/tasks", GET, tasks.page),
    ("/part/tasks", GET, tasks.rows),
    ("/part/tasks/tabs", GET, tasks.tabs),
    ("/find", GET, tasks.find),
    ("/task/{id}", GET, task_page.page),
    ("/part/task/{id}", GET, task_page.state),
    ("/part/task/{id}/logs", GET, task_page.logs),
    ("/part/task/{id}/graph", GET, task_page.graph),
    ("/task/{id}/payload", GET, task_page.payload),
    ("/task/{id}/result", GET, task_page.result),
    ("/act/{action}", BOTH, single.act),
    ("/all/{action}", BOTH, bulk.act),
    ("/job/{id}", GET, bulk.job_page),
    ("/part/job/{id}", GET, bulk.job_state),
    ("/job/{id}/{order}", POST, bulk.order),
    ("/dead-letters", GET, dead_letters.page),
    ("/part/dead-letters", GET, dead_letters.groups),
    ("/queues", GET, queues.page),
    ("/part/queues", GET, queues.rows),
    ("/queue/{name}", BOTH, queues.settings),
    ("/queue/{name}/{order}", BOTH, queues.order),
    ("/schedules", GET, schedules.page),
    ("/part/schedules", GET, schedules.rows),
    ("/schedule", BOTH, schedules.edit),
    ("/schedule/{name}", BOTH, schedules.edit),
    ("/schedule/{name}/{order}", BOTH, schedules.order),
    ("/dashboards", GET, dashboards.page),
    ("/part/dashboards", GET, dashboards.widgets),
    ("/alarms", GET, alarms.page),
    ("/part/alarms", GET, alarms.rows),
    ("/submit", BOTH, submission.page),
)


def application(console: Console, keys: Keys, *, port: int) -> ASGIApp:
    """The whole console behind its gate, for the names it is called by on this port."""
    console.renderer = Renderer(console.place, csrf=keys.csrf, read_only=console.read_only, now=console.now)
    routes = [Route(path, endpoint(console, handler), methods=methods) for path, methods, handler in PAGES]
    app = Starlette(
        routes=[*routes, Mount("/static", StaticFiles(directory=HERE / "static"))],
        exception_handlers={HTTPException: _not_a_page(console)},
    )
    app.router.redirect_slashes = False

    def refuse(refusal: Refusal) -> Response:
        return console.renderer.page("refused.html", status=refusal.status, refusal=refusal)

    def welcome(path: str) -> Response:
        return console.renderer.page("welcome.html", path=path)

    names = frozenset({f"127.0.0.1:{port}", f"localhost:{port}"})
    return Gate(
        app,
        keys=keys,
        hosts=names,
        cookie=COOKIE.format(port),
        read_only=console.read_only,
        refuse=refuse,
        welcome=welcome,
    )


def _not_a_page(console: Console) -> Callable[[Request, Exception], Awaitable[Response]]:
    async def answer(request: Request, error: Exception) -> Response:
        status = error.status_code if isinstance(error, HTTPException) else 500
        text = "The console has no such page." if status == 404 else "This address does not take that."
        refusal = Refusal(status, "There is nothing here", text)
        return console.renderer.page("refused.html", status=status, refusal=refusal)

    return answer
