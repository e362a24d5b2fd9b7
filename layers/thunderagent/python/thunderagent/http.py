"""API Gateway events in, answers out. Both payload formats (1.0 and 2.0) become one `Request`; no business here."""

from __future__ import annotations

import base64
import binascii
import json
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any, Final
from urllib.parse import parse_qsl, unquote

from thunderagent import jsontext
from thunderagent.errors import (
    Backlogged,
    BodyMissing,
    Conflict,
    InvalidInput,
    MalformedItem,
    NotFound,
    OutcomeUnknown,
    RequestError,
    StoreThrottled,
    TooLarge,
    TransactionCancelled,
    Unprocessable,
)
from thunderagent.validation import operations

BODY_BYTES: Final = 2 * 1024 * 1024
EVENT_BYTES: Final = 6 * 1024 * 1024
"""Lambda's limit for a synchronous request, the event's escaped text included (AWS Lambda quotas)."""

ENVELOPE_BYTES: Final = 64 * 1024
"""Kept free in an event for all that is not the body: API Gateway lets headers and request line have about 20 KB."""

Event = Mapping[str, Any]


class UnsupportedMediaType(RequestError):
    """The body is, by its own header, not JSON (HTTP 415)."""

    code = "unsupported_media_type"


class Forbidden(RequestError):
    """The caller's token has no scope that allows the call (HTTP 403)."""

    code = "forbidden"


# ---- request --------------------------------------------------------------------------------------------------------


@dataclass(frozen=True)
class Request:
    """One call. `route` is its name in the OpenAPI document, or `$default` when the document has none for it.

    Header names are lower-case. `base_path` is the stage's prefix, for links. `scopes` is None for a caller whose
    rights are not scopes (IAM).
    """

    route: str
    method: str
    path: str
    path_parameters: Mapping[str, str] = field(default_factory=dict)
    query: Mapping[str, str] = field(default_factory=dict)
    headers: Mapping[str, str] = field(default_factory=dict)
    body: bytes = field(default=b"", repr=False)
    base_path: str = ""
    request_id: str = ""
    caller: str = "unknown"
    scopes: frozenset[str] | None = None

    def json(self) -> Any:
        """The body's value; None when there is no body. Raises InvalidInput, TooLarge or UnsupportedMediaType."""
        if not self.body:
            return None
        _check_media_type(self.headers, self.body)
        return jsontext.loads(self.body, max_depth=jsontext.MAX_BODY_DEPTH)

    def json_draft(self) -> jsontext.Draft:
        """The body's value, each part of it still to be checked. Raises like `json`."""
        _check_media_type(self.headers, self.body)
        return jsontext.loads_draft(self.body or b"null", max_depth=jsontext.MAX_BODY_DEPTH)


def decode(event: Event) -> Request:
    """The request an event carries. Raises InvalidInput when body or query cannot be read, TooLarge over 2 MiB."""
    reader = _Format2(event) if event.get("version") == "2.0" else _Format1(event)
    route, path_parameters = reader.route()
    return Request(
        route=route,
        method=reader.method,
        path=reader.path,
        path_parameters={name: unquote(text) for name, text in path_parameters.items()},
        query=reader.query(),
        headers=reader.headers(),
        body=_body(event),
        base_path=_stage_prefix(_context(event)),
        request_id=request_id_of(event),
        caller=reader.caller(),
        scopes=_scopes(reader.claims()),
    )


def request_id_of(event: Event) -> str:
    return str(_context(event).get("requestId") or "")


def _context(event: Event) -> Mapping[str, Any]:
    return event.get("requestContext") or {}


def _body(event: Event) -> bytes:
    text = event.get("body")
    if not text:
        return b""
    body = _from_base64(text) if event.get("isBase64Encoded") else text.encode("utf-8", "surrogatepass")
    if len(body) > BODY_BYTES:
        raise TooLarge(f"the body has {len(body)} bytes; at most {BODY_BYTES} are allowed")
    if _escaped_size(text) > EVENT_BYTES - ENVELOPE_BYTES:
        raise TooLarge(f"the body, escaped for Lambda, is larger than {EVENT_BYTES - ENVELOPE_BYTES} bytes")
    return body


def _from_base64(text: str) -> bytes:
    try:
        return base64.b64decode(text, validate=True)
    except (binascii.Error, ValueError):
        raise InvalidInput("the body is marked as base64 and is not") from None


def _escaped_size(text: str) -> int:
    """Bytes of the text as a JSON string, not counting quotes. Six per character is the most (a control character)."""
    if len(text) * 6 <= EVENT_BYTES - ENVELOPE_BYTES:
        return 0
    return len(json.dumps(text, ensure_ascii=False).encode("utf-8", "surrogatepass")) - 2


