"""Who gets in. In front of every page: the name it was called by, the run's cookie, and where a POST came from.

The console acts with an operator's credentials, and any page of the web may send a browser to 127.0.0.1. So:
- the Host must be ours, or a name that was rebound to 127.0.0.1 would be let in;
- the cookie proves that this browser has followed the address printed in the terminal;
- a POST must come from our own origin and carry a token that only our own pages hold;
- what is answered may be neither framed, nor cached, nor run anything that is not our own file.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from urllib.parse import urlencode

from starlette.datastructures import MutableHeaders
from starlette.requests import ClientDisconnect, Request
from starlette.responses import Response
from starlette.types import ASGIApp, Message, Receive, Scope, Send

from thunder.console.forms import FORM_BYTES, FieldError, Fields
from thunder.console.keys import Keys

FORM = "thunder.form"
"""Where in the scope an admitted POST's fields are."""
STATIC = "/static/"
COOKIE = "thunder_console_{}"
"""By port: browsers send the cookies of a host to all its ports, and a second console must not put out the first."""

POLICY = "; ".join(
    (
        "default-src 'none'",
        "script-src 'self'",
        "style-src 'self'",
        "img-src 'self'",
        "connect-src 'self'",
        "form-action 'self'",
        "base-uri 'none'",
        "frame-ancestors 'none'",
    )
)

HEADERS: Mapping[str, str] = {
    "content-security-policy": POLICY,
    "x-frame-options": "DENY",
    "x-content-type-options": "nosniff",
    "referrer-policy": "same-origin",  # with no-referrer, a form's Origin would be `null`
    "cross-origin-opener-policy": "same-origin",
    "cross-origin-resource-policy": "same-origin",
    "permissions-policy": "camera=(), geolocation=(), microphone=(), payment=(), usb=()",
    "cache-control": "no-store",
}


@dataclass(frozen=True)
class Refusal:
    """Why somebody is not let in, in words for the page."""

    status: int
    title: str
    text: str


UNKNOWN_HOST = Refusal(421, "Not this address", "The console answers only to the address printed in the terminal.")
SIGN_IN = Refusal(
    401,
    "Not signed in",
    "Open the address that `thunder console` printed, token included. Each run of the console has its own.",
)
BAD_TOKEN = Refusal(
    401,
    "This token is not valid",
    "It belongs to another run of the console, or was for one use. Take the printed address.",
)
FOREIGN = Refusal(403, "Not from this page", "The request did not come from a page of this console. Nothing was done.")
STALE = Refusal(
    403,
    "The form has lost its key",
    "It belongs to an earlier run of the console. Load the page again. Nothing was done.",
)
READ_ONLY = Refusal(403, "Read only", "This console was started with --read-only. Nothing was done.")
TOO_LARGE = Refusal(413, "Too large", "The form is larger than the API would take. Nothing was done.")
METHOD = Refusal(405, "Not possible", "The console knows GET and POST.")


class Gate:
    """Lets through what may pass. `refuse` makes the page for a refusal, `welcome` the one after signing in."""

    def __init__(
        self,
        app: ASGIApp,
        *,
        keys: Keys,
        hosts: frozenset[str],
        cookie: str,
        read_only: bool,
        refuse: Callable[[Refusal], Response],
        welcome: Callable[[str], Response],
    ) -> None:
        self._app = app
        self._keys = keys
        self._hosts = hosts
        self._cookie = cookie
        self._read_only = read_only
        self._refuse = refuse
        self._welcome = welcome

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] != "http":  # lifespan has nothing to start; there are no websockets
            return
        request = Request(scope, receive)
        try:
            answer = self._at_the_door(request) or await self._posted(request)
        except ClientDisconnect:
            return
        await (answer or self._app)(scope, receive, _with_headers(send))

    def _at_the_door(self, request: Request) -> Response | None:
        """An answer for whoever does not get in; None for the others."""
        hosts = request.headers.getlist("host")
        if len(hosts) != 1 or hosts[0].lower() not in self._hosts:
            return self._refuse(UNKNOWN_HOST)
        if request.method not in ("GET", "HEAD", "POST"):
            return self._refuse(METHOD)
        if request.url.path.startswith(STATIC) and request.method != "POST":
            return None  # our own files, the same for everybody
        if "token" in request.query_params and request.method == "GET":
            return self._sign_in(request)
        is_signed_in = any(self._keys.is_session(value) for value in _cookies(request, self._cookie))
        return None if is_signed_in else self._refuse(SIGN_IN)

    def _sign_in(self, request: Request) -> Response:
        if not self._keys.signs_in(request.query_params["token"]):
            return self._refuse(BAD_TOKEN)
        others = [(name, value) for name, value in request.query_params.multi_items() if name != "token"]
        # Two slashes at the start would name another server.
        path = "/" + request.url.path.lstrip("/\\")
        answer = self._welcome(path + (f"?{urlencode(others)}" if others else ""))
        answer.set_cookie(self._cookie, self._keys.session, path="/", httponly=True, samesite="strict")
        return answer

    async def _posted(self, request: Request) -> Response | None:
        """Lets a POST of our own pages through, with its fields in the scope."""
        if request.method != "POST":
            return None
        if not self._is_ours(request):
            return self._refuse(FOREIGN)
        body = await _body(request)
        if body is None:
            return self._refuse(TOO_LARGE)
        try:
            form = Fields.parse(body.decode("utf-8"))
        except (FieldError, UnicodeDecodeError):
            return self._refuse(Refusal(400, "Not a form", "The form cannot be read. Nothing was done."))
        if not self._keys.is_csrf(request.headers.get("x-csrf-token") or form.text("csrf")):
            return self._refuse(STALE)
        if self._read_only:
            return self._refuse(READ_ONLY)
        request.scope[FORM] = form
        return None

    def _is_ours(self, request: Request) -> bool:
        """Browsers send Origin with every POST; one that does not must say by other means that it is our page."""
        origins = request.headers.getlist("origin")
        if not origins:
            return request.headers.get("sec-fetch-site") == "same-origin"
        scheme, _, host = origins[0].partition("://")
        return len(origins) == 1 and scheme == "http" and host.lower() == request.headers["host"].lower()


def _cookies(request: Request, name: str) -> Iterator[str]:
    """Every value of the cookie. Whatever else a browser keeps for this host is passed over, well-formed or not: it may
    be that of another program on another port."""
    for header in request.headers.getlist("cookie"):
        for pair in header.split(";"):
            found, sign, value = pair.strip().partition("=")
            if sign and found == name:
                yield value


async def _body(request: Request) -> bytes | None:
    """The body, or None when it is too large; what is beyond the limit is not kept."""
    parts: list[bytes] = []
    size = 0
    async for part in request.stream():
        size += len(part)
        if size <= FORM_BYTES:
            parts.append(part)
    return b"".join(parts) if size <= FORM_BYTES else None


def _with_headers(send: Send) -> Send:
    async def sending(message: Message) -> None:
        if message["type"] == "http.response.start":
            headers = MutableHeaders(scope=message)
            for name, value in HEADERS.items():
                headers[name] = value
        await send(message)

    return sending
