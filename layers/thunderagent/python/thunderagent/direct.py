"""The `send` and `invoke` seams as signed requests over kept connections, without the SDK.

One request, one answer, errors translated, as over botocore (`transport`); a request is sent a second time only after
an answer that refused its signature, which proves that nothing was done. All other retries are the store's.
"""

from __future__ import annotations

import base64
import binascii
import json
import time
import zlib
from collections.abc import Mapping
from typing import TYPE_CHECKING, Any, Protocol

from thunderagent.aws_environment import ca_file, keys_in, origin_of, trace_header
from thunderagent.clock import Clock
from thunderagent.connections import Answer, Connections, NoAnswer
from thunderagent.errors import DispatchError, OutcomeUnknown
from thunderagent.sigv4 import Keys, Signer, quoted
from thunderagent.transport import translate

if TYPE_CHECKING:
    from thunderagent.store import Send
    from thunderagent.transport import Invoke

STALE_KEYS = frozenset({"ExpiredTokenException", "ExpiredToken", "UnrecognizedClientException", "InvalidClientTokenId"})
WRONG_TIME = frozenset({"RequestTimeTooSkewed", "RequestExpired", "InvalidSignatureException"})
SKEW_SECONDS = 60.0  # less is not why a signature was refused: AWS allows 15 minutes, 5 in places
_USER_AGENT = "ThunderAgent direct"


class KeyRing(Protocol):
    """Where keys come from. Thread-safe."""

    def keys(self) -> Keys:
        """The keys to sign with now. Raises NoAnswer when there are none."""
        ...

    def renewed(self, refused: Keys) -> bool:
        """Those keys were refused: look again. Whether `keys` are others now."""
        ...


class EnvironmentKeys:
    """The keys in the environment, read for each request: whoever changes them is heeded at once."""

    def keys(self) -> Keys:
        found = keys_in()
        if found is None:
            raise NoAnswer("NoCredentials", "the environment holds no AWS keys", sent=False)
        return found

    def renewed(self, refused: Keys) -> bool:
        return self.keys() != refused


class Endpoint:
    """Signed POSTs to one service. Thread-safe."""

    def __init__(self, url: str, *, service: str, region: str, keys: KeyRing, clock: Clock, **timeouts: float) -> None:
        tls, host, port, self._host = origin_of(url)
        self._connections = Connections(host, port, tls=tls, clock=clock, ca_file=ca_file(), **timeouts)
        self._signer = Signer(service=service, region=region)
        self._keys = keys
        self._clock = clock
        self._ahead_seconds = 0.0  # AWS's clock less this machine's, once a signature was refused for its time

    def post(self, path: str, headers: Mapping[str, str], body: bytes) -> Answer:
        """The answer, whatever its status. `headers` (names in lower case) are signed. Raises NoAnswer."""
        keys = self._keys.keys()
        answer = self._once(keys, path, headers, body)
        if answer.status in {400, 401, 403} and self._mends(answer, keys):
            answer = self._once(self._keys.keys(), path, headers, body)
        return answer

    def close(self) -> None:
        self._connections.close()

    def _once(self, keys: Keys, path: str, headers: Mapping[str, str], body: bytes) -> Answer:
        now = self._clock.now() + self._ahead_seconds
        signed = {**headers, "host": self._host, "x-amz-date": time.strftime("%Y%m%dT%H%M%SZ", time.gmtime(now))}
        if keys.session_token:
            signed["x-amz-security-token"] = keys.session_token
        signed = dict(sorted(signed.items()))
        authorization = self._signer.authorization(keys, path=path, headers=signed, body=body)
        trace = trace_header()
        lines = [
            f"POST {path} HTTP/1.1",
            *[f"{name}: {value}" for name, value in signed.items()],
            f"authorization: {authorization}",
            f"content-length: {len(body)}",
            f"accept-encoding: identity\r\nuser-agent: {_USER_AGENT}",
            f"x-amzn-trace-id: {trace}\r\n\r\n" if trace else "\r\n",
        ]
        return self._connections.exchange("\r\n".join(lines).encode("latin-1") + body)

    def _mends(self, refusal: Answer, keys: Keys) -> bool:
        """Whether the signature was at fault, and another one will do better."""
        code = code_of(refusal)
        if code in STALE_KEYS:
            return self._keys.renewed(keys)
        return code in WRONG_TIME and self._sets_clock(refusal)

    def _sets_clock(self, refusal: Answer) -> bool:
        from email.utils import parsedate_to_datetime  # only a machine whose clock is wrong pays for it

        try:
            there = parsedate_to_datetime(refusal.headers.get("date", "")).timestamp()
        except (TypeError, ValueError):
            return False
        ahead = there - self._clock.now()
        if abs(ahead - self._ahead_seconds) < SKEW_SECONDS:
            return False
        self._ahead_seconds = ahead
        return True


# ---- DynamoDB -------------------------------------------------------------------------------------------------------


