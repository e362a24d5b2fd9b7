"""From a request to a page and back: what was asked, one place for failures, and the way on after an action."""

from __future__ import annotations

import sys
import traceback
from collections.abc import Awaitable, Callable, Mapping
from dataclasses import dataclass
from typing import Any

from starlette.concurrency import run_in_threadpool
from starlette.requests import Request
from starlette.responses import RedirectResponse, Response

from thunder.cli.explain import explained
from thunder.console.forms import FieldError, Fields
from thunder.console.gate import FORM
from thunder.console.site import Console, Notice
from thunderagent.signed_http import ApiError, Unreachable


@dataclass(frozen=True)
class Asked:
    """One request, without the web in it. `form` is empty but for a POST that the gate has let through."""

    console: Console
    path: Mapping[str, str]
    query: Fields
    form: Fields
    is_post: bool
    is_part: bool
    """A part of a page, fetched by it."""
    address: str
    """Path and query, as the browser has it; for a part, of the page it stands in."""

    def page(self, template: str, *, status: int = 200, **values: Any) -> Response:
        """A page of its own, or the same without the frame when a page fetched it."""
        notice = self.console.notices.find(self.query.text("notice"))
        return self.console.renderer.page(
            template,
            status=status,
            frame="part.html" if self.is_part else "layout.html",
            here=self.address,
            path=self.address.partition("?")[0],
            notice=notice,
            jobs=self.console.jobs.under_way(),
            **values,
        )


Handler = Callable[[Asked], Response]


def endpoint(console: Console, handler: Handler) -> Callable[[Request], Awaitable[Response]]:
    """The handler as Starlette calls it, in a thread: the client of the API waits for its answers."""

    async def answer(request: Request) -> Response:
        return await run_in_threadpool(_guarded, handler, _asked(console, request))

    return answer


def _asked(console: Console, request: Request) -> Asked:
    query = Fields({name: request.query_params.getlist(name) for name in request.query_params})
    address = request.url.path + (f"?{request.url.query}" if request.url.query else "")
    is_part = request.headers.get("hx-request") == "true"
    return Asked(
        console=console,
        path={name: str(value) for name, value in request.path_params.items()},
        query=query,
        form=request.scope.get(FORM, Fields()),
        is_post=request.method == "POST",
        is_part=is_part,
        address=_page_of(request, address) if is_part else address,
    )


def _page_of(request: Request, address: str) -> str:
    """htmx tells the address of the page that fetches; only its path and query count."""
    from urllib.parse import urlsplit

    page = urlsplit(request.headers.get("hx-current-url", ""))
    path = own_path(page.path, address)
    return path + (f"?{page.query}" if page.query else "")


def _guarded(handler: Handler, asked: Asked) -> Response:
    try:
        return handler(asked)
    except FieldError as error:
        return failed(asked, 422, "This cannot be", error.message)
    except Exception as error:  # noqa: BLE001  one place for whatever goes wrong below: a page, never half of one
        return _failure(asked, error)


def _failure(asked: Asked, error: Exception) -> Response:
    """What the command line would say of it, as a page."""
    known = explained(error)
    if known is None:
        traceback.print_exception(error, file=sys.stderr)
        text = f"{type(error).__name__}: a defect of the console. The terminal it runs in shows where."
        return failed(asked, 500, "Something is broken here", text)
    status, title = 502, "AWS refused"
    if isinstance(error, ApiError):
        status, title = (error.status or 502), "The API refused"
        title = {404: "There is no such thing", 409: "Its state does not allow it"}.get(error.status, title)
    if isinstance(error, Unreachable):
        title = "The API does not answer"
    return failed(asked, status, title, known.message)


def failed(asked: Asked, status: int, title: str, text: str) -> Response:
    lines = text.split("\n")
    return asked.page("failed.html", status=status, title=title, lines=lines, can_retry=not asked.is_post)


def own_path(address: str, fallback: str) -> str:
    """The address if it leads nowhere but to ourselves."""
    is_own = address.startswith("/") and not address.startswith(("//", "/\\")) and "\n" not in address
    return address if is_own and "\\" not in address else fallback


def on_to(asked: Asked, address: str, notice: Notice | None = None) -> Response:
    """Go on to a page of ours, with a notice there. 303: whatever was posted is not posted again by going back."""
    path = own_path(address, "/")
    if notice is not None:
        path, _, query = path.partition("?")
        kept = "&".join(each for each in query.split("&") if each and not each.startswith("notice="))
        number = asked.console.notices.keep(notice)
        path = f"{path}?{kept}&notice={number}" if kept else f"{path}?notice={number}"
    return RedirectResponse(path, 303)
