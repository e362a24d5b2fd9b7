"""What the environment says of AWS itself: keys, endpoints, the trace, and what only the whole SDK knows how to heed.

Beside `settings` the only reader of `os.environ`. The names and their order are those of the AWS SDKs ("AWS SDKs and
Tools Reference Guide"), so that both transports reach the same place as the same user.
"""

from __future__ import annotations

import os
import re
from collections.abc import Mapping

from thunderagent.sigv4 import Keys, quoted

_HOST = re.compile(r"(https?)://([A-Za-z0-9.-]+|\[[0-9A-Fa-f:.]+\])(?::([0-9]{1,5}))?/?")
_SUFFIXES = {"cn": "amazonaws.com.cn"} | dict.fromkeys(
    ("us", "eu", "ap", "sa", "ca", "af", "me", "il", "mx"), "amazonaws.com"
)
_REGION = re.compile(r"([a-z]{2})(?:-gov)?-[a-z]+-[0-9]")  # not the isolated partitions (us-iso-…, eu-isoe-…)
_PROXIES = ("HTTPS_PROXY", "https_proxy", "HTTP_PROXY", "http_proxy", "ALL_PROXY", "all_proxy")


def keys_in(environ: Mapping[str, str] | None = None) -> Keys | None:
    """The credentials the environment holds now, or None. In a Lambda function they are there for its whole life."""
    source = os.environ if environ is None else environ
    key, secret = source.get("AWS_ACCESS_KEY_ID"), source.get("AWS_SECRET_ACCESS_KEY")
    if not key or not secret:
        return None
    return Keys(key, secret, source.get("AWS_SECURITY_TOKEN") or source.get("AWS_SESSION_TOKEN") or None)


def in_function(environ: Mapping[str, str] | None = None) -> bool:
    """Whether this process is a Lambda function."""
    return "AWS_LAMBDA_FUNCTION_NAME" in (os.environ if environ is None else environ)


def trace_header() -> str | None:
    """`X-Amzn-Trace-Id` of the invocation under way: what Lambda tells runaway loops by, and X-Ray its segments."""
    trace = os.environ.get("_X_AMZN_TRACE_ID")
    if not trace or "AWS_LAMBDA_FUNCTION_NAME" not in os.environ:
        return None
    return quoted(trace, safe=b"-=;:+&[]{}\"',")


def ca_file(environ: Mapping[str, str] | None = None) -> str | None:
    """The file of certificate authorities to trust; None: the system's."""
    source = os.environ if environ is None else environ
    return source.get("AWS_CA_BUNDLE") or source.get("REQUESTS_CA_BUNDLE") or None


def endpoint_of(service: str, region: str, environ: Mapping[str, str] | None = None) -> str:
    """Where a service is: what the environment says, or the region's own endpoint."""
    source = os.environ if environ is None else environ
    if (source.get("AWS_IGNORE_CONFIGURED_ENDPOINT_URLS") or "").lower() != "true":
        given = source.get(f"AWS_ENDPOINT_URL_{service.upper()}") or source.get("AWS_ENDPOINT_URL")
        if given:
            return given
    found = _REGION.fullmatch(region)
    suffix = _SUFFIXES.get(found[1] if found else "", "amazonaws.com")
    return f"https://{service}.{region}.{suffix}"


def origin_of(endpoint: str) -> tuple[bool, str, int, str]:
    """Whether an endpoint is TLS, its host, port and Host header. Raises ValueError when it has more to it (a path)."""
    found = _HOST.fullmatch(endpoint)
    if found is None:
        raise ValueError(f"{endpoint!r} is not of the form https://host:port")
    tls, host, usual = found[1] == "https", found[2], 443 if found[1] == "https" else 80
    port = int(found[3] or usual)
    return tls, host.strip("[]"), port, host if port == usual else f"{host}:{port}"


def needs_the_sdk(region: str, environ: Mapping[str, str] | None = None) -> str | None:
    """Why only botocore can reach AWS as this environment wants it, or None when signed requests will do."""
    source = os.environ if environ is None else environ
    for name in ("AWS_USE_FIPS_ENDPOINT", "AWS_USE_DUALSTACK_ENDPOINT"):
        if (source.get(name) or "").lower() == "true":
            return f"{name} is set"
    endpoints = [endpoint_of(service, region, source) for service in ("dynamodb", "lambda")]
    for endpoint in endpoints:
        try:
            tls, *_ = origin_of(endpoint)
        except ValueError as problem:
            return str(problem)
        if tls and (proxy := next((name for name in _PROXIES if source.get(name)), None)):
            return f"{proxy} is set"
        if endpoint.endswith("amazonaws.com") and not ((found := _REGION.fullmatch(region)) and found[1] in _SUFFIXES):
            return f"the endpoint of region {region!r} is not known"
    return None