class _Format2:
    """Payload format 2.0 (HTTP API): one route key, headers lower-case, repeated values joined by commas."""

    def __init__(self, event: Event) -> None:
        self._event = event
        http = _context(event).get("http") or {}
        self.method = str(http.get("method") or "").upper()
        self.path = _without_stage(str(event.get("rawPath") or http.get("path") or "/"), _context(event))

    def route(self) -> tuple[str, Mapping[str, str]]:
        # `$default` stays `$default`, whatever its path looks like: each route has its own grants and scopes, and a
        # path that is matched a second time, by other rules, would get round them.
        key = str(self._event.get("routeKey") or "$default")
        return (key if key in operations() else "$default"), self._event.get("pathParameters") or {}

    def query(self) -> dict[str, str]:
        return _single(parse_qsl(self._event.get("rawQueryString") or "", keep_blank_values=True))

    def headers(self) -> dict[str, str]:
        return {name.lower(): str(value) for name, value in (self._event.get("headers") or {}).items()}

    def caller(self) -> str:
        iam = (_context(self._event).get("authorizer") or {}).get("iam") or {}
        return str(iam.get("userArn") or self.claims().get("sub") or "unknown")

    def claims(self) -> Mapping[str, Any]:
        # Not its `scopes`: whether those are the token's or the route's is documented nowhere.
        jwt = (_context(self._event).get("authorizer") or {}).get("jwt") or {}
        return jwt.get("claims") or {}


class _Format1:
    """Payload format 1.0 (REST API, or an HTTP API asked for it): a resource, headers as the sender spelled them."""

    def __init__(self, event: Event) -> None:
        self._event = event
        self.method = str(event.get("httpMethod") or "").upper()
        self.path = _without_stage(str(event.get("path") or "/"), _context(event))

    def route(self) -> tuple[str, Mapping[str, str]]:
        resource = str(self._event.get("resource") or "")
        if f"{self.method} {resource}" in operations():
            return f"{self.method} {resource}", self._event.get("pathParameters") or {}
        # One `{proxy+}` resource grants all calls or none, so matching the path here gets round nothing.
        return match(self.method, self.path) if resource.endswith("{proxy+}") else ("$default", {})

    def query(self) -> dict[str, str]:
        many = self._event.get("multiValueQueryStringParameters")
        one = self._event.get("queryStringParameters") or {}
        return _single([(name, text) for name, texts in many.items() for text in texts] if many else list(one.items()))

    def headers(self) -> dict[str, str]:
        joined = {
            name.lower(): ", ".join(map(str, values))
            for name, values in (self._event.get("multiValueHeaders") or {}).items()
        }
        single = self._event.get("headers") or {}
        return joined or {name.lower(): str(value) for name, value in single.items()}

    def caller(self) -> str:
        identity = _context(self._event).get("identity") or {}
        return str(identity.get("userArn") or self.claims().get("sub") or "unknown")

    def claims(self) -> Mapping[str, Any]:
        return (_context(self._event).get("authorizer") or {}).get("claims") or {}


def _stage_prefix(context: Mapping[str, Any]) -> str:
    stage = str(context.get("stage") or "$default")
    return "" if stage == "$default" else f"/{stage}"


def _without_stage(path: str, context: Mapping[str, Any]) -> str:
    prefix = _stage_prefix(context)
    return path.removeprefix(prefix) or "/" if path == prefix or path.startswith(f"{prefix}/") else path


def _single(pairs: list[tuple[str, str]]) -> dict[str, str]:
    query: dict[str, str] = {}
    for name, text in pairs:
        if name in query:
            raise InvalidInput(f"{name}: given more than once", path=name)
        query[name] = text
    return query


def _scopes(claims: Mapping[str, Any]) -> frozenset[str] | None:
    """The claims `scope` and `scp`, which issuers write as a text or as a list. The gateway passes a list on as
    `[a b]`."""
    if not claims:
        return None
    texts = [
        " ".join(map(str, claim)) if isinstance(claim, list) else str(claim)
        for claim in (claims.get("scope"), claims.get("scp"))
        if claim
    ]
    return frozenset(scope for text in texts for scope in text.strip("[]").split())


def match(method: str, path: str) -> tuple[str, dict[str, str]]:
    """The route of a path, and what its placeholders hold; `$default` when there is none."""
    given = path.split("/")
    for route in operations():
        route_method, _, template = route.partition(" ")
        parts = template.split("/")
        if route_method == method and len(parts) == len(given):
            pairs = list(zip(parts, given, strict=True))
            if all(part == text or (part.startswith("{") and text) for part, text in pairs):
                return route, {part[1:-1]: text for part, text in pairs if part.startswith("{")}
    return "$default", {}


