"""Signatures are those of botocore for the same request."""

from __future__ import annotations

from datetime import datetime
from unittest.mock import patch
from urllib.parse import quote

from botocore import auth
from botocore.awsrequest import AWSRequest
from botocore.credentials import Credentials
from hypothesis import given
from hypothesis import strategies as st

from thunderagent.sigv4 import Keys, Signer, quoted

WORDS = st.text("ABCxyz019+/=", min_size=1, max_size=40)
INSTANTS = st.datetimes(datetime(2000, 1, 1), datetime(2100, 1, 1))
NAMES = st.text(st.characters(codec="utf-8", exclude_categories=["Cs"]), min_size=1, max_size=30)


@given(
    key=WORDS,
    secret=WORDS,
    token=st.none() | WORDS,
    at=INSTANTS,
    region=st.sampled_from(["us-east-1", "eu-central-1", "cn-north-1"]),
    service=st.sampled_from(["dynamodb", "lambda"]),
    function=st.none() | NAMES,
    target=WORDS,
    body=st.binary(max_size=300),
)
def test_a_signature_is_that_of_botocore(
    key: str,
    secret: str,
    token: str | None,
    at: datetime,
    region: str,
    service: str,
    function: str | None,
    target: str,
    body: bytes,
) -> None:
    path = "/" if function is None else f"/2015-03-31/functions/{quoted(function)}/invocations"
    request = AWSRequest("POST", f"https://{service}.example.com:8443{path}", {"X-Amz-Target": target}, body)
    with patch.object(auth, "get_current_datetime", lambda: at):
        auth.SigV4Auth(Credentials(key, secret, token), service, region).add_auth(request)
    headers = {
        "host": f"{service}.example.com:8443",
        "x-amz-date": at.strftime("%Y%m%dT%H%M%SZ"),
        **({"x-amz-security-token": token} if token else {}),
        "x-amz-target": target,
    }
    signer = Signer(service=service, region=region)
    for _ in range(2):  # the second time with the key it has derived
        own = signer.authorization(Keys(key, secret, token), path=path, headers=headers, body=body)
        assert own == request.headers["Authorization"]


def test_the_key_follows_the_day_and_the_secret() -> None:
    def sign(signer: Signer, secret: str, day: str) -> str:
        headers = {"host": "h", "x-amz-date": f"{day}T000000Z"}
        return signer.authorization(Keys("k", secret), path="/", headers=headers, body=b"")

    kept = Signer(service="dynamodb", region="us-east-1")
    for secret, day in [("a", "20261130"), ("a", "20261201"), ("b", "20261201"), ("a", "20261130")]:
        assert sign(kept, secret, day) == sign(Signer(service="dynamodb", region="us-east-1"), secret, day)


@given(NAMES)
def test_quoting_is_that_of_the_standard_library(text: str) -> None:
    assert quoted(text) == quote(text, safe="-_.~")
    assert quoted(text, safe=b"/") == quote(text, safe="/-_.~")


def test_secrets_are_not_shown() -> None:
    assert "hidden" not in repr(Keys("AKID", "hidden", "hidden too"))
