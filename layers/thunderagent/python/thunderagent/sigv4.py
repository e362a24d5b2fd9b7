"""AWS Signature Version 4 for requests with a body in hand and no query, its signing key derived once a day.

The algorithm is that of "Create a signed AWS API request" (IAM User Guide). Most of what botocore spends on a signature
goes into deriving the key and into general requests; these requests are all alike.
"""

from __future__ import annotations

import hashlib
import hmac
from collections.abc import Mapping
from dataclasses import dataclass, field

_UNRESERVED = frozenset(b"ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789-._~")
_ALGORITHM = "AWS4-HMAC-SHA256"


@dataclass(frozen=True)
class Keys:
    """One set of AWS credentials, at one moment."""

    access_key_id: str
    secret_access_key: str = field(repr=False)
    session_token: str | None = field(default=None, repr=False)


def quoted(text: str, *, safe: bytes = b"") -> str:
    """Percent-encoding as SigV4 demands it: everything but the unreserved characters of RFC 3986 and `safe`."""
    return "".join(
        chr(byte) if byte in _UNRESERVED or byte in safe else f"%{byte:02X}" for byte in text.encode("utf-8")
    )


class Signer:
    """Signs for one service of one region. Thread-safe: a derived key is replaced whole."""

    def __init__(self, *, service: str, region: str) -> None:
        self._service = service
        self._region = region
        self._derived: tuple[str, str, bytes] = ("", "", b"")

    def authorization(
        self, keys: Keys, *, path: str, headers: Mapping[str, str], body: bytes, method: str = "POST"
    ) -> str:
        """The value of the Authorization header.

        `headers` are all that are signed, with names in lower case and in alphabetical order, and values without space
        around; `host` and `x-amz-date` (`20261130T040000Z`) are among them. `path` is as sent, percent-encoded.
        """
        signed = ";".join(headers)
        listed = "".join([f"{name}:{value}\n" for name, value in headers.items()])
        digest = hashlib.sha256(body).hexdigest()
        # The path is encoded once more: so all services but S3 have it.
        encoded = path if path == "/" else quoted(path, safe=b"/")
        request = f"{method}\n{encoded}\n\n{listed}\n{signed}\n{digest}"
        stamp = headers["x-amz-date"]
        scope = f"{stamp[:8]}/{self._region}/{self._service}/aws4_request"
        to_sign = f"{_ALGORITHM}\n{stamp}\n{scope}\n{hashlib.sha256(request.encode()).hexdigest()}"
        signature = hmac.digest(self._key(keys.secret_access_key, stamp[:8]), to_sign.encode(), "sha256").hex()
        return f"{_ALGORITHM} Credential={keys.access_key_id}/{scope}, SignedHeaders={signed}, Signature={signature}"

    def _key(self, secret: str, day: str) -> bytes:
        of_secret, of_day, key = self._derived
        if of_secret == secret and of_day == day:
            return key
        key = f"AWS4{secret}".encode()
        for part in (day, self._region, self._service, "aws4_request"):
            key = hmac.digest(key, part.encode(), "sha256")
        self._derived = (secret, day, key)
        return key
