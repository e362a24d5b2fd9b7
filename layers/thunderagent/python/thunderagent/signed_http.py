"""Signed HTTP calls to the API: SigV4, kept connections, and retries that wait as they are told.

The only reader of the API's and the gateway's error forms on the client's side. botocore is imported when a connection
is built, not with this module.
"""

from __future__ import annotations

import json
import re
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Final, Protocol
from urllib.parse import urlencode, urlsplit

from thunderagent.clock import Clock, Randomness
from thunderagent.errors import ConfigurationError, ThunderAgentError

if TYPE_CHECKING:
    from botocore.credentials import Credentials

RETRIED_STATUSES: Final = frozenset({429, 500, 502, 503, 504})
BACKOFF_BASE_SECONDS, BACKOFF_CAP_SECONDS = 0.2, 20.0
CONNECT_SECONDS, READ_SECONDS = 5, 35  # API Gateway itself gives up after 30
CONNECTIONS_KEPT = 32

_AWS_HOST = re.compile(r"\.execute-api\.([a-z0-9-]+)\.amazonaws\.com(\.cn)?$")


class ApiError(ThunderAgentError):
    """The API, or the gateway before it, refused a call. Programs decide by `code` or `status`.

    `attempts` says how often the call was sent; `path` names the offending value, `task_status` the actual state of
    the task, where there is one.
    """

    def __init__(
        self,
        status: int,
        code: str,
        message: str,
        *,
        path: str | None = None,
        task_status: str | None = None,
        request_id: str | None = None,
        attempts: int = 1,
    ) -> None:
        super().__init__(f"{status} {code}: {message}" if status else f"{code}: {message}")
        self.status = status
        self.code = code
        self.message = message
        self.path = path
        self.task_status = task_status
        self.request_id = request_id
        self.attempts = attempts


class NotFoundError(ApiError):
    """404: there is no such task, queue or schedule."""


class ConflictError(ApiError):
    """409: the stored state does not allow it."""


class Unreachable(ApiError):
    """No answer came, after every attempt. `status` is 0: the last attempt may or may not have had its effect."""


@dataclass(frozen=True)
class Reply:
    """An answer below 400, with header names in lower case."""

    status: int
    headers: Mapping[str, str]
    content: bytes
    attempts: int

    def json(self) -> Any:
        return json.loads(self.content) if self.content else None


class Exchange(Protocol):
    """One request, one answer: (status, headers, content). Raises ConnectionError when there is none."""

    def __call__(
        self, method: str, url: str, headers: Mapping[str, str], body: bytes
    ) -> tuple[int, Mapping[str, str], bytes]: ...


class SignedHttp:
    """Calls below one base URL. Thread-safe."""

    def __init__(
        self, base_url: str, *, exchange: Exchange, clock: Clock, randomness: Randomness, attempts: int = 6
    ) -> None:
        self._base_url = base_url.rstrip("/")
        self._exchange = exchange
        self._clock = clock
        self._randomness = randomness
        self._attempts = attempts

    def call(
        self,
        method: str,
        path: str,
        *,
        query: Mapping[str, Any] | None = None,
        body: bytes = b"",
        headers: Mapping[str, str] | None = None,
    ) -> Reply:
        """Send until an answer is final: throttled, failing and lost calls are repeated, so a call must be repeatable.

        Raises ApiError for the last refusal, Unreachable when the last attempt had no answer.
        """
        given = {name: value for name, value in (query or {}).items() if value is not None}
        url = self._base_url + path + (f"?{urlencode(given)}" if given else "")
        all_headers = {"accept": "application/json", **({"content-type": "application/json"} if body else {})}
        all_headers |= headers or {}
        for attempt in range(1, self._attempts + 1):
            outcome = self._once(method, url, all_headers, body, attempt)
            if isinstance(outcome, Reply):
                return outcome
            error, asked_seconds = outcome
            if attempt == self._attempts or not (error.status in RETRIED_STATUSES or isinstance(error, Unreachable)):
                raise error
            self._clock.sleep(self._pause(attempt, asked_seconds))
        raise AssertionError("attempts is at least 1")

    def fetch(self, url: str) -> bytes:
        """What an unsigned URL of our own API's answer holds (a presigned S3 URL)."""
        status, _, content = self._exchange("GET", url, {}, b"")
        if status >= 400:
            raise ApiError(status, "body_unavailable", "the stored body could not be read from its URL")
        return content

    def _once(
        self, method: str, url: str, headers: Mapping[str, str], body: bytes, attempt: int
    ) -> Reply | tuple[ApiError, float | None]:
        try:
            status, answered, content = self._exchange(method, url, headers, body)
        except ConnectionError as error:
            return Unreachable(0, "unreachable", str(error), attempts=attempt), None
        lower = {name.lower(): value for name, value in answered.items()}
        if status < 400:
            return Reply(status, lower, content, attempt)
        return error_of(status, lower, content, attempts=attempt), _seconds(lower.get("retry-after"))

    def _pause(self, attempt: int, asked_seconds: float | None) -> float:
        """Full jitter; what the server asked for is the least, and jitter on top keeps its callers apart."""
        cap = min(BACKOFF_CAP_SECONDS, BACKOFF_BASE_SECONDS * 2.0 ** min(attempt, 20))
        jitter = self._randomness.uniform(0, cap)
        return jitter if asked_seconds is None else min(asked_seconds, 60.0) + jitter / 2


