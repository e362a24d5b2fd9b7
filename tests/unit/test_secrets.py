"""No credential is in any tracked file, nor anywhere in the history that is there."""

from __future__ import annotations

import subprocess
from pathlib import Path

import pytest

from tests.support.secrets import digest_of, secrets_in

ROOT = Path(__file__).resolve().parents[2]

ACCEPTED = {
    "1a5d44a2dca19669": "the key of AWS's own documentation",
    "5d8d7ad9468d2cc6": "the words `first secret token`, that once began like a JSON Web Token",
    "818107cbdadf2c40": "the same of a second one",
}
"""Digests of made-up credentials, and what they are for."""

MADE_UP = {
    "AWS": "AKIA" + "QWERTYUIOPASDFGH",
    "GitHub": "ghp_" + "a1B2" * 9,
    "key": "-----BEGIN " + "RSA PRIVATE KEY-----",
    "encrypted key": "-----BEGIN " + "ENCRYPTED PRIVATE KEY-----\n+MIIFHDBOBgkqhkiG9w0B",
    "JWT": "eyJhbGciOiJIUzI1NiJ9" + ".eyJzdWIiOiIxMjM0NTY3ODkwIn0." + "dozjgNryP4J3jVmNHl0w5N_XgL0n3I9PlFUP0THsR8U",
    "Slack": "xoxb-" + "123456789012-123456789012-abcdefghijklmnopqrstuvwx",
    "Stripe": "sk_live_" + "a1B2c3D4e5F6g7H8i9J0k1L2",
}


def git(*arguments: str) -> str:
    done = subprocess.run(["git", *arguments], cwd=ROOT, capture_output=True, check=False)
    if done.returncode:
        pytest.skip("this is no git checkout")
    return done.stdout.decode("utf-8", "replace")


def unaccepted(text: str) -> set[tuple[str, str, str]]:
    """Kind, digest and the first characters: a finding must not be printed whole."""
    return {(kind, digest_of(value), value[:6]) for kind, value in secrets_in(text) if digest_of(value) not in ACCEPTED}


@pytest.mark.parametrize("kind", MADE_UP)
def test_a_credential_would_be_found(kind: str) -> None:
    assert unaccepted(f"key = '{MADE_UP[kind]}'\n")


def test_no_tracked_file_holds_a_credential() -> None:
    texts = [
        (ROOT / name).read_text("utf-8", "replace")
        for name in git("ls-files", "-z").split("\0")
        if (ROOT / name).is_file()
    ]
    assert len(texts) > 300
    assert unaccepted("\n".join(texts)) == set()


def test_nothing_was_ever_committed_that_is_a_credential() -> None:
    assert unaccepted(git("log", "--all", "--no-color", "--no-ext-diff", "--unified=0", "-p")) == set()