def direct_send(endpoint: Endpoint) -> Send:
    """`send` over DynamoDB's JSON 1.0 protocol."""

    def send(operation: str, arguments: Mapping[str, Any]) -> Mapping[str, Any]:
        headers = {
            "content-type": "application/x-amz-json-1.0",
            "x-amz-target": f"DynamoDB_20120810.{operation}",
        }
        try:
            answer = endpoint.post("/", headers, encoded(arguments))
        except NoAnswer as error:
            raise OutcomeUnknown(operation, error.code, error.message) from error
        told = answer.headers.get("x-amz-crc32")
        if told is not None and told != str(zlib.crc32(answer.body)):
            raise OutcomeUnknown(operation, "ChecksumError", "the answer was damaged on its way")
        if answer.status >= 300:
            raise translate(operation, error_of(answer))
        try:
            return decoded(answer.body)
        except ValueError as error:
            raise OutcomeUnknown(operation, "UnreadableAnswer", str(error)) from error

    return send


def encoded(arguments: Mapping[str, Any]) -> bytes:
    """Arguments of a low-level client as the body of a request. Raises TypeError for what JSON cannot hold."""
    text = _ENCODER(arguments)
    if '"B":' in text or '"BS":' in text:
        text = _ENCODER(_binary_as_text(arguments))
    return text.encode("ascii")


def decoded(body: bytes) -> Mapping[str, Any]:
    """An answer as a low-level client gives it. Raises ValueError."""
    has_binary = b'"B"' in body or b'"BS"' in body
    answer = json.loads(body, object_hook=_text_as_binary if has_binary else None)
    if not isinstance(answer, dict):
        raise ValueError("the answer is no JSON object")
    return answer


def _base64(value: Any) -> str:
    if isinstance(value, str):  # botocore takes text for its UTF-8 bytes
        value = value.encode()
    if not isinstance(value, bytes | bytearray | memoryview):
        raise TypeError(f"{type(value).__name__} cannot be sent")
    return base64.b64encode(value).decode("ascii")


_ENCODER = json.JSONEncoder(separators=(",", ":"), check_circular=False, default=_base64).encode


def _binary_as_text(value: Any) -> Any:
    if isinstance(value, Mapping):
        return {name: _BINARY.get(name, _binary_as_text)(entry) for name, entry in value.items()}
    if isinstance(value, list | tuple):
        return [_binary_as_text(entry) for entry in value]
    return value


def _one_binary(value: Any) -> Any:
    """What stands under "B": binary, or the attribute of a map that has that name."""
    return _binary_as_text(value) if isinstance(value, Mapping) else _base64(value)


def _binaries(value: Any) -> Any:
    return _binary_as_text(value) if isinstance(value, Mapping) else [_base64(entry) for entry in value]


_BINARY = {"B": _one_binary, "BS": _binaries}


def _text_as_binary(found: dict[str, Any]) -> dict[str, Any]:
    if len(found) == 1:
        ((tag, value),) = found.items()
        if tag == "B" and isinstance(value, str):
            return {"B": _bytes(value)}
        if tag == "BS" and isinstance(value, list):
            return {"BS": [_bytes(entry) for entry in value]}
    return found


def _bytes(text: str) -> bytes:
    try:
        return base64.b64decode(text)
    except binascii.Error as error:  # a ValueError, but say so
        raise ValueError(f"no base64: {error}") from error


# ---- Lambda ---------------------------------------------------------------------------------------------------------


def direct_invoke(endpoint: Endpoint) -> Invoke:
    """`invoke(function, event)` asynchronously. Raises DispatchError; accepted proves nothing."""

    def invoke(function: str, event: bytes) -> None:
        path = f"/2015-03-31/functions/{quoted(function)}/invocations"
        try:
            answer = endpoint.post(path, {"x-amz-invocation-type": "Event"}, event)
        except NoAnswer as error:
            raise DispatchError(function, error.code, accepted=None if error.sent else False) from error
        if answer.status >= 300:
            raise DispatchError(function, code_of(answer), accepted=None if answer.status >= 500 else False)

    return invoke


# ---- refusals -------------------------------------------------------------------------------------------------------


def error_of(answer: Answer) -> dict[str, Any]:
    """A refusal in the form botocore gives it: its own fields, `Error`, `ResponseMetadata`."""
    fields = _fields(answer)
    error = {"Code": _code(answer, fields), "Message": str(fields.get("message") or fields.get("Message") or "")}
    return {**fields, "Error": error, "ResponseMetadata": {"HTTPStatusCode": answer.status}}


def code_of(answer: Answer) -> str:
    """The error's name without its namespace; the status where an answer names none."""
    return _code(answer, _fields(answer))


def _code(answer: Answer, fields: Mapping[str, Any]) -> str:
    named = answer.headers.get("x-amzn-errortype") or fields.get("__type") or fields.get("code") or fields.get("Code")
    return str(named or answer.status).partition(":")[0].rpartition("#")[2]


def _fields(answer: Answer) -> Mapping[str, Any]:
    try:
        return decoded(answer.body)
    except ValueError:
        return {}