def _seconds(text: str | None) -> float | None:
    return float(text) if text is not None and re.fullmatch(r"[0-9]{1,6}", text) else None


_GATEWAY_CODES = {401: "unauthorized", 403: "forbidden", 404: "not_found", 413: "too_large", 429: "throttled"}


def error_of(status: int, headers: Mapping[str, str], content: bytes, *, attempts: int) -> ApiError:
    """Our own error form, the gateway's `{"message"}`, or neither."""
    try:
        body = json.loads(content)
    except ValueError:
        body = None
    fields = body if isinstance(body, dict) else {}
    detail = fields.get("error") if isinstance(fields.get("error"), dict) else None
    if detail is None:
        code = _GATEWAY_CODES.get(status, "unavailable" if status >= 500 else "refused")
        text = fields.get("message") or fields.get("Message") or content[:200].decode("utf-8", "replace")
        detail = {"code": code, "message": str(text)}
    kind = {404: NotFoundError, 409: ConflictError}.get(status, ApiError)
    return kind(
        status,
        str(detail.get("code")),
        str(detail.get("message")),
        path=detail.get("path"),
        task_status=detail.get("status"),
        request_id=fields.get("requestId") or headers.get("apigw-requestid") or headers.get("x-amzn-requestid"),
        attempts=attempts,
    )


# ---- over botocore --------------------------------------------------------------------------------------------------


def region_of(api_url: str) -> str | None:
    """The region an API Gateway host name tells; None for any other host."""
    match = _AWS_HOST.search(urlsplit(api_url).hostname or "")
    return match[1] if match else None


def sigv4_exchange(credentials: Credentials, region: str) -> Exchange:
    """Requests signed for `execute-api`. URLs of other hosts than the API must not come here with headers of ours."""
    from botocore.auth import SigV4Auth
    from botocore.awsrequest import AWSRequest

    transport = _transport()

    def exchange(
        method: str, url: str, headers: Mapping[str, str], body: bytes
    ) -> tuple[int, Mapping[str, str], bytes]:
        request = AWSRequest(method=method, url=url, headers=dict(headers), data=body)
        if headers:
            # Frozen for each request: session credentials are renewed while a client lives.
            SigV4Auth(credentials.get_frozen_credentials(), "execute-api", region).add_auth(request)
        return transport(request)

    return exchange


_TOKEN = re.compile(r"[A-Za-z0-9._~+/-]+=*")


def bearer_exchange(token: Callable[[], str]) -> Exchange:
    """Requests with a JWT, for an API deployed with a JWT authorizer. `token` is asked before each request.

    Space around it, as the end of a file's line, is no part of it. URLs of other hosts must come here without headers.

    Raises ConfigurationError for what no header can carry as a token (RFC 6750), without saying what it was: a refusal
    further down would quote it.
    """
    from botocore.awsrequest import AWSRequest

    transport = _transport()

    def exchange(
        method: str, url: str, headers: Mapping[str, str], body: bytes
    ) -> tuple[int, Mapping[str, str], bytes]:
        signed = {**headers, "authorization": f"Bearer {_checked(token())}"} if headers else {}
        return transport(AWSRequest(method=method, url=url, headers=signed, data=body))

    return exchange


def _checked(token: str) -> str:
    text = token.strip() if isinstance(token, str) else ""
    if not _TOKEN.fullmatch(text):
        raise ConfigurationError("bearer_token gives no token: letters, digits and -._~+/ are expected")
    return text


def _transport() -> Callable[[Any], tuple[int, Mapping[str, str], bytes]]:
    """botocore's own urllib3 pool: certificates, proxies and kept connections as the AWS SDK has them."""
    # botocore has two families: one for what failed on an open connection, one for what could not be opened.
    from botocore.exceptions import ConnectionError as NotConnected
    from botocore.exceptions import HTTPClientError
    from botocore.httpsession import URLLib3Session
    from botocore.utils import get_environ_proxies

    sessions: dict[str, URLLib3Session] = {}

    def send(request: Any) -> tuple[int, Mapping[str, str], bytes]:
        origin = "{0.scheme}://{0.netloc}".format(urlsplit(request.url))
        if origin not in sessions:
            sessions[origin] = URLLib3Session(
                timeout=(CONNECT_SECONDS, READ_SECONDS),  # type: ignore[arg-type]  # the stub knows one number only
                max_pool_connections=CONNECTIONS_KEPT,
                proxies=get_environ_proxies(request.url),
            )
        try:
            response = sessions[origin].send(request.prepare())
            return response.status_code, dict(response.headers), response.content
        except (HTTPClientError, NotConnected) as error:
            raise ConnectionError(str(error)) from error

    return send