_READ_AS_JSON = frozenset(
    {
        "application/json",
        "text/json",
        "text/plain",
        "application/octet-stream",
        "binary/octet-stream",
        # curl -d and urllib say this of any body when told nothing.
        "application/x-www-form-urlencoded",
    }
)


def _check_media_type(headers: Mapping[str, str], body: bytes) -> None:
    media_type, *parameters = (part.strip() for part in headers.get("content-type", "").lower().split(";"))
    if media_type and media_type not in _READ_AS_JSON and not media_type.endswith("+json"):
        raise UnsupportedMediaType(f"content-type {media_type[:64]!r}: the body must be application/json")
    for parameter in [] if body.isascii() else parameters:
        name, _, charset = parameter.partition("=")
        if name.strip() == "charset" and charset.strip("\"' ") not in ("utf-8", "utf8"):
            raise UnsupportedMediaType(f"{parameter[:64]!r}: JSON is UTF-8 (RFC 8259)")
    encoding = headers.get("content-encoding", "").strip().lower()
    if encoding not in {"", "identity"}:
        raise UnsupportedMediaType(f"content-encoding {encoding[:64]!r}: the body must come as it is")


# ---- answer ---------------------------------------------------------------------------------------------------------


@dataclass(frozen=True)
class Answer:
    """Status, JSON value and headers. `text` is JSON text that is written already."""

    status: int
    value: Any = None
    headers: Mapping[str, str] = field(default_factory=dict)
    text: str | None = None


def ok(value: Any) -> Answer:
    return Answer(200, value)


def ok_text(text: str) -> Answer:
    """JSON text stored as the caller sent it, byte for byte."""
    return Answer(200, text=text)


def created(value: Any, *, location: str) -> Answer:
    return Answer(201, value, {"location": location})


def no_content() -> Answer:
    return Answer(204)


def see_other(url: str) -> Answer:
    return Answer(303, headers={"location": url})


def encode(answer: Answer, request_id: str) -> dict[str, Any]:
    """The answer as Lambda returns it to API Gateway, in either payload format."""
    has_body = answer.status not in (204, 303)
    text = answer.text if answer.text is not None else jsontext.dumps(answer.value, max_depth=jsontext.MAX_BODY_DEPTH)
    return {
        "statusCode": answer.status,
        "headers": {
            **({"content-type": "application/json"} if has_body else {}),
            "cache-control": "no-store",
            "x-request-id": request_id,
            **answer.headers,
        },
        "body": text if has_body else "",
        "isBase64Encoded": False,
    }


STATUS_OF_ERROR: Final[Mapping[type[Exception], int]] = {
    InvalidInput: 400,
    Forbidden: 403,
    NotFound: 404,
    BodyMissing: 404,
    Conflict: 409,
    MalformedItem: 409,
    TooLarge: 413,
    UnsupportedMediaType: 415,
    Unprocessable: 422,
    Backlogged: 429,
    StoreThrottled: 503,
    OutcomeUnknown: 503,
    TransactionCancelled: 503,
}
"""The one place where the library's errors become HTTP. What is not here is a defect of ours: 500."""

CODE_OF_OTHERS: Final[Mapping[int, str]] = {
    404: "not_found",
    409: "malformed_task",
    500: "internal_error",
    503: "unavailable",
}
RETRY_AFTER_SECONDS: Final = 1


def status_of(error: Exception) -> int:
    return next((status for kind, status in STATUS_OF_ERROR.items() if isinstance(error, kind)), 500)


def answer_to(error: Exception, request_id: str) -> Answer:
    """The error in the contract's form. The text of an unexpected error is not told."""
    status = status_of(error)
    return Answer(status, {"error": detail_of(error), "requestId": request_id}, _retry_after(error, status))


def detail_of(error: Exception) -> dict[str, Any]:
    """`code`, `message`, and `path` or `status` where the error has one."""
    status = status_of(error)
    detail: dict[str, Any] = {"code": CODE_OF_OTHERS.get(status, "error"), "message": _public_message(error, status)}
    if isinstance(error, RequestError):
        detail["code"] = error.code
        detail |= {} if error.path is None else {"path": error.path}
    if isinstance(error, Conflict) and error.status is not None:
        detail["status"] = error.status
    return detail


def _public_message(error: Exception, status: int) -> str:
    if isinstance(error, RequestError):
        return error.message
    if status == 503:
        return "the store did not take it; repeating the call is safe with the same Idempotency-Key or task id"
    return str(error) if status in (404, 409) else "the call failed for a reason that is not yours; the log has it"


def _retry_after(error: Exception, status: int) -> dict[str, str]:
    if isinstance(error, Backlogged):
        return {"retry-after": str(error.retry_after_seconds)}
    return {"retry-after": str(RETRY_AFTER_SECONDS)} if status == 503 else {}
