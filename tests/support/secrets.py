"""Looks for credentials in text, by those detectors of detect-secrets that know a form (entropy finds strangers)."""

from __future__ import annotations

import hashlib
import re
from collections.abc import Iterator

from detect_secrets.core.plugins.util import get_mapping_from_secret_type_to_class
from detect_secrets.plugins.base import RegexBasedDetector

LEFT_OUT = {
    *("Public IP (ipv4)", "Secret Keyword", "Basic Auth Credentials"),  # addresses, names of variables, URLs
    *(
        "Cloudant Credentials",
        "IBM Cloud IAM Key",
        "IBM COS HMAC Credentials",
        "SoftLayer Credentials",
    ),  # slow; not used here
}

EXTRA = {
    "Google key": re.compile(r"AIza[0-9A-Za-z_-]{35}"),
    "fine-grained GitHub token": re.compile(r"github_pat_[0-9A-Za-z_]{60,}"),
    "Anthropic key": re.compile(r"sk-ant-[0-9A-Za-z_-]{20,}"),
    "encrypted private key": re.compile(r"-----BEGIN ENCRYPTED PRIVATE KEY-----[\s+\\n]*[A-Za-z0-9+/]{16}"),
}


def patterns() -> Iterator[tuple[str, re.Pattern[str]]]:
    for kind, plugin in get_mapping_from_secret_type_to_class().items():
        if issubclass(plugin, RegexBasedDetector) and kind not in LEFT_OUT:
            for pattern in plugin().denylist:
                yield kind, pattern
    yield from EXTRA.items()


def secrets_in(text: str) -> set[tuple[str, str]]:
    """Kind and value of each credential in the text."""
    once = "\n".join(dict.fromkeys(text.splitlines()))
    return {(kind, found.group(0)) for kind, pattern in patterns() for found in pattern.finditer(once)}


def digest_of(value: str) -> str:
    """How an accepted value is named, so that naming it is no finding."""
    return hashlib.sha256(value.encode()).hexdigest()[:16]
